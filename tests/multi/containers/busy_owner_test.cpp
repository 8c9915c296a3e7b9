// SPDX-License-Identifier: Apache-2.0
// The only worker of the last rank computes, and calls nothing of Kasane: all operations on containers that
// lie there go on from rank 0, but for those that run at the owner (for_each, reduce, visit_all, posts).
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <vector>

#include "multi/containers/on_ranks.h"

namespace of_busy_owner {
namespace {

using kasane::test::go_to;

/// What the rank that computes has of the test, in its memory, which plain loads and stores reach.
struct Flags {
  std::uint64_t begun, end, turns;
};

/// f(rank) at rank 0 while the last rank computes. Returns what is wrong.
std::uint64_t beside_a_busy_rank(const std::function<std::uint64_t(std::uint32_t)>& f) {
  return kasane::run([&f] {
    const std::uint32_t last = kasane::ranks() - 1;
    auto* const flags =
        static_cast<Flags*>(kasane::allocate_zeroed(sizeof(Flags), 64, kasane::placement::on(last).fixed()));
    kasane::thread computes(kasane::at{last}, [flags, last] {
      go_to(last);
      auto* const here = static_cast<volatile Flags*>(flags);
      here->begun = 1;
      while (here->end == 0) here->turns = here->turns + 1;
      here->begun = 2;
    });
    go_to(0);
    const kasane::global_ptr<std::uint64_t> begun(&flags->begun), end(&flags->end);
    while (kasane::get(begun) != 1) kasane::this_thread::yield();
    std::uint64_t w = f(last);
    w += kasane::get(begun) != 1;  // it has computed all the time
    kasane::put(end, 1);
    computes.join();
    kasane::deallocate(flags);
    return w;
  });
}

struct BusyOwner : testing::Test {
  void SetUp() override {
    if (kasane::ranks() == 1) GTEST_SKIP() << "the owner is this rank";
  }
};

TEST_F(BusyOwner, Map) {
  EXPECT_EQ(beside_a_busy_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::unordered_map<std::uint64_t, std::uint64_t> map({rank}), other({rank});
              std::vector<std::uint64_t> keys;
              for (std::uint64_t k = 0; k < 500; ++k) w += !map.insert(k, k), keys.push_back(k + 300);
              std::uint64_t fresh = 0;  // keys 300 … 799, of which 200 are there
              for (const bool b : map.insert_many(keys, keys)) fresh += b;
              w += fresh != 300;
              for (const auto& x : map.find_many(keys)) w += !x;
              for (std::uint64_t k = 0; k < 800; ++k) w += map.find(k) != k || !map.contains(k);
              std::uint64_t is = 7;
              w += map.add(5, 2) != 5 || !map.compare_exchange(5, is, 8) || map.insert_or_assign(5, 9);
              w += !map.visit(5, [](std::uint64_t& v) { ++v; }) ||
                   !map.visit_or_insert(1000, 1, [](std::uint64_t& v) { ++v; }) || map.find(1000) != 2u;
              w += !map.erase(5) || map.size() != 800 || map.empty();
              std::uint64_t n = 0;
              for (const auto& [k, v] : map) n += k == v;
              map.swap(other);
              other.clear();
              kasane::unordered_set<std::uint64_t> set({rank});
              w += !set.insert(1) || set.insert(1) || !set.contains(1) || !set.erase(1);
              return w + (n != 799) + !map.empty() + !other.empty();
            }),
            0u);
}

TEST_F(BusyOwner, Vector) {
  EXPECT_EQ(beside_a_busy_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::vector<std::uint64_t> v({rank}), other({rank});
              for (std::uint64_t i = 0; i < 1000; ++i) w += v.push_back(i) != i;
              w += v.append(std::vector<std::uint64_t>(3000, 1)) != 1000;  // it grows
              v.put(5, 6);
              w += v.get(5) != 6 || v.fetch_add(5, 1) != 6 || v.size() != 4000 || v.pop_back() != 1;
              std::uint64_t sum = 0;
              for (const std::uint64_t x : v) sum += x;
              w += sum != 999 * 500 + 2 + 2999;
              v.insert(0, 4);
              v.erase(1, 2);
              w += v.get(0) != 4 || v.get(1) != 2;
              v.resize(10);
              v.swap(other);
              const auto copy = other.duplicate(rank);
              w += copy.size() != 10 || !v.empty();
              other.assign(std::array<std::uint64_t, 2>{1, 2});
              w += other.size() != 2;
              other.clear();
              return w + !other.empty();
            }),
            0u);
}

TEST_F(BusyOwner, Deque) {
  EXPECT_EQ(beside_a_busy_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::deque<std::uint64_t> d(rank), other(rank);
              for (std::uint64_t i = 0; i < 1000; ++i) d.push_back(i), d.push_front(i);
              d.push_back(std::vector<std::uint64_t>(3000, 1));
              std::vector<std::uint64_t> some(10);
              w += d.try_pop_front() != 999u || d.try_pop_back() != 1u || d.try_pop_front(some) != 10 ||
                   d.try_pop_back(some) != 10 || d.size() != 5000 - 22 || d.rank() != rank;
              d.swap(other);
              other.clear();
              return w + !d.empty() + !other.empty();
            }),
            0u);
}

TEST_F(BusyOwner, List) {
  EXPECT_EQ(beside_a_busy_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::list<std::uint64_t> l(rank), other(rank);
              for (std::uint64_t i = 0; i < 300; ++i) l.push_back(i), l.push_front(i, 0);
              const auto it = l.append(std::array<std::uint64_t, 3>{5, 4, 3}, rank);
              l.insert(it, 7, rank);
              w += *it != 5 || it.rank() != rank || *l.erase(it) != 4 || l.size() != 603;
              w += l.pop_front() != 299u || l.pop_back() != 3u;
              l.sort();
              std::uint64_t before = 0, n = 0;
              for (const std::uint64_t x : l) w += x < before, before = x, ++n;
              w += n != 601;
              l.assign(std::array<std::uint64_t, 2>{1, 2}, rank);
              l.swap(other);
              w += !l.empty() || other.size() != 2;
              other.clear();
              return w + !other.empty();
            }),
            0u);
}

}  // namespace
}  // namespace of_busy_owner
