// SPDX-License-Identifier: Apache-2.0
#include "dsm/volley.h"

#include "base/trace.h"
#include "dsm/outbox.h"

namespace kasane::dsm {

bool Coherence::Volley::take(BlockId b) {
  const BlockState s = c_.state(b);
  const Step step = next(s, event_);
  if (step.verdict != Verdict::proceed) return step.verdict != Verdict::wait;
  const bool alone = step.after.view == s.view;
  const PageId page = c_.pages_.page_of(b);
  const bool another_page = parts_ == 0 || part_[parts_ - 1].page != page;
  if (!alone && (blocks_ == kMostBlocks || (another_page && parts_ == kMostPages))) {
    fire();
    return take(b);
  }
  if (!c_.try_claim(b, s, step)) return false;
  if (alone) {
    c_.carry_out_fence(io_, counters_, b, step);
    return true;
  }
  if (another_page) {
    part_[parts_].page = page;
    part_[parts_].first = blocks_;
    part_[parts_].home = false;
    part_[parts_++].unsent = false;
  }
  block_[blocks_++] = b;
  part_[parts_ - 1].end = blocks_;
  part_[parts_ - 1].unsent |= s.dirty();
  return true;
}

void Coherence::Volley::fire() {
  if (blocks_ == 0) return;
  protect();
  put();
  finish();
  blocks_ = parts_ = 0;
}

void Coherence::Volley::protect() noexcept {
  for (std::size_t i = 0; i < blocks_;) {
    std::size_t end = i + 1;
    while (end < blocks_ && raw(block_[end]) == raw(block_[end - 1]) + 1) ++end;
    c_.protect({block_[i], end - i}, event_ == Event::release ? mem::Access::read : mem::Access::none);
    i = end;
  }
}

void Coherence::Volley::put() {
  std::array<PageId, kMostPages> pages;
  std::size_t changed = 0;
  for (const Part& part : parts()) {
    if (part.unsent) pages[changed++] = part.page;
  }
  if (changed == 0) return;
  const Traced traced(counters_, TraceKind::put_changes, blocks_);
  c_.addresses_.learn(io_, {pages.data(), changed}, true, gas::AddressCache::Rouses::none);
  put_together();
  for (Part& part : parts()) {
    if (part.unsent) part.home = c_.put_page(io_, counters_, part.page, blocks(part));
  }
}

/// What can be put without waiting for a page, one owner after the other.
void Coherence::Volley::put_together() {
  Outbox out(io_, counters_);
  for (Part& part : parts()) {
    if (!part.unsent) continue;
    part.put.emplace(c_.addresses_, io_, part.page, gas::AddressCache::kOnlyHere);
    part.put->is_diff();
    part.changed = 0;
    if (part.put->owner() == kNoRank) part.put.reset();
  }
  for (const Part& part : parts()) {
    if (!part.unsent || !part.put) continue;
    for (Part& same : parts()) {
      if (!same.unsent || !same.put || same.put->owner() != part.put->owner()) continue;
      same.changed = c_.put_blocks(out, counters_, same.put->owner(), same.page, blocks(same));
      same.unsent = false;
    }
  }
  out.await();
  for (Part& part : parts()) {
    if (!part.put) continue;
    if (part.changed != 0) c_.sharing_.changed(part.page, part.changed);
    part.put.reset();
  }
}

void Coherence::Volley::finish() noexcept {
  std::uint64_t dropped = 0;
  for (const Part& part : parts()) {
    for (const BlockId b : blocks(part)) {
      BlockState before = c_.state(b);
      before.busy = false;
      if (part.home && before.dirty()) {
        c_.finish(b, c_.come_home(b));
        continue;
      }
      const BlockState after = next(before, event_).after;
      if (before.dirty()) c_.mark_clean(b);
      if (after.view == View::none) {
        c_.cached_.erase(b);
        ++dropped;
      }
      c_.finish(b, after);
    }
  }
  if (counters_ != nullptr) count(counters_->blocks_dropped, dropped);
}

}  // namespace kasane::dsm
