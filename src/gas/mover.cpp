// SPDX-License-Identifier: Apache-2.0
#include "gas/mover.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/assert.h"
#include "base/trace.h"
#include "gas/move.h"

namespace kasane::gas {

Mover::Mover(comm::Transport& transport, AddressCache& addresses, PageBlocks& blocks)
    : transport_(transport),
      addresses_(addresses),
      directory_(addresses.directory()),
      pages_(directory_.pages()),
      blocks_(blocks),
      by_messages_(transport.facts().puts_need_target && transport.facts().answers_bring &&
                   transport.facts().atomics_coherent_with_cpu) {
  transport_.set_handler(kYieldHandler, &Mover::on_yield, this);
  transport_.set_handler(kTakeHandler, &Mover::on_take, this);
  for (std::uint32_t i = 0; i < kMostUpdates; ++i) {
    updates_[i].mover = this;
    updates_[i].index = i;
    updates_[i].fn = [](comm::Completion* c) noexcept {
      const auto& arrived = *static_cast<EntryUpdate*>(c);
      arrived.mover->entry_updated(arrived);
    };
  }
}

namespace {

struct YieldOrder {
  PageId page;
  std::uint64_t bring;  ///< 1: the answer shall bring the page along
};

}  // namespace

void Mover::on_yield(void* self, const comm::Message& message) noexcept {
  auto& mover = *static_cast<Mover*>(self);
  const auto order = value_of<YieldOrder>(message);
  const YieldAnswer answer = mover.blocks_.yield(order.page);
  std::span<const std::byte> frame;
  if (answer == YieldAnswer::yielded && order.bring != 0) {
    frame = {mover.transport_.mapped(mover.transport_.rank(), kFrames) + mover.pages_.offset_of(order.page),
             mover.pages_.bytes_of(order.page)};
  }
  mover.transport_.reply_with(message.token, static_cast<std::uint64_t>(answer), frame);
}

void Mover::on_take(void* self, const comm::Message& message) noexcept {
  auto& mover = *static_cast<Mover*>(self);
  const Directory::Taken taken = mover.directory_.take_here(value_of<PageId>(message), message.from);
  std::span<const std::byte> holders;
  if (taken.holders) holders = comm::as_payload(*taken.holders);
  mover.transport_.reply_with(message.token, taken.before, holders);
}

Result<void> Mover::bring(comm::Blocking& io, PageId page, ByteRange live) {
  const auto refusal = bring_one(io, page, live, EntryWrite::awaited);
  if (!refusal) return {};
  const std::string where = "the page at global offset " + std::to_string(pages_.offset_of(page));
  return fail(refusal->why, refusal->why == Errc::busy ? "own: " + where + " is pinned by its owner, or fixed"
                                                       : "own: " + where + " is not allocated");
}

std::optional<MoveRefusal> Mover::bring_one(comm::Blocking& io, PageId page, ByteRange live,
                                            EntryWrite write) {
  for (bool brought_in = false;;) {
    // Where the page was paged in for this move, room was waited for then. If there is no more now, waiting
    // for it would have the page evicted again.
    if (!brought_in) blocks_.admit(io, page);
    if (blocks_.claim(io, page) == Claim::ours) return {};
    Move move{.page = page, .live = live};
    perform(io, {&move, 1}, write);
    if (move.outcome == Move::Outcome::here) return {};
    if (move.outcome == Move::Outcome::refused) return MoveRefusal{move.why, page};
    // The bits were cleared: the owner's handler or another mover may need them (rule 8).
    brought_in = move.outcome == Move::Outcome::needs_page_in && move.yielding_owner == transport_.rank();
    if (move.outcome == Move::Outcome::needs_page_in) {
      addresses_.page_in(io, page, move.yielding_owner);
    } else {
      io.waiter().pause();
    }
  }
}

std::optional<MoveRefusal> Mover::bring_all(comm::Blocking& io, PageId first, std::uint64_t pages) {
  for (std::uint64_t done = 0; done < pages; done += kTogether) {
    const std::uint64_t n = std::min<std::uint64_t>(kTogether, pages - done);
    std::array<Move, kTogether> moves;
    std::size_t claimed = 0;
    std::array<PageId, kTogether> left;
    std::size_t left_count = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      const PageId page{raw(first) + done + i};
      if (claimed == 0) blocks_.admit(io, page);  // while nothing is held
      const Claim claim = blocks_.try_claim(page);
      if (claim == Claim::in_use) left[left_count++] = page;
      if (claim == Claim::taken) moves[claimed++] = Move{.page = page, .live = all_of(page)};
    }
    perform(io, {moves.data(), claimed}, EntryWrite::deferred);
    std::optional<MoveRefusal> refusal;
    for (const Move& t : std::span(moves.data(), claimed)) {
      if (t.outcome == Move::Outcome::retry || t.outcome == Move::Outcome::needs_page_in)
        left[left_count++] = t.page;
      if (t.outcome == Move::Outcome::refused && !refusal) refusal = MoveRefusal{t.why, t.page};
    }
    for (std::size_t i = 0; i < left_count && !refusal; ++i) {
      refusal = bring_one(io, left[i], all_of(left[i]), EntryWrite::deferred);
    }
    if (refusal) return refusal;
  }
  return {};
}

