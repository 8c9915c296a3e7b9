// SPDX-License-Identifier: Apache-2.0
// A rank, mostly 1, is killed while it holds a lock of a container at the rank that the second argument
// names; threads of the other ranks work on the container meanwhile. The first argument says which lock.
#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/kasane.hpp>
#include <map>
#include <string>
#include <vector>

#include "multi/containers/on_ranks.h"

namespace {

/// The thread may have moved to another rank, and may while it prints: the last rank that it says dies.
[[noreturn]] void die() {
  for (;;) {
    const std::uint32_t rank = kasane::rank();
    std::printf("dies at rank %u\n", rank);
    std::fflush(stdout);
    if (kasane::rank() == rank) ::raise(SIGKILL);
  }
}

// Of rank 1; variables are the same on all ranks.
volatile bool g_in_a_split = false;
volatile std::uint64_t g_inserted = 0;

/// A split asks for hashes of keys other than the one that is inserted.
struct Hash {
  std::uint64_t operator()(std::uint64_t key) const {
    if (g_in_a_split && kasane::rank() == 1 && key != g_inserted) die();
    return kasane::detail::containers::KeyHash<std::uint64_t>{}(key);
  }
};
using Map = kasane::unordered_map<std::uint64_t, std::uint64_t, Hash>;

/// The lock of a header is held during f.
struct Deque : kasane::deque<std::uint64_t>::handle {
  explicit Deque(const kasane::deque<std::uint64_t>::handle& d) : kasane::deque<std::uint64_t>::handle(d) {}
  template <class F>
  void locked(const F& f) const {
    const Where w = where(0);
    kasane::detail::containers::change(w.part, w.rank, [&f](auto, auto&) {
      f();
      return kasane::detail::containers::Made::no;
    });
  }
};

/// first() at rank 1, which dies in it; others() again and again at all others.
void at_ranks(const std::function<void()>& first, const std::function<void()>& others) {
  std::vector<kasane::thread> threads;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
    threads.emplace_back(kasane::at{r}, [&first, &others, r] {
      kasane::test::go_to(r);
      if (r == 1) first();
      for (;;) others();
    });
  for (auto& t : threads) t.join();
}

void in_a_bucket(std::uint32_t owner) {
  const Map map({owner});
  map.insert(1, 1);
  at_ranks([&] { map.visit(1, [](std::uint64_t&) { die(); }); }, [&] { map.add(1, 1); });
}

void in_a_split(std::uint32_t owner) {
  const Map map({owner});
  at_ranks(
      [&] {
        g_in_a_split = true;
        for (std::uint64_t k = 0;; ++k) {
          g_inserted = k;
          map.insert(k, k);
        }
      },
      [&] {
        for (std::uint64_t k = 1000; k < 5000; ++k) map.insert(k, 1);
        for (std::uint64_t k = 1000; k < 5000; ++k) map.erase(k);
      });
}

void in_a_deque(std::uint32_t owner) {
  const kasane::deque<std::uint64_t> d(owner);
  at_ranks([&] { Deque(d).locked(die); }, [&] { d.push_back(1), d.try_pop_front(); });
}

void in_a_list(std::uint32_t owner) {
  kasane::list<std::uint64_t> l(owner);
  for (std::uint64_t i = 0; i < 10; ++i) l.push_back(i, static_cast<std::uint32_t>(i) % kasane::ranks());
  const auto until_it_is_free = [](const auto& f) {
    try {
      f();
    } catch (const kasane::error&) {  // EBUSY: it is being sorted, or to be
    }
  };
  at_ranks(
      [&] {
        for (;;) until_it_is_free([&] { l.sort([](std::uint64_t, std::uint64_t) -> bool { die(); }); });
      },
      [&] { until_it_is_free([&] { l.push_back(1), l.pop_front(); }); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(std::uint32_t)> deeds{
      {"bucket", in_a_bucket}, {"split", in_a_split}, {"deque", in_a_deque}, {"list", in_a_list}};
  if (argc != 3) return 99;
  const auto owner = static_cast<std::uint32_t>(std::atoi(argv[2]));
  kasane::run([&] { deeds.at(argv[1])(owner); });
  return 98;
}
