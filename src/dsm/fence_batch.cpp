// SPDX-License-Identifier: Apache-2.0
#include "dsm/fence_batch.h"

#include <cstring>

#include "base/trace.h"
#include "dsm/outbox.h"

namespace kasane::dsm {

/// Where data races are told of, a change is what a release finds protected.
bool Coherence::FenceBatch::stays_open(BlockId b, const BlockState& s) noexcept {
  if (!may_stay_open_ || s.busy || !s.twin || s.pins != 0 || c_.races_ != nullptr) return false;
  if (event_ == BlockEvent::acquire) return c_.rewritten_.stays_open(b);
  if (c_.engine_.crowded()) return false;
  const std::uint64_t at = mem::offset_of(b);
  return c_.rewritten_.stays_open(
      b, [&] { return std::memcmp(c_.space_.a(at), c_.space_.t(at), mem::kBlockBytes) != 0; });
}

bool Coherence::FenceBatch::add(BlockId b) {
  const PageId page = c_.pages_.page_of(b);
  if (blocks_ == kMostBlocks || (parts_ == kMostPages && part_[parts_ - 1].page != page)) run();
  const BlockState s = c_.state(b);
  const bool open = stays_open(b, s), acquires = event_ == BlockEvent::acquire;
  const BlockEvent event = !open ? event_ : acquires ? BlockEvent::acquire_open : BlockEvent::release_open;
  const BlockStep step = next(s, event);
  if (step.verdict != Verdict::proceed) return step.verdict != Verdict::wait;
  const bool alone = step.after.access == s.access && (acquires || !open);
  const bool another_page = parts_ == 0 || part_[parts_ - 1].page != page;
  if (!c_.try_claim(b, s, step)) return false;
  if (alone) {
    c_.carry_out_fence(io_, counters_, b, step);
    return true;
  }
  if (another_page) {
    part_[parts_].page = page;
    part_[parts_].first = blocks_;
    part_[parts_].now_owned = false;
    part_[parts_++].unsent = false;
  }
  open_[blocks_] = open;
  block_[blocks_++] = b;
  part_[parts_ - 1].end = blocks_;
  part_[parts_ - 1].unsent |= s.dirty();
  return true;
}

void Coherence::FenceBatch::run() {
  if (blocks_ == 0) return;
  protect();
  put();
  finish();
  blocks_ = parts_ = 0;
}

void Coherence::FenceBatch::protect() noexcept {
  for (std::size_t i = 0; i < blocks_;) {
    std::size_t end = i + 1;
    if (open_[i]) {
      i = end;
      continue;
    }
    while (end < blocks_ && !open_[end] && raw(block_[end]) == raw(block_[end - 1]) + 1) ++end;
    c_.protect({block_[i], end - i}, event_ == BlockEvent::release ? mem::Access::read : mem::Access::none);
    i = end;
  }
}

void Coherence::FenceBatch::put() {
  std::array<PageId, kMostPages> pages;
  std::size_t changed = 0;
  for (const Part& part : parts()) {
    if (part.unsent) pages[changed++] = part.page;
  }
  if (changed == 0) return;
  const Traced traced(counters_, TraceKind::put_changes, blocks_);
  c_.addresses_.learn(io_, {pages.data(), changed}, true, gas::AddressCache::PagesIn::none);
  put_together();
  for (Part& part : parts()) {
    if (part.unsent) part.now_owned = c_.put_page(io_, counters_, part.page, blocks(part), open(part));
  }
}

/// Puts what can be put without waiting for a page, owner by owner.
void Coherence::FenceBatch::put_together() {
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
      same.changed = c_.put_blocks(out, counters_, same.put->owner(), same.page, blocks(same), open(same));
      same.unsent = false;
    }
  }
  out.await();
  for (Part& part : parts()) {
    if (!part.put) continue;
    if (part.changed != 0) c_.sent_changes(part.page, part.changed);
    part.put.reset();
  }
}

void Coherence::FenceBatch::finish() noexcept {
  for (const Part& part : parts()) {
    for (std::size_t i = part.first; i < part.end; ++i) {
      const BlockId b = block_[i];
      BlockState before = c_.state(b);
      before.busy = false;
      if (part.now_owned && before.dirty()) {
        c_.finish(b, c_.become_owned(b));
        continue;
      }
      const BlockState after = next(before, open_[i] ? BlockEvent::release_open : event_).after;
      if (before.dirty() && !after.dirty()) c_.mark_clean(b);
      if (after.access == Access::none) c_.cached_.erase(b);
      c_.finish(b, after);
    }
  }
}

}  // namespace kasane::dsm
