// SPDX-License-Identifier: Apache-2.0
// What the tests of mem share: a space to play with, and sizes that sanitizers can bear.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "mem/space.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

namespace kasane::mem {

inline Space make_space(std::size_t bytes) {
  auto base = reserve_space(bytes);
  if (!base) throw std::runtime_error(base.error().message);
  auto space = Space::create(*base, bytes);
  if (!space) throw std::runtime_error(space.error().message);
  return std::move(*space);
}

/// A small, seeded generator; two threads use two of them.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t below(std::uint64_t n) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return (state_ >> 11) % n;
  }

 private:
  std::uint64_t state_;
};

}  // namespace kasane::mem
