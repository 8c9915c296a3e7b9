// SPDX-License-Identifier: Apache-2.0
// Integers of 64 bits that no double holds, in every operation; and arrays of the small types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <kasane/array.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "operations.h"

namespace kasane::test {
namespace {

constexpr std::int64_t kLarge = (std::int64_t{1} << 60) + 1;

/// Random ones of all 64 bits; some next to what a double holds.
std::int64_t large_number(Random& random) {
  const std::int64_t near[] = {kLarge, -kLarge, (std::int64_t{1} << 53) + 1, -(std::int64_t{1} << 53) - 1};
  return random() % 2 == 0 ? near[random() % 4] : static_cast<std::int64_t>(random());
}
std::int64_t times(std::int64_t a, std::int64_t b) {  // modulo 2^64
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
std::int64_t plus(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// Accumulates of patches with gaps, by factors of all 64 bits.
template <std::size_t N>
std::string accumulates_are_exact(Random& random) {
  Oracle<std::int64_t, N> right(draw_extents<N>(random));
  auto a = same_as(right, random);
  for (int i = 0; i < 8; ++i) {
    const auto b = draw_box(random, right.extents);
    leading<N> ld;
    std::size_t n = b.extent(0);
    if constexpr (N > 1)
      for (std::size_t d = 1; d < N; ++d) n *= ld.extents[d - 1] = b.extent(d) + random() % 3;
    std::vector<std::int64_t> patch(n);
    for (auto& x : patch) x = large_number(random);
    const std::int64_t alpha = random() % 4 == 0 ? 1 : large_number(random);
    if (i % 2 == 0) {
      a.accumulate(b, patch.data(), ld, alpha);
    } else {
      auto source = patch;
      pending_group group;
      a.accumulate_async(b, source.data(), ld, alpha, group);
      std::fill(source.begin(), source.end(), 0);  // it has been copied
      group.wait();
    }
    each_index(b, [&](const auto& at) {
      std::size_t k = at[0] - b.first[0];
      if constexpr (N > 1)
        for (std::size_t d = 1; d < N; ++d) k = k * ld.extents[d - 1] + at[d] - b.first[d];
      right.at(at) = plus(right.at(at), times(alpha, patch[k]));
    });
    if (const std::string wrong = difference(a, right, "accumulate"); !wrong.empty()) return wrong;
  }
  return "";
}

template <class F>
void expect_on_a_thread(unsigned seeds, const F& f) {
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    const std::string wrong = kasane::run([&f, seed] {
      Random random(seed);
      return f(random);
    });
    EXPECT_EQ(wrong, "") << "seed " << seed;
  }
}

TEST(Integers, AreAccumulatedExactly) {
  expect_on_a_thread(4, accumulates_are_exact<1>);
  expect_on_a_thread(4, accumulates_are_exact<2>);
  expect_on_a_thread(4, accumulates_are_exact<4>);
}

TEST(Integers, AreAccumulatedExactlyWithoutAnArray) {
  expect_on_a_thread(1, [](Random& random) -> std::string {
    const auto words = make_array<std::int64_t>(9000, placement::cyclic);
    const global_ptr<std::int64_t> p(words.get());
    std::vector<std::int64_t> zeros(9000), x(9000), got(9000);
    for (auto& n : x) n = large_number(random);
    put(p, zeros.data(), 9000);
    accumulate(p, x.data(), 9000, kLarge);
    accumulate_async(p, x.data(), 9000, -kLarge).wait();
    pending_group group;
    accumulate_async(p, x.data(), 9000, (std::int64_t{1} << 53) + 1, group);
    group.wait();
    accumulate(p, x.data(), 9000, 3);
    get(got.data(), p, 9000);
    for (std::size_t i = 0; i < 9000; ++i)
      if (got[i] != times(x[i], (std::int64_t{1} << 53) + 4)) return std::to_string(i);
    return "";
  });
}

TEST(Integers, AreExactInBulkOperations) {
  expect_on_a_thread(1, [](Random& random) -> std::string {
    const std::size_t n = 3000;
    array<std::int64_t, 1> a({n}), b({n}, tiles{100}), c({n});
    a.fill(kLarge);
    if (a.get(array<std::int64_t, 1>::index{7}) != kLarge || a.min() != kLarge || a.max() != kLarge)
      return "fill";
    a.fill(1);
    a.scale(kLarge);
    if (a.min() != kLarge || a.max() != kLarge) return "scale";
    b.fill(3);
    a.fill(2);
    add(kLarge, a, -kLarge, b, c);
    if (c.min() != -kLarge || c.max() != -kLarge) return "add";
    std::vector<std::int64_t> x(n), y(n);
    std::int64_t sum = 0, product = 0;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<std::int64_t>(random() >> 14) - (std::int64_t{1} << 49) + 1,
      y[i] = i % 2 == 0 ? 1 : -1;
      sum += x[i], product += x[i] * y[i];
    }
    a.put(a.all(), x.data());
    b.put(b.all(), y.data());
    if (a.sum() != sum) return "sum";
    if (dot(a, b) != product) return "dot";
    array<std::int64_t, 1> counter({3});
    counter.fill(0);
    counter.fetch_add({2}, kLarge);
    if (counter.fetch_add({2}, -kLarge) != kLarge) return "fetch_add";
    return counter.sum() == 0 ? "" : "fetch_add back";
  });
}

/// Every operation that T has, on numbers 0 and 1.
template <class T>
std::string every_operation() {
  const std::size_t n = 2000;
  array<T, 1> a({n}), b({n}, tiles{70}), c({n});
  a.fill(T(1)), b.fill(T(0));
  b.set({5}, T(1));
  add(T(1), a, T(0), b, c);
  c.scale(T(1));
  copy(c, a);
  if (a.min() != T(1) || b.min() != T(0) || b.max() != T(1)) return "min or max";
  if (b.sum() != T(1) || dot(a, b) != T(1)) return "sum or dot";
  if (std::is_same_v<T, bool> && a.sum() != T(1)) return "the sum of several";
  transform(a, b, c, [](T x, T y) { return static_cast<T>(x && !y); });
  return c.get(typename array<T, 1>::index{5}) == T(0) && c.min() == T(0) && c.max() == T(1) ? ""
                                                                                             : "transform";
}
TEST(Array, OfSmallTypes) {
  EXPECT_EQ(kasane::run(every_operation<bool>), "");
  EXPECT_EQ(kasane::run(every_operation<std::int8_t>), "");
  EXPECT_EQ(kasane::run(every_operation<std::uint8_t>), "");
  EXPECT_EQ(kasane::run(every_operation<std::int16_t>), "");
  EXPECT_EQ(kasane::run(every_operation<std::uint32_t>), "");
  EXPECT_EQ(kasane::run(every_operation<std::uint64_t>), "");
}

}  // namespace
}  // namespace kasane::test
