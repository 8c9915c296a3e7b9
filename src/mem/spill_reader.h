// SPDX-License-Identifier: Apache-2.0
// A thread that reads from the spill file what no thread waits for yet. The program then spends no time on
// making the frames of a read or on waiting for the disk.
//
//   read-ahead   submit(read)    the read has its blocks' busy bits from now on
//   the reader   takes it ─▶ submits it to the queue, kTogether at most ─▶ awaits any
//                ─▶ completed(read): the bytes are there; arms the blocks, frees the bits
//
// The reader waits only for the disk, so a thread that meets a busy bit of such a read may simply wait.
//
// Thread safety: submit() and stop() from any thread, fault handlers too; run() is one thread's; drain()
// after run() has ended.
// Invariant: each read that submit() took completes once.
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

/// Blocks to be read. Belongs to the reader from submit() until completed().
struct SpillRead {
  std::span<SpillRange> ranges;  ///< sorted afterwards
  View view;
  /// Called by the reader; must not wait for another block's bit
  void (*completed)(SpillRead&) noexcept = nullptr;
};

class SpillReader {
 public:
  /// Reports that the disk has failed; does not return.
  using Fatal = void (*)(const Error&);

  /// base: the byte at offset o goes to base + o. buffers: those of a queue, or null.
  static Result<std::unique_ptr<SpillReader>> create(SpillFile&, std::byte* base, BounceBuffers* buffers,
                                                     Fatal);

  /// False: there is no room, or the reader was stopped; the caller still has the read.
  [[nodiscard]] bool submit(SpillRead&) noexcept;
  void run();
  /// Lets run() return when all reads have completed.
  void stop() noexcept;
  /// Completes the reads that came too late for run().
  void drain();

 private:
  static constexpr std::size_t kTogether = SpillQueue::kDepth;
  static constexpr std::uint32_t kMostNoted = 64;

  SpillReader(SpillFile& file, std::byte* base, Fatal fatal) noexcept
      : file_(file), base_(base), fatal_(fatal) {}
  bool begin_next();
  void complete_some();

  SpillFile& file_;
  std::byte* const base_;
  const Fatal fatal_;
  std::unique_ptr<SpillQueue> queue_;
  struct UnderWay {
    SpillRead* read = nullptr;
    std::optional<SpillBatch> batch;
  };
  std::array<UnderWay, kTogether> under_way_;  ///< the reader's
  std::uint64_t used_ = 0;                     ///< bit i: of under_way_[i]
  Notes<SpillRead*, kMostNoted> noted_;
  Bell bell_{};
  std::atomic<bool> stop_{false};
};

}  // namespace kasane::mem
