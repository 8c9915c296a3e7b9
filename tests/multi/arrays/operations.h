// SPDX-License-Identifier: Apache-2.0
// Operations on whole arrays against a dense vector, from a seed: on a thread of run(), or by every rank of
// attached processes. Each returns what is wrong.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <functional>
#include <kasane/array.hpp>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "drawn.h"

namespace kasane::test {

template <class T, std::size_t N>
std::string bulk(Random& random) {
  const auto extents = draw_extents<N>(random);
  Oracle<T, N> x(extents, random), y(extents, random), z(extents);
  auto a = same_as(x, random, ghosts(random() % 3 == 0 ? 1 : 0));
  const auto b = same_as(y, random);
  array<T, N> c(extents, draw_distribution(random, extents), ghosts(random() % 2));
  std::string wrong;
  const auto expect = [&](const array<T, N>& is, const char* what) {
    if (wrong.empty()) wrong = difference(is, z, what);
  };
  const auto each = [&](auto f) {
    for (std::size_t i = 0; i < z.values.size(); ++i) z.values[i] = f(x.values[i], y.values[i]);
  };
  c.fill(T(5));
  each([](T, T) { return T(5); });
  expect(c, "fill");
  copy(a, c);
  each([](T p, T) { return p; });
  expect(c, "copy");
  c.scale(T(3));
  each([](T p, T) { return static_cast<T>(T(3) * p); });
  expect(c, "scale");
  add(T(2), a, T(-1), b, c);
  each([](T p, T q) { return static_cast<T>(T(2) * p - q); });
  expect(c, "add");
  transform(a, b, c, [](T p, T q) { return static_cast<T>(p * q + T(1)); });
  each([](T p, T q) { return static_cast<T>(p * q + T(1)); });
  expect(c, "transform");
  const T sum = std::accumulate(z.values.begin(), z.values.end(), T(0));
  if (wrong.empty() && c.sum() != sum) wrong = "sum";
  if (wrong.empty() &&
      dot(a, b) != std::inner_product(x.values.begin(), x.values.end(), y.values.begin(), T(0)))
    wrong = "dot";
  if constexpr (std::is_arithmetic_v<T>) {
    if (wrong.empty() && c.min() != *std::min_element(z.values.begin(), z.values.end())) wrong = "min";
    if (wrong.empty() && c.max() != *std::max_element(z.values.begin(), z.values.end())) wrong = "max";
  }
  transform(a, a, [](T p) { return static_cast<T>(p + T(1)); });  // in place
  each([](T p, T) { return static_cast<T>(p + T(1)); });
  expect(a, "transform in place");
  return wrong;
}

inline std::string try_transpose(Random& random) {
  const auto extents = draw_extents<2>(random);
  Oracle<float, 2> x(extents, random), turned({extents[1], extents[0]});
  const auto a = same_as(x, random);
  array<float, 2> b(turned.extents, draw_distribution<2>(random, turned.extents));
  transpose(a, b);
  each_index(x.all(), [&](const auto& i) { turned.at({i[1], i[0]}) = x.at(i); });
  return difference(b, turned, "transpose");
}

/// Every ghost cell of the array, as an index that may be outside, and what it should be.
template <std::size_t N>
std::string check_ghosts(array<std::int64_t, N>& a, Oracle<std::int64_t, N>& right, boundary edges) {
  constexpr std::int64_t kBefore = -77;
  std::vector<std::string> wrong(1);
  const detail::Bulk bulk("check_ghosts", {&a.layout()});
  detail::reduce_at_owners<detail::Nothing>(
      bulk, a.layout(),
      [&](std::size_t k, std::size_t t) {
        const auto tile = detail::tile_of<N>(a.layout(), k, t);
        box<N> shell{{}, {}};  // with ghosts, from the corner on
        for (std::size_t d = 0; d < N; ++d) shell.last[d] = tile.extent(d) + 2 * a.layout().ghost[d];
        each_index(shell, [&](const auto& at) {
          std::array<std::size_t, N> i;
          std::ptrdiff_t offset = 0;
          bool outside = false;
          for (std::size_t d = 0; d < N; ++d) {
            const auto n = static_cast<std::ptrdiff_t>(a.extent(d));
            const auto from_tile =
                static_cast<std::ptrdiff_t>(at[d]) - static_cast<std::ptrdiff_t>(a.layout().ghost[d]);
            const auto g = static_cast<std::ptrdiff_t>(tile.first[d]) + from_tile;
            outside |= g < 0 || g >= n;
            i[d] = static_cast<std::size_t>((g + n) % n);
            offset += from_tile * static_cast<std::ptrdiff_t>(a.layout().stride[d]);
          }
          const auto is = *reinterpret_cast<const std::int64_t*>(
              reinterpret_cast<const std::byte*>(a.address(tile.first).get()) + offset);
          const std::int64_t should = outside && edges == boundary::kept ? kBefore : right.at(i);
          if (is != should) wrong[0] = "around the tile at " + text(tile.first) + " for " + text(i);
        });
        return detail::Nothing();
      },
      std::plus<>());
  return wrong[0];
}

template <std::size_t N>
std::string try_ghosts(Random& random) {
  const boundary edges = random() % 2 == 0 ? boundary::kept : boundary::periodic;
  Oracle<std::int64_t, N> right(draw_extents<N>(random), random);
  ghosts around(0, edges);
  around.dimensions = N;
  for (std::size_t d = 0; d < N; ++d)
    around.widths[d] = std::min<std::size_t>(random() % 4, right.extents[d]);
  array<std::int64_t, N> a(right.extents, draw_distribution(random, right.extents), around);
  a.fill(-77);
  a.put(a.all(), right.values.data());
  a.update_ghosts();
  return check_ghosts(a, right, edges);
}

inline std::string try_stencil(Random& random) {
  Oracle<std::int64_t, 2> x(draw_extents<2>(random), random);
  const auto how = draw_distribution(random, x.extents);
  array<std::int64_t, 2> a(x.extents, how, ghosts(1, boundary::periodic)), b(x.extents, how);
  a.put(a.all(), x.values.data());
  for (int step = 0; step < 3; ++step) {
    a.update_ghosts();
    b.for_each_part([&a](auto out) {
      const auto in = a.view_of(out.where());
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(out.extent(0)); ++i)
        for (std::ptrdiff_t j = 0; j < static_cast<std::ptrdiff_t>(out.extent(1)); ++j)
          out(i, j) = in(i, j) + in(i - 1, j - 1) - 2 * in(i + 1, j) + in(i, j + 1);
    });
    copy(b, a);
    Oracle<std::int64_t, 2> y = x;
    const auto at = [&](std::size_t i, std::size_t j, int di, int dj) {
      const std::size_t n = x.extents[0], m = x.extents[1];
      return x.at({(i + n + static_cast<std::size_t>(di)) % n, (j + m + static_cast<std::size_t>(dj)) % m});
    };
    each_index(x.all(), [&](const auto& i) {
      y.at(i) =
          at(i[0], i[1], 0, 0) + at(i[0], i[1], -1, -1) - 2 * at(i[0], i[1], 1, 0) + at(i[0], i[1], 0, 1);
    });
    x = y;
  }
  return difference(a, x, "stencil");
}

