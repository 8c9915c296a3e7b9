// SPDX-License-Identifier: Apache-2.0
// What containers hold, of all kinds: with padding, without a default constructor, with constant members, of
// large alignment; keys with an equality of their own; hashes that are bad. All ranks change what holds them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <kasane/containers/deque.hpp>
#include <kasane/containers/list.hpp>
#include <kasane/containers/unordered_map.hpp>
#include <kasane/containers/updates.hpp>
#include <kasane/containers/vector.hpp>
#include <kasane/kasane.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "multi/containers/on_ranks.h"

namespace {

using kasane::test::everywhere;

/// Bytes that are not its value lie between members and at the end, and differ from object to object.
struct Padded {
  char small;
  std::uint32_t number;
  char end;
  Padded() = default;
  Padded(std::uint32_t x) : small(static_cast<char>(x)), number(x), end(static_cast<char>(x + 1)) {}
  friend bool operator==(const Padded&, const Padded&) = default;
};
struct Constant {
  const std::uint32_t number, twice;
  Constant(std::uint32_t x) : number(x), twice(2 * x) {}
  Constant() = delete;
  friend bool operator==(const Constant&, const Constant&) = default;
};
template <std::size_t kAlign>
struct alignas(kAlign) Aligned {
  std::uint32_t number;
  Aligned() = default;
  Aligned(std::uint32_t x) : number(x) {
    if (reinterpret_cast<std::uintptr_t>(this) % kAlign != 0) number = ~x;
  }
  friend bool operator==(const Aligned&, const Aligned&) = default;
};
struct Small {
  char letter;
  short number;
  Small(std::uint32_t x) : letter(static_cast<char>(x)), number(static_cast<short>(x)) {}
  friend bool operator==(const Small&, const Small&) = default;
};

template <class Value>
Value of(std::uint32_t x) {
  return static_cast<Value>(x);
}

template <class Value>
class Kinds : public testing::Test {};
using Values = testing::Types<long double, Padded, Constant, Small, Aligned<16>, Aligned<128>>;
TYPED_TEST_SUITE(Kinds, Values);

constexpr std::uint32_t kKeys = 150;

TYPED_TEST(Kinds, AreAMapsValues) {
  using Map = kasane::unordered_map<std::uint32_t, TypeParam>;
  std::uint64_t wrong = 0;
  kasane::run([&] {
    Map map;
    typename Map::handle h = map;
    std::vector<std::uint32_t> all;
    std::vector<TypeParam> values;
    for (std::uint32_t i = 0; i < kKeys; ++i) all.push_back(i), values.push_back(of<TypeParam>(i));
    for (std::uint32_t i = 0; i < kKeys; i += 2) h.insert(i, of<TypeParam>(i));
    h.insert_many(all, values);
    everywhere([h](std::uint32_t thread) {  // each key by one thread
      for (std::uint32_t i = thread; i < kKeys; i += 2 * kasane::ranks()) {
        h.insert_or_assign(i, of<TypeParam>(i + 1));
        h.visit(i, [i](TypeParam& v) { std::construct_at(&v, v == of<TypeParam>(i + 1) ? i + 2 : 0); });
        TypeParam expected = of<TypeParam>(i + 7);
        h.compare_exchange(i, expected, of<TypeParam>(0));
        h.compare_exchange(i, expected, of<TypeParam>(i + 3));
      }
    });
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      const std::optional<TypeParam> found = h.find(i);
      wrong += !found || !(*found == of<TypeParam>(i + 3));
    }
    const auto found = h.find_many(all);
    for (std::uint32_t i = 0; i < kKeys; ++i) wrong += !found[i] || !(*found[i] == of<TypeParam>(i + 3));
    std::uint32_t seen = 0;
    for (const auto& [key, value] : map) wrong += !(value == of<TypeParam>(key + 3)), ++seen;
    wrong += seen != kKeys || map.size() != kKeys || !h.take(1) || h.contains(1);
  });
  EXPECT_EQ(wrong, 0U);
}

