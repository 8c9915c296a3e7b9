// SPDX-License-Identifier: Apache-2.0
// Containers that grow at the last rank until it has no memory left (in a small space): the error names rank
// and bytes, and the container is as before, and goes on when there is room again.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "multi/containers/on_ranks.h"

namespace of_no_memory {
namespace {

using Large = std::array<std::uint64_t, 25>;

/// Calls f(i) for i = 0, 1 … until there is no memory left; how often it was called without an error. Counts
/// in wrong whether the error does not say where.
template <class F>
std::uint64_t until_it_is_full(std::uint64_t& wrong, const F& f) {
  const std::string rank = "rank " + std::to_string(kasane::ranks() - 1);
  for (std::uint64_t i = 0;; ++i) {
    try {
      f(i);
    } catch (const kasane::out_of_memory& e) {
      const std::string text = e.what();
      wrong += text.find(rank) == std::string::npos || text.find(" bytes") == std::string::npos;
      return i;
    }
  }
}
template <class F>
bool is_full(const F& f) {
  try {
    f();
  } catch (const kasane::out_of_memory&) {
    return true;
  }
  return false;
}

/// f at each rank; returns what is wrong.
template <class F>
std::uint64_t from_each_rank(const F& f) {
  return kasane::run([&f] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      kasane::test::go_to(r);
      w += f(kasane::ranks() - 1);
    }
    return w;
  });
}

TEST(WithoutMemory, Map) {
  EXPECT_EQ(from_each_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::unordered_map<std::uint64_t, Large> map({rank});
              const std::uint64_t n = until_it_is_full(w, [&](std::uint64_t k) { map.insert(k, Large{k}); });
              w += n < 1000 || map.size() != n || map.contains(n);
              for (int i = 0; i < 50; ++i) w += !is_full([&] { map.insert(n, Large{n}); });
              for (std::uint64_t k = 0; k < n; k += 17) w += map.find(k).value_or(Large{})[0] != k;
              map.clear();
              return w + !map.empty() + !map.insert(1, Large{1});
            }),
            0u);
}

/// Numbers as they are, and more alike ones than a bucket has entries.
template <std::uint64_t kAlike>
struct Alike {
  std::size_t operator()(std::uint64_t x) const noexcept { return x / kAlike; }
};
template <class Hash>
bool holds(std::uint64_t n, std::uint64_t distance) {
  kasane::unordered_map<std::uint64_t, std::uint64_t, Hash> map;
  for (std::uint64_t k = 0; k < n; ++k) map.insert(k * distance, k);
  return map.size() == n && map.find((n - 1) * distance) == n - 1;
}

/// A map of some thousand entries fits in this space whatever their hashes are.
TEST(WithoutMemory, HashesThatAreAlikeTakeNoMore) {
  EXPECT_TRUE(kasane::run([] { return holds<Alike<1>>(2000, 1 << 16); }));
  EXPECT_TRUE(kasane::run([] { return holds<Alike<1>>(500, 1 << 20); }));
  EXPECT_TRUE(kasane::run([] { return holds<Alike<1>>(500, std::uint64_t{1} << 40); }));
  EXPECT_TRUE(kasane::run([] { return holds<Alike<13>>(20'000, 1); }));
  EXPECT_TRUE(kasane::run([] { return holds<Alike<1000>>(3000, 1); }));
  EXPECT_TRUE(kasane::run([] { return holds<Alike<100'000>>(1500, 1); }));
}

TEST(WithoutMemory, Vector) {
  EXPECT_EQ(from_each_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::vector<Large> v({rank});
              const std::uint64_t n = until_it_is_full(w, [&](std::uint64_t i) { v.push_back(Large{i}); });
              w += n < 1000 || v.size() != n;
              w += !is_full([&] { v.push_back(Large{}); }) || !is_full([&] { v.resize(4 * n); }) ||
                   !is_full([&] { v.insert(0, Large{}); });
              for (std::uint64_t i = 0; i < n; i += 17) w += v.get(i)[0] != i;
              w += v.pop_back()[0] != n - 1 || v.push_back(Large{7}) != n - 1 || v.size() != n;
              v.clear();
              return w + (v.push_back(Large{}) != 0);
            }),
            0u);
}

TEST(WithoutMemory, Deque) {
  EXPECT_EQ(from_each_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::deque<Large> d(rank);
              const std::uint64_t n = until_it_is_full(w, [&](std::uint64_t i) { d.push_back(Large{i}); });
              w += n < 1000 || d.size() != n || !is_full([&] { d.push_front(Large{}); });
              w += d.try_pop_back().value_or(Large{})[0] != n - 1;
              d.push_front(Large{5});
              w += d.try_pop_front().value_or(Large{})[0] != 5;
              for (std::uint64_t i = 0; i + 1 < n; ++i) w += d.try_pop_front().value_or(Large{})[0] != i;
              return w + !d.empty();
            }),
            0u);
}

TEST(WithoutMemory, List) {
  EXPECT_EQ(from_each_rank([](std::uint32_t rank) {
              std::uint64_t w = 0;
              kasane::list<Large> l(rank);
              const std::vector<Large> many(100);
              const std::uint64_t n = until_it_is_full(w, [&](std::uint64_t i) { l.push_back(Large{i}); });
              w += n < 1000 || l.size() != n || !is_full([&] { l.assign(many, rank); }) ||
                   !is_full([&] { l.insert(l.begin(), Large{}, rank); }) || l.size() != n;
              std::uint64_t next = 0;
              for (const Large& x : l) w += x[0] != next++;
              w += next != n || l.pop_front().value_or(Large{1})[0] != 0;
              const auto it = l.push_front(Large{9}, rank);
              w += (*it)[0] != 9 || l.size() != n;
              l.clear();
              return w + !l.empty();
            }),
            0u);
}

// What cannot be made leaves nothing: as many as before have room afterwards.
TEST(WithoutMemory, IsNotMade) {
  EXPECT_EQ(from_each_rank([](std::uint32_t rank) {
              using Map = kasane::unordered_map<std::uint64_t, Large>;
              const std::vector<std::uint32_t> ranks{rank};
              std::uint64_t w = 0, most = 0;
              for (int round = 0; round < 2; ++round) {
                std::vector<std::unique_ptr<Map>> maps;
                const std::uint64_t n =
                    until_it_is_full(w, [&](std::uint64_t) { maps.push_back(std::make_unique<Map>(ranks)); });
                for (int i = 0; i < 1000; ++i) w += !is_full([&] { Map one_more(ranks); });
                w += n < 20 || n < most - most / 10;
                most = n;
              }
              return w;
            }),
            0u);
}

}  // namespace
}  // namespace of_no_memory
