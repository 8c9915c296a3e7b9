// SPDX-License-Identifier: Apache-2.0
// What an acquire does: what other ranks have changed is dropped from V; pinned blocks are refreshed instead
// (rules 2 and 4).
#include <cstring>

#include "base/time_spent.h"
#include "dsm/coherence.h"
#include "dsm/fence_batch.h"
#include "dsm/word_at.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

void Coherence::acquire_all(ThreadContext& ctx, Account account) {
  const Spent spent(ctx.counters, account, TraceKind::acquire);
  const bool led = acquire_rounds_.join(ctx.io.waiter(), [&] { drop_cached(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// Rule 2: first all cached blocks that are free, then those that other threads held, when these have
/// finished.
void Coherence::drop_cached(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  drops_.fetch_add(1);
  bool left = false;
  {
    FenceBatch fences(*this, ctx.io, &ctx.counters, BlockEvent::acquire);
    cached_.for_each([&](BlockId b) { left |= !fences.add(b); });
  }
  if (left) cached_.for_each([&](BlockId b) { fence_block(ctx.io, &ctx.counters, b, BlockEvent::acquire); });
}

void Coherence::acquire_noticed(ThreadContext& ctx, Account account) {
  if (!sharing_.on()) return acquire_all(ctx, account);
  if (sharing_.no_notices()) {  // and no other thread is still dropping
    acquires_.fetch_add(1);
    return;
  }
  const Spent spent(ctx.counters, account, TraceKind::acquire);
  const bool led = notice_rounds_.join(ctx.io.waiter(), [&] {
    acquires_.fetch_add(1);
    drop_noticed(ctx);
  });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// The same for the blocks of which this rank has notices. One thread at a time.
void Coherence::drop_noticed(ThreadContext& ctx) {
  if (sharing_.no_notices()) return;
  drops_.fetch_add(1);
  sharing_.begin_drop();
  const auto keeps = [this](PageId page, gas::PartMask parts) { return has_copies_beside(page, parts); };
  bool left = false;
  {
    FenceBatch fences(*this, ctx.io, &ctx.counters, BlockEvent::acquire_open);
    sharing_.take_notices(ctx.io, keeps, [&](PageId page, gas::PartMask parts) {
      count(ctx.counters.notices_taken);
      if (auto_relocator_ != nullptr) auto_relocator_->others_changed(page);
      gas::PartMask in_use = 0;
      for_each_cached(page, parts, [&](BlockId b, gas::PartMask part) {
        if (!fences.add(b)) in_use |= part;
      });
      if (in_use != 0) sharing_.add_own_notice(page, in_use);
      left |= in_use != 0;
    });
  }
  if (left) {
    sharing_.take_notices(ctx.io, keeps, [&](PageId page, gas::PartMask parts) {
      for_each_cached(page, parts, [&](BlockId b, gas::PartMask) {
        fence_block(ctx.io, &ctx.counters, b, BlockEvent::acquire);
      });
    });
  }
  sharing_.end_drop();
}

bool Coherence::has_copies_beside(PageId page, gas::PartMask parts) const noexcept {
  gas::PartMask cached = 0;
  for_each_cached(page, gas::kAllParts, [&](BlockId, gas::PartMask part) { cached |= part; });
  return (cached & ~parts) != 0;
}

/// Joins the page's readers and calls read(owner), again until the page stood meanwhile. False: there is no
/// other owner. The caller holds bits of the page, so a page that this rank owns by now is not paged in.
template <class F>
bool Coherence::read_as_reader(comm::Blocking& io, PageId page, const F& read) {
  for (;;) {
    const auto found = addresses_.look(io, page);
    if (found.owner == kNoRank || found.owner == transport_.rank()) return false;
    if (gas::AddressCache::is_on_ssd(found)) {
      addresses_.page_in(io, page, found.owner);
      continue;
    }
    const auto state = sharing_.join(io, page, found.owner);
    read(found.owner);
    if (!addresses_.stood(io, page, found)) continue;
    sharing_.joined(page, state);
    return true;
  }
}

/// Makes this rank a reader of the page again: it keeps a block of it, though the acquire has just left the
/// readers. If this rank owns the page no notice is needed.
void Coherence::stay_reader(comm::Blocking& io, PageId page) {
  read_as_reader(io, page, [](Rank) {});
}

/// Rule 4: bytes of the owner that have changed since the twin was made go into M and the twin, nothing else.
void Coherence::refresh(comm::Blocking& io, BlockId b, bool twin) {
  const bool others_wrote = refresh(io, mem::offset_of(b), kBlockBytes, twin);
  const PageId page = pages_.page_of(b);
  if (auto_relocator_ != nullptr && auto_relocator_->may_relocate(page))
    auto_relocator_->used(page, others_wrote);
}

/// The same for bytes of one block. Did one of them differ?
bool Coherence::refresh(comm::Blocking& io, std::uint64_t offset, std::size_t bytes, bool twin) {
  alignas(8) std::byte fresh[kBlockBytes];
  if (!read_as_reader(io, pages_.page_of(mem::block_of(offset)),
                      [&](Rank owner) { io.read({owner, gas::kFrames, offset}, fresh, bytes); }))
    return false;
  std::byte* mine = space_.a(offset);
  std::byte* base = twin ? space_.t(offset) : mine;
  bool changed = false;
  const auto merge = [&](std::size_t i, std::uint64_t theirs, std::uint64_t which) {
    changed = true;
    store_bytes(mine + i, theirs, which);
    if (twin) store_bytes(base + i, theirs, which);
  };
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    while (bytes - i >= 64 && std::memcmp(fresh + i, base + i, 64) == 0) i += 64;
    if (i + 8 > bytes) break;
    const std::uint64_t theirs = word_at(fresh + i);
    if (const std::uint64_t which = differing_bytes(theirs, word_at(base + i)); which != 0)
      merge(i, theirs, which);
  }
  for (; i < bytes; ++i) {  // of a range that is not whole words
    if (fresh[i] == base[i]) continue;
    changed = true;
    mine[i] = fresh[i];
    base[i] = fresh[i];
  }
  return changed;
}

}  // namespace kasane::dsm
