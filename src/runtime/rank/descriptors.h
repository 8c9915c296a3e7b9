// SPDX-License-Identifier: Apache-2.0
// Which rank opened a descriptor: its number says so (docs/design/system_calls.md, "Descriptors").
//
//   0 …            everybody's: from before the start
//   256 … 1023     in equal parts for the ranks, so that select() can name them
//   1024 … limit   in equal parts, too, where a rank's part below is full
//
// A descriptor that user code opens is given a number of its rank's. A thread that uses one that is not open
// on its rank goes to the rank whose number it is. Those of the runtime itself:
// runtime/process/own_descriptors.h.
//
// Thread safety: constant after divide(); async-signal-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/ids.h"

namespace kasane::runtime {

class Descriptors {
 public:
  static constexpr std::uint32_t kFirst = 256, kSelect = 1024, kLeast = 16;
  struct Numbers {
    std::uint32_t first = 0, count = 0;  ///< of each rank
  };

  Descriptors() noexcept = default;
  /// limit: the least RLIMIT_NOFILE of all ranks. Parts with less than kLeast numbers a rank are left out.
  constexpr Descriptors(std::uint32_t ranks, Rank me, std::uint64_t limit) noexcept : ranks_(ranks), me_(me) {
    const auto whole = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, 1 << 24));
    parts_[0] = part(kFirst, std::min(whole, kSelect));
    parts_[1] = part(kSelect, whole);
  }

  /// The rank whose number it is; kNoRank: everybody's.
  [[nodiscard]] constexpr Rank owner(long number) const noexcept {
    for (const Numbers& p : parts_) {
      if (p.count == 0 || number < p.first) continue;
      const auto rank = static_cast<std::uint64_t>(number - p.first) / p.count;
      if (rank < ranks_) return Rank{static_cast<std::uint32_t>(rank)};
    }
    return kNoRank;
  }
  [[nodiscard]] constexpr bool elsewhere(long number) const noexcept {
    const Rank rank = owner(number);
    return rank != kNoRank && rank != me_;
  }
  /// This rank's numbers in each part; those with count 0 are none.
  [[nodiscard]] constexpr std::array<Numbers, 2> own() const noexcept {
    std::array<Numbers, 2> mine = parts_;
    for (Numbers& p : mine) p.first += raw(me_) * p.count;
    return mine;
  }
  [[nodiscard]] constexpr bool divided() const noexcept { return parts_[0].count + parts_[1].count != 0; }

 private:
  [[nodiscard]] constexpr Numbers part(std::uint32_t first, std::uint32_t end) const noexcept {
    const std::uint32_t each = end > first && ranks_ > 1 ? (end - first) / ranks_ : 0;
    return {first, each >= kLeast ? each : 0};
  }

  std::uint32_t ranks_ = 1;
  Rank me_{0};
  std::array<Numbers, 2> parts_{};
};

/// What a call does with descriptors.
struct UsedDescriptors {
  std::int8_t used[2] = {-1, -1};  ///< arguments that are descriptors, or -1
  bool opens = false;              ///< its result is a new one
  std::int8_t opens_two = -1;      ///< the argument that names memory for two new ones, or -1
};
[[nodiscard]] UsedDescriptors used_descriptors(long number, long command) noexcept;

}  // namespace kasane::runtime
