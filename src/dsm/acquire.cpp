// SPDX-License-Identifier: Apache-2.0
// What an acquire does: what others have changed is dropped from V; what is pinned is brought up to date instead (rules 2 and 4).
#include "base/trace.h"
#include "dsm/coherence.h"
#include "dsm/volley.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

void Coherence::acquire_all(ThreadContext& ctx) {
  const Timed timed(ctx.counters, ctx.counters.ns_acquire, TraceKind::acquire);
  const bool led = acquire_rounds_.join(ctx.io.waiter(), [&] { drop_cached(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// Rule 2: everything that is cached and free is dropped; then what others hold, when they have finished.
void Coherence::drop_cached(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  drops_.fetch_add(1);
  write_buffer_.released();   // what is changed goes out, too
  bool left = false;
  {
    Volley volley(*this, ctx.io, &ctx.counters, Event::acquire);
    cached_.for_each([&](BlockId b) { left |= !volley.take(b); });
  }
  if (left) cached_.for_each([&](BlockId b) { fence_block(ctx.io, &ctx.counters, b, Event::acquire); });
}

void Coherence::acquire_told(ThreadContext& ctx) {
  if (!sharing_.on()) return acquire_all(ctx);
  if (sharing_.nothing_told()) {   // and nobody is still dropping
    acquires_.fetch_add(1);
    return;
  }
  const Timed timed(ctx.counters, ctx.counters.ns_acquire, TraceKind::acquire);
  const bool led = told_rounds_.join(ctx.io.waiter(), [&] {
    acquires_.fetch_add(1);
    drop_told(ctx);
  });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// The same of what this rank was told of. In one thread at a time.
void Coherence::drop_told(ThreadContext& ctx) {
  if (sharing_.nothing_told()) return;
  drops_.fetch_add(1);
  sharing_.begin_drop();
  const auto keeps = [this](PageId page, gas::Parts parts) { return has_copies_beside(page, parts); };
  bool left = false;
  {
    Volley volley(*this, ctx.io, &ctx.counters, Event::acquire);
    sharing_.take_told(ctx.io, keeps, [&](PageId page, gas::Parts parts) {
      count(ctx.counters.pages_heard);
      gas::Parts in_use = 0;
      for_each_cached(page, parts, [&](BlockId b, gas::Parts part) {
        if (!volley.take(b)) in_use |= part;
      });
      if (in_use != 0) sharing_.tell_myself(page, in_use);
      left |= in_use != 0;
    });
  }
  if (left) {
    sharing_.take_told(ctx.io, keeps, [&](PageId page, gas::Parts parts) {
      for_each_cached(page, parts, [&](BlockId b, gas::Parts) { fence_block(ctx.io, &ctx.counters, b, Event::acquire); });
    });
  }
  sharing_.end_drop();
}

bool Coherence::has_copies_beside(PageId page, gas::Parts parts) const noexcept {
  gas::Parts cached = 0;
  for_each_cached(page, gas::kAllParts, [&](BlockId, gas::Parts part) { cached |= part; });
  return (cached & ~parts) != 0;
}

/// Joins the page's readers and calls read(owner) until the page has stood meanwhile. False: there is no other owner. Held are bits of the page, so one that is ours by now is not brought in.
template <class F>
bool Coherence::read_as_reader(comm::Blocking& io, PageId page, const F& read) {
  for (;;) {
    const auto found = addresses_.look(io, page);
    if (found.owner == kNoRank || found.owner == transport_.rank()) return false;
    if (gas::AddressCache::asleep(found)) {
      addresses_.rouse(io, page, found.owner);
      continue;
    }
    const auto stay = sharing_.join(io, page, found.owner);
    read(found.owner);
    if (!addresses_.stood(io, page, found)) continue;
    sharing_.joined(page, stay);
    return true;
  }
}

/// This rank is among the page's readers afterwards: what it keeps of the page is told of, though an acquire has just left them. If it owns the page nobody need
/// tell it.
void Coherence::stay_reader(comm::Blocking& io, PageId page) {
  read_as_reader(io, page, [](Rank) {});
}

/// Rule 4: the owner's bytes that changed since the twin was made go into M and the twin, nothing else.
void Coherence::refresh(comm::Blocking& io, BlockId b, bool twin) {
  alignas(8) std::byte fresh[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  if (!read_as_reader(io, pages_.page_of(b), [&](Rank owner) { io.read({owner, gas::kFrames, at}, fresh, kBlockBytes); })) return;
  std::byte* mine = space_.a(at);
  std::byte* base = twin ? space_.t(at) : mine;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    if (fresh[i] == base[i]) continue;
    mine[i] = fresh[i];
    base[i] = fresh[i];
  }
}

}  // namespace kasane::dsm
