// SPDX-License-Identifier: Apache-2.0
// kasane::unordered_map and unordered_set: random operations against std's, by threads that move about; all
// ranks at once; small histories, of which a serial order is searched. As in tests/multi/api threads only
// compute, and main expects.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <kasane/containers/fixed_string.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/kasane.hpp>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "multi/containers/histories.h"
#include "multi/containers/on_ranks.h"

namespace of_map {
namespace {

using kasane::global_ptr;
using kasane::placement;
using kasane::test::Clock, kasane::test::histories, kasane::test::History, kasane::test::kNone,
    kasane::test::Seen;
using kasane::test::everywhere, kasane::test::go_to, kasane::test::refused;
using Counts = kasane::unordered_map<std::uint64_t, std::uint64_t>;
static_assert(std::is_trivially_copyable_v<Counts::handle>);

/// One operation on both; whether they differ.
bool differs(Counts& map, std::unordered_map<std::uint64_t, std::uint64_t>& oracle, std::minstd_rand& random,
             std::uint64_t keys) {
  const std::uint64_t key = random() % keys, x = random();
  const auto there = oracle.find(key);
  const bool found = there != oracle.end();
  switch (random() % 9) {
    case 0: return map.insert(key, x) != oracle.insert({key, x}).second;
    case 1: return map.insert_or_assign(key, x) != oracle.insert_or_assign(key, x).second;
    case 2: return map.erase(key) != (oracle.erase(key) == 1);
    case 3: {
      const std::uint64_t before = found ? there->second : 0;
      oracle[key] += x;
      return map.add(key, x) != before;
    }
    case 4: {
      std::uint64_t expected = found && x % 2 == 0 ? there->second : x;
      const bool right = found && expected == there->second;
      const bool done = map.compare_exchange(key, expected, x + 1);
      if (right) there->second = x + 1;
      return done != right || (found && !right && expected != there->second);
    }
    case 5: {
      const bool done = map.visit(key, [x](std::uint64_t& v) { v ^= x; });
      if (found) there->second ^= x;
      return done != found;
    }
    case 6: {
      const bool fresh = map.visit_or_insert(key, 7, [](std::uint64_t& v) { v *= 3; });
      oracle[key] = (found ? there->second : 7) * 3;
      return fresh == found;
    }
    case 7: {
      const auto value = map.take(key);
      const bool wrong = value.has_value() != found || (found && *value != there->second);
      return oracle.erase(key), wrong;
    }
    default: {
      const auto value = map.find(key);
      return value.has_value() != found || (found && *value != there->second) || map.contains(key) != found;
    }
  }
}

TEST(Map, IsWhatStdsIs) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const std::uint64_t wrong = kasane::run([seed] {
      std::minstd_rand random(seed);
      const std::uint64_t keys = seed == 1 ? 30 : 4000 * seed;
      Counts map;
      std::unordered_map<std::uint64_t, std::uint64_t> oracle;
      std::uint64_t w = 0;
      for (int i = 0; i < 20000 && w == 0; ++i) {
        if (i % 1000 == 0) go_to(random() % kasane::ranks());
        w += differs(map, oracle, random, keys);
        if (i == 12000 && seed == 3) map.clear(), oracle.clear();
      }
      w += map.size() != oracle.size();
      map.for_each_of(0, [&](std::uint64_t k, std::uint64_t v) { w += oracle.at(k) != v; });
      return w;
    });
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
  }
}

