// SPDX-License-Identifier: Apache-2.0
// The patterns of patterns.h as user-level threads: one thread a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <kasane/algorithm.hpp>
#include <kasane/kasane.hpp>
#include <utility>

namespace apps {

struct Parallel {
  template <class... F>
  static void invoke(F&&... f) {
    kasane::parallel_invoke(std::forward<F>(f)...);
  }
  template <class T, class F>
  static T sum(std::uint32_t n, T zero, F&& f) {
    return kasane::parallel_reduce(std::uint32_t{0}, n, zero, f, [](T a, T b) { return a + b; }, 1);
  }
  template <class T>
  static void sort(T* first, T* last) {
    kasane::sort(first, last);
  }
  static void near(const void* p) { kasane::this_thread::move_near(p); }
  template <class T>
  static void reads(const T* p, std::size_t n) {
    kasane::prefetch(p, n);
  }
  template <class T>
  static void updates(T* p, std::size_t n) {
    kasane::prefetch(p, n, kasane::read_write);
  }
  template <class T>
  static void overwrites(T* p, std::size_t n) {
    kasane::prefetch(p, n, kasane::write_only);
  }
  template <class T>
  static void consumed(const T* p, std::size_t n) {
    kasane::discard(const_cast<T*>(p), n);
  }
};

}  // namespace apps