void Mover::perform(comm::Blocking& io, std::span<Move> moves, EntryWrite write) {
  const Rank me = transport_.rank();
  const Traced traced(io.counters(), TraceKind::move_pages, moves.size());
  mark(io, moves);
  for (Move& t : moves) {
    t.step = begin_move(Location::of(t.before), me);
    t.yielding_owner = Location::of(t.before).owner;
    if (by_messages_ && t.claimed() && transport_.mapped(t.yielding_owner, kFrames) == nullptr)
      t.arrival_frame = blocks_.arrival_frame(t.page, t.live);
  }
  recall(io, moves);

  comm::Batch batch(io);
  const auto is_read = [](const Move& t) { return t.yielded() && !t.live.empty() && !t.arrived(); };
  for (const Move& t : moves) {
    if (is_read(t)) blocks_.begin_merge(batch, t.page, t.live, t.yielding_owner);
  }
  batch.await();
  for (const Move& t : moves) {
    if (is_read(t)) blocks_.end_merge(io, t.page, t.live, t.yielding_owner);
  }
  write_entries(io, moves, write);
  settle(io, moves);
}

void Mover::write_entries(comm::Blocking& io, std::span<Move> moves, EntryWrite write) {
  const Rank me = transport_.rank();
  comm::Batch batch(io);
  // A page is settled when its entry is known to name this rank: else a thread here could store, and release,
  // while other ranks still read the old frame. Or the release waits for that.
  for (Move& t : moves) {
    const Location before = Location::of(t.before);
    if (t.yielded() && write == EntryWrite::deferred && !directory_.near(t.page)) {
      update_entry_later(io, t);
      t.last = t.step.claimed.word();  // its completion checks this
    } else if (t.claimed()) {
      directory_.unmark(batch, t.page, end_move(t.step.claimed, t.yielded() ? me : before.owner), &t.last);
    } else if (t.blank()) {
      directory_.unmark(batch, t.page, end_take(t.step.claimed, me), &t.last);
    } else if (t.step.verdict != MoveVerdict::wait) {
      directory_.unmark(batch, t.page,
                        t.step.verdict == MoveVerdict::already_there ? touched(before) : before, &t.last);
    }
  }
}

