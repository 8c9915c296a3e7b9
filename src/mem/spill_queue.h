// SPDX-License-Identifier: Apache-2.0
// Batches of blocks on their way between memory and the spill file: one thread's lane to it.
//
//   submit: ranges, sorted ─▶ blocks that are zero (write) or not stored (read) need no I/O ─▶ runs of neighbours, up to 1 MiB ─▶ a slot each ─▶ engine
//           blocks that come to A travel through staging memory (mem/bounce_buffers.h), 64 KiB at a time, unless frames are large or no buffer is free; all else travels in place
//   poll:   engine ─▶ slot: short? finished on the spot ─▶ staged? written to the memory file, or filled and shown ─▶ stored bits, counts ─▶ the batch's last run? finished
//
// As memory and file are linear in the same offset, neighbours in one are neighbours in the other: a run needs no list of buffers.
//
// **Who drives completions:** anybody. A read-ahead whose thread went on to compute is completed by the thread that runs into one of its blocks. Waiters
// sleep as leader and followers: one sleeps in the kernel for all, the others on a word; who leaves, or polls meanwhile, wakes them to find the next leader.
//
// Thread safety: submit() by one thread at a time (the lane's); poll(), wait() by any. Nothing allocates or throws: fault handlers may call all of it.
// Invariants: a slot is free, or its run is counted in its batch's pending_. Whoever holds reaping_ ends the run that it reaped before it gives it back, so a
// slot that is not free then is still the engine's. Only a leader sleeps with it, and nobody waits for it.
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
#include "mem/polling.h"
#include "mem/spill_engine.h"
#include "mem/spill_file.h"
#include "mem/spill_range.h"
#include "mem/bounce_buffers.h"

namespace kasane::mem {

/// One request of the caller, who keeps it and its ranges until it is finished. Reused only after that, as a new object.
struct SpillBatch {
  /// base: the byte at offset o travels from or to base + o: A, or what lies where A + o would. ranges: disjoint; sorted by submit().
  SpillBatch(SpillOp o, std::byte* b, std::span<SpillRange> r) noexcept : op(o), base(b), ranges(r) {}
  /// A read to A, whose blocks may be seen as they come.
  SpillBatch(std::byte* b, std::span<SpillRange> r, const View& v) noexcept : op(SpillOp::read), base(b), ranges(r), view(v) {}

  const SpillOp op;
  std::byte* const base;
  const std::span<SpillRange> ranges;
  const View view{};

  /// All runs have ended: error is final, and bytes read are there.
  // acquire: pairs with the release of each run's end.
  [[nodiscard]] bool finished() const noexcept { return pending_.load(std::memory_order_acquire) == 0; }
  /// 0, or the errno of a failed run. Bytes that a failed read should have brought are undefined, and may have no frame; what a failed write should have stored may be stored in
  /// part: the caller's frame stays the only copy.
  [[nodiscard]] int error() const noexcept { return error_; }
  /// Where that run began, and its bytes; only where error().
  [[nodiscard]] SpillRange failed() const noexcept { return failed_; }

 private:
  friend class SpillQueue;
  // One run less. After the last one the batch may be gone. release: what the run did, for finished().
  void let_go() noexcept { pending_.fetch_sub(1, std::memory_order_release); }
  std::size_t range_ = 0;       // the first that is not wholly issued,
  std::uint64_t issued_ = 0;    // and the bytes of it that are,
  SpillRange rest_{0, 0};       // but for this end of the last run
  std::atomic<std::uint32_t> pending_{1};   // runs under way, and one until all have been issued
  int error_ = 0;                           // of the first run that failed; written by the reaper
  SpillRange failed_{};
};

class SpillQueue {
 public:
  static constexpr unsigned kDepth = 64;                         ///< runs under way
  static constexpr std::uint32_t kMostRunBytes = 1u << 20;

  /// file and staging, which may be shared, outlive the queue. engine: "auto", "io_uring" or "threads". Without staging everything travels in place.
  static Result<std::unique_ptr<SpillQueue>> create(SpillFile& file, std::string_view engine = "auto", BounceBuffers* buffers = nullptr);
  /// Over an engine of depth kDepth that the caller made.
  SpillQueue(SpillFile& file, std::unique_ptr<SpillEngine> engine, BounceBuffers* buffers = nullptr) noexcept;
  /// All batches are finished.
  ~SpillQueue();
  SpillQueue(const SpillQueue&) = delete;
  SpillQueue& operator=(const SpillQueue&) = delete;

  /// Sends the batch on its way, without waiting. False: as far as there were slots; poll(), then submit the same batch again, which goes on from there.
  /// A batch that needed no I/O is finished at once.
  [[nodiscard]] bool submit(SpillBatch&) noexcept;
  /// Completes a run that has ended; 0: there is none.
  unsigned poll() noexcept;
  /// Submits all of it, and sleeps while there are no slots, completing others meanwhile. By the lane's thread.
  void issue(SpillBatch&) noexcept;
  /// Issues it, then waits.
  void run(SpillBatch& batch) noexcept {
    issue(batch);
    wait(batch);
  }
  /// Sleeps until a batch, all of whose runs have been issued, is finished, completing others meanwhile.
  void wait(const SpillBatch&) noexcept;
  /// Likewise, and looks for its runs before it sleeps, as far as that pays: for few bytes that a thread of the program needs. True: it did not sleep.
  bool wait(const SpillBatch&, Polling&) noexcept;

 private:
  struct Slot {
    SpillTransfer transfer;
    SpillBatch* batch = nullptr;
    bool staged = false;
    std::atomic<bool> ready{false};   // carries the slot from who submits to who reaps
  };
  SpillRange next_run(SpillBatch&) noexcept;
  [[nodiscard]] bool travels(const SpillBatch&, std::uint64_t offset) noexcept;
  void begin_run(SpillBatch&) noexcept;
  template <class Reached, class Doze>
  void wait_until(Reached&& reached, Doze&& doze) noexcept;
  template <class Reached>
  void wait_until(Reached&& reached) noexcept;
  unsigned reap_and_give_back() noexcept;
  void end_run(Slot&, std::int32_t result) noexcept;

  SpillFile& file_;
  BounceBuffers* const buffers_;
  std::unique_ptr<SpillEngine> engine_;
  std::array<Slot, kDepth> slots_;
  std::atomic<std::uint64_t> free_{~std::uint64_t{0}};   // bit i: slot i
  std::atomic<bool> reaping_{false};
  Bell rounds_{};   // rung when reaping_ was given back
};
static_assert(SpillQueue::kDepth == 64, "a word of bits says which slots are free");

}  // namespace kasane::mem
