// SPDX-License-Identifier: Apache-2.0
// The loops and the locks of accumulate.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // -O2 of GCC 12 leaves loops of unknown length scalar
#endif
#include "comm/engine/accumulate.h"

#include <sched.h>

#include <algorithm>
#include <type_traits>

#include "base/clock.h"

namespace kasane::comm {
namespace {

constexpr int kSpins = 200;

void lock(StripeLock& l) noexcept {
  for (int n = 0;; ++n) {
    // relaxed: looks without taking the cache line away; the exchange decides. acquire: what the last holder
    // added.
    if (l.held.load(std::memory_order_relaxed) == 0 && l.held.exchange(1, std::memory_order_acquire) == 0)
      return;
    if (n < kSpins) {
      relax();
    } else {
      ::sched_yield();  // the holder has lost its core, perhaps to this thread
    }
  }
}
// release: our additions
void unlock(StripeLock& l) noexcept { l.held.store(0, std::memory_order_release); }

StripeLock& lock_of(StripeLock* locks, RegionId region, std::uint64_t offset) noexcept {
  // neighbours of all regions spread
  const std::uint64_t key = (offset / kStripeBytes + raw(region) * 61) * 0x9E3779B97F4A7C15ull;
  return locks[key >> 55];
}
static_assert(kStripes == 512, "lock_of() takes 9 bits");

// Integers wrap around: unsigned, so that overflow is defined.
template <class T>
[[gnu::always_inline]] inline void add_loop(T* y, const T* x, T a, std::size_t n) noexcept {
  // Unrolled: where a loop of six instructions lies across lines of code, it takes 1.6 times as long.
  if (a == T{1}) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
  } else {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < n; ++i) y[i] += a * x[i];
  }
}
#if defined(__x86_64__)
/// Vectors of 32 bytes; without fused multiply-add, so that all machines add the same.
template <class T>
[[gnu::target("avx2")]] void add_wide(T* y, const T* x, T a, std::size_t n) noexcept {
  add_loop(y, x, a, n);
}
#endif
template <class T>
void add_real(T* y, const T* x, T a, std::size_t n) noexcept {
#if defined(__x86_64__)
  // a bit that libgcc's constructor has set
  if (__builtin_cpu_supports("avx2")) return add_wide(y, x, a, n);
#endif
  add_loop(y, x, a, n);
}
template <class T>
void scale_real(T* out, const T* x, T a, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) out[i] = a * x[i];
}
// By parts: std::complex's product checks for infinities in each step.
template <class T>
void add_complex(T* y, const T* x, std::complex<T> a, std::size_t n) noexcept {
  if (a == std::complex<T>{1}) return add_real(y, x, T{1}, 2 * n);
  for (std::size_t i = 0; i < n; ++i) {
    const T re = x[2 * i], im = x[2 * i + 1];
    y[2 * i] += a.real() * re - a.imag() * im;
    y[2 * i + 1] += a.real() * im + a.imag() * re;
  }
}
template <class T>
void scale_complex(T* out, const T* x, std::complex<T> a, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const T re = x[2 * i], im = x[2 * i + 1];
    out[2 * i] = a.real() * re - a.imag() * im;
    out[2 * i + 1] = a.real() * im + a.imag() * re;
  }
}

/// Calls f(T{}, a) with the element's part and the scale in it.
template <class F>
void with_element(Element e, std::complex<double> a, const F& f) noexcept {
  switch (e) {
    case Element::int32:
      return f(std::uint32_t{}, static_cast<std::uint32_t>(static_cast<std::int64_t>(a.real())));
    case Element::int64:
      return f(std::uint64_t{}, static_cast<std::uint64_t>(static_cast<std::int64_t>(a.real())));
    case Element::float32: return f(float{}, static_cast<float>(a.real()));
    case Element::float64: return f(double{}, a.real());
    case Element::complex64: return f(float{}, std::complex<float>(a));
    case Element::complex128: return f(double{}, a);
  }
}

void add(Element e, std::complex<double> scale, std::byte* y, const std::byte* x,
         std::size_t bytes) noexcept {
  with_element(e, scale, [&](auto part, auto a) {
    using T = decltype(part);
    auto* to = reinterpret_cast<T*>(y);
    const auto* from = reinterpret_cast<const T*>(x);
    if constexpr (std::is_same_v<decltype(a), T>) {
      add_real(to, from, a, bytes / sizeof(T));
    } else {
      add_complex(to, from, a, bytes / (2 * sizeof(T)));
    }
  });
}

}  // namespace

void accumulate(Element e, std::complex<double> scale, std::byte* y, const std::byte* x, std::size_t bytes,
                StripeLock* locks, RegionId region, std::uint64_t offset) noexcept {
  const std::size_t element = element_bytes(e);  // a power of two
  while (bytes != 0) {
    // A complex element across the border belongs to the stripe in which it begins, for every rank that adds
    // this element type at this place. A rank that adds at the other alignment adds parts that the next
    // stripe guards. Hence the locks of both stripes are taken where an element crosses.
    const std::size_t room = kStripeBytes - offset % kStripeBytes;
    const std::size_t whole = std::min(bytes, room & ~(element - 1));
    const std::size_t now = whole != 0 ? whole : element;
    StripeLock& first = lock_of(locks, region, offset);
    StripeLock& last = now <= room ? first : lock_of(locks, region, offset + now - 1);
    lock(std::min(&first, &last)[0]);  // in one order, so that two threads never wait for each other
    if (&first != &last) lock(std::max(&first, &last)[0]);
    add(e, scale, y, x, now);
    if (&first != &last) unlock(last);
    unlock(first);
    y += now;
    x += now;
    offset += now;
    bytes -= now;
  }
}

void scale_elements(Element e, std::complex<double> scale, std::byte* out, const std::byte* x,
                    std::size_t bytes) noexcept {
  with_element(e, scale, [&](auto part, auto a) {
    using T = decltype(part);
    auto* to = reinterpret_cast<T*>(out);
    const auto* from = reinterpret_cast<const T*>(x);
    if constexpr (std::is_same_v<decltype(a), T>) {
      scale_real(to, from, a, bytes / sizeof(T));
    } else {
      scale_complex(to, from, a, bytes / (2 * sizeof(T)));
    }
  });
}

}  // namespace kasane::comm
