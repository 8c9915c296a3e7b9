// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_reader.h"

#include <sched.h>

#include <bit>

namespace kasane::mem {

Result<std::unique_ptr<SpillReader>> SpillReader::create(SpillFile& file, std::byte* base,
                                                         BounceBuffers* buffers, Fatal fatal) {
  auto queue = SpillQueue::create(file, "auto", buffers);
  KASANE_TRY(queue);
  std::unique_ptr<SpillReader> made(new SpillReader(file, base, fatal));
  made->queue_ = std::move(*queue);
  return made;
}

// seq_cst, all of it: a submitter adds its note, then rings; the reader reads the bell's count before it
// looks for notes, and sleeps on it.
bool SpillReader::submit(SpillRead& read) noexcept {
  if (stop_.load() || !noted_.add(&read)) return false;
  bell_.ring();
  return true;
}

void SpillReader::stop() noexcept {
  stop_.store(true);
  bell_.ring();
}

void SpillReader::run() {
  for (;;) {
    const std::uint32_t seen = bell_.activity();
    while (~used_ != 0 && begin_next()) {
    }
    if (used_ != 0) {
      complete_some();
    } else if (stop_.load()) {
      return;
    } else {
      bell_.sleep(seen, -1);
    }
  }
}

void SpillReader::drain() {
  while (begin_next())
    while (used_ != 0) complete_some();
}

bool SpillReader::begin_next() {
  SpillRead* read = nullptr;
  if (!noted_.take(read)) return false;
  const auto i = static_cast<unsigned>(std::countr_one(used_));
  used_ |= std::uint64_t{1} << i;
  UnderWay& slot = under_way_[i];
  slot.read = read;
  slot.batch.emplace(base_, read->ranges, read->view);
  while (!queue_->submit(*slot.batch)) {  // no slots: older batches free theirs
    if (queue_->poll() == 0) ::sched_yield();
  }
  return true;
}

/// Those that have ended, in whatever order: a slow one keeps no other from the disk.
void SpillReader::complete_some() {
  std::uint64_t ended = 0;
  for (std::uint64_t left = used_; left != 0; left &= left - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(left));
    if (under_way_[i].batch->finished()) ended |= std::uint64_t{1} << i;
  }
  if (ended == 0) return queue_->complete_one();
  for (; ended != 0; ended &= ended - 1) {
    UnderWay& slot = under_way_[static_cast<unsigned>(std::countr_zero(ended))];
    if (slot.batch->error() != 0)
      fatal_(file_.error(SpillOp::read, slot.batch->error(), slot.batch->failed().offset,
                         slot.batch->failed().bytes));
    used_ ^= ended & -ended;
    slot.read->completed(*slot.read);
  }
}

}  // namespace kasane::mem
