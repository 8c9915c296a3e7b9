// SPDX-License-Identifier: Apache-2.0
// What an acquire does: what other ranks have changed is dropped from V; pinned blocks are refreshed instead
// (rules 2 and 4).
#include "base/time_spent.h"
#include "dsm/fence.h"
#include "dsm/fences.h"

namespace kasane::dsm {

using mem::BlockRange;

/// Calls f(block, its part) for the cached blocks in these parts of the page.
template <class F>
void Fences::for_each_cached(PageId page, gas::PartMask parts, const F& f) const {
  const BlockRange all = pages_.blocks_of(page);
  const mem::BlockSet& cached = blocks_.cached();
  for (std::uint64_t b = cached.next(raw(all.first)); b < end_of(all); b = cached.next(b + 1)) {
    if (const gas::PartMask part = gas::part_of(all, BlockId{b}); (parts & part) != 0) f(BlockId{b}, part);
  }
}

void Fences::acquire_all(ThreadContext& ctx, Account account) {
  const Spent spent(ctx.counters, account, TraceKind::acquire);
  const bool led = acquire_rounds_.join(ctx.io.waiter(), [&] { drop_cached(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// Rule 2: first all cached blocks that are free, then those that other threads held, when these have
/// finished.
void Fences::drop_cached(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  fetches_.begin_drop();
  bool left = false;
  {
    Fence fence(*this, ctx.io, &ctx.counters, BlockEvent::acquire);
    blocks_.cached().for_each([&](BlockId b) { left |= !fence.add(b); });
  }
  if (!left) return;
  Fence fence(*this, ctx.io, &ctx.counters, BlockEvent::acquire);
  blocks_.cached().for_each([&](BlockId b) { fence.wait_and_take(b); });
}

void Fences::acquire_noticed(ThreadContext& ctx, Account account) {
  if (!p_.sharing.on()) return acquire_all(ctx, account);
  if (p_.sharing.no_notices()) {  // and no other thread is still dropping
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
void Fences::drop_noticed(ThreadContext& ctx) {
  if (p_.sharing.no_notices()) return;
  fetches_.begin_drop();
  p_.sharing.begin_drop();
  const auto keeps = [this](PageId page, gas::PartMask parts) { return has_copies_beside(page, parts); };
  bool left = false;
  {
    Fence fence(*this, ctx.io, &ctx.counters, BlockEvent::acquire_open);
    p_.sharing.take_notices(ctx.io, keeps, [&](PageId page, gas::PartMask parts) {
      count(ctx.counters.notices_taken);
      if (p_.auto_relocator != nullptr) p_.auto_relocator->others_changed(page);
      gas::PartMask in_use = 0;
      for_each_cached(page, parts, [&](BlockId b, gas::PartMask part) {
        if (!fence.add(b)) in_use |= part;
      });
      if (in_use != 0) p_.sharing.add_own_notice(page, in_use);
      left |= in_use != 0;
    });
  }
  if (left) {
    Fence fence(*this, ctx.io, &ctx.counters, BlockEvent::acquire);
    p_.sharing.take_notices(ctx.io, keeps, [&](PageId page, gas::PartMask parts) {
      for_each_cached(page, parts, [&](BlockId b, gas::PartMask) { fence.wait_and_take(b); });
    });
  }
  p_.sharing.end_drop();
}

bool Fences::has_copies_beside(PageId page, gas::PartMask parts) const noexcept {
  gas::PartMask cached = 0;
  for_each_cached(page, gas::kAllParts, [&](BlockId, gas::PartMask part) { cached |= part; });
  return (cached & ~parts) != 0;
}

}  // namespace kasane::dsm
