// SPDX-License-Identifier: Apache-2.0
// Batches of blocks that travel between memory and the spill file: a queue of requests.
//
//   submit   ranges, sorted ─▶ blocks of zeros (write) or not stored (read) need no I/O
//            ─▶ runs of neighbours, up to 1 MiB ─▶ a slot each ─▶ engine
//            Reads to A go through bounce buffers, 64 KiB at a time, unless frames are large or no buffer
//            is free; all else goes in place.
//   poll     engine ─▶ slot ─▶ short? the rest is transferred at once ─▶ staged? copied to the memory file,
//            or filled and shown ─▶ stored bits, counts ─▶ the batch's last run? finished
//
// Memory and file are linear in the same offset, so neighbours in one are neighbours in the other: a run
// needs no list of buffers.
//
// **Any thread completes runs.** A read-ahead whose thread went on to compute is completed by the thread that
// runs into one of its blocks. Waiting threads are a leader and followers: the leader sleeps in the kernel
// for all, the others sleep on a word. A thread that leaves, or polls meanwhile, wakes them to find the next
// leader.
//
// Thread safety: submit() by one thread at a time (the queue's submitter); poll(), wait() by any thread.
// Nothing allocates or throws: fault handlers may call all of it.
// Invariants: a slot is free, or its run is counted in its batch's pending_. The holder of reaping_ ends the
// run that it reaped before it gives reaping_ back, so a slot that is not free then is still the engine's.
// Only a leader sleeps while it holds reaping_, and no thread waits for that.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/bell.h"
#include "mem/bounce_buffers.h"
#include "mem/polling.h"
#include "mem/spill_engine.h"
#include "mem/spill_file.h"
#include "mem/spill_range.h"

namespace kasane::mem {

/// One request. The caller keeps it and its ranges until it is finished, and makes a new object for the next
/// request.
struct SpillBatch {
  /// base: the byte at offset o is transferred from or to base + o: A, or other memory laid out like A.
  /// ranges: disjoint; sorted by submit().
  SpillBatch(SpillOp o, std::byte* b, std::span<SpillRange> r) noexcept : op(o), base(b), ranges(r) {}
  /// A read to A whose blocks may be shown as they come.
  SpillBatch(std::byte* b, std::span<SpillRange> r, const View& v) noexcept
      : op(SpillOp::read), base(b), ranges(r), view(v) {}

  const SpillOp op;
  std::byte* const base;
  const std::span<SpillRange> ranges;
  const View view{};

  /// All runs have ended: error is final, and bytes read are there.
  // acquire: pairs with the release of each run's end.
  [[nodiscard]] bool finished() const noexcept { return pending_.load(std::memory_order_acquire) == 0; }
  /// 0, or the errno of a failed run. After a failed read the bytes are undefined, and may have no frame.
  /// After a failed write a part may be stored: the caller's frame stays the only copy.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// Where that run began, and its bytes; only where error() is not 0.
  [[nodiscard]] SpillRange failed() const noexcept { return failed_; }

 private:
  friend class SpillQueue;
  // One run less. After the last one the batch may be gone. release: what the run did, for finished().
  void end_one_run() noexcept { pending_.fetch_sub(1, std::memory_order_release); }
  std::size_t range_ = 0;                  // the first range that is not wholly issued,
  std::uint64_t issued_ = 0;               // the bytes of it that are issued,
  SpillRange rest_{0, 0};                  // and of those the end of the last run that is not
  std::atomic<std::uint32_t> pending_{1};  // runs under way, and one more until all have been issued
  int error_ = 0;                          // of the first run that failed; written by the reaper
  SpillRange failed_{};
};

class SpillQueue {
 public:
  static constexpr unsigned kDepth = 64;  ///< runs under way
  static constexpr std::uint32_t kMostRunBytes = 1u << 20;

  /// file and buffers, which may be shared, must outlive the queue. engine: "auto", "io_uring" or "threads".
  /// Without buffers everything goes in place.
  static Result<std::unique_ptr<SpillQueue>> create(SpillFile& file, std::string_view engine = "auto",
                                                    BounceBuffers* buffers = nullptr);
  /// Over an engine of depth kDepth that the caller made.
  SpillQueue(SpillFile& file, std::unique_ptr<SpillEngine> engine, BounceBuffers* buffers = nullptr) noexcept;
  /// All batches are finished.
  ~SpillQueue();
  SpillQueue(const SpillQueue&) = delete;
  SpillQueue& operator=(const SpillQueue&) = delete;

  /// Submits the batch without waiting. False: there were slots only for a part of it; poll(), then submit
  /// the same batch again, which continues there. A batch that needed no I/O is finished at once.
  [[nodiscard]] bool submit(SpillBatch&) noexcept;
  /// Completes one run that has ended; 0: there is none.
  unsigned poll() noexcept;
  /// Completes one run, sleeping until there is one. By the only thread that completes runs, while some are
  /// under way.
  void complete_one() noexcept {
    if (!engine_->ready()) engine_->sleep();
    poll();
  }
  /// Submits all of it, and sleeps while there are no slots, completing other runs meanwhile. By the queue's
  /// submitter.
  void issue(SpillBatch&) noexcept;
  /// Issues it, then waits.
  void run(SpillBatch& batch) noexcept {
    issue(batch);
    wait(batch);
  }
  /// Sleeps until the batch, all of whose runs have been issued, is finished; completes other runs meanwhile.
  void wait(const SpillBatch&) noexcept;
  /// As the wait() above, but polls for the batch's runs before it sleeps, as far as that pays: for a few
  /// bytes that a thread of the program needs. True: it did not sleep.
  bool wait(const SpillBatch&, Polling&) noexcept;

 private:
  struct Slot {
    SpillTransfer transfer;
    SpillBatch* batch = nullptr;
    bool staged = false;
    std::atomic<bool> ready{false};  // hands the slot from the submitting to the reaping thread
  };
  SpillRange next_run(SpillBatch&) noexcept;
  [[nodiscard]] bool needs_io(const SpillBatch&, std::uint64_t offset) noexcept;
  void begin_run(SpillBatch&) noexcept;
  template <class Reached, class Sleep>
  void wait_until(Reached&& reached, Sleep&& sleep) noexcept;
  template <class Reached>
  void wait_until(Reached&& reached) noexcept;
  unsigned reap_and_give_back() noexcept;
  void end_run(Slot&, std::int32_t result) noexcept;

  SpillFile& file_;
  BounceBuffers* const buffers_;
  std::unique_ptr<SpillEngine> engine_;
  std::array<Slot, kDepth> slots_;
  std::atomic<std::uint64_t> free_{~std::uint64_t{0}};  // bit i: slot i
  std::atomic<bool> reaping_{false};
  Bell rounds_{};  // rung when reaping_ was given back
};
static_assert(SpillQueue::kDepth == 64, "a word of bits says which slots are free");

}  // namespace kasane::mem
