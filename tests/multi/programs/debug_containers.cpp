// SPDX-License-Identifier: Apache-2.0
// Compiled with -D_GLIBCXX_DEBUG: threads of all ranks make, copy and drop iterators of the same containers.
// libstdc++ lists them with the container, under a lock.
//   debug_containers [CASE…]
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cases.h"

#ifndef _GLIBCXX_DEBUG
#error "-D_GLIBCXX_DEBUG"
#endif

using cases::elsewhere;
using cases::on_ranks;

namespace {

constexpr int kThreads = 4, kSize = 8;

/// A turn takes some 100 µs over a network.
int rounds() {
  const char* const transport = std::getenv("KASANE_TRANSPORT");
  return transport != nullptr && std::strcmp(transport, "ucx") == 0 ? 30 : 600;
}

/// All threads read one container: its lists are changed all the time.
template <class Container, class Sum>
void read_by_all(const Container& made, long expected, const Sum& sum) {
  const auto in_heap = std::make_unique<Container>(made);
  Container& container = *in_heap;
  std::barrier<> all(kThreads);
  std::atomic<long> wrong{0};
  on_ranks(kThreads, [&](int) {
    all.arrive_and_wait();
    for (int round = rounds(); round > 0; --round) wrong += sum(container) != expected;
  });
  EXPECT_EQ(wrong.load(), 0);
}

/// All threads list an iterator between two barriers, and drop it between the next two.
void in_turns() {
  kasane::run([] {
    const auto list = std::make_unique<std::vector<int>>(kSize, 3);
    std::barrier<> all(kThreads);
    on_ranks(kThreads, [&](int) {
      for (int round = 0; round < 100; ++round) {
        all.arrive_and_wait();
        auto it = list->begin();
        all.arrive_and_wait();
        EXPECT_EQ(*it, 3);
      }
    });
    EXPECT(list->_M_iterators == nullptr && list->_M_const_iterators == nullptr);
  });
}

void of_sequences() {
  kasane::run([] {
    const auto sum = [](auto& c) {
      long s = 0;
      for (auto it = c.begin(); it != c.end(); ++it) s += *it;
      return s;
    };
    read_by_all(std::vector<int>(kSize, 3), 3 * kSize, sum);
    read_by_all(std::list<int>(kSize, 3), 3 * kSize, sum);
    read_by_all(std::basic_string<char>(kSize, '\3'), 3 * kSize, sum);
  });
}

void of_maps() {
  kasane::run([] {
    std::map<int, int> map;
    std::unordered_map<int, int> unordered;
    for (int i = 0; i < kSize; ++i) map[i] = unordered[i] = 3;
    const auto sum = [](auto& c) {
      long s = 0;
      for (int i = 0; i < kSize; ++i) s += c.find(i) != c.end() ? c.find(i)->second : 0;
      return s;
    };
    read_by_all(map, 3 * kSize, sum);
    read_by_all(unordered, 3 * kSize, sum);
  });
}

/// Iterators of one bucket, which have lists of their own.
void of_buckets() {
  kasane::run([] {
    std::unordered_set<int> set;
    for (int i = 0; i < kSize; ++i) set.insert(i);
    read_by_all(set, kSize, [](auto& c) {
      long n = 0;
      for (std::size_t b = 0; b < c.bucket_count(); ++b)
        for (auto it = c.begin(b); it != c.end(b); ++it) ++n;
      return n;
    });
  });
}

/// An iterator is told on another rank that its element, or its container, has gone.
void invalidated() {
  kasane::run([] {
    std::list<int> here(kSize, 1), there(kSize, 2);
    auto first = here.begin(), last = std::prev(here.end());
    elsewhere([&] { here.pop_front(); });
    EXPECT(first._M_singular() && !last._M_singular());
    elsewhere([&] { here.swap(there); });
    EXPECT(last._M_attached_to(&there) && *last == 1);
    auto list = std::make_unique<std::vector<int>>(kSize, 3);
    auto of_list = list->begin();
    elsewhere([&] { list.reset(); });
    EXPECT(of_list._M_singular());
  });
}

constexpr cases::Case kAll[] = {{"in_turns", in_turns},
                                {"of_sequences", of_sequences},
                                {"of_maps", of_maps},
                                {"of_buckets", of_buckets},
                                {"invalidated", invalidated}};

}  // namespace

int main(int argc, char** argv) { return cases::main_of(argc, argv, kAll); }
