// SPDX-License-Identifier: Apache-2.0
// k-mers: k bases in the low 2k bits of a word, the first base highest. A k-mer and its reverse complement
// name the same piece of DNA; the smaller of the two numbers is the canonical one. k is odd, so that none is
// its own reverse complement.
//
// Thread safety: all are values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace apps::kmers {

using Kmer = std::uint64_t;

inline constexpr unsigned kLeastK = 3, kMostK = 31;
inline constexpr std::uint8_t kNoBase = 4;

/// 0 … 3 for ACGT and acgt; kNoBase for all else, which no k-mer holds.
inline constexpr std::array<std::uint8_t, 256> kCodes = [] {
  std::array<std::uint8_t, 256> codes{};
  codes.fill(kNoBase);
  for (std::uint8_t i = 0; i < 4; ++i) {
    codes[static_cast<unsigned char>("ACGT"[i])] = i;
    codes[static_cast<unsigned char>("acgt"[i])] = i;
  }
  return codes;
}();
[[nodiscard]] constexpr std::uint8_t code_of(char base) noexcept {
  return kCodes[static_cast<unsigned char>(base)];
}
[[nodiscard]] constexpr char base_of(std::uint64_t code) noexcept { return "ACGT"[code & 3]; }

/// k-mers of one length.
class Kmers {
 public:
  explicit constexpr Kmers(unsigned k) noexcept : k_(k), high_(2 * k - 2), mask_(~Kmer{0} >> (64 - 2 * k)) {}

  [[nodiscard]] constexpr unsigned k() const noexcept { return k_; }
  /// One base further to the right.
  [[nodiscard]] constexpr Kmer next(Kmer x, std::uint64_t code) const noexcept {
    return (x << 2 | code) & mask_;
  }
  /// One base further to the left.
  [[nodiscard]] constexpr Kmer previous(Kmer x, std::uint64_t code) const noexcept {
    return x >> 2 | code << high_;
  }
  [[nodiscard]] constexpr Kmer reverse(Kmer x) const noexcept {
    constexpr Kmer pairs = 0x3333333333333333, nibbles = 0x0F0F0F0F0F0F0F0F;
    Kmer r = ~x;
    r = (r >> 2 & pairs) | (r & pairs) << 2;
    r = (r >> 4 & nibbles) | (r & nibbles) << 4;
    return __builtin_bswap64(r) >> (62 - high_);
  }
  [[nodiscard]] constexpr Kmer canonical(Kmer x) const noexcept { return std::min(x, reverse(x)); }
  [[nodiscard]] std::string text(Kmer x) const {
    std::string s(k_, 'A');
    for (unsigned i = 0; i < k_; ++i) s[i] = base_of(x >> (high_ - 2 * i));
    return s;
  }

  /// Calls f(k-mer, its reverse complement, position) for all of a text, from left to right.
  template <class F>
  void for_each(std::string_view text, F&& f) const {
    Kmer forward = 0, backward = 0;
    unsigned filled = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::uint64_t code = code_of(text[i]);
      if (code == kNoBase) {
        filled = 0;
        continue;
      }
      forward = next(forward, code);
      backward = previous(backward, 3 - code);
      if (++filled >= k_) f(forward, backward, i + 1 - k_);
    }
  }

 private:
  unsigned k_, high_;
  Kmer mask_;
};

}  // namespace apps::kmers