#ifdef KASANE_HAVE_BLAS
template <class T>
std::string try_gemm(Random& random) {
  const std::size_t m = draw(random, 1, 150), n = draw(random, 1, 150), k = draw(random, 1, 150);
  Oracle<T, 2> x({m, k}, random), y({k, n}, random), z({m, n}, random);
  const auto a = same_as(x, random, ghosts(random() % 2)), b = same_as(y, random);
  auto c = same_as(z, random);
  const T alpha = number<T>(random), beta = number<T>(random);
  gemm(alpha, a, b, beta, c);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      T sum{};
      for (std::size_t l = 0; l < k; ++l) sum += x.at({i, l}) * y.at({l, j});
      z.at({i, j}) = alpha * sum + beta * z.at({i, j});
    }
  return difference(c, z, "gemm");
}
#endif

template <class T, std::size_t N>
std::string there_and_back(Random& random, const std::string& path) {
  Oracle<T, N> x(draw_extents<N>(random), random);
  same_as(x, random, ghosts(random() % 2)).save(path);
  const auto b = array<T, N>::load(path, draw_distribution(random, x.extents), ghosts(1));
  for (std::size_t d = 0; d < N; ++d)
    if (b.extent(d) != x.extents[d]) return "extents";
  return difference(b, x, "load");
}

}  // namespace kasane::test
