// SPDX-License-Identifier: Apache-2.0
#include "gas/mover.h"

#include <cstring>

#include "base/assert.h"

namespace kasane::gas {
Mover::Mover(comm::Transport& transport, AddressCache& addresses, PageHolder& holder)
    : transport_(transport), addresses_(addresses), directory_(addresses.directory()), holder_(holder) {
  transport_.set_handler(kYieldHandler, &Mover::on_yield, this);
}

void Mover::on_yield(void* self, const comm::Message& message) noexcept {
  auto& mover = *static_cast<Mover*>(self);
  PageId page;
  KASANE_CHECK_OP(message.payload.size(), ==, sizeof page);
  std::memcpy(&page, message.payload.data(), sizeof page);
  mover.transport_.reply(message.token, static_cast<std::uint64_t>(mover.holder_.yield(page)));
}

Result<void> Mover::bring(comm::Blocking& io, PageId page, ByteRange live) {
  const Rank me = transport_.rank();
  for (;;) {
    if (!holder_.claim(io, page)) return {};
    const Location before = directory_.lookup(io, page);
    const MoveStep step = begin_move(before, me);
    if (step.verdict == MoveVerdict::not_allocated) {
      holder_.give_up(page);
      return fail(Errc::out_of_range, "own: the page is not allocated");
    }
    if (step.verdict == MoveVerdict::already_there) {
      holder_.settle(page);
      return {};
    }
    if (step.verdict == MoveVerdict::wait || !directory_.replace(io, page, before, step.claimed)) {
      holder_.give_up(page);   // before waiting: the owner's handler or another mover may need these bits (rule 8)
      io.waiter().pause();
      continue;
    }
    const YieldAnswer answer = recall(io, page, before.owner);
    if (answer == YieldAnswer::yielded) {
      if (!live.empty()) holder_.merge(io, page, live, before.owner);
      KASANE_CHECK(directory_.replace(io, page, step.claimed, end_move(step.claimed, me)));
      holder_.settle(page);
      return {};
    }
    KASANE_CHECK(directory_.replace(io, page, step.claimed, end_move(step.claimed, before.owner)));
    holder_.give_up(page);
    if (answer == YieldAnswer::pinned) return fail(Errc::limit, "own: the page is pinned by its owner");
    io.waiter().pause();
  }
}

/// All at once: the owner is asked to yield, unless it is kNoRank, and everybody who knows the location to forget it. Refused or not, all must have answered
/// before the entry is free again: recalls come one at a time.
YieldAnswer Mover::recall(comm::Blocking& io, PageId page, Rank owner) {
  auto answer = static_cast<std::uint64_t>(YieldAnswer::yielded);
  comm::Requests requests(io);
  if (owner != kNoRank) requests.post(owner, kYieldHandler, comm::as_payload(page), &answer);
  addresses_.recall(io, page, requests);
  requests.await();
  io.waiter().until([&] { return addresses_.recalled_here(page); });
  return static_cast<YieldAnswer>(answer);
}

void Mover::hand_back(comm::Blocking& io, PageId page, Rank to) {
  for (;;) {
    const Location before = directory_.lookup(io, page);
    const MoveStep step = begin_move(before, to);
    KASANE_CHECK(step.verdict == MoveVerdict::claim || step.verdict == MoveVerdict::wait, "only the owner hands a page back");
    if (step.verdict == MoveVerdict::claim && directory_.replace(io, page, before, step.claimed)) {
      recall(io, page, kNoRank);
      // With busy set no fault here can make the page ours again; a fault already at work ends without waiting for us.
      YieldAnswer answer = holder_.yield(page);
      for (; answer == YieldAnswer::retry; answer = holder_.yield(page)) io.waiter().pause();
      KASANE_CHECK(answer == YieldAnswer::yielded, "a page handed back is not pinned");
      KASANE_CHECK(directory_.replace(io, page, step.claimed, end_move(step.claimed, to)));
      return;
    }
    io.waiter().pause();
  }
}

Result<void> Mover::assign(comm::Blocking& io, PageId page, Rank owner) {
  for (;;) {
    const Location before = directory_.lookup(io, page);
    if (before.allocated && !before.busy && before.owner == owner) return {};
    if (!before.allocated) {
      if (directory_.replace(io, page, before, Location{true, owner, Tier::dram, false, before.version + 1})) return {};
      continue;
    }
    KASANE_TRY(bring(io, page, ByteRange{}));
    if (owner != transport_.rank()) hand_back(io, page, owner);
    return {};
  }
}

}  // namespace kasane::gas