void Mover::settle(comm::Blocking& io, std::span<Move> moves) {
  for (Move& t : moves) {
    KASANE_CHECK(t.step.verdict == MoveVerdict::wait || t.last == t.step.claimed.word(),
                 "only its mover changes the entry of a page that moves");
    if (t.yielded() || t.blank() || t.step.verdict == MoveVerdict::already_there) {
      blocks_.settle(t.page);
      t.outcome = Move::Outcome::here;
      if (t.yielded() && io.counters() != nullptr) count(io.counters()->pages_moved);
      continue;
    }
    blocks_.unclaim(t.page);
    const bool pinned = t.claimed() && t.answer == static_cast<std::uint64_t>(YieldAnswer::pinned);
    t.why = t.step.verdict == MoveVerdict::not_allocated ? Errc::out_of_range : Errc::busy;
    const bool never = t.step.verdict == MoveVerdict::not_allocated || t.step.verdict == MoveVerdict::fixed;
    t.outcome = pinned || never     ? Move::Outcome::refused
                : t.needs_page_in() ? Move::Outcome::needs_page_in
                                    : Move::Outcome::retry;
  }
}

void Mover::update_entry_later(comm::Blocking& io, const Move& t) {
  std::uint32_t index = comm::IndexPool<>::kNone;
  // Entries arrive without help; the predicate may be called again after it was true.
  io.waiter().until([&] {
    return index != comm::IndexPool<>::kNone || (index = free_updates_.take()) != comm::IndexPool<>::kNone;
  });
  EntryUpdate& update = updates_[index];
  update.status = comm::Status::ok;
  update.claimed = t.step.claimed.word();
  update.page = t.page;
  blocks_.begin_entry_update();  // before any store can happen
  updates_under_way_.fetch_add(1);
  comm::Post result = comm::Post::again;
  io.waiter().until([&] {
    if (result == comm::Post::again)
      result =
          directory_.unmark(io, t.page, end_move(t.step.claimed, transport_.rank()), &update.before, &update);
    return result != comm::Post::again;
  });
  if (result == comm::Post::done) entry_updated(update);
}

void Mover::entry_updated(const EntryUpdate& update) noexcept {
  KASANE_CHECK(update.status != comm::Status::ok || update.before == update.claimed,
               "only its mover changes the entry of a page that moves");
  blocks_.end_entry_update(update.page);
  free_updates_.put(update.index);
  updates_under_way_.fetch_sub(1);  // last: then no thread waits for this object any more
}

void Mover::await_entry_updates(comm::Blocking& io) {
  io.waiter().until([this] { return updates_under_way_.load() == 0; });
}

void Mover::mark(comm::Blocking& io, std::span<Move> moves) {
  comm::Batch batch(io);
  bool ask = false;
  for (Move& t : moves) {
    t.holders_taken = by_messages_ && !directory_.near(t.page);
    ask = ask || t.holders_taken;
    if (t.holders_taken) continue;
    directory_.mark(batch, t.page, &t.before);
    directory_.peek_holders(batch, t.page, &t.peeked);
  }
  if (ask) take_by_message(io, moves);
}

/// Where operations are messages, one of them does what three atomics do: the manager marks the page, and
/// takes its holders if there is a page to move. If the answer leaves the holders out, all ranks are asked:
/// one that does not know the location answers at once.
void Mover::take_by_message(comm::Blocking& io, std::span<Move> moves) {
  comm::Requests requests(io);
  for (Move& t : moves) {
    if (!t.holders_taken) continue;
    t.taken = kHolders;
    count_request(io, directory_.manager(t.page));
    requests.post(directory_.manager(t.page), kTakeHandler, comm::as_payload(t.page),
                  {&t.before, std::as_writable_bytes(std::span<std::uint64_t, 1>(&t.taken, 1)), &t.brought});
  }
}

void Mover::count_request(comm::Blocking& io, Rank to) const noexcept {
  if (io.counters() != nullptr && transport_.mapped(to, kFrames) == nullptr)
    count(io.counters()->move_requests);
}

void Mover::ask_to_yield(comm::Blocking& io, comm::Requests& requests, Move& t) const {
  t.brought = 0;
  count_request(io, t.yielding_owner);
  requests.post(t.yielding_owner, kYieldHandler,
                comm::as_payload(YieldOrder{t.page, t.arrival_frame.empty() ? 0u : 1u}),
                {&t.answer, t.arrival_frame, &t.brought});
}

