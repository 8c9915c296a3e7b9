// SPDX-License-Identifier: Apache-2.0
// Random arrays, their shapes, distributions and patches, each from a seed; and the dense vector in C's order
// that says what is right.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <kasane/array.hpp>
#include <random>
#include <string>
#include <vector>

namespace kasane::test {

using Random = std::mt19937_64;

inline std::size_t draw(Random& random, std::size_t from, std::size_t to) {
  return from + static_cast<std::size_t>(random() % (to - from + 1));
}

/// Small whole numbers: sums and products are exact in every type.
template <class T>
T number(Random& random) {
  const auto n = static_cast<int>(random() % 17) - 8;
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(n);
  else
    return T(static_cast<typename T::value_type>(n), static_cast<typename T::value_type>(random() % 5));
}

template <std::size_t N>
std::array<std::size_t, N> draw_extents(Random& random) {
  constexpr std::size_t most[] = {0, 3000, 90, 24, 11};
  std::array<std::size_t, N> e;
  for (auto& n : e) n = draw(random, 1, most[N]);
  return e;
}

/// Blocks, blocks in a grid, or tiles.
template <std::size_t N>
distribution draw_distribution(Random& random, const std::array<std::size_t, N>& extents) {
  distribution how = blocks();
  const std::size_t kind = random() % 3;
  if (kind == 0) return how;
  how.in_tiles = kind == 2;
  how.dimensions = N;
  for (std::size_t d = 0; d < N; ++d)
    how.values[d] = how.in_tiles ? draw(random, 1 + extents[d] / 8, extents[d] + 1) : draw(random, 1, 3);
  return how;
}

template <std::size_t N>
box<N> draw_box(Random& random, const std::array<std::size_t, N>& extents) {
  box<N> b;
  for (std::size_t d = 0; d < N; ++d) {
    b.first[d] = draw(random, 0, extents[d] - 1);
    b.last[d] = draw(random, b.first[d] + 1, extents[d]);
  }
  return b;
}

/// Calls f(index) for each index of the box, in C's order.
template <std::size_t N, class F>
void each_index(const box<N>& b, const F& f) {
  auto i = b.first;
  if (b.size() == 0) return;
  for (;;) {
    f(i);
    std::size_t d = N;
    for (; d > 0 && ++i[d - 1] == b.last[d - 1]; --d) i[d - 1] = b.first[d - 1];
    if (d == 0) return;
  }
}

/// What is right.
template <class T, std::size_t N>
struct Oracle {
  std::array<std::size_t, N> extents;
  std::vector<T> values;

  explicit Oracle(const std::array<std::size_t, N>& e) : extents(e) {
    std::size_t n = 1;
    for (const std::size_t x : e) n *= x;
    values.resize(n);
  }
  Oracle(const std::array<std::size_t, N>& e, Random& random) : Oracle(e) {
    for (T& x : values) x = number<T>(random);
  }
  [[nodiscard]] box<N> all() const { return {{}, extents}; }
  [[nodiscard]] T& at(const std::array<std::size_t, N>& i) {
    std::size_t k = 0;
    for (std::size_t d = 0; d < N; ++d) k = k * extents[d] + i[d];
    return values[k];
  }
};

template <std::size_t N>
std::string text(const std::array<std::size_t, N>& i) {
  std::string s;
  for (const std::size_t x : i) s += (s.empty() ? "" : ",") + std::to_string(x);
  return "(" + s + ")";
}

/// "" if the array's elements are the oracle's, else the first that is not.
template <class T, std::size_t N>
std::string difference(const array<T, N>& a, Oracle<T, N>& right, const char* what) {
  std::vector<T> all(right.values.size());
  a.get(a.all(), all.data());
  std::string found;
  std::size_t k = 0;
  each_index(right.all(), [&](const auto& i) {
    if (found.empty() && all[k] != right.at(i))
      found = std::string(what) + ": element " + text(i) + " is wrong";
    ++k;
  });
  return found;
}

/// An array with the oracle's elements.
template <class T, std::size_t N>
array<T, N> same_as(Oracle<T, N>& right, Random& random, const ghosts& around = ghosts(0)) {
  array<T, N> a(right.extents, draw_distribution(random, right.extents), around);
  a.put(a.all(), right.values.data());
  return a;
}

}  // namespace kasane::test
