// SPDX-License-Identifier: Apache-2.0
// How an algorithm forks. Each application's algorithm is a template over one of these, so that its
// sequential elision is the same code. This file holds the plain one and needs no runtime; parallel.h holds
// Kasane's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace apps {

/// The sequential elision.
struct Serial {
  template <class... F>
  static void invoke(F&&... f) {
    (f(), ...);
  }
  /// Sum of f(i) over [0, n), by operator+.
  template <class T, class F>
  static T sum(std::uint32_t n, T zero, F&& f) {
    for (std::uint32_t i = 0; i < n; ++i) zero = zero + f(i);
    return zero;
  }
  template <class T>
  static void sort(T* first, T* last) {
    std::sort(first, last);
  }
  /// What comes next uses above all the memory there.
  static void near(const void*) {}
  // n elements at p are used so next.
  template <class T>
  static void reads(const T*, std::size_t) {}
  template <class T>
  static void updates(T*, std::size_t) {}
  template <class T>
  static void overwrites(T*, std::size_t) {}  ///< every one is assigned, and none read before
  template <class T>
  static void consumed(const T*, std::size_t) {}  ///< none is read any more before it is assigned
};

}  // namespace apps
