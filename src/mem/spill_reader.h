// SPDX-License-Identifier: Apache-2.0
// A thread that reads from the spill file what nobody waits for yet: making the frames of a read, and waiting for the disk, then cost the program nothing.
//
//   whoever reads ahead   launch(flight)                            its blocks' bits are the flight's from now on
//   the reader            taken ─▶ submitted, kTogether at most ─▶ the oldest awaited ─▶ landed(flight): the bytes are there; arms the blocks, gives the bits back
//
// It waits for nothing but the disk, so who meets a bit of a flight may simply wait.
//
// Thread safety: launch() and stop() from any thread, fault handlers too; run() is a thread's. drain() when that has ended.
// Invariant: each flight that launch() took lands once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/bell.h"
#include "base/notes.h"
#include "base/result.h"
#include "mem/spill_queue.h"

namespace kasane::mem {

/// Blocks that are to be read. Belongs to the reader from launch() until landed().
struct Flight {
  std::span<SpillRange> ranges;                  ///< sorted afterwards
  View view;
  void (*landed)(Flight&) noexcept = nullptr;    ///< by the reader; must not wait for another block's bit
};

class SpillReader {
 public:
  /// How the reader tells that the disk has failed: does not return.
  using Fatal = void (*)(const Error&);

  /// base: the byte at offset o goes to base + o. staging: as a queue's, or null.
  static Result<std::unique_ptr<SpillReader>> create(SpillFile&, std::byte* base, Staging* staging, Fatal);

  /// False: there is no room, or no reader any more; the caller still has the flight.
  [[nodiscard]] bool launch(Flight&) noexcept;
  void run();
  /// Lets run() return when all has landed.
  void stop() noexcept;
  /// Lands what came too late for run().
  void drain();

 private:
  static constexpr std::size_t kTogether = 32;
  static constexpr std::uint32_t kMostNoted = 64;

  SpillReader(SpillFile& file, std::byte* base, Fatal fatal) noexcept : file_(file), base_(base), fatal_(fatal) {}
  bool begin_next();
  void land_oldest();

  SpillFile& file_;
  std::byte* const base_;
  const Fatal fatal_;
  std::unique_ptr<SpillQueue> queue_;
  struct UnderWay {
    Flight* flight = nullptr;
    std::optional<SpillBatch> batch;
  };
  std::array<UnderWay, kTogether> under_way_;   ///< the reader's: a ring
  std::size_t oldest_ = 0, count_ = 0;
  Notes<Flight*, kMostNoted> noted_;
  Bell bell_{};
  std::atomic<bool> stop_{false};
};

}  // namespace kasane::mem
