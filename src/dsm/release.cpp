// SPDX-License-Identifier: Apache-2.0
// What a release does: this rank's changes go to the pages' owners, then notices go to the ranks that have
// copies (rules 3 to 6).
#include <cstring>
#include <span>

#include "base/time_spent.h"
#include "dsm/coherence.h"
#include "dsm/fence_batch.h"
#include "dsm/outbox.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

namespace {

/// Copies a block that other threads may be storing to: every byte is loaded exactly once.
void snapshot(std::byte* to, const std::byte* from) noexcept {
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
    // relaxed: either of two racing values will do, if message and twin get the same one.
    const auto w = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(from + i)))
                       .load(std::memory_order_relaxed);
    std::memcpy(to + i, &w, sizeof w);
  }
}

}  // namespace

void Coherence::release_all(ThreadContext& ctx, Account account) {
  if (sharing_.nothing_to_release()) return;
  const Spent spent(ctx.counters, account, TraceKind::release);
  const bool led = release_rounds_.join(ctx.io.waiter(), [&] {
    flush_dirty(ctx);
    sharing_.send_notices(ctx.io, [this](PageId page, bool watch) { return inspect(page, watch); });
    sharing_.note_release(release_rounds_.began().load());
  });
  count(led ? ctx.counters.releases : ctx.counters.releases_combined);
}

std::uint32_t Coherence::release_little(ThreadContext& ctx, std::uint32_t blocks, Account account) {
  if (sharing_.dirty() > blocks) return 0;
  release_all(ctx, account);
  return sharing_.released() - 1;
}

/// Rules 3 and 11: first all blocks that are free, then those that other threads held.
void Coherence::flush_dirty(ThreadContext& ctx) {
  bool left = false;
  rewritten_.begin_release();
  {
    FenceBatch fences(*this, ctx.io, &ctx.counters, BlockEvent::release_open);
    dirty_.for_each([&](BlockId b) { left |= !fences.add(b); });
  }
  if (left) dirty_.for_each([&](BlockId b) { fence_block(ctx.io, &ctx.counters, b, BlockEvent::release); });
  // then other ranks that look for stores into pages that arrived here find them
  mover_.await_entry_updates(ctx.io);
}

/// Rules 5 and 6: to which parts of the page, which is marked, may threads of this rank have stored? watch:
/// own blocks are protected first, so that later stores mark the page again. Never waits: a claimed block
/// counts as open.
gas::Sharing::Inspection Coherence::inspect(PageId page, bool watch) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  gas::Sharing::Inspection look;
  BlockRange run{all.first, 0};
  const auto protect_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::read);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      BlockState before = state(block_at(run.first, i));
      before.busy = false;
      finish(block_at(run.first, i), next(before, BlockEvent::watch).after);
    }
    run.count = 0;
  };
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    const BlockState s = state(b);
    if (may_have_changed(s)) look.open |= gas::part_of(all, b);
    look.ours |= may_be_ours(s);
    if (!watch) continue;
    const BlockStep step = next(s, BlockEvent::watch);
    if (step.verdict != Verdict::proceed || !try_claim(b, s, step)) {
      protect_run();
    } else if (run.count++ == 0) {
      run.first = b;
    }
  }
  protect_run();
  return look;
}

/// The step of a release or an acquire for one block; waits if another thread has claimed it.
void Coherence::fence_block(comm::Blocking& io, Counters* counters, BlockId b, BlockEvent event) {
  const BlockStep step = claim_block(io, b, event);
  if (step.verdict == Verdict::proceed) carry_out_fence(io, counters, b, step);
}

void Coherence::carry_out_fence(comm::Blocking& io, Counters* counters, BlockId b, const BlockStep& step) {
  bool now_owned = false;
  switch (step.actions[0]) {
    case Action::diff_put_live:
    case Action::put_all_live: now_owned = put_live(io, counters, b, step); break;
    case Action::refresh: refresh(io, b, step.claimed.twin); break;
    case Action::find: stay_reader(io, pages_.page_of(b)); break;
    default:
      if (step.actions[0] != Action::end)
        protect({b, 1}, step.actions[0] == Action::protect_read ? Access::read : Access::none);
      if (step.actions[1] != Action::end) {
        bool open = false;
        now_owned = put_page(io, counters, pages_.page_of(b), {&b, 1}, {&open, 1});
      }
      if (now_owned) break;
      if (step.claimed.dirty()) mark_clean(b);
      if (step.after.access == Access::none) cached_.erase(b);
  }
  finish(b, now_owned ? become_owned(b) : step.after);
}

/// The caller holds bits of the page, so a page that this rank owns by now is not paged in: that would wait
/// for room, and for these bits. False: there is nothing to put; the page is partial here, and the caller
/// calls become_owned() for its changed blocks.
bool Coherence::begin_put(comm::Blocking& io, PageId page, std::optional<gas::AddressCache::Put>& put) {
  for (;;) {
    gas::Location own_location;
    put.emplace(addresses_, io, page, own_location);
    put->is_diff();
    if (own_location.tier == gas::Tier::dram) return true;
    put.reset();
    if (tiers_->make_partial(io, page, own_location)) break;  // else it moves, or is partial by now
  }
  sharing_.mark(page);
  return false;
}

