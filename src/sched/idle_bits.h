// SPDX-License-Identifier: Apache-2.0
// Where a rank without work says so: which bit of which rank's idle-ranks word is its own
// (docs/design/sched.md, "Idling"). Up to 64 ranks tell all others. In larger jobs a rank tells those at
// distances 1, 2, 4 … from it, so that it costs a logarithm of the ranks, and every bit still names one rank.
//
// Thread safety: pure. Invariant: who(at(me, b), b) is me, and no two ranks have one bit of one word.
#pragma once

#include <bit>
#include <cstdint>

#include "base/ids.h"
#include "ult/layout.h"

namespace kasane::sched {

class IdleBits {
 public:
  explicit constexpr IdleBits(std::uint32_t ranks) noexcept : ranks_(ranks) {}

  /// Whether every other rank is told.
  [[nodiscard]] constexpr bool all() const noexcept { return ranks_ <= ult::kIdleRankBits + 1; }
  [[nodiscard]] constexpr std::uint32_t count() const noexcept {
    return all() ? ranks_ - 1 : static_cast<std::uint32_t>(std::bit_width(ranks_ - 1));
  }
  /// The rank whose word has the bit for `me`.
  [[nodiscard]] constexpr Rank at(Rank me, std::uint32_t bit) const noexcept {
    return Rank{(raw(me) + distance(bit)) % ranks_};
  }
  /// Whom the bit stands for in the word of `me`.
  [[nodiscard]] constexpr Rank who(Rank me, std::uint32_t bit) const noexcept {
    return Rank{(raw(me) + ranks_ - distance(bit)) % ranks_};
  }

 private:
  [[nodiscard]] constexpr std::uint32_t distance(std::uint32_t bit) const noexcept {
    return all() ? bit + 1 : std::uint32_t{1} << bit;
  }

  std::uint32_t ranks_;
};

}  // namespace kasane::sched
