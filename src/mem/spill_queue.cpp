// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_queue.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "mem/size_signal.h"

namespace kasane::mem {
namespace {

bool is_zero(const std::byte* block) noexcept {
  // The first word decides for most blocks. Then the block is compared with itself shifted by a word.
  std::uint64_t first;
  std::memcpy(&first, block, sizeof first);
  return first == 0 && std::memcmp(block, block + sizeof first, kBlockBytes - sizeof first) == 0;
}

// relaxed: statistics.
void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
  counter.fetch_add(n, std::memory_order_relaxed);
}

// Transfers what the engine left undone, by system calls: rare (a disk that is about to be full, a signal).
// Returns 0 or an errno.
int finish_by_hand(SpillTransfer t) noexcept {
  NoSizeSignal held;
  while (t.bytes != 0) {
    const auto at = static_cast<off_t>(t.offset);
    const ssize_t moved =
        t.op == SpillOp::read ? ::pread(t.fd, t.memory, t.bytes, at) : ::pwrite(t.fd, t.memory, t.bytes, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EFBIG) held.may_be_sent();
    if (moved < 0) return errno;
    // The file is as long as the space, so nothing moved is the device's fault, not the file's end.
    if (moved == 0) return EIO;
    t.memory += moved, t.offset += static_cast<std::uint64_t>(moved),
        t.bytes -= static_cast<std::uint32_t>(moved);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<SpillQueue>> SpillQueue::create(SpillFile& file, std::string_view engine,
                                                       BounceBuffers* buffers) {
  auto made = make_spill_engine(engine, kDepth);
  KASANE_TRY(made);
  return std::make_unique<SpillQueue>(file, std::move(*made), buffers);
}

SpillQueue::SpillQueue(SpillFile& file, std::unique_ptr<SpillEngine> engine, BounceBuffers* buffers) noexcept
    : file_(file), buffers_(buffers), engine_(std::move(engine)) {
  if (buffers_ != nullptr) (void)engine_->register_memory(buffers_->memory());  // works without it, too
}

SpillQueue::~SpillQueue() {
  KASANE_CHECK(free_.load() == ~std::uint64_t{0}, "a spill queue ends while transfers are under way");
}

bool SpillQueue::submit(SpillBatch& batch) noexcept {
  if (batch.range_ == 0 && batch.issued_ == 0)
    std::sort(batch.ranges.begin(), batch.ranges.end(),
              [](const SpillRange& x, const SpillRange& y) { return x.offset < y.offset; });
  bool all = false;
  std::optional<NoSizeSignal> held;
  if (batch.op == SpillOp::write) held.emplace().may_be_sent();
  // acquire: pairs with end_run(): the last user of the slot has finished with it. Only this thread takes
  // bits, so a bit that is seen stays set.
  while (!all && free_.load(std::memory_order_acquire) != 0) {
    if (batch.rest_.bytes == 0) batch.rest_ = next_run(batch);
    all = batch.rest_.bytes == 0;
    if (!all) begin_run(batch);
  }
  engine_->flush();
  held.reset();
  if (all) batch.end_one_run();
  return all;
}

// Begins as much of the batch's next run as one transfer takes.
void SpillQueue::begin_run(SpillBatch& batch) noexcept {
  SpillRange& run = batch.rest_;
  BounceBuffers::FirstRead read{run.bytes, false};
  if (buffers_ != nullptr && batch.op == SpillOp::read)
    read = buffers_->first_read(batch.base, run.offset, run.bytes);
  std::span<std::byte> buffer;
  if (read.staged) buffer = buffers_->take(read.bytes);
  const std::uint64_t bytes = buffer.empty() ? read.bytes : buffer.size();
  if (read.staged && buffer.empty()) buffers_->make_small(run.offset, bytes);
  const auto s = static_cast<unsigned>(std::countr_zero(free_.load(std::memory_order_relaxed)));
  free_.fetch_and(~(std::uint64_t{1} << s), std::memory_order_relaxed);  // relaxed, both: see submit()
  Slot& slot = slots_[s];
  slot.batch = &batch;
  slot.staged = !buffer.empty();
  slot.transfer = {batch.op, file_.fd(run.offset), slot.staged ? buffer.data() : batch.base + run.offset,
                   run.offset, static_cast<std::uint32_t>(bytes)};
  run = {run.offset + bytes, run.bytes - bytes};
  batch.pending_.fetch_add(1, std::memory_order_relaxed);  // relaxed: submit()'s own count keeps it above 0
  slot.ready.store(true, std::memory_order_release);       // release: the reaper reads the slot
  engine_->start(s, slot.transfer);
}

// Skips blocks that need no I/O, then takes neighbours as long as they need it. No bytes: nothing is left.
SpillRange SpillQueue::next_run(SpillBatch& batch) noexcept {
  SpillRange run{0, 0};
  for (; batch.range_ < batch.ranges.size(); ++batch.range_, batch.issued_ = 0) {
    const SpillRange& range = batch.ranges[batch.range_];
    KASANE_ASSERT(range.offset % kBlockBytes == 0 && range.bytes % kBlockBytes == 0);
    for (; batch.issued_ < range.bytes; batch.issued_ += kBlockBytes) {
      const std::uint64_t at = range.offset + batch.issued_;
      const bool joins = run.bytes == 0 || (at == run.offset + run.bytes && run.bytes < kMostRunBytes &&
                                            at % kSpillStripeBytes != 0);
      if (!joins) return run;
      if (!needs_io(batch, at)) continue;
      if (run.bytes == 0) run.offset = at;
      run.bytes += kBlockBytes;
    }
  }
  return run;
}

bool SpillQueue::needs_io(const SpillBatch& batch, std::uint64_t offset) noexcept {
  if (file_.stored(block_of(offset))) return true;  // also a write of zeros: older bytes are there
  std::byte* const block = batch.base + offset;
  if (batch.op == SpillOp::write && !is_zero(block)) return true;
  if (batch.op == SpillOp::read) std::memset(block, 0, kBlockBytes);
  add(file_.counts().blocks_of_zeros, 1);
  return false;
}

unsigned SpillQueue::poll() noexcept {
  // seq_cst, as in wait_until(). One thread reaps at a time, and sees what the last one did.
  return reaping_.exchange(true) ? 0 : reap_and_give_back();
}

void SpillQueue::issue(SpillBatch& batch) noexcept {
  // relaxed: submit() looks again.
  while (!submit(batch)) wait_until([&] { return free_.load(std::memory_order_relaxed) != 0; });
}

void SpillQueue::wait(const SpillBatch& batch) noexcept {
  wait_until([&] { return batch.finished(); });
}

bool SpillQueue::wait(const SpillBatch& batch, Polling& polling) noexcept {
  Polling::Wait wait(polling, now_ns());
  bool slept = false, came = false;
  wait_until([&] { return batch.finished(); },
             [&] {
               bool here = false;
               for (bool more = true; more && !here; relax()) {
                 more = wait.keeps_polling(
                     now_ns());  // first, as the run may have ended while this thread had no core
                 here = engine_->ready();
               }
               if (!here) engine_->sleep();
               slept |= !here;
               if (!std::exchange(came, true)) wait.ended(now_ns());
             });
  return !slept;
}

// No wake-up is lost: a follower that finds reaping_ taken has read rounds_ before, and the holder gives
// reaping_ back before it rings (all of it seq_cst). No leader sleeps in vain: while it holds reaping_ its
// condition is not reached, so one of its slots is still the engine's.
template <class Reached, class Sleep>
void SpillQueue::wait_until(Reached&& reached, Sleep&& sleep) noexcept {
  for (;;) {
    const std::uint32_t round = rounds_.activity();
    if (reached()) break;
    if (reaping_.exchange(true)) {
      rounds_.sleep(round, -1);
      continue;
    }
    if (!reached()) sleep();
    reap_and_give_back();
  }
}

template <class Reached>
void SpillQueue::wait_until(Reached&& reached) noexcept {
  wait_until(std::forward<Reached>(reached), [this] { engine_->sleep(); });
}

// One at a time: a staged run ends with a copy, which a thread that waits for another run should not wait for
// as well.
unsigned SpillQueue::reap_and_give_back() noexcept {
  SpillResult result;
  const unsigned n = engine_->reap({&result, 1});
  if (n != 0) end_run(slots_[result.slot], result.result);
  reaping_.store(false);
  rounds_.ring();
  return n;
}

void SpillQueue::end_run(Slot& slot, std::int32_t result) noexcept {
  (void)slot.ready.exchange(false, std::memory_order_acquire);  // pairs with begin_run()
  const SpillTransfer& t = slot.transfer;
  SpillBatch& batch = *slot.batch;
  const bool again = result == -EINTR || result == -EAGAIN;
  const auto moved = static_cast<std::uint32_t>(again ? 0 : std::max(result, 0));
  int error = result < 0 && !again ? -result : 0;
  if (error == 0 && moved < t.bytes)
    error = finish_by_hand({t.op, t.fd, t.memory + moved, t.offset + moved, t.bytes - moved});

  SpillCounts& counts = file_.counts();
  if (slot.staged) {  // no bytes of a failed read reach a frame
    if (error == 0) error = buffers_->deliver(t.offset, {t.memory, t.bytes}, batch.view);
    if (error == 0) add(counts.bytes_staged, t.bytes);
    buffers_->give_back({t.memory, t.bytes});
  }
  if (error != 0) {
    add(counts.failures, 1);
    if (batch.error_ == 0) batch.error_ = error, batch.failed_ = {t.offset, t.bytes};
  } else if (t.op == SpillOp::read) {
    add(counts.reads, 1);
  } else {
    add(counts.writes, 1), add(counts.bytes_written, t.bytes);
    for (std::uint32_t done = 0; done < t.bytes; done += kBlockBytes)
      file_.set_stored(block_of(t.offset + done));
  }
  // release: see submit().
  free_.fetch_or(std::uint64_t{1} << (&slot - slots_.data()), std::memory_order_release);
  batch.end_one_run();
}

}  // namespace kasane::mem
