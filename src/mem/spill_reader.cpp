// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_reader.h"

#include <sched.h>

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
    while (count_ != kTogether && begin_next()) {
    }
    if (count_ != 0) {
      complete_oldest();
    } else if (stop_.load()) {
      return;
    } else {
      bell_.sleep(seen, -1);
    }
  }
}

void SpillReader::drain() {
  while (begin_next()) complete_oldest();
}

bool SpillReader::begin_next() {
  SpillRead* read = nullptr;
  if (!noted_.take(read)) return false;
  UnderWay& slot = under_way_[(oldest_ + count_++) % kTogether];
  slot.read = read;
  slot.batch.emplace(base_, read->ranges, read->view);
  while (!queue_->submit(*slot.batch)) {  // no slots: older batches free theirs
    if (queue_->poll() == 0) ::sched_yield();
  }
  return true;
}

void SpillReader::complete_oldest() {
  UnderWay& slot = under_way_[oldest_];
  queue_->wait(*slot.batch);
  if (slot.batch->error() != 0)
    fatal_(file_.error(SpillOp::read, slot.batch->error(), slot.batch->failed().offset,
                       slot.batch->failed().bytes));
  oldest_ = (oldest_ + 1) % kTogether;
  --count_;
  slot.read->completed(*slot.read);
}

}  // namespace kasane::mem