TYPED_TEST(Kinds, AreElements) {
  std::uint64_t wrong = 0;
  kasane::run([&] {
    kasane::vector<TypeParam> vector;
    kasane::deque<TypeParam> deque(kasane::ranks() - 1);
    kasane::list<TypeParam> list;
    typename kasane::vector<TypeParam>::handle v = vector;
    typename kasane::deque<TypeParam>::handle d = deque;
    typename kasane::list<TypeParam>::handle l = list;
    everywhere([v, d, l](std::uint32_t thread) {
      for (std::uint32_t i = 0; i < kKeys / 5; ++i) {
        const TypeParam x = of<TypeParam>(i);
        const std::array two = {x, of<TypeParam>(i + 1)};
        const std::size_t at = v.push_back(of<TypeParam>(i + 5));
        v.put(at, x);
        v.append(two);
        d.push_back(x);
        d.push_front(two);
        l.push_back(x, thread % kasane::ranks());
        l.append(two, 0);
      }
    });
    const std::size_t n = std::size_t{2} * kasane::ranks() * (kKeys / 5) * 3;
    const auto right = [](const TypeParam& x) {
      bool found = false;
      for (std::uint32_t i = 0; i <= kKeys / 5; ++i) found = found || x == of<TypeParam>(i);
      return found;
    };
    std::size_t seen = 0;
    for (const TypeParam& x : vector) wrong += !right(x), ++seen;
    for (const TypeParam& x : deque) wrong += !right(x), ++seen;
    for (const TypeParam& x : list) wrong += !right(x), ++seen;
    wrong += seen != 3 * n || !right(vector.get(n - 1)) || !right(vector.pop_back());
    wrong += !right(*d.try_pop_front()) || !right(*l.pop_back());
    vector.insert(1, of<TypeParam>(200));
    vector.resize(3, of<TypeParam>(4));
    wrong += !(vector.get(1) == of<TypeParam>(200)) || vector.size() != 3;
  });
  EXPECT_EQ(wrong, 0U);
}

struct alignas(64) Sum {
  std::uint64_t n;
  friend Sum operator+(const Sum& a, const Sum& b) { return {a.n + b.n}; }
};

TEST(Posts, CarryWhatIsAligned) {
  std::uint64_t wrong = 0;
  kasane::run([&] {
    kasane::unordered_map<std::uint32_t, Sum> map;
    kasane::post_group group;
    {
      kasane::updates u(map, group);
      for (std::uint32_t i = 0; i < 10 * kKeys; ++i) u.add(i % kKeys, Sum{1});
      for (std::uint32_t i = kKeys; i < 2 * kKeys; ++i) u.insert_or_assign(i, Sum{10});
    }
    group.wait();
    for (const auto& [key, sum] : map) wrong += sum.n != 10;
    wrong += map.size() != std::size_t{2} * kKeys;
  });
  EXPECT_EQ(wrong, 0U);
}

// ---- keys -------------------------------------------------------------------------------------------------

/// Letters without their case.
struct Name {
  std::array<char, 8> text;
  explicit Name(std::uint32_t x, bool large) : text{} {
    for (char& c : text) c = static_cast<char>((large ? 'A' : 'a') + x % 26), x /= 26;
  }
  friend bool operator==(const Name& a, const Name& b) { return a.low() == b.low(); }
  [[nodiscard]] std::array<char, 8> low() const {
    std::array<char, 8> all = text;
    for (char& c : all) c = static_cast<char>(c | 0x20);
    return all;
  }
};
struct Point {
  std::int32_t x, y;
};

}  // namespace

template <>
struct std::hash<Name> {
  std::size_t operator()(const Name& n) const noexcept {
    const auto low = n.low();
    return std::hash<std::string_view>{}({low.data(), low.size()});
  }
};
template <>
inline constexpr bool kasane::equal_as_bytes<Point> = true;