/// All at once: owners are asked to yield, and all holders to forget the location. Those that word 2 named
/// together with the mark are asked before the swap has completed, which then names the others. (Such a rank
/// could be asked, set its bit again, and have it taken by the swap: then the stamp is not the version that
/// it reads.) Even if the move is refused, all must have answered before the entry is free again: recalls
/// come one at a time. An owner whose answer brings the page along is asked after that: until all have
/// answered, puts may still change it.
void Mover::recall(comm::Blocking& io, std::span<Move> moves) {
  comm::Batch batch(io);
  comm::Requests requests(io, comm::kDoorbellDelayNs);
  for (Move& t : moves) {
    if (t.claimed() && !t.holders_taken)
      directory_.take_holders(batch, t.page, t.step.claimed.version + 1, &t.taken);
  }
  for (Move& t : moves) {
    if (!t.claimed()) continue;
    if (t.yielding_owner != kNoRank && t.arrival_frame.empty()) ask_to_yield(io, requests, t);
    addresses_.recall(io, t.page, t.peeked, requests);
  }
  batch.await();
  for (const Move& t : moves) {
    if (!t.claimed()) continue;
    addresses_.recall(io, t.page, t.taken & ~t.peeked, requests);
    addresses_.recall_own(t.page);
  }
  requests.await();
  for (const Move& t : moves) {
    if (t.claimed()) io.waiter().until([&] { return addresses_.recalled(t.page, t.peeked | t.taken); });
  }
  for (Move& t : moves) {
    if (t.claimed() && !t.arrival_frame.empty()) ask_to_yield(io, requests, t);
  }
  requests.await();
}

bool Mover::pull(comm::Blocking& io, PageId page) {
  for (;; io.waiter().pause()) {
    blocks_.admit(io, page);
    if (!keepable(directory_.lookup(io, page)) || blocks_.claim(io, page) != Claim::taken) return false;
    Move move{.page = page, .live = all_of(page)};
    perform(io, {&move, 1});
    if (move.outcome != Move::Outcome::retry) return move.outcome == Move::Outcome::here && move.claimed();
  }
}

/// Own blocks of a page that this thread has marked busy. With busy set no fault here can make them owned
/// again; a fault already at work ends without waiting for this thread. False: one is pinned.
bool Mover::disarm(comm::Blocking& io, PageId page) {
  YieldAnswer answer = blocks_.yield(page);
  for (; answer == YieldAnswer::retry; answer = blocks_.yield(page)) io.waiter().pause();
  return answer == YieldAnswer::yielded;
}

bool Mover::hand_back(comm::Blocking& io, PageId page, Rank to) {
  for (;; io.waiter().pause()) {
    Move move{.page = page, .live = {}};
    comm::Batch batch(io);
    directory_.mark(batch, page, &move.before);
    batch.await();
    move.step = begin_move(Location::of(move.before), to);
    if (move.step.verdict == MoveVerdict::wait) continue;
    if (Location::of(move.before).owner != transport_.rank()) {
      directory_.unmark(batch, page, Location::of(move.before), &move.last);
      return false;
    }
    if (move.step.verdict == MoveVerdict::on_ssd) {
      directory_.unmark(batch, page, in_tier(end_take(move.step.claimed, to), Tier::ssd), &move.last);
      batch.await();
      blocks_.replaced(page);
      return true;
    }
    const bool in_part = move.step.verdict == MoveVerdict::in_part;  // the location has no holders
    KASANE_CHECK(move.claimed() || in_part, "a page is handed to somebody else");
    recall(io, {&move, 1});
    KASANE_CHECK(disarm(io, page), "a page handed back is not pinned");
    directory_.unmark(batch, page,
                      in_tier(in_part ? end_take(move.step.claimed, to) : end_move(move.step.claimed, to),
                              addresses_.initial_tier(page)),
                      &move.last);
    batch.await();
    KASANE_CHECK(move.last == move.step.claimed.word());
    blocks_.replaced(page);
    return true;
  }
}

