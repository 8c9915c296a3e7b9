// SPDX-License-Identifier: Apache-2.0
// The shape of an ARMCI transfer: count[0] contiguous bytes, count[i] times at distances of stride[i-1]
// bytes on either side. All arithmetic has 64 bits. Pure.
#pragma once

#include <kasane/kasane.h>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kasane::armci {

struct Patch {
  static constexpr std::uint32_t kMost = 16;
  std::uint32_t dimensions = 1;
  // Those of `dimensions` are set, and no others: a call of 8 bytes would spend its time on the rest.
  std::size_t count[kMost];
  std::size_t global_stride[kMost];  ///< modulo 2^64: strides may be negative
  std::size_t local_stride[kMost];

  static Patch bytes(std::size_t n) noexcept {
    Patch p;
    p.count[0] = n;
    return p;
  }

  /// counts and strides as of ARMCI_PutS; levels < kMost. Dimensions that continue the one before them on
  /// both sides are joined with it, and those of one row are left out. A count below 1: nothing is
  /// transferred.
  static Patch strided(const int* global, const int* local, const int* counts, int levels) noexcept {
    Patch p = bytes(static_cast<std::size_t>(counts[0]));
    bool empty = counts[0] <= 0;
    for (int level = 0; level < levels; ++level) {
      const auto rows = static_cast<std::size_t>(counts[level + 1]);
      empty |= counts[level + 1] <= 0;
      const auto g = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(global[level]));
      const auto l = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(local[level]));
      if (rows != 1) p.add(rows, g, l);
    }
    return empty ? bytes(0) : p;
  }

  [[nodiscard]] bool contiguous() const noexcept { return dimensions == 1; }
  /// Too small to look whether it is on SSD before it is copied.
  [[nodiscard]] bool is_small() const noexcept {
    constexpr std::size_t kFewBytes = 4096, kFewRows = 2;
    return count[0] == 0 || (total() < kFewBytes && total() / count[0] <= kFewRows);
  }
  [[nodiscard]] std::size_t total() const noexcept {
    std::size_t n = 1;
    for (std::uint32_t d = 0; d < dimensions; ++d) n *= count[d];
    return n;
  }

  /// The same bytes, where the local side is packed.
  [[nodiscard]] Patch packed() const noexcept {
    Patch p = *this;
    std::size_t n = count[0];
    for (std::uint32_t d = 1; d < dimensions; ++d) {
      p.local_stride[d - 1] = n;
      n *= count[d];
    }
    return p;
  }

 private:
  void add(std::size_t rows, std::size_t g, std::size_t l) noexcept {
    const std::uint32_t d = dimensions - 1;
    // The extent of what is described so far, if it is one run on both sides.
    const bool joins = d == 0 ? g == count[0] && l == count[0]
                              : g == global_stride[d - 1] * count[d] && l == local_stride[d - 1] * count[d];
    if (joins) {
      count[d] *= rows;
      return;
    }
    global_stride[d] = g;
    local_stride[d] = l;
    count[dimensions++] = rows;
  }
};

/// f(global, local, bytes) for each row of dimensions [0, d) of the patch.
template <class F>
void each_row(const Patch& p, std::uint32_t d, char* global, char* local, const F& f) {
  if (d == 1) return f(global, local, p.count[0]);
  for (std::size_t i = 0; i < p.count[d - 1]; ++i) {
    each_row(p, d - 1, global, local, f);
    global += p.global_stride[d - 2];
    local += p.local_stride[d - 2];
  }
}

/// As each_row(), of all dimensions: f(packed, global, local, bytes), where the rows follow each other.
template <class F>
void each_packed_row(const Patch& p, char* packed, void* global, void* local, const F& f) {
  each_row(p, p.dimensions, static_cast<char*>(global), static_cast<char*>(local),
           [&](char* g, char* l, std::size_t n) {
             f(packed, g, l, n);
             packed += n;
           });
}

/// f(global, local, shape) for the parts of the patch that kasane_strides_t can describe: 8 dimensions.
template <class F>
void each_shape(const Patch& p, std::uint32_t d, char* global, char* local, const F& f) {
  if (d <= 8) {
    kasane_strides_t shape = {};
    shape.dimensions = d;
    for (std::uint32_t i = 0; i < d; ++i) {
      shape.count[i] = p.count[i];
      if (i == 0) continue;
      shape.global_stride[i - 1] = p.global_stride[i - 1];
      shape.local_stride[i - 1] = p.local_stride[i - 1];
    }
    return f(global, local, shape);
  }
  for (std::size_t i = 0; i < p.count[d - 1]; ++i) {
    each_shape(p, d - 1, global, local, f);
    global += p.global_stride[d - 2];
    local += p.local_stride[d - 2];
  }
}

/// Copies a row; the short ones without a call.
inline void copy_row(void* to, const void* from, std::size_t n) noexcept {
  if (n == 8) {
    std::memcpy(to, from, 8);
  } else if (n == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memmove(to, from, n);
  }
}

}  // namespace kasane::armci