/// A changed block whose page this rank has become the owner of: M has been the master copy since, whatever
/// the twin says. It can be stored to, as if the rest had been paged in for other ranks.
BlockState Coherence::become_owned(BlockId b) noexcept {
  mark_clean(b);
  cached_.erase(b);
  return next(state(b), BlockEvent::found_own).after;
}

/// Puts the changes of these blocks of the page, which are claimed, and not writable but for the open ones,
/// and returns when they have arrived. An open block of a page that is not another rank's is protected, and
/// open no more. True: nothing was put, since this rank owns the page, which is partial; V then allows stores
/// to what is changed.
bool Coherence::put_page(comm::Blocking& io, Counters* counters, PageId page, std::span<const BlockId> blocks,
                         std::span<bool> open) {
  std::optional<gas::AddressCache::Put> put;
  if (!begin_put(io, page, put)) {
    for (const BlockId b : blocks) {
      if (state(b).dirty()) protect({b, 1}, Access::write);
    }
    return true;
  }
  // freed meanwhile, so it will not be read; or M here is the master copy
  if (put->owner() == kNoRank || put->owner() == transport_.rank()) {
    close(blocks, open);
    return false;
  }
  Outbox out(io, counters);
  const gas::PartMask changed = put_blocks(out, counters, put->owner(), page, blocks, open);
  out.await();
  if (changed != 0) sent_changes(page, changed);
  return false;
}

/// Changes of these parts of the page have arrived at its owner.
void Coherence::sent_changes(PageId page, gas::PartMask parts) noexcept {
  sharing_.changed(page, parts);
  if (auto_relocator_ == nullptr || !sharing_.on()) return;
  const BlockRange all = pages_.blocks_of(page);
  if (parts == gas::parts_of(all, all.first, block_at(all.first, all.count - 1)))
    auto_relocator_->released(page);
}

/// Returns to which parts of the page a byte is put: blocks that a fault made writable before they were
/// stored to may be unchanged.
gas::PartMask Coherence::put_blocks(Outbox& out, Counters* counters, Rank owner, PageId page,
                                    std::span<const BlockId> blocks, std::span<bool> open) {
  if (owner == transport_.rank()) {  // M here is the master copy
    close(blocks, open);
    return 0;
  }
  const BlockRange all = pages_.blocks_of(page);
  gas::PartMask changed = 0;
  std::uint64_t whole_at = 0;
  std::size_t whole_bytes = 0;  // of the run of whole blocks that ends here
  const auto put_whole = [&] {
    if (whole_bytes == 0) return;
    out.put(owner, whole_at, space_.a(whole_at), whole_bytes);
    if (counters != nullptr) count(counters->bytes_put, whole_bytes);
    whole_bytes = 0;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockId b = blocks[i];
    const std::uint64_t at = mem::offset_of(b);
    const BlockState s = state(b);
    if (s.whole) changed |= gas::part_of(all, b);
    if (s.whole && whole_at + whole_bytes == at && whole_bytes != 0) {
      whole_bytes += kBlockBytes;
      continue;
    }
    put_whole();
    if (s.whole) {
      whole_at = at;
      whole_bytes = kBlockBytes;
    } else if (s.twin && put_changed(out, counters, owner, at, space_.a(at), space_.t(at), open[i]) != 0) {
      changed |= gas::part_of(all, b);
    }
  }
  put_whole();
  return changed;
}

void Coherence::close(std::span<const BlockId> blocks, std::span<bool> open) noexcept {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (open[i]) protect({blocks[i], 1}, Access::read);
    open[i] = false;
  }
}

/// Returns how many bytes are put.
std::size_t Coherence::put_changed(Outbox& out, Counters* counters, Rank owner, std::uint64_t offset,
                                   const std::byte* bytes, std::byte* base, bool open) {
  const std::size_t total = races_ != nullptr
                                ? put_checked(out.io(), *races_, {owner, gas::kFrames, offset}, bytes, base)
                                : out.put_changed(owner, offset, bytes, base, open);
  if (counters != nullptr) {
    count(counters->diffs);
    count(counters->bytes_put, total);
  }
  return total;
}

void Coherence::on_changes(void* self, const comm::Message& message) noexcept {
  const auto& c = *static_cast<Coherence*>(self);
  Outbox::unpack(c.space_, message.payload);
  c.transport_.reply(message.token, 0);
}

/// A pinned, writable block stays so: its changes so far are put, and the twin becomes what was sent (rules 3
/// and 10). Of a whole block all is put. True: as in put_page().
bool Coherence::put_live(comm::Blocking& io, Counters* counters, BlockId b, const BlockStep& step) {
  alignas(8) std::byte now[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  snapshot(now, space_.a(at));
  const PageId page = pages_.page_of(b);
  if (std::optional<gas::AddressCache::Put> put; !begin_put(io, page, put)) {
    return true;
  } else if (put->owner() != kNoRank) {
    Outbox out(io, counters);
    bool changed = true;
    if (!step.claimed.whole) {
      changed = put_changed(out, counters, put->owner(), at, now, space_.t(at)) != 0;
    } else if (put->owner() != transport_.rank()) {
      out.put(put->owner(), at, now, kBlockBytes);
    }
    out.await();
    if (changed) sent_changes(page, gas::part_of(pages_.blocks_of(page), b));
    fill_twin(b);
    std::memcpy(space_.t(at), now, kBlockBytes);
  }
  if (step.actions[1] == Action::refresh) refresh(io, b, true);
  return false;
}

}  // namespace kasane::dsm
