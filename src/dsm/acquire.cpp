// SPDX-License-Identifier: Apache-2.0
// What an acquire does: what others have changed is dropped from V; what is pinned is brought up to date instead (rules 2 and 4).
#include "base/trace.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

/// Drops blocks in runs; what waits, or has unreleased bytes or pins, goes by itself.
class Coherence::Drops {
 public:
  Drops(Coherence& coherence, ThreadContext& ctx) noexcept : c_(coherence), ctx_(ctx) {}
  ~Drops() {
    drop_run();
    count(ctx_.counters.blocks_dropped, dropped_);
  }
  /// False: somebody else has the block in hand.
  bool see(BlockId b) {
    const BlockState s = c_.state(b);
    const Step step = next(s, Event::acquire);
    if (step.verdict == Verdict::wait) return false;
    if (step.verdict != Verdict::proceed) return true;
    if (s.dirty() || s.pins != 0) {
      drop_run();   // hold nothing while we may wait
      c_.acquire_block(ctx_.io, &ctx_.counters, b);
      return true;
    }
    if (run_.count != 0 && raw(run_.first) + run_.count != raw(b)) drop_run();
    if (!c_.try_claim(b, s, step)) return false;
    if (run_.count++ == 0) run_.first = b;
    return true;
  }
  void drop_run() {
    if (run_.count == 0) return;
    c_.protect(run_, Access::none);
    for (std::uint64_t i = 0; i < run_.count; ++i) {
      c_.cached_.erase(block_at(run_.first, i));
      c_.finish(block_at(run_.first, i), BlockState{});
    }
    dropped_ += run_.count;
    run_.count = 0;
  }

 private:
  Coherence& c_;
  ThreadContext& ctx_;
  BlockRange run_{BlockId{0}, 0};
  std::uint64_t dropped_ = 0;
};

void Coherence::acquire_all(ThreadContext& ctx) {
  const Timed timed(ctx.counters, ctx.counters.ns_acquire, TraceKind::acquire);
  const bool led = acquire_rounds_.join(ctx.io.waiter(), [&] { drop_cached(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// Rule 2: everything that is cached and free is dropped; then what others hold, when they have finished.
void Coherence::drop_cached(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  drops_.fetch_add(1);
  flush_dirty(ctx);
  bool left = false;
  {
    Drops drops(*this, ctx);
    cached_.for_each([&](BlockId b) { left |= !drops.see(b); });
  }
  if (left) cached_.for_each([&](BlockId b) { acquire_block(ctx.io, &ctx.counters, b); });
}

void Coherence::acquire_told(ThreadContext& ctx) {
  if (!sharing_.on()) return acquire_all(ctx);
  if (sharing_.nothing_told()) {   // and nobody is still dropping
    acquires_.fetch_add(1);
    return;
  }
  const Timed timed(ctx.counters, ctx.counters.ns_acquire, TraceKind::acquire);
  const bool led = told_rounds_.join(ctx.io.waiter(), [&] { drop_told(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// The same of the pages that this rank was told of.
void Coherence::drop_told(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  drops_.fetch_add(1);
  sharing_.begin_drop();
  const auto for_each_cached = [this](PageId page, const auto& f) {
    const BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = cached_.next(raw(all.first)); b < end_of(all); b = cached_.next(b + 1)) f(BlockId{b});
  };
  bool left = false;
  {
    Drops drops(*this, ctx);
    sharing_.take_told(ctx.io, [&](PageId page) {
      count(ctx.counters.pages_heard);
      bool in_use = false;
      for_each_cached(page, [&](BlockId b) { in_use |= !drops.see(b); });
      if (in_use) sharing_.tell_myself(page);
      left |= in_use;
    });
  }
  if (left) {
    sharing_.take_told(ctx.io, [&](PageId page) { for_each_cached(page, [&](BlockId b) { acquire_block(ctx.io, &ctx.counters, b); }); });
  }
  sharing_.end_drop();
}

void Coherence::acquire_block(comm::Blocking& io, Counters* counters, BlockId b) {
  const Step step = claim_block(io, b, Event::acquire);
  if (step.verdict == Verdict::proceed) perform_acquire(io, counters, b, step);
}

void Coherence::perform_acquire(comm::Blocking& io, Counters* counters, BlockId b, const Step& step) {
  switch (step.actions[0]) {
    case Action::diff_put_live:
    case Action::put_all_live: flush_block_live(io, counters, b, step); return;
    case Action::refresh:
      refresh(io, b, false);
      finish(b, step.after);
      return;
    default: break;
  }
  protect({b, 1}, Access::none);
  if (step.claimed.dirty()) {
    put_diffs(io, counters, window_of(b), Mask{1} << index_in_window(b));
    mark_clean(b);
  }
  cached_.erase(b);
  finish(b, step.after);
}
/// Rule 4: the owner's bytes that changed since the twin was made go into M and the twin, nothing else.
void Coherence::refresh(comm::Blocking& io, BlockId b, bool twin) {
  alignas(8) std::byte fresh[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  const PageId page = pages_.page_of(b);
  for (;;) {
    const auto found = addresses_.find(io, page);
    if (found.owner == kNoRank || found.owner == transport_.rank()) return;
    const auto stay = sharing_.join(io, page, found.owner);
    io.read({found.owner, gas::kFrames, at}, fresh, kBlockBytes);
    if (!addresses_.stood(io, page, found)) continue;
    sharing_.joined(page, stay);
    break;
  }
  std::byte* mine = space_.a(at);
  std::byte* base = twin ? space_.t(at) : mine;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    if (fresh[i] == base[i]) continue;
    mine[i] = fresh[i];
    base[i] = fresh[i];
  }
}

}  // namespace kasane::dsm
