// SPDX-License-Identifier: Apache-2.0
// The sizes of small objects: 16 … 128 in steps of 16, then four steps a doubling up to 32 KiB. At most 25 %
// are wasted.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kasane::gas {

inline constexpr std::size_t kLargestSmall = 32 * 1024;
inline constexpr unsigned kSizeClasses = 8 + 4 * 8;

[[nodiscard]] constexpr std::size_t class_bytes(unsigned c) noexcept {
  if (c < 8) return 16 * (std::size_t{c} + 1);
  const std::size_t base = std::size_t{128} << ((c - 8) / 4);
  return base + base / 4 * ((c - 8) % 4 + 1);
}

/// The smallest class whose objects hold `bytes` and, laid out one after another, keep to `align` (a power of
/// two ≤ 32 KiB).
[[nodiscard]] constexpr unsigned class_of(std::size_t bytes, std::size_t align) noexcept {
  unsigned c = 0;
  while (c < kSizeClasses && (class_bytes(c) < bytes || class_bytes(c) % align != 0)) ++c;
  return c;
}

/// class_of for align ≤ 16 by table, in one load: index (bytes + 15) / 16.
inline constexpr auto kClassTable = [] {
  std::array<std::uint8_t, kLargestSmall / 16 + 1> table{};
  unsigned c = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    while (class_bytes(c) < i * 16) ++c;
    table[i] = static_cast<std::uint8_t>(c);
  }
  return table;
}();

/// class_bytes by table, and floor(2^32 / units of 16) + 1: (n / 16 * kClassReciprocal) >> 32 is n /
/// class_bytes, exactly, for n < 2^20.
inline constexpr auto kClassBytes = [] {
  std::array<std::uint32_t, kSizeClasses> table{};
  for (unsigned c = 0; c < kSizeClasses; ++c) table[c] = static_cast<std::uint32_t>(class_bytes(c));
  return table;
}();
inline constexpr auto kClassReciprocal = [] {
  std::array<std::uint64_t, kSizeClasses> table{};
  for (unsigned c = 0; c < kSizeClasses; ++c) table[c] = (std::uint64_t{1} << 32) / (class_bytes(c) / 16) + 1;
  return table;
}();
[[nodiscard]] constexpr std::uint64_t object_at(std::uint64_t bytes, unsigned c) noexcept {
  return (bytes / 16 * kClassReciprocal[c]) >> 32;
}

/// Pages (64 KiB) of a slab: eight objects at least.
[[nodiscard]] constexpr std::uint64_t slab_pages(unsigned c) noexcept {
  return class_bytes(c) <= 8192 ? 1 : class_bytes(c) <= 16384 ? 2 : 4;
}

static_assert(class_bytes(kSizeClasses - 1) == kLargestSmall);
static_assert(class_bytes(8) == 160 && class_bytes(11) == 256);

}  // namespace kasane::gas
