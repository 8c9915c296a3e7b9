// SPDX-License-Identifier: Apache-2.0
// What a release does: this rank's changes go to the pages' owners, then notices go to the ranks that have
// copies (rules 3 to 6).
#include "base/time_spent.h"
#include "dsm/fence.h"
#include "dsm/fences.h"
#include "dsm/outbox.h"

namespace kasane::dsm {

using mem::BlockRange;

Fences::Fences(Blocks& blocks, const Frames& frames, Fetches& fetches, gas::Mover& mover)
    : blocks_(blocks), frames_(frames), fetches_(fetches), mover_(mover) {
  p_.transport.set_handler(gas::kReleaseHandler, &Fences::on_release, this);
  p_.transport.set_handler(gas::kChangesHandler, &Fences::on_changes, this);
}

void Fences::release_all(ThreadContext& ctx, Account account) {
  if (p_.sharing.nothing_to_release()) return;
  const Spent spent(ctx.counters, account, TraceKind::release);
  const bool led = release_rounds_.join(ctx.io.waiter(), [&] {
    flush_changed(ctx);
    p_.sharing.send_notices(ctx.io, [this](PageId page, bool watch) { return inspect(page, watch); });
    p_.sharing.note_release(release_rounds_.began().load());
  });
  count(led ? ctx.counters.releases : ctx.counters.releases_combined);
}

std::uint32_t Fences::release_little(ThreadContext& ctx, std::uint32_t blocks, Account account) {
  if (p_.sharing.dirty() > blocks) return 0;
  release_all(ctx, account);
  return p_.sharing.released() - 1;
}

/// Rules 3 and 11: first all blocks that are free, then those that other threads held.
void Fences::flush_changed(ThreadContext& ctx) {
  bool left = false;
  rewritten_.begin_release();
  {
    Fence fence(*this, ctx.io, &ctx.counters, BlockEvent::release_open);
    blocks_.changed().for_each([&](BlockId b) { left |= !fence.add(b); });
  }
  if (left) {
    Fence fence(*this, ctx.io, &ctx.counters, BlockEvent::release);
    blocks_.changed().for_each([&](BlockId b) { fence.wait_and_take(b); });
  }
  // then other ranks that look for stores into pages that arrived here find them
  mover_.await_entry_updates(ctx.io);
}

void Fences::clean(comm::Blocking& io) {
  Fence fence(*this, io, nullptr, BlockEvent::release);
  blocks_.changed().for_each([&](BlockId b) { fence.wait_and_take(b); });
}

void Fences::fence(comm::Blocking& io, Counters* counters, BlockId b, BlockEvent event) {
  Fence(*this, io, counters, event).wait_and_take(b);
}

/// Rules 5 and 6: to which parts of the page, which is marked, may threads of this rank have stored? watch:
/// own blocks are protected first, so that later stores mark the page again. Never waits: a claimed block
/// counts as open.
gas::Sharing::Inspection Fences::inspect(PageId page, bool watch) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  gas::Sharing::Inspection look;
  Held held(blocks_, all);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = blocks_.state(held[i]);
    if (may_have_changed(s)) look.open |= gas::part_of(all, held[i]);
    look.ours |= may_be_ours(s);
    if (watch) held.try_claim(i, BlockEvent::watch);
  }
  held.open(BlockEvent::watch);
  return look;
}

void Fences::on_changes(void* self, const comm::Message& message) noexcept {
  const auto& fences = *static_cast<Fences*>(self);
  Outbox::unpack(fences.p_.space, message.payload);
  fences.p_.transport.reply(message.token, 0);
}

}  // namespace kasane::dsm