namespace {

TEST(Keys, AreEqualAsTheirTypeSays) {
  std::uint64_t wrong = 0;
  kasane::run([&] {
    kasane::unordered_map<Name, std::uint32_t> names;
    kasane::unordered_map<double, int> numbers;
    kasane::unordered_set<long double> longs;
    kasane::unordered_map<Point, int> points;
    kasane::unordered_map<std::array<short, 3>, int> arrays;
    kasane::unordered_set<Aligned<128>*> pointers;
    for (std::uint32_t i = 0; i < 300; ++i) names.insert(Name(i, i % 2 == 0), i);
    for (std::uint32_t i = 0; i < 300; ++i) {
      wrong += names.insert(Name(i, i % 2 != 0), 0) || names.find(Name(i, true)) != i;
      points.add({static_cast<int>(i), -1}, 1);
      arrays.add({1, static_cast<short>(i / 2), 2}, 1);
    }
    wrong +=
        names.size() != 300 || points.size() != 300 || !points.contains({299, -1}) || arrays.size() != 150;
    numbers.insert(0.0, 1);
    wrong += numbers.insert(-0.0, 2) || numbers.find(-0.0) != 1 || numbers.size() != 1;
    wrong += numbers.contains(std::numeric_limits<double>::quiet_NaN());
    for (int i = 0; i < 200; ++i) longs.insert(i / 7.0L), longs.insert(i / 7.0L), pointers.insert(nullptr);
    wrong += longs.size() != 200 || !longs.contains(199 / 7.0L) || pointers.size() != 1;
  });
  EXPECT_EQ(wrong, 0U);
}

// ---- hashes -----------------------------------------------------------------------------------------------

/// So many different hashes.
template <std::uint64_t kDifferent>
struct Few {
  std::size_t operator()(std::uint64_t x) const noexcept { return x % kDifferent; }
};

/// Chains grow and are split while all ranks change, read and walk them.
template <std::uint64_t kDifferent>
std::uint64_t wrong_with_few(std::uint64_t keys) {
  using Map = kasane::unordered_map<std::uint64_t, std::uint64_t, Few<kDifferent>>;
  return kasane::run([keys] {
    std::uint64_t wrong = 0;
    Map map;
    typename Map::handle h = map;
    for (std::uint64_t k = 0; k < keys; k += 2) h.insert(k, 1);
    kasane::unordered_map<std::uint32_t, std::uint64_t> failures;
    kasane::unordered_map<std::uint32_t, std::uint64_t>::handle f = failures;
    everywhere([h, f, keys](std::uint32_t thread) {
      std::uint64_t missed = 0, seen = 0;
      for (std::uint64_t k = 1; k < keys; k += 2) h.add(k, 1);
      for (std::uint64_t k = thread; k < keys; k += 2 * kasane::ranks()) missed += !h.contains(k);
      for (std::uint32_t s = 0; s < h.parts(); ++s)
        h.for_each_of(s, [&](std::uint64_t k, std::uint64_t) { seen += k < keys && k % 2 == 0; });
      for (std::uint64_t k = keys + thread; k < 2 * keys; k += 2 * kasane::ranks()) {
        missed += !h.insert(k, k);
        if (k % 3 != 0) missed += h.take(k) != k;
      }
      f.insert(thread, missed + (seen != keys / 2));
    });
    for (const auto& [thread, n] : failures) wrong += n;
    for (std::uint64_t k = 0; k < 2 * keys; ++k) {
      const std::optional<std::uint64_t> x = h.find(k);
      const std::uint64_t right = k >= keys ? k : k % 2 == 0 ? 1 : 2 * kasane::ranks();
      wrong += k >= keys && k % 3 != 0 ? x.has_value() : x != right;
    }
    std::vector<std::uint64_t> all(keys), ones(keys, 1);
    for (std::uint64_t k = 0; k < keys; ++k) all[k] = k;
    for (const auto& x : h.find_many(all)) wrong += !x;
    for (const bool fresh : h.insert_many(all, ones)) wrong += fresh;
    std::uint64_t n = 0;
    for (const auto& [key, value] : map) n += key < keys || key % 3 == 0;
    wrong += n != map.size();
    for (std::uint64_t k = 0; k < 2 * keys; ++k) h.erase(k);
    wrong += !map.empty();
    map.clear();
    return wrong + !h.insert(1, 1) + (map.size() != 1);
  });
}

TEST(Hashes, OfWhichFewDifferMakeChains) {
  EXPECT_EQ(wrong_with_few<1>(100), 0U);
  EXPECT_EQ(wrong_with_few<7>(200), 0U);
  EXPECT_EQ(wrong_with_few<40>(400), 0U);
}

TEST(Hashes, AreMixed) {
  struct Identity {
    std::size_t operator()(std::uint64_t x) const noexcept { return x; }
  };
  std::uint64_t least = 0;
  kasane::run([&] {
    kasane::unordered_map<std::uint64_t, int, Identity> map;
    std::vector<std::uint64_t> at(kasane::ranks());
    for (std::uint64_t k = 0; k < 1000; ++k) ++at[map.rank_of(k)];
    least = *std::min_element(at.begin(), at.end());
  });
  EXPECT_GT(least, 500 / kasane::ranks());  // small numbers lie at all ranks
}

}  // namespace
