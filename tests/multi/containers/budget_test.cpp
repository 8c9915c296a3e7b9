// SPDX-License-Identifier: Apache-2.0
// Containers of 40 MiB a rank, which are larger than the budget of DRAM (the CMakeLists.txt gives a half and
// an eighth): a thread of each rank makes random operations on its part of one container, against an oracle
// of its own. Threads only compute, and main expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <list>
#include <random>
#include <utility>
#include <vector>

#include "multi/containers/on_ranks.h"

namespace of_budget {
namespace {

using kasane::test::go_to;

constexpr std::size_t kBytes = 40u << 20;  ///< a rank
constexpr int kOperations = 1500;          ///< a thread

/// 200 bytes that belong together.
struct Large {
  std::array<std::uint64_t, 25> word;
  Large() = default;
  explicit Large(std::uint64_t x) {
    for (std::uint64_t& w : word) w = x * 0x9E3779B97F4A7C15u, ++x;
  }
  friend bool operator==(const Large&, const Large&) = default;
};

/// f(t, wrong) on a thread at each rank.
template <class F>
std::uint64_t at_each_rank(const F& f) {
  std::vector<std::uint64_t> wrong(kasane::ranks());
  std::vector<kasane::thread> threads;
  for (std::uint32_t t = 0; t < kasane::ranks(); ++t)
    threads.emplace_back(kasane::at{t}, [&f, &wrong, t] {
      go_to(t);
      std::uint64_t w = 0;
      f(t, w);
      wrong[t] = w;
    });
  for (auto& t : threads) t.join();
  std::uint64_t sum = 0;
  for (const std::uint64_t w : wrong) sum += w;
  return sum;
}

/// Keys that are inserted in their order go to buckets in the order of these: a fill need not read each page
/// again and again.
struct InOrder {
  using is_avalanching = void;  // its bits as they are
  std::uint64_t operator()(std::uint64_t key) const noexcept {
    return (key * 0x9E3779B97F4A7C15u & 0xFFFF000000000000u) | key / kasane::ranks();
  }
};

// Entries of 340 bytes, with the room that buckets leave.
TEST(Budget, Map) {
  constexpr std::uint64_t kEach = kBytes / 340;
  const std::uint64_t wrong = kasane::run([] {
    const kasane::unordered_map<std::uint64_t, Large, InOrder> map;
    const std::uint64_t w = at_each_rank([&map](std::uint64_t t, std::uint64_t& bad) {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      std::vector<std::uint32_t> version(kEach + kEach / 8);  // 0: it is not there
      const auto key = [t](std::uint64_t i) { return i * kasane::ranks() + t; };
      const auto value = [&](std::uint64_t i) { return Large(key(i) + version[i] * 1000003u); };
      for (std::uint64_t i = 0; i < kEach; ++i) {
        version[i] = 1;
        bad += !map.insert(key(i), value(i));
      }
      for (int n = 0; n < kOperations; ++n) {
        const std::uint64_t i = random() % version.size();
        const bool there = version[i] != 0;
        switch (random() % 4) {
          case 0: {
            const auto found = map.find(key(i));
            bad += found.has_value() != there || (there && !(*found == value(i)));
            break;
          }
          case 1: ++version[i], bad += map.insert_or_assign(key(i), value(i)) == there; break;
          case 2: version[i] = 0, bad += map.erase(key(i)) != there; break;
          default:
            if (there) ++version[i];
            bad += map.visit(key(i), [&](Large& l) { l = value(i); }) != there;
        }
      }
      for (std::uint64_t i = 0; i < version.size(); i += 67)
        bad += version[i] != 0 ? !(map.find(key(i)) == value(i)) : map.contains(key(i));
    });
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Budget, Vector) {
  constexpr std::uint64_t kEach = kBytes / 208;
  const std::uint64_t wrong = kasane::run([] {
    kasane::vector<Large> v;
    std::uint64_t w = at_each_rank([&v](std::uint64_t t, std::uint64_t& bad) {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      std::vector<std::pair<std::uint32_t, std::uint32_t>> mine;  // index, value
      while (mine.size() < kEach) {
        std::vector<Large> xs;
        for (std::uint64_t n = 1 + random() % 40; n != 0; --n)
          xs.emplace_back(t * 1000000 + mine.size() + xs.size());
        const std::size_t first = v.append(xs);
        for (std::size_t i = 0; i < xs.size(); ++i) mine.emplace_back(first + i, t * 1000000 + mine.size());
      }
      for (int n = 0; n < kOperations; ++n) {
        auto& [i, x] = mine[random() % mine.size()];
        if (random() % 2 == 0)
          bad += !(v.get(i) == Large(x));
        else
          v.put(i, Large(x = static_cast<std::uint32_t>(random())));
      }
      for (const auto& [i, x] : mine) bad += !(v.get(i) == Large(x));
    });
    const std::size_t n = v.size();
    w += kasane::reduce(
             v, std::uint64_t{0}, [](const Large&) { return std::uint64_t{1}; },
             [](std::uint64_t a, std::uint64_t b) { return a + b; }) != n;
    const Large last = v.get(n - 1);
    w += !(v.pop_back() == last);
    v.resize(n / 2);
    return w + (v.size() != n / 2);
  });
  EXPECT_EQ(wrong, 0u);
}

// At one rank, which has all bytes; by a thread that moves about.
TEST(Budget, Deque) {
  const std::uint64_t wrong = kasane::run([] {
    const kasane::deque<Large> d(kasane::ranks() - 1);
    std::deque<std::uint32_t> oracle;
    std::minstd_rand random(1);
    std::uint64_t w = 0;
    const auto push = [&](bool front) {
      std::vector<Large> xs;
      std::vector<std::uint32_t> numbers;
      for (std::size_t i = 0; i < 30; ++i) {
        numbers.push_back(static_cast<std::uint32_t>(random()));
        xs.emplace_back(numbers.back());
      }
      front ? d.push_front(xs) : d.push_back(xs);
      oracle.insert(front ? oracle.begin() : oracle.end(), numbers.begin(), numbers.end());
    };
    const auto pop = [&](bool front) {
      std::vector<Large> xs(20);
      xs.resize(front ? d.try_pop_front(xs) : d.try_pop_back(xs));
      w += xs.size() != std::min<std::size_t>(20, oracle.size());
      if (!front) std::reverse(xs.begin(), xs.end());
      for (const Large& x : xs) {
        w += !(x == Large(front ? oracle.front() : oracle.back()));
        front ? oracle.pop_front() : oracle.pop_back();
      }
    };
    // The ring that it grows into needs as much again.
    for (std::size_t n = 0; oracle.size() * sizeof(Large) < kBytes * kasane::ranks() * 2 / 3; ++n) {
      if (n % 500 == 0) go_to(static_cast<std::uint32_t>(random()) % kasane::ranks());
      push(random() % 2 == 0);
      if (random() % 4 == 0) pop(random() % 2 == 0);
    }
    w += d.size() != oracle.size();
    while (!oracle.empty()) pop(random() % 3 != 0);
    return w + !d.empty();
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Budget, List) {
  using List = kasane::list<Large>;
  constexpr std::uint64_t kEach = kBytes / 224;
  const std::uint64_t wrong = kasane::run([] {
    const List l(0);
    const std::uint64_t w = at_each_rank([&l](std::uint64_t t, std::uint64_t& bad) {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      std::vector<std::pair<List::iterator, std::uint32_t>> mine;
      while (mine.size() < kEach - kOperations) {  // elements of other threads lie between the spans
        std::vector<Large> xs;
        for (std::uint32_t i = 0; i < 32; ++i) xs.emplace_back(mine.size() + i);
        auto it = l.append(xs, static_cast<std::uint32_t>(t));
        for (std::uint32_t i = 0; i < 32; ++i) {
          mine.emplace_back(it, static_cast<std::uint32_t>(mine.size()));
          if (i != 31) ++it;
        }
      }
      while (mine.size() < kEach) {
        const auto x = static_cast<std::uint32_t>(mine.size());
        mine.emplace_back(
            l.insert(mine[random() % mine.size()].first, Large(x), static_cast<std::uint32_t>(t)), x);
      }
      for (int n = 0; n < kOperations; ++n) {
        auto& [it, x] = mine[random() % mine.size()];
        bad += !(*it == Large(x));
        if (random() % 3 != 0) continue;
        x = static_cast<std::uint32_t>(random());
        const auto fresh = l.insert(it, Large(x), static_cast<std::uint32_t>(random()) % kasane::ranks());
        l.erase(std::exchange(it, fresh));
      }
      for (std::size_t i = 0; i < mine.size(); i += 67) bad += !(*mine[i].first == Large(mine[i].second));
    });
    std::uint64_t n = 0;
    for (const Large& x : l) n += x.word[1] - x.word[0] == 0x9E3779B97F4A7C15u;
    return w + (n != l.size()) + (n < kEach * kasane::ranks());
  });
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace of_budget