bool Mover::touch(comm::Blocking& io, PageId page, mem::BlockRange used) {
  if (blocks_.claim(io, page) == Claim::ours) return false;
  const Rank me = transport_.rank();
  Location before;
  {
    comm::Batch batch(io);
    std::uint64_t word = 0;
    directory_.mark(batch, page, &word);
    batch.await();
    before = Location::of(word);
  }
  const MoveStep step = begin_move(before, me);
  const bool first =
      before.untouched && (step.verdict == MoveVerdict::claim || step.verdict == MoveVerdict::already_there);
  if (step.verdict != MoveVerdict::wait) {
    KASANE_CHECK(directory_.replace(io, page, step.claimed, first ? end_touch(step.claimed, me) : before),
                 "only its mover changes the entry of a page that moves");
  }
  if (first) {
    blocks_.settle_touched(page, used);
  } else {
    blocks_.unclaim(page);
  }
  return first;
}

Result<void> Mover::assign_untouched(comm::Blocking& io, PageId page) {
  const Rank me = transport_.rank();
  for (;; io.waiter().pause()) {
    const Location found = directory_.lookup(io, page);
    if (found.busy) continue;
    if (found.fixed) {
      directory_.replace(io, page, found, with_fixed(found, false));
      continue;
    }
    if (!found.allocated) {
      if (directory_.replace(io, page, found, Location{true, me, Tier::dram, false, found.version, true}))
        return {};
      continue;
    }
    if (found.owner != me) {
      KASANE_TRY(bring(io, page, ByteRange{}));
      continue;
    }
    if (found.untouched) return {};
    if (found.tier == Tier::ssd) {
      Location after = in_tier(found, Tier::dram);
      after.untouched = true;
      if (directory_.replace(io, page, found, after)) return blocks_.replaced(page), Result<void>{};
      continue;
    }
    Move move{.page = page, .live = {}};
    // as if another rank took it: holders are recalled, and own blocks disarmed
    move.step = begin_move(found, kNoRank);
    if (!directory_.replace(io, page, found, move.step.claimed)) continue;
    recall(io, {&move, 1});  // the location of a partial page has no holders
    const bool in_part = move.step.verdict == MoveVerdict::in_part, disarmed = disarm(io, page);
    Location after =
        in_part ? (disarmed ? end_page_in(move.step.claimed) : found) : end_move(move.step.claimed, me);
    after.untouched = disarmed;
    KASANE_CHECK(directory_.replace(io, page, move.step.claimed, after));
    blocks_.replaced(page);
    if (after.untouched) return {};
    return fail(Errc::busy, "first touch: the page at global offset " +
                                std::to_string(pages_.offset_of(page)) + " is pinned");
  }
}

Result<void> Mover::assign(comm::Blocking& io, PageId page, Rank owner, bool fixed) {
  for (;;) {
    const Location found = directory_.lookup(io, page);
    if (found.busy) {
      io.waiter().pause();
      continue;
    }
    Location after = with_fixed(found, fixed);
    if (!found.allocated)
      after = {true, owner, addresses_.initial_tier(page), false, found.version, false, fixed};
    else if (found.owner == owner && found.untouched)
      after = in_tier(touched(after), addresses_.initial_tier(page));
    if (after.owner == owner) {
      if (after != found && !directory_.replace(io, page, found, after)) continue;
      // who freed it may have made its owner forget what the spill file had: copies elsewhere differ
      if (found.allocated && found.tier != Tier::dram) blocks_.replaced(page);
      return {};
    } else if (found.fixed) {
      directory_.replace(io, page, found, with_fixed(found, false));
    } else {
      KASANE_TRY(bring(io, page, ByteRange{}));
      // not there: another rank that had used the page moved it to itself in between
      const bool there = owner == transport_.rank() || hand_back(io, page, owner);
      if (there && !fixed) return {};
    }
  }
}

}  // namespace kasane::gas
