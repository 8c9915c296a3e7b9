// SPDX-License-Identifier: Apache-2.0
// Memory outside V for bytes in transit: runs of units, taken and freed without a lock. One bit for each
// unit; a run lies within one word of 64 bits, so taking one is a compare-swap, and freeing it a fetch-and,
// which another rank can do by a remote atomic where words and units lie in a region.
//
// Thread safety: everything from any thread. Nothing waits: "no room" is an answer.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kasane::gas {

class Staging {
 public:
  static constexpr std::uint32_t kUnitsPerWord = 64;
  struct Run {
    std::uint32_t first = 0, units = 0;  ///< units 0: none
  };

  Staging() noexcept = default;
  /// words: of zeros, one a 64 units; memory: words · 64 · unit_bytes.
  Staging(std::atomic<std::uint64_t>* words, std::uint32_t count, std::byte* memory,
          std::size_t unit_bytes) noexcept
      : words_(words), count_(count), memory_(memory), unit_bytes_(unit_bytes) {}

  [[nodiscard]] std::byte* at(Run run) const noexcept { return memory_ + run.first * unit_bytes_; }

  /// units 0: no run of so many bytes is free now.
  [[nodiscard]] Run take(std::size_t bytes) noexcept {
    const auto units = static_cast<std::uint32_t>((bytes + unit_bytes_ - 1) / unit_bytes_);
    if (units == 0 || units > kUnitsPerWord) return {};
    for (std::uint32_t w = 0; w < count_; ++w) {
      // relaxed: only the compare-swap counts
      std::uint64_t used = words_[w].load(std::memory_order_relaxed);
      for (;;) {
        const int first = first_gap(~used, units);
        if (first < 0) break;
        // acquire: the former user of the units is done with them.
        if (words_[w].compare_exchange_weak(used, used | mask(static_cast<std::uint32_t>(first), units),
                                            std::memory_order_acquire, std::memory_order_relaxed)) {
          return {w * kUnitsPerWord + static_cast<std::uint32_t>(first), units};
        }
      }
    }
    return {};
  }
  void put(Run run) noexcept {
    // release: this thread is done with the units
    words_[run.first / kUnitsPerWord].fetch_and(kept(run), std::memory_order_release);
  }
  /// The value to `and` into word first / 64 to free the run.
  [[nodiscard]] static std::uint64_t kept(Run run) noexcept {
    return ~mask(run.first % kUnitsPerWord, run.units);
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t mask(std::uint32_t first, std::uint32_t units) noexcept {
    return (units == kUnitsPerWord ? ~std::uint64_t{0} : (std::uint64_t{1} << units) - 1) << first;
  }
  /// The lowest place where `units` bits of free are set in a row, or -1: each round makes bit i say "2, 4 …
  /// units bits from i on".
  [[nodiscard]] static constexpr int first_gap(std::uint64_t free, std::uint32_t units) noexcept {
    for (std::uint32_t have = 1; have < units && free != 0;) {
      const std::uint32_t by = units - have < have ? units - have : have;
      free &= free >> by;
      have += by;
    }
    return free == 0 ? -1 : std::countr_zero(free);
  }

  std::atomic<std::uint64_t>* words_ = nullptr;
  std::uint32_t count_ = 0;
  std::byte* memory_ = nullptr;
  std::size_t unit_bytes_ = 1;
};

}  // namespace kasane::gas
