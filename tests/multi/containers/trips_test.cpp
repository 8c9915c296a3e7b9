// SPDX-License-Identifier: Apache-2.0
// How many one-sided operations those of containers cost over a network, by the counters: what is counted
// does not depend on the machine's load. On two ranks, neither of which maps the other's memory, with one
// worker each; main of rank 0 uses containers that lie at rank 1. Of operations that go together, in one
// trip, each counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

using Counts = kasane::unordered_map<std::uint64_t, std::uint64_t>;

struct Trips : testing::Test {
  static constexpr std::uint64_t kKeys = 2000;

  void SetUp() override {
    if (kasane::ranks() == 1) GTEST_SKIP() << "one rank sends nothing";
  }
  /// The one-sided operations of a rank during f. Of rank 0: f must not lose its thread; nobody steals from
  /// main.
  template <class F>
  static std::uint64_t of(F&& f, std::uint32_t rank = 0) {
    const std::uint64_t before = kasane::counter("remote_operations", rank);
    f();
    return kasane::counter("remote_operations", rank) - before;
  }
  /// The most of one of n calls f(i), which all have been made before by others.
  template <class F>
  static std::uint64_t most(std::uint64_t n, F&& f) {
    std::uint64_t most = 0;
    for (std::uint64_t i = 0; i < n; ++i) most = std::max(most, of([&] { f(i); }));
    return most;
  }
};

TEST_F(Trips, OfAMap) {
  const Counts map({1});
  for (std::uint64_t k = 0; k < kKeys; ++k) map.insert(k, k);
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < 2 * kKeys; ++k) sum += map.find(k).value_or(0);  // the directory is known
  EXPECT_EQ(most(kKeys, [&](std::uint64_t k) { sum += map.find(k).value_or(1000); }), 1u);
  EXPECT_EQ(most(kKeys, [&](std::uint64_t k) { sum += map.contains(kKeys + k); }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t k) { sum += map.insert(k, 0); }), 1u);  // it is there
  EXPECT_EQ(most(kKeys, [&](std::uint64_t k) { map.erase(k); }), 3u);
  EXPECT_EQ(most(100, [&](std::uint64_t k) { map.erase(k); }), 1u);  // it is not there
  // Entry and tag go together: four trips.
  EXPECT_EQ(most(kKeys, [&](std::uint64_t k) { map.insert(k, k); }), 5u);
  EXPECT_EQ(most(100, [&](std::uint64_t k) { map.add(k, 1); }), 4u);
  EXPECT_EQ(most(100, [&](std::uint64_t k) { map.insert_or_assign(k, 1); }), 4u);
  EXPECT_EQ(most(100, [&](std::uint64_t k) { map.visit(k, [](std::uint64_t& v) { ++v; }); }), 4u);
  EXPECT_EQ(most(100,
                 [&](std::uint64_t k) {
                   std::uint64_t is = 2;
                   sum += map.compare_exchange(k, is, 3);
                 }),
            4u);
  EXPECT_EQ(sum, kKeys * (kKeys - 1) + 100);
}

// All ranks' operations count; blocks of posts that are not full are some of them.
TEST_F(Trips, OfUpdatesAFiftiethOfSingleAdds) {
  constexpr std::uint64_t kAdds = 8000;
  const Counts map({1});
  std::vector<std::uint64_t> keys;
  for (std::uint64_t k = 0; k < kAdds; ++k) keys.push_back(k);
  map.insert_many(keys, std::vector<std::uint64_t>(kAdds));
  EXPECT_EQ(map.find_many(keys)[kAdds - 1], 0u);  // the directory is known
  const std::uint64_t single = of([&] {
    for (std::uint64_t k = 0; k < kAdds; ++k) map.add(k, 1);
  });
  EXPECT_EQ(single, 4 * kAdds);
  const std::uint64_t together = of(
      [&] {
        kasane::run([&map] {
          kasane::post_group g;
          {
            kasane::updates u(map, g);
            for (std::uint64_t k = 0; k < kAdds; ++k) u.add(k, 1);
          }
          g.wait();
        });
      },
      KASANE_ALL_RANKS);
  for (const auto& n : map.find_many(keys)) EXPECT_EQ(n, 2u);
  EXPECT_LE(50 * together, single);
  std::printf("%.3f operations an update, %.3f a single add\n", static_cast<double>(together) / kAdds,
              static_cast<double>(single) / kAdds);
}

TEST_F(Trips, OfAVector) {
  kasane::vector<std::uint64_t> v({1});
  kasane::vector<std::array<std::uint64_t, 4>> large({1});
  for (std::uint64_t i = 0; i < 100; ++i) v.push_back(i), large.push_back({i});
  EXPECT_EQ(v.size() + large.size(), 200u);  // the segments and the prefix are known
  EXPECT_EQ(most(300, [&](std::uint64_t i) { v.push_back(i); }), 3u);  // without new memory
  EXPECT_EQ(most(20, [&](std::uint64_t i) { large.push_back({i}); }), 3u);
  EXPECT_EQ(of([&] { v.append(std::vector<std::uint64_t>(50)); }), 3u);
  EXPECT_EQ(v.size(), 450u);
  std::uint64_t sum = 0;
  EXPECT_EQ(most(450, [&](std::uint64_t i) { sum += v.get(i); }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t i) { v.put(i, 1); }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t i) { sum += v.fetch_add(i, 1); }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t i) { sum += large.get(i)[0]; }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t i) { large.put(i, {}); }), 4u);
  EXPECT_EQ(sum, 99u * 50 + 299 * 150 + 100 + 99 * 50);
}

TEST_F(Trips, OfADeque) {
  const kasane::deque<std::uint64_t> d(1);
  for (std::uint64_t i = 0; i < 10; ++i) d.push_back(i);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(d.try_pop_front(), i);
  EXPECT_EQ(of([&] { EXPECT_FALSE(d.try_pop_back()); }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t i) { d.push_back(i); }), 5u);
  EXPECT_EQ(of([&] { EXPECT_EQ(d.size(), 100u); }), 1u);
  EXPECT_EQ(most(100, [&](std::uint64_t i) { EXPECT_EQ(d.try_pop_front(), i); }), 5u);
  const std::vector<std::uint64_t> some(100);
  EXPECT_EQ(of([&] { d.push_back(some); }), 5u);
}

TEST_F(Trips, OfAList) {
  const kasane::list<std::uint64_t> l(1);
  for (std::uint64_t i = 0; i < 200; ++i) l.push_back(i);
  while (l.pop_front()) {
  }
  EXPECT_EQ(of([&] { EXPECT_FALSE(l.pop_back()); }), 1u);
  EXPECT_LE(most(100, [&](std::uint64_t i) { l.push_back(i); }), 10u);
  auto it = l.begin();
  std::uint64_t sum = 0;
  EXPECT_EQ(most(99, [&](std::uint64_t) { sum += *it; }), 1u);
  EXPECT_EQ(most(99, [&](std::uint64_t) { ++it; }), 2u);
  EXPECT_EQ(*it, 99u);
  EXPECT_LE(most(100, [&](std::uint64_t i) { EXPECT_EQ(l.pop_front(), i); }), 10u);
  const std::vector<std::uint64_t> many(1000, 7);  // a put each, and of memory that grows some more
  const kasane::list<std::uint64_t> together(1);
  EXPECT_LE(of([&] { together.append(many, 1); }), 1100u);
  EXPECT_EQ(together.size(), many.size());
}

}  // namespace