// Keys and values of other sizes; a rank's map.
TEST(Map, OfLargeEntriesAtOneRank) {
  using Large = std::array<char, 200>;
  const std::uint64_t wrong = kasane::run([] {
    kasane::unordered_map<std::array<std::uint32_t, 3>, Large> map({kasane::ranks() - 1});
    std::uint64_t w = 0;
    for (std::uint32_t i = 0; i < 500; ++i) {
      Large l{};
      l[i % 200] = static_cast<char>(i);
      w += !map.insert({i, 1, 2}, l);
    }
    for (std::uint32_t i = 0; i < 500; ++i) {
      Large l{};
      l[i % 200] = static_cast<char>(i);
      const auto found = map.find({i, 1, 2});
      w += !found || !(*found == l);
      w += map.contains({i, 2, 2});
      w += map.rank_of({i, 1, 2}) != kasane::ranks() - 1;
    }
    return w + (map.size() != 500);
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, AllRanksAtOnce) {
  constexpr std::uint64_t kEach = 3000, kShared = 97;
  const std::uint64_t wrong = kasane::run([] {
    Counts map;
    const std::uint64_t n = 2 * kasane::ranks();
    everywhere([h = Counts::handle(map)](std::uint64_t t) {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        h.add(i % kShared, 1);              // all
        h.insert(1000 + t * kEach + i, i);  // its own
        if (i % 3 == 0) h.erase(1000 + t * kEach + i);
      }
    });
    std::uint64_t w = 0, sum = 0;
    for (std::uint64_t k = 0; k < kShared; ++k) sum += map.find(k).value_or(0);
    w += sum != n * kEach;
    for (std::uint64_t t = 0; t < n; ++t)
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const auto v = map.find(1000 + t * kEach + i);
        w += v.has_value() == (i % 3 == 0) || (v && *v != i);
      }
    w += map.size() != kShared + n * (kEach - kEach / 3);
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Updates, AllTakeEffectBeforeWaitReturns) {
  constexpr std::uint64_t kEach = 20000, kKeys = 5000;
  const std::uint64_t wrong = kasane::run([] {
    Counts map;
    kasane::post_group g;
    everywhere([&g, h = Counts::handle(map)](std::uint64_t t) {
      kasane::updates u(h, g);
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      for (std::uint64_t i = 0; i < kEach; ++i) {
        u.add(i % 2 == 0 ? i % 17 : random() % kKeys, 1);
        if (i % 100 == 0) u.insert_or_assign(1000000 + t * kEach + i, i);
      }
      u.visit(1000000 + t * kEach, [](std::uint64_t&) {});
    });
    g.wait();
    std::uint64_t sum = 0, w = 0;
    for (std::uint64_t k = 0; k < kKeys; ++k) sum += map.find(k).value_or(0);
    const std::uint64_t n = 2 * kasane::ranks();
    w += sum != n * kEach;
    for (std::uint64_t t = 0; t < n; ++t)
      for (std::uint64_t i = 0; i < kEach; i += 100) w += map.find(1000000 + t * kEach + i) != i;
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// A handle is all that a post needs to know, though it is no fence, and the map lies where another one lay.
TEST(Map, AHandleNamesItsMapWithNoFence) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    kasane::post_group g;
    for (std::uint64_t round = 0; round < 60; ++round) {
      const Counts map;
      for (std::uint64_t i = 0; i < 300; ++i)
        g.post(
            static_cast<std::uint32_t>(i % kasane::ranks()),
            [h = Counts::handle(map)](std::uint64_t k, std::uint64_t n) { h.add(k, n); }, i % 50, round);
      g.wait();
      for (std::uint64_t k = 0; k < 50; ++k) w += map.find(k) != 6 * round;
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// Half of the entries stay, and each of these is seen once; others come and go, and the map grows meanwhile.
TEST(Map, WhatStaysIsVisitedExactlyOnce) {
  constexpr std::uint64_t kStay = 2000;
  const std::uint64_t wrong = kasane::run([] {
    Counts map;
    for (std::uint64_t k = 0; k < kStay; ++k) map.insert(k, k + 1);
    auto* const seen =
        static_cast<std::uint64_t*>(kasane::allocate_zeroed(kStay * 8, 64, placement::local.fixed()));
    const global_ptr<std::uint64_t> s(seen);
    std::uint64_t w = 0;
    for (int round = 0; round < 3; ++round) {
      kasane::thread changes([h = Counts::handle(map)] {
        for (std::uint64_t k = 0; k < 6000; ++k) {
          h.insert(10000 + k, k);
          if (k % 4 == 0) h.erase(10000 + k / 2);
          if (k % 64 == 0) kasane::this_thread::yield();
        }
      });
      kasane::for_each(static_cast<const Counts::handle&>(map), [s](std::uint64_t k, std::uint64_t v) {
        if (k < kStay) kasane::add(s + static_cast<std::ptrdiff_t>(k), v == k + 1 ? 1u : 1000u);
      });
      changes.join();
    }
    std::vector<std::uint64_t> counts(kStay);
    kasane::get(counts.data(), seen, kStay);
    for (const std::uint64_t c : counts) w += c != 3;
    kasane::deallocate(seen);
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

/// Of whose two ranks the second cannot be asked for.
struct Broken {
  [[nodiscard]] std::uint32_t parts() const { return 2; }
  [[nodiscard]] std::uint32_t rank_of_part(std::uint32_t s) const {
    return s == 0 ? 0 : throw std::runtime_error("no thread");
  }
};

TEST(Map, ThreadsThatBeganAreJoinedWhereAnotherCannotBegin) {
  const std::uint64_t right = kasane::run([] {
    std::uint64_t calls = 0;
    try {
      kasane::detail::containers::at_parts(Broken{}, [&calls](std::uint32_t) { ++calls; });
    } catch (const std::runtime_error&) {
      return calls;
    }
    return std::uint64_t{0};
  });
  EXPECT_EQ(right, 1u);
}

// Operations are no fences: who publishes a pointer releases before it, and who finds it acquires after it.
TEST(Map, PointersArePublishedByFences) {
  const std::uint64_t wrong = kasane::run([] {
    const kasane::unordered_map<std::uint64_t, std::uint64_t*> map;
    std::vector<std::uint64_t> bad(2 * kasane::ranks());
    everywhere(
        [&bad, h = kasane::unordered_map<std::uint64_t, std::uint64_t*>::handle(map)](std::uint64_t t) {
          const std::uint64_t n = 2 * kasane::ranks();
          auto* const mine = static_cast<std::uint64_t*>(kasane::allocate(50 * 8, 64));
          for (std::uint64_t i = 0; i < 50; ++i) mine[i] = t * 50 + i;
          kasane::release_all();
          for (std::uint64_t i = 0; i < 50; ++i) h.insert(t * 50 + i, mine + i);
          for (std::uint64_t k = 0; k < n * 50; ++k) {
            const auto found = h.find(k);
            if (!found) continue;
            kasane::acquire_all();
            bad[t] += **found != k;
          }
        });
    std::uint64_t w = 0;
    for (const std::uint64_t b : bad) w += b;
    for (std::uint64_t t = 0; t < bad.size(); ++t) kasane::deallocate(map.find(t * 50).value_or(nullptr));
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, EmptyLooksNoFurtherThanTheFirstEntry) {
  const std::uint64_t wrong = kasane::run([] {
    Counts map;
    std::uint64_t w = !map.empty();
    for (std::uint64_t k = 0; k < 3000; ++k) map.insert(k, k);
    w += map.empty();
    for (std::uint64_t k = 0; k < 3000; ++k) map.erase(k);
    return w + !map.empty();
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, ErrorsSayWhatIsWrong) {
  const std::uint64_t wrong = kasane::run([] {
    const std::string rank = std::to_string(kasane::ranks() + 7);
    std::uint64_t w = !refused(EINVAL, [] { const Counts map({kasane::ranks()}); });
    w += !kasane::test::says([] { const Counts map({0, kasane::ranks() + 7}); }, "rank", rank);
    const Counts::handle old = [] { return Counts::handle(Counts()); }();
    w += !refused(EINVAL, [&] { old.insert(1, 1); });
    return w + !kasane::test::says([&] { static_cast<void>(old.find(1)); }, "does not exist any more");
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, AVisitThatThrowsChangesNothing) {
  const std::uint64_t wrong = kasane::run([] {
    Counts map;
    map.insert(1, 5);
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      try {
        map.visit(1, [](std::uint64_t& v) {
          v = 6;
          throw std::runtime_error("no");
        });
        ++w;
      } catch (const std::runtime_error&) {
      }
      try {
        map.visit_or_insert(2, 1, [](std::uint64_t&) { throw std::runtime_error("no"); });
        ++w;
      } catch (const std::runtime_error&) {
      }
      w += map.find(1) != 5u || map.contains(2);
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Set, HasEachKeyOnce) {
  const std::uint64_t wrong = kasane::run([] {
    kasane::unordered_set<std::uint32_t> set, other;
    std::uint64_t w = 0;
    for (std::uint32_t i = 0; i < 1000; ++i) {
      w += set.insert(i * 3) != true;
      w += set.insert(i * 3) != false;
    }
    for (std::uint32_t i = 0; i < 3000; ++i) w += set.contains(i) != (i % 3 == 0);
    for (std::uint32_t i = 0; i < 3000; ++i) w += set.erase(i) != (i % 3 == 0);
    w += !set.empty();
    set.insert(1);
    set.swap(other);
    return w + (other.size() != 1) + !set.empty();
  });
  EXPECT_EQ(wrong, 0u);
}

// Callers should have ordered them; what is refused has done nothing. f should make no calls, either.
TEST(Map, ClearWithinAVisitIsRefused) {
  const std::uint64_t wrong = kasane::run([] {
    Counts map, other;
    std::uint64_t w = 0;
    for (std::uint64_t k = 0; k < 600; ++k) map.insert(k, k);
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      for (std::uint64_t k = 0; k < 5; ++k)
        w += !refused(EBUSY, [&] { map.visit(k, [&map](std::uint64_t& v) { v = 0, map.clear(); }); });
    }
    for (std::uint64_t k = 0; k < 600; ++k) w += map.find(k) != k;  // no lock is left
    for (std::uint64_t k = 0; k < 600; ++k) w += map.insert_or_assign(k, k + 1);
    map.clear();
    return w + !map.empty() + !map.insert(1, 1) + (map.size() != 1);
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, CallsThatMeetAnExclusiveOneAreRefused) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      Counts map, other;
      std::vector<std::uint64_t> keys, found(1);
      for (std::uint64_t k = 0; k < 100; ++k) map.insert(k, k), keys.push_back(k);
      const Counts::handle h = map;
      const std::vector<std::function<void()>> with_buckets{
          [&] { found[0] += h.find(7).value(); },
          [&] { h.add(3, 1); },
          [&] { h.insert_or_assign(5, 1); },
          [&] { h.erase(6); },
          [&] { found[0] += h.size(); },
          [&] { found[0] += h.find_many(keys).size(); },
          [&] { h.visit_all_of(0, [](std::uint64_t, std::uint64_t& v) { v = 1; }); },
      };
      w += kasane::test::meets(h, with_buckets, true);
      const std::vector<std::function<void()>> others{
          [&] {  // buckets are split
            for (std::uint64_t k = 1000; k < 1300; ++k) h.insert(k, k);
          },
          [&] { map.swap(other); },
          [&] { map.swap(other), map.clear(); },
      };
      w += kasane::test::meets(h, others);
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Set, HandlesAndAllAtOnce) {
  using Keys = kasane::unordered_set<std::uint32_t>;
  static_assert(std::is_trivially_copyable_v<Keys::handle>);
  const std::uint64_t wrong = kasane::run([] {
    const Keys set;
    std::vector<std::uint64_t> fresh(2 * kasane::ranks());
    everywhere([&fresh, h = Keys::handle(set)](std::uint64_t t) {
      std::vector<std::uint32_t> keys;
      for (std::uint32_t i = 0; i < 500; ++i) keys.push_back(i * 2);
      for (const bool b : h.insert_many(keys)) fresh[t] += b;
      fresh[t] += h.insert(1);
    });
    std::uint64_t w = 0, sum = 0;
    for (const std::uint64_t f : fresh) sum += f;
    w += sum != 501;
    const std::vector<std::uint32_t> some{0, 1, 2, 3, 998, 1000};
    w += set.contains_many(some) != std::vector<bool>{true, true, true, false, true, false};
    auto* const word = static_cast<std::uint64_t*>(kasane::allocate_zeroed(8, 64, placement::local.fixed()));
    const global_ptr<std::uint64_t> seen(word);
    kasane::for_each(set, [seen](std::uint32_t k) { kasane::add(seen, k + 1); });
    w += kasane::get(seen) != 500 * 499 + 1 + 501;
    kasane::deallocate(word);
    return w + (kasane::reduce(
                    static_cast<const Keys::handle&>(set), std::uint64_t{0},
                    [](std::uint32_t k) { return std::uint64_t{k}; },
                    [](std::uint64_t a, std::uint64_t b) { return a + b; }) != 500 * 499 + 1);
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, ManyAtATime) {
  const std::uint64_t wrong = kasane::run([] {
    const Counts map;
    std::uint64_t w = 0;
    std::vector<std::uint64_t> fresh(2 * kasane::ranks());
    everywhere([&, h = Counts::handle(map)](std::uint64_t t) {
      std::vector<std::uint64_t> keys, values;  // half of them others', too
      for (std::uint64_t i = 0; i < 1000; ++i) {
        keys.push_back(i % 2 == 0 ? i : (t + 1) * 100000 + i);
        values.push_back(keys.back() * 7);
      }
      for (const bool b : h.insert_many(keys, values)) fresh[t] += b;
    });
    for (const std::uint64_t f : fresh) w += f;
    w = w != 500 + fresh.size() * 500;
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 0; i < 2000; ++i) keys.push_back(i % 3 == 0 ? i : 100000 + i);
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      go_to(r);
      const auto answers = map.find_many(keys);
      for (std::size_t i = 0; i < keys.size(); ++i) w += answers[i] != map.find(keys[i]);
      w += answers[0] != 0u || !answers[1] || answers[1503].has_value();
    }
    w += map.size() != 500 + fresh.size() * 500;
    return w + !refused(EINVAL, [&] { map.insert_many(keys, std::span(keys).first(1)); });
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Map, RangesReducesAndVisitsAll) {
  const std::uint64_t wrong = kasane::run([] {
    Counts map;
    std::uint64_t w = 0;
    for (const auto& e : map) w += e.key + 1;
    for (std::uint64_t k = 0; k < 3000; ++k) map.insert(k, k);
    kasane::thread others(kasane::at{kasane::ranks() - 1}, [h = Counts::handle(map)] {
      for (std::uint64_t k = 0; k < 2000; ++k) {
        h.insert(10000 + k, 0);
        if (k % 2 == 1) h.erase(10000 + k - 1);
      }
    });
    std::vector<std::uint64_t> seen(3000);
    for (const auto& [k, v] : map)
      if (k < 3000) seen[k] += 1 + (k != v);
    others.join();
    for (const std::uint64_t s : seen) w += s != 1;
    kasane::visit_all(map, [](std::uint64_t k, std::uint64_t& v) { v = k < 3000 ? 2 * v : 1; });
    const std::uint64_t sum = kasane::reduce(
        map, std::uint64_t{0}, [](std::uint64_t, std::uint64_t v) { return v; },
        [](std::uint64_t a, std::uint64_t b) { return a + b; });
    w += sum != 3000 * 2999 + 1000;
    kasane::unordered_set<std::uint32_t> set;
    for (std::uint32_t i = 0; i < 500; ++i) set.insert(i);
    std::uint64_t keys = 0;
    for (const std::uint32_t k : set) keys += k;
    return w + (keys != 500 * 499 / 2);
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(FixedString, IsAKey) {
  using Word = kasane::fixed_string<31>;
  static_assert(std::is_trivially_copyable_v<Word> && Word("a") < Word("ab") && Word("b").size() == 1);
  std::istringstream in("one two one " + std::string(40, 'x'));
  std::vector<Word> words;
  for (Word word; in >> word;) words.push_back(word);
  EXPECT_EQ(words.size(), 3u);
  EXPECT_TRUE(in.fail());
  std::ostringstream out;
  for (const Word& word : words) out << word << ' ';
  EXPECT_EQ(out.str(), "one two one ");
  EXPECT_EQ(std::hash<Word>{}(words[0]), std::hash<Word>{}(words[2]));
  EXPECT_THROW(Word(std::string(32, 'x')), kasane::error);
  const std::uint64_t ones = kasane::run([&words] {
    kasane::unordered_map<Word, std::uint64_t> counts;
    for (const Word& word : words) counts.add(word, 1);
    return counts.find("one").value_or(0) * 10 + counts.size();
  });
  EXPECT_EQ(ones, 22u);
}

// ---- small histories --------------------------------------------------------------------------------------

using Model = std::map<std::uint64_t, std::uint64_t>;

/// An operation on the map; its result in a word.
std::uint64_t operate(const Counts::handle& map, const Seen& s) {
  switch (s.what) {
    case 0: return map.find(s.key).value_or(kNone);
    case 1: return map.insert(s.key, s.operand) ? 1 : 0;
    case 2: return map.erase(s.key) ? 1 : 0;
    case 3: return map.add(s.key, s.operand);
    default: return map.insert_or_assign(s.key, s.operand) ? 1 : 0;
  }
}
bool agrees(Model& model, const Seen& s) {
  const auto there = model.find(s.key);
  const bool found = there != model.end();
  switch (s.what) {
    case 0: return s.result == (found ? there->second : kNone);
    case 1: return s.result == (model.insert({s.key, s.operand}).second ? 1u : 0u);
    case 2: return s.result == model.erase(s.key);
    case 3: {
      const std::uint64_t before = found ? there->second : 0;
      model[s.key] += s.operand;
      return s.result == before;
    }
    default: return s.result == (model.insert_or_assign(s.key, s.operand).second ? 1u : 0u);
  }
}

// Of few keys, in a map that grows meanwhile by others' inserts.
TEST(Map, SmallHistoriesAreLinearisable) {
  const auto draw = [](std::minstd_rand& random) {
    const auto what = static_cast<std::uint32_t>(random() % 5);
    const std::uint64_t key = random() % 3;
    return Seen{0, 0, what, key, random() % 1000, 0};
  };
  const auto all = histories(250, [&draw](unsigned seed, Clock clock, History& h) {
    Counts map;
    for (std::uint64_t k = 0; k < 10; ++k) map.insert(1000000 + k, k);
    kasane::test::play(
        seed, clock, h, draw, [m = Counts::handle(map)](const Seen& s) { return operate(m, s); },
        [m = Counts::handle(map)](auto& random) { m.insert(100 + random() % 100000, 0); });
  });
  kasane::test::expect_linearizable(all, [](unsigned) { return Model{}; }, agrees);
}

}  // namespace
}  // namespace of_map
