// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kasane::dsm {

/// The eight bytes at p, for any alignment of p.
[[nodiscard]] inline std::uint64_t word_at(const std::byte* p) noexcept {
  std::uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

/// 0xFF for each byte in which the words differ.
[[nodiscard]] constexpr std::uint64_t differing_bytes(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t bits = a ^ b;
  bits |= bits >> 4 & 0x0F0F0F0F0F0F0F0F;
  bits |= bits >> 2 & 0x3333333333333333;
  bits |= bits >> 1 & 0x5555555555555555;
  return (bits & 0x0101010101010101) * 0xFF;
}

/// How many bytes are 0xFF in such a word. (std::popcount is a call where the processor need not have one.)
[[nodiscard]] constexpr unsigned bytes_in(std::uint64_t which) noexcept {
  return static_cast<unsigned>((which & 0x0101010101010101) * 0x0101010101010101 >> 56);
}

/// Stores the bytes of a word where `which`, which is not 0, has 0xFF, and no others: another thread or rank
/// may be storing to those. A byte may be stored twice.
inline void store_bytes(std::byte* to, std::uint64_t word, std::uint64_t which) noexcept {
  static_assert(std::endian::native == std::endian::little);
  const auto put = [](std::byte* at, auto part) { std::memcpy(at, &part, sizeof part); };
  const auto first = static_cast<unsigned>(std::countr_zero(which));
  word >>= first;
  which >>= first;
  to += first / 8;
  if ((which & (which + 1)) != 0) {  // not in a row
    for (; which != 0; which >>= 8, word >>= 8, ++to) {
      if ((which & 0xFF) != 0) put(to, static_cast<std::uint8_t>(word));
    }
    return;
  }
  const unsigned bytes = 8 - static_cast<unsigned>(std::countl_zero(which)) / 8;
  if (bytes == 8) {
    put(to, word);
  } else if (bytes >= 4) {
    put(to, static_cast<std::uint32_t>(word));
    put(to + bytes - 4, static_cast<std::uint32_t>(word >> 8 * (bytes - 4)));
  } else if (bytes >= 2) {
    put(to, static_cast<std::uint16_t>(word));
    put(to + bytes - 2, static_cast<std::uint16_t>(word >> 8 * (bytes - 2)));
  } else {
    put(to, static_cast<std::uint8_t>(word));
  }
}

}  // namespace kasane::dsm
