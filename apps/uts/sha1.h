// SPDX-License-Identifier: Apache-2.0
// SHA-1 (FIPS 180-4) of messages that fit one block: all that the tree search hashes is 20 or 24 bytes. Not
// for security.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace apps {

using Digest = std::array<std::uint8_t, 20>;

namespace detail {

[[nodiscard]] constexpr std::uint32_t load_be(const std::uint8_t* p) noexcept {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}
constexpr void store_be(std::uint8_t* p, std::uint32_t v) noexcept {
  p[0] = static_cast<std::uint8_t>(v >> 24);
  p[1] = static_cast<std::uint8_t>(v >> 16);
  p[2] = static_cast<std::uint8_t>(v >> 8);
  p[3] = static_cast<std::uint8_t>(v);
}

/// The compression function on the initial state.
[[nodiscard]] constexpr Digest sha1_block(const std::array<std::uint8_t, 64>& block) noexcept {
  constexpr std::array<std::uint32_t, 5> initial = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476,
                                                    0xC3D2E1F0};
  std::uint32_t w[80] = {};
  for (std::size_t t = 0; t < 16; ++t) w[t] = load_be(&block[4 * t]);
  for (std::size_t t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  auto [a, b, c, d, e] = initial;
  const auto round = [&](std::uint32_t f, std::uint32_t k, std::uint32_t word) {
    const std::uint32_t next = std::rotl(a, 5) + f + e + k + word;
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  };
  for (std::size_t t = 0; t < 20; ++t) round((b & c) | (~b & d), 0x5A827999, w[t]);
  for (std::size_t t = 20; t < 40; ++t) round(b ^ c ^ d, 0x6ED9EBA1, w[t]);
  for (std::size_t t = 40; t < 60; ++t) round((b & c) | (b & d) | (c & d), 0x8F1BBCDC, w[t]);
  for (std::size_t t = 60; t < 80; ++t) round(b ^ c ^ d, 0xCA62C1D6, w[t]);
  Digest out{};
  const std::uint32_t sums[5] = {a + initial[0], b + initial[1], c + initial[2], d + initial[3],
                                 e + initial[4]};
  for (std::size_t i = 0; i < 5; ++i) store_be(&out[4 * i], sums[i]);
  return out;
}

}  // namespace detail

/// Digest of a message of at most 55 bytes: with its padding and length it fills one block.
[[nodiscard]] constexpr Digest sha1(std::span<const std::uint8_t> message) noexcept {
  assert(message.size() <= 55);
  std::array<std::uint8_t, 64> block{};
  for (std::size_t i = 0; i < message.size(); ++i) block[i] = message[i];
  block[message.size()] = 0x80;
  detail::store_be(&block[60], static_cast<std::uint32_t>(message.size() * 8));
  return detail::sha1_block(block);
}

}  // namespace apps
