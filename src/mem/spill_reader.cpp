// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_reader.h"

#include <sched.h>

namespace kasane::mem {

Result<std::unique_ptr<SpillReader>> SpillReader::create(SpillFile& file, std::byte* base, Staging* staging, Fatal fatal) {
  auto queue = SpillQueue::create(file, "auto", staging);
  KASANE_TRY(queue);
  std::unique_ptr<SpillReader> made(new SpillReader(file, base, fatal));
  made->queue_ = std::move(*queue);
  return made;
}

// seq_cst, all of it: who launches notes, then rings; who sleeps has read the bell before it looked for notes.
bool SpillReader::launch(Flight& flight) noexcept {
  if (stop_.load() || !noted_.add(&flight)) return false;
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
      land_oldest();
    } else if (stop_.load()) {
      return;
    } else {
      bell_.sleep(seen, -1);
    }
  }
}

void SpillReader::drain() {
  while (begin_next()) land_oldest();
}

bool SpillReader::begin_next() {
  Flight* flight = nullptr;
  if (!noted_.take(flight)) return false;
  UnderWay& slot = under_way_[(oldest_ + count_++) % kTogether];
  slot.flight = flight;
  slot.batch.emplace(base_, flight->ranges, flight->view);
  while (!queue_->submit(*slot.batch)) {   // out of slots: those of older ones come free
    if (queue_->poll() == 0) ::sched_yield();
  }
  return true;
}

void SpillReader::land_oldest() {
  UnderWay& slot = under_way_[oldest_];
  queue_->wait(*slot.batch);
  if (slot.batch->error() != 0) fatal_(file_.error(SpillOp::read, slot.batch->error(), slot.batch->failed().offset, slot.batch->failed().bytes));
  oldest_ = (oldest_ + 1) % kTogether;
  --count_;
  slot.flight->landed(*slot.flight);
}

}  // namespace kasane::mem
