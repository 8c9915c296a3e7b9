// SPDX-License-Identifier: Apache-2.0
// Whether a rank that has taken a mutex over from another one (mutex.cpp) should release when it unlocks it:
// then the next rank need not ask. Pure; a word of the mutex's record, which the holder alone changes.
//
//   wanted      the mutex goes to and fro faster than its ranks release: who took it over last had to ask, or
//               found no release since that of the unlock
//   released    the last unlock released
//   without     so many takeovers do without: a release was in vain, since its rank took the mutex again soon
//
// A mutex of many that ranks take at random is hardly ever asked for: any release of a rank does for all that
// it had.
// Thread safety: pure.
#pragma once

#include <cstdint>

namespace kasane::ult {

class ReleaseGuess {
 public:
  static constexpr std::uint64_t kSoonNs = 50'000, kWithout = 16;

  constexpr explicit ReleaseGuess(std::uint64_t word = 0) noexcept : word_(word) {}
  [[nodiscard]] constexpr std::uint64_t word() const noexcept { return word_; }

  /// A rank has taken the mutex over from another. releases: how many releases of the other rank have ended
  /// since its unlock; 0: the other rank was asked for one.
  constexpr void taken_over(std::uint32_t releases) noexcept {
    const bool wanted = releases == 0 || ((word_ & kReleased) != 0 && releases == 1);
    word_ = (word_ & kCount) | (wanted ? kWanted : 0);
  }
  /// At the first unlock after that: should it release?
  [[nodiscard]] constexpr bool releases() noexcept {
    if ((word_ & kCount) != 0) {
      --word_;
      return false;
    }
    return (word_ & kWanted) != 0;
  }
  constexpr void released() noexcept { word_ |= kReleased; }
  /// At another unlock of the same rank, so long after it took the mutex over.
  constexpr void unlocked_again(std::uint64_t after_ns) noexcept {
    if ((word_ & kReleased) == 0) return;
    word_ = after_ns < kSoonNs ? kWithout : word_ & ~kReleased;
  }

 private:
  static constexpr std::uint64_t kCount = 0xFF, kWanted = 0x100, kReleased = 0x200;
  std::uint64_t word_;
};

}  // namespace kasane::ult
