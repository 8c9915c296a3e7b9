// SPDX-License-Identifier: Apache-2.0
// How some bits of a word name a set of ranks, pure. A rank is added by a fetch-or of its bits, without
// knowing the others. tests/unit/gas/rank_code_test and the walks of tests/model drive it.
//
//   ranks <= bits   a bit is a rank
//   else            a rank (beyond low x high ranks: several consecutive ones) is two bits, its number's
//                   remainder by low and its quotient. The word names each rank both of whose bits are set:
//                   all that were added, and others that lie where rows and columns of these cross
//
// One rank's bits name that rank alone, and neighbours share a row. So a page that few ranks have, as most
// pages are, names few others, in jobs of any size.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/ids.h"

namespace kasane::gas {

class RankCode {
 public:
  constexpr RankCode(std::uint32_t bits, std::uint32_t ranks) noexcept : ranks_(ranks), low_(bits) {
    if (ranks <= bits) return;
    const std::uint32_t most = (bits / 2) * (bits - bits / 2);
    together_ = (ranks + most - 1) / most;
    const std::uint32_t names = (ranks + together_ - 1) / together_;
    for (high_ = 1; high_ * (bits - high_) < names;) ++high_;
    low_ = bits - high_;
  }

  /// The bits of a rank.
  [[nodiscard]] constexpr std::uint64_t of(Rank rank) const noexcept {
    if (exact()) return std::uint64_t{1} << raw(rank);
    const std::uint32_t name = raw(rank) / together_;
    return std::uint64_t{1} << name % low_ | std::uint64_t{1} << (low_ + name / low_);
  }
  /// Is a bit a rank's?
  [[nodiscard]] constexpr bool exact() const noexcept { return high_ == 0; }
  /// Do a rank's bits stand for others, too?
  [[nodiscard]] constexpr bool shared() const noexcept { return together_ > 1; }

  /// Does the word name the rank? Yes, if it was added.
  [[nodiscard]] constexpr bool names(std::uint64_t word, Rank rank) const noexcept {
    return (word & of(rank)) == of(rank);
  }
  /// The word when the rank takes itself out: unchanged where that would take out others.
  [[nodiscard]] constexpr std::uint64_t without(std::uint64_t word, Rank rank) const noexcept {
    if (exact()) return word & ~of(rank);
    return word == of(rank) && !shared() ? 0 : word;
  }
  /// Calls f(rank) for each rank that the word names. Other bits than these do not matter.
  template <class F>
  constexpr void for_each(std::uint64_t word, const F& f) const {
    each_bit(exact() ? 1 : word >> low_ & first(high_), [&](std::uint32_t row) {
      each_bit(word & first(low_), [&](std::uint32_t column) {
        const std::uint32_t begin = (row * low_ + column) * together_;
        for (std::uint32_t r = begin; r < std::min(begin + together_, ranks_); ++r) f(Rank{r});
      });
    });
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t first(std::uint32_t bits) noexcept {
    return bits < 64 ? (std::uint64_t{1} << bits) - 1 : ~std::uint64_t{0};
  }
  template <class F>
  static constexpr void each_bit(std::uint64_t word, const F& f) {
    for (; word != 0; word &= word - 1) f(static_cast<std::uint32_t>(std::countr_zero(word)));
  }

  std::uint32_t ranks_;
  std::uint32_t low_, high_ = 0;  ///< bits of remainders; of quotients
  std::uint32_t together_ = 1;    ///< ranks that have the same bits
};

}  // namespace kasane::gas
