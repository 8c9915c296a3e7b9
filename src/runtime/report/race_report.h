// SPDX-License-Identifier: Apache-2.0
// --check races: reports on standard error what two ranks changed without a fence between: the first word of
// each place (words that lie close together: an array, a structure), with the store of this rank's that began
// its changes of the block; at the end each place. dsm/race_check.h says what is found and what is not.
// Thread safety: tell_places() when no worker runs; the rest as warn(). A spin lock is held for a few
// instructions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "dsm/race_check.h"
#include "mem/space.h"
#include "runtime/rank/crash_text.h"

namespace kasane::runtime {

class RaceReport final : public dsm::RaceListener {
 public:
  RaceReport(const mem::Space& space, Rank rank) noexcept : space_(space), rank_(rank) {}

  /// In a fault handler that is to serve a store.
  void note_store(std::uint64_t offset) noexcept;
  void race(const dsm::Race&) noexcept override;
  void tell_places() const;

 private:
  struct RacedRange {
    std::uint64_t begin, end, races;
    std::uintptr_t code;  ///< of the store; 0: not known
  };
  struct Store {
    std::atomic<std::uint64_t> block{0};
    std::atomic<std::uintptr_t> code{0};
  };
  static constexpr std::uint64_t kNear = 512;
  Store& store_of(std::uint64_t offset) noexcept;
  const RacedRange* add(const dsm::Race&) noexcept;
  CrashText& begin(CrashText&) const noexcept;

  const mem::Space& space_;
  const Rank rank_;
  std::array<Store, 4096> stores_{};  ///< by block number; a later one takes its place
  std::atomic_flag lock_;             ///< of the following
  std::array<RacedRange, 64> ranges_{};
  std::size_t count_ = 0;
};

}  // namespace kasane::runtime
