// SPDX-License-Identifier: Apache-2.0
// Asynchronous accesses that are awaited later, perhaps on another rank than the issuing one, since a
// user-level thread may move in between. So a handle is a number, and it names a slot in registered memory
// outside V:
//
//   id        rank 20 | slot 12 | generation 32; 0: nothing to wait for
//   kPending  words of the staging | slots, 256 bytes each | staging
//
// A read into V lands in the slot, or in staging. The thread that waits copies it to its destination, since a
// callback must not touch V (rule 10). If the destination is in pieces, the list of them lies in front of the
// bytes.
//
//   free ── take ──▶ taken, outstanding parts ── the last part ──▶ taken, 0 parts
//     ── the waiting thread: release ──▶ free, generation + 1
//
// Thread safety: everything from any thread; one thread waits for a handle. Nothing waits here: "no slot" or
// "no room" is an answer.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/blocking.h"
#include "gas/outstanding.h"
#include "gas/regions.h"
#include "gas/staging.h"

namespace kasane::gas {

struct PendingSlot {
  Outstanding outstanding;
  std::uint64_t destination = 0;  ///< address of the first byte; 0: the bytes, if any, are where they belong
  std::uint64_t bytes = 0;        ///< of data
  std::uint32_t pieces = 0;       ///< 0: the destination is contiguous
  Staging::Run run{};             ///< units 0: the data is in `data`
  std::uint32_t unused = 0;
  static constexpr std::size_t kInline = 216;
  alignas(8) std::byte data[kInline];
};
static_assert(sizeof(PendingSlot) == 256);

/// Where a piece of the data goes.
struct PendingPiece {
  std::uint64_t destination, bytes;
};

class PendingTable {
 public:
  static constexpr std::uint32_t kSlots = 1024;
  static constexpr std::size_t kUnitBytes = 16 * 1024, kWords = 16;
  static constexpr std::size_t kMostStaged = Staging::kUnitsPerWord * kUnitBytes;
  static constexpr std::uint64_t kSlotsAt = 4096, kStagingAt = kSlotsAt + kSlots * sizeof(PendingSlot);
  static constexpr std::size_t kRegionBytes = kStagingAt + kWords * Staging::kUnitsPerWord * kUnitBytes;

  /// memory: this rank's region kPending, zeros.
  PendingTable(Rank rank, std::byte* memory) noexcept
      : rank_(rank),
        slots_(reinterpret_cast<PendingSlot*>(memory + kSlotsAt)),
        staging_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory), kWords, memory + kStagingAt,
                 kUnitBytes) {}

  [[nodiscard]] Staging& staging() noexcept { return staging_; }
  [[nodiscard]] std::byte* data(PendingSlot& slot) noexcept {
    return slot.run.units != 0 ? staging_.at(slot.run) : slot.data;
  }

  /// A free slot with one part, the caller's; null: there is none.
  [[nodiscard]] PendingSlot* take() noexcept {
    const std::uint32_t from = next_.fetch_add(1, std::memory_order_relaxed);  // relaxed: only to spread
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      PendingSlot& slot = slots_[(from + i) % kSlots];
      // relaxed: only the compare-swap counts
      std::uint64_t word = slot.outstanding.raw_word().load(std::memory_order_relaxed);
      if ((word & Outstanding::kTaken) != 0) continue;
      const std::uint64_t taken =
          (word >> Outstanding::kGenerationShift << Outstanding::kGenerationShift) | Outstanding::kTaken | 1;
      // acquire: the slot's former user is done with it.
      if (!slot.outstanding.raw_word().compare_exchange_strong(word, taken, std::memory_order_acquire,
                                                               std::memory_order_relaxed))
        continue;
      slot.destination = slot.bytes = 0;
      slot.pieces = 0;
      slot.run = {};
      return &slot;
    }
    return nullptr;
  }
  /// Frees slot and staging.
  void release(PendingSlot& slot) noexcept {
    if (slot.run.units != 0) staging_.put(slot.run);
    // release: this thread is done with it
    slot.outstanding.raw_word().store(released(slot.outstanding.word()), std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t id(const PendingSlot& slot) const noexcept {
    const auto index = static_cast<std::uint64_t>(&slot - slots_);
    return std::uint64_t{raw(rank_)} << 44 | index << 32 |
           ((slot.outstanding.word() >> Outstanding::kGenerationShift) ^ kFirstGeneration);
  }
  /// This rank's slot of that id; null: it is another rank's, or was waited for before.
  [[nodiscard]] PendingSlot* find(std::uint64_t id) noexcept {
    if (rank_of(id) != rank_ || index_of(id) >= kSlots) return nullptr;
    PendingSlot& slot = slots_[index_of(id)];
    return names(id, slot.outstanding.word()) ? &slot : nullptr;
  }

  [[nodiscard]] static Rank rank_of(std::uint64_t id) noexcept {
    return Rank{static_cast<std::uint32_t>(id >> 44)};
  }
  [[nodiscard]] static std::uint32_t index_of(std::uint64_t id) noexcept {
    return static_cast<std::uint32_t>(id >> 32) & 0xFFF;
  }
  /// Is the word that of a slot taken under this id?
  [[nodiscard]] static bool names(std::uint64_t id, std::uint64_t word) noexcept {
    return (word & Outstanding::kTaken) != 0 &&
           ((word >> Outstanding::kGenerationShift) ^ kFirstGeneration) == (id & 0xFFFFFFFFu);
  }
  [[nodiscard]] static std::uint64_t released(std::uint64_t word) noexcept {
    return ((word >> Outstanding::kGenerationShift) + 1) << Outstanding::kGenerationShift;
  }
  /// Where a slot's word, the slot and staging lie in region kPending of any rank.
  [[nodiscard]] static std::uint64_t slot_at(std::uint64_t id) noexcept {
    return kSlotsAt + index_of(id) * sizeof(PendingSlot);
  }
  [[nodiscard]] static std::uint64_t staging_at(Staging::Run run) noexcept {
    return kStagingAt + run.first * kUnitBytes;
  }
  [[nodiscard]] static std::uint64_t staging_word_at(Staging::Run run) noexcept {
    return run.first / Staging::kUnitsPerWord * 8;
  }

 private:
  /// Slots start as zeros; with it no id is 0 before a slot has been used 2^32 - 1 times.
  static constexpr std::uint64_t kFirstGeneration = 0xFFFFFFFFu;

  Rank rank_;
  PendingSlot* slots_;
  Staging staging_;
  std::atomic<std::uint32_t> next_{0};
};

}  // namespace kasane::gas
