// SPDX-License-Identifier: Apache-2.0
/// @file
/// The product of the layouts of distributed matrices, by the BLAS that the program links: what
/// kasane::gemm (kasane/array.hpp) does.
///
/// A program that calls gemm links kasane::blas (CMake), or any library with the functions of cblas.h whose
/// integers have 32 bits: `-lopenblas`. Without one the linker misses cblas_dgemm. libkasane itself needs
/// none. Each worker (of attached processes each rank) calls the BLAS by itself: `OPENBLAS_NUM_THREADS=1`
/// keeps OpenBLAS from starting a team of threads in each.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <complex>
#include <cstddef>
#include <kasane/array_owners.hpp>
#include <optional>
#include <type_traits>

// Under other names than cblas.h has, so that a program may include that as well.
extern "C" {
void kasane_cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                        float*, int) __asm__("cblas_sgemm");
void kasane_cblas_dgemm(int, int, int, int, int, int, double, const double*, int, const double*, int, double,
                        double*, int) __asm__("cblas_dgemm");
void kasane_cblas_cgemm(int, int, int, int, int, int, const void*, const void*, int, const void*, int,
                        const void*, void*, int) __asm__("cblas_cgemm");
void kasane_cblas_zgemm(int, int, int, int, int, int, const void*, const void*, int, const void*, int,
                        const void*, void*, int) __asm__("cblas_zgemm");
}

namespace kasane::detail {

/// A patch of a matrix in memory: its first element, and elements between rows.
template <class Type>
struct Matrix {
  Type* at;
  int ld;
};

/// c = alpha a b + beta c for m x k and k x n elements.
template <class Type>
void multiply(std::size_t m, std::size_t n, std::size_t k, const Type& alpha, Matrix<const Type> a,
              Matrix<const Type> b, const Type& beta, Matrix<Type> c) {
  constexpr int kRowMajor = 101, kPlain = 111;
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), depth = static_cast<int>(k);
  const auto call = [&](auto gemm, auto one, auto two) {
    gemm(kRowMajor, kPlain, kPlain, rows, columns, depth, one, a.at, a.ld, b.at, b.ld, two, c.at, c.ld);
  };
  if constexpr (std::is_same_v<Type, float>)
    call(kasane_cblas_sgemm, alpha, beta);
  else if constexpr (std::is_same_v<Type, double>)
    call(kasane_cblas_dgemm, alpha, beta);
  else if constexpr (std::is_same_v<Type, std::complex<float>>)
    call(kasane_cblas_cgemm, &alpha, &beta);
  else
    call(kasane_cblas_zgemm, &alpha, &beta);
}

/// One piece of c: its products with the patches of a and b, each of which lies in one tile of its array.
/// While a product is computed, the next patches are on their way from SSD.
template <class Type>
class Product {
 public:
  Product(const ArrayLayout& a, const ArrayLayout& b, const ArrayLayout& c, const Type& alpha,
          const Type& beta)
      : a_(a), b_(b), c_(c), alpha_(alpha), beta_(beta) {}

  void compute(const box<2>& whole) const {
    expect(c_, whole, read_write);
    for (std::size_t i = whole.first[0], i_end = 0; i < whole.last[0]; i = i_end) {
      i_end = std::min(whole.last[0], end_of_tile(a_, 0, i));
      for (std::size_t j = whole.first[1], j_end = 0; j < whole.last[1]; j = j_end) {
        j_end = std::min(whole.last[1], end_of_tile(b_, 1, j));
        along({{i, j}, {i_end, j_end}});
      }
    }
  }

 private:
  static constexpr std::size_t kDepth = 512;  ///< of a step: the sums are stored once for each

  static std::size_t end_of_tile(const ArrayLayout& l, std::size_t d, std::size_t i) noexcept {
    return std::min(l.extents[d], (i / l.tile[d] + 1) * l.tile[d]);
  }
  [[nodiscard]] std::size_t end_of_step(std::size_t k) const noexcept {
    return std::min({k + kDepth, end_of_tile(a_, 1, k), end_of_tile(b_, 0, k)});
  }
  void fetch(const box<2>& c, std::size_t k) const {
    if (k == a_.extents[1]) return;
    const std::size_t end = end_of_step(k);
    expect<2>(a_, {{c.first[0], k}, {c.last[0], end}}, view_access::read);
    expect<2>(b_, {{k, c.first[1]}, {end, c.last[1]}}, view_access::read);
  }
  void along(const box<2>& c) const {
    fetch(c, 0);
    for (std::size_t k = 0, end = 0; k < a_.extents[1]; k = end) {
      end = end_of_step(k);
      fetch(c, end);
      multiply<Type>(c.extent(0), c.extent(1), end - k, alpha_, at<const Type>(a_, c.first[0], k),
                     at<const Type>(b_, k, c.first[1]), k == 0 ? beta_ : Type(1),
                     at<Type>(c_, c.first[0], c.first[1]));
    }
  }
  template <class Other>
  static Matrix<Other> at(const ArrayLayout& l, std::size_t i, std::size_t j) noexcept {
    const std::size_t index[2] = {i, j};
    return {reinterpret_cast<Other*>(l.address(index)), static_cast<int>(l.stride[0] / sizeof(Type))};
  }

  const ArrayLayout &a_, &b_, &c_;
  Type alpha_, beta_;
};

/// gemm() of layouts of matrices of Type. done(piece): so much of c is there.
template <class Type, class Done>
void multiply_arrays(const Type& alpha, const ArrayLayout& a, const ArrayLayout& b, const Type& beta,
                     const ArrayLayout& c, const Done& done) {
  const Bulk bulk("kasane::gemm", {&a, &b, &c}, alpha, beta);
  if (a.extents[0] != c.extents[0] || b.extents[1] != c.extents[1] || a.extents[1] != b.extents[0])
    throw error(EINVAL, "kasane::gemm: extents that do not fit; give a of m x k, b of k x n and c of m x n");
  if (a.base == c.base || b.base == c.base)
    throw error(EINVAL, "kasane::gemm: the output is one of the factors; give it an array of its own");
  for (const ArrayLayout* l : {&a, &b, &c})
    if (l->stride[0] / sizeof(Type) > INT_MAX || l->tile[0] > INT_MAX)
      throw error(EINVAL, "kasane::gemm: tiles of more than 2^31 - 1 rows or columns; give smaller tiles");
  const Product<Type> product(a, b, c, alpha, beta);
  at_owners<2>(bulk, c, in_rows(c, 1024, 4096),  // large, for much reuse
               [&](const box<2>& whole) {
                 product.compute(whole);
                 done(whole);
               });
}

}  // namespace kasane::detail
