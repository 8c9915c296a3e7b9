// SPDX-License-Identifier: Apache-2.0
// Division by a number that is known only at run time, without the processor's division (25 cycles and more,
// where a multiplication takes 4): for the number of ranks and the like, in every access.
//
//   n / d = ((n + 1) · m) >> 64   with m = ⌊(2^64 − 1) / d⌋ = (2^64 − 1 − r) / d, r < d
//
// since (n + 1) · m / 2^64 = (n + 1) / d − (n + 1)(1 + r) / (d · 2^64). The second term is more than 0, so
// the quotient of n + 1 = (q + 1) · d becomes q. It is at most 1 / d, the least that (n + 1) / d has above q,
// as long as (n + 1) · d ≤ 2^64.
//
// Thread safety: constant.
#pragma once

#include <cstdint>

namespace kasane {

class Divisor {
 public:
  /// d > 0
  explicit constexpr Divisor(std::uint32_t d) noexcept : d_(d), m_(~std::uint64_t{0} / d) {}

  struct Division {
    std::uint64_t quotient;
    std::uint32_t remainder;
  };
  /// (n + 1) · d < 2^64
  [[nodiscard]] constexpr Division divide(std::uint64_t n) const noexcept {
    __extension__ using Wide = unsigned __int128;
    const auto quotient = static_cast<std::uint64_t>(Wide{n + 1} * m_ >> 64);
    return {quotient, static_cast<std::uint32_t>(n - quotient * d_)};
  }

 private:
  std::uint64_t d_, m_;
};

}  // namespace kasane
