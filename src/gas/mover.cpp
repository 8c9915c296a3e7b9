// SPDX-License-Identifier: Apache-2.0
#include "gas/mover.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/assert.h"
#include "base/trace.h"

namespace kasane::gas {

/// A page that is moving to this rank.
struct Mover::Move : PageLock {
  enum class Outcome : std::uint8_t { here, retry, needs_page_in, refused };

  Move() = default;
  Move(const Directory& directory, PageId page, ByteRange bytes) : PageLock(directory, page), live(bytes) {}

  ByteRange live;
  MoveVerdict verdict = MoveVerdict::wait;
  std::uint64_t answer = static_cast<std::uint64_t>(YieldAnswer::yielded);
  /// where the owner's answer may bring the whole page; empty: it is read afterwards
  std::span<std::byte> arrival_frame{};
  std::size_t brought = 0;  ///< bytes that came with the answer

  [[nodiscard]] Rank former_owner() const noexcept { return found().owner; }
  [[nodiscard]] bool claimed() const noexcept { return verdict == MoveVerdict::claim; }
  /// On SSD as a whole, and its bytes are undefined.
  [[nodiscard]] bool blank() const noexcept { return verdict == MoveVerdict::on_ssd && live.empty(); }
  [[nodiscard]] bool arrived() const noexcept {
    return !arrival_frame.empty() && brought == arrival_frame.size();
  }
  [[nodiscard]] bool yielded() const noexcept {
    return claimed() && answer == static_cast<std::uint64_t>(YieldAnswer::yielded);
  }
  [[nodiscard]] Outcome outcome() const noexcept {
    switch (verdict) {
      case MoveVerdict::already_there: return Outcome::here;
      case MoveVerdict::not_allocated:
      case MoveVerdict::fixed: return Outcome::refused;
      case MoveVerdict::on_ssd: return live.empty() ? Outcome::here : Outcome::needs_page_in;
      case MoveVerdict::in_part: return Outcome::needs_page_in;
      case MoveVerdict::wait: return Outcome::retry;
      case MoveVerdict::claim: break;
    }
    if (yielded()) return Outcome::here;
    return answer == static_cast<std::uint64_t>(YieldAnswer::pinned) ? Outcome::refused : Outcome::retry;
  }
  /// If it is refused.
  [[nodiscard]] MoveRefusal refusal() const noexcept {
    return {verdict == MoveVerdict::not_allocated ? Errc::out_of_range : Errc::busy, page()};
  }
};

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
      auto& arrived = *static_cast<EntryUpdate*>(c);
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
  const PageLock::LockedFor locked =
      PageLock::lock_for(mover.directory_, value_of<PageId>(message), message.from);
  std::span<const std::byte> holders;
  if (locked.holders) holders = comm::as_payload(*locked.holders);
  mover.transport_.reply_with(message.token, locked.found, holders);
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
    if (blocks_.claim(page, ClaimFor::arrival, &io) == Claim::ours) return {};
    Move move(directory_, page, live);
    perform(io, {&move, 1}, write);
    const Move::Outcome outcome = move.outcome();
    if (outcome == Move::Outcome::here) return {};
    if (outcome == Move::Outcome::refused) return move.refusal();
    // The bits were cleared: the owner's handler or another mover may need them (rule 8).
    brought_in = outcome == Move::Outcome::needs_page_in && move.former_owner() == transport_.rank();
    if (outcome == Move::Outcome::needs_page_in) {
      addresses_.page_in(io, page, move.former_owner());
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
      const Claim claim = blocks_.claim(page, ClaimFor::arrival, nullptr);
      if (claim == Claim::in_use) left[left_count++] = page;
      if (claim == Claim::taken) moves[claimed++] = Move(directory_, page, all_of(page));
    }
    perform(io, {moves.data(), claimed}, EntryWrite::deferred);
    std::optional<MoveRefusal> refusal;
    for (const Move& t : std::span(moves.data(), claimed)) {
      const Move::Outcome outcome = t.outcome();
      if (outcome == Move::Outcome::retry || outcome == Move::Outcome::needs_page_in)
        left[left_count++] = t.page();
      if (outcome == Move::Outcome::refused && !refusal) refusal = t.refusal();
    }
    for (std::size_t i = 0; i < left_count && !refusal; ++i) {
      refusal = bring_one(io, left[i], all_of(left[i]), EntryWrite::deferred);
    }
    if (refusal) return refusal;
  }
  return {};
}

void Mover::perform(comm::Blocking& io, std::span<Move> moves, EntryWrite write) {
  const Traced traced(io.counters(), TraceKind::move_pages, moves.size());
  lock(io, moves);
  for (Move& t : moves) {
    t.verdict = begin_move(t.found(), transport_.rank()).verdict;
    if (by_messages_ && t.claimed() && transport_.mapped(t.former_owner(), kFrames) == nullptr)
      t.arrival_frame = arrival_frame(t);
  }
  recall(io, moves);

  std::array<Arrival, kTogether> arrivals;
  std::size_t n = 0;
  for (const Move& t : moves) {
    if (t.yielded() && !t.live.empty() && !t.arrived()) arrivals[n++] = {t.page(), t.live, t.former_owner()};
  }
  blocks_.merge(io, {arrivals.data(), n});
  write_entries(io, moves, write);
  settle(io, moves);
}

/// Where the owner's answer may bring the page: its frame here, if that simply becomes the live bytes (others
/// are undefined).
std::span<std::byte> Mover::arrival_frame(const Move& t) const noexcept {
  const std::size_t bytes = pages_.bytes_of(t.page());
  if (t.live.empty() || bytes > comm::kMaxAnswer || blocks_.blocks_here(t.page()).changed.any()) return {};
  return {transport_.mapped(transport_.rank(), kFrames) + pages_.offset_of(t.page()), bytes};
}

void Mover::write_entries(comm::Blocking& io, std::span<Move> moves, EntryWrite write) {
  const Rank me = transport_.rank();
  comm::Batch batch(io);
  // A page is settled when its entry is known to name this rank: else a thread here could store, and release,
  // while other ranks still read the old frame. Or the release waits for that.
  for (Move& t : moves) {
    if (t.yielded() && write == EntryWrite::deferred && !directory_.near(t.page()))
      update_entry_later(io, t);
    else if (t.claimed())
      t.store(batch, end_move(t.now(), t.yielded() ? me : t.former_owner()));
    else if (t.blank())
      t.store(batch, end_take(t.now(), me));
    else if (t.verdict == MoveVerdict::already_there)
      t.store(batch, touched(t.found()));
    else
      t.give_back(batch);
  }
}

void Mover::settle(comm::Blocking& io, std::span<Move> moves) {
  for (const Move& t : moves) {
    blocks_.settle(t.page(), t.outcome() == Move::Outcome::here ? Settled::owned : Settled::as_it_was);
    if (t.yielded()) io.count(&Counters::pages_moved);
  }
}

void Mover::update_entry_later(comm::Blocking& io, Move& t) {
  EntryUpdate& update = updates_[free_updates_.take(io.waiter())];  // entries arrive without help
  update.status = comm::Status::ok;
  const Location after = end_move(t.now(), transport_.rank());
  update.lock = std::move(t);
  blocks_.note(update.lock.page(), PageNews::entry_under_way);  // before any store can happen
  updates_under_way_.fetch_add(1);
  comm::Post result = comm::Post::again;
  io.waiter().until([&] {
    if (result == comm::Post::again) result = update.lock.store(io, after, &update);
    return result != comm::Post::again;
  });
  if (result == comm::Post::done) entry_updated(update);
}

void Mover::entry_updated(EntryUpdate& update) noexcept {
  const PageId page = update.lock.page();
  update.lock = PageLock();  // checks what the write has found
  blocks_.note(page, PageNews::entry_written);
  free_updates_.put(update.index);
  updates_under_way_.fetch_sub(1);  // last: then no thread waits for this object any more
}

void Mover::await_entry_updates(comm::Blocking& io) {
  io.waiter().until([this] { return updates_under_way_.load() == 0; });
}

/// Where operations are messages, one of them does what three atomics do: the manager locks the page, and
/// takes its holders if there is a page to move.
void Mover::lock(comm::Blocking& io, std::span<Move> moves) {
  comm::Batch batch(io);
  std::optional<comm::Requests> requests;
  for (Move& t : moves) {
    if (by_messages_ && !directory_.near(t.page())) {
      if (!requests) requests.emplace(io);
      count_request(io, directory_.manager(t.page()));
      t.try_lock(*requests);
    } else {
      t.try_lock(batch);
      t.look_at_holders(batch);
    }
  }
}

void Mover::count_request(comm::Blocking& io, Rank to) const noexcept {
  if (transport_.mapped(to, kFrames) == nullptr) io.count(&Counters::move_requests);
}

void Mover::ask_to_yield(comm::Blocking& io, comm::Requests& requests, Move& t) const {
  count_request(io, t.former_owner());
  requests.post(t.former_owner(), kYieldHandler,
                comm::as_payload(YieldOrder{t.page(), t.arrival_frame.empty() ? 0u : 1u}),
                {&t.answer, t.arrival_frame, &t.brought});
}

/// All at once: owners are asked to yield, and all holders to forget the location. An owner whose answer
/// brings the page along is asked after that: until all have answered, puts may still change it.
void Mover::recall(comm::Blocking& io, std::span<Move> moves) {
  std::array<PageLock*, kTogether> locks;
  std::size_t n = 0;
  for (Move& t : moves) {
    if (t.claimed()) locks[n++] = &t;
  }
  Recall recall(addresses_, io, {locks.data(), n});
  for (Move& t : moves) {
    if (!t.claimed()) continue;
    if (t.arrival_frame.empty()) ask_to_yield(io, recall.requests(), t);
    recall.ask(t);
  }
  recall.await();
  for (Move& t : moves) {
    if (t.claimed() && !t.arrival_frame.empty()) ask_to_yield(io, recall.requests(), t);
  }
}

void Mover::recall(comm::Blocking& io, PageLock& lock) {
  PageLock* const locks[] = {&lock};
  Recall(addresses_, io, locks).await();
}

bool Mover::pull(comm::Blocking& io, PageId page) {
  for (;; io.waiter().pause()) {
    blocks_.admit(io, page);
    if (!keepable(directory_.lookup(io, page)) || blocks_.claim(page, ClaimFor::arrival, &io) != Claim::taken)
      return false;
    Move move(directory_, page, all_of(page));
    perform(io, {&move, 1});
    if (move.outcome() != Move::Outcome::retry)
      return move.outcome() == Move::Outcome::here && move.claimed();
  }
}

/// Own blocks of a page that this thread has locked. With busy set no fault here can make them owned
/// again; a fault already at work ends without waiting for this thread. False: one is pinned.
bool Mover::disarm(comm::Blocking& io, PageId page) {
  YieldAnswer answer = blocks_.yield(page);
  for (; answer == YieldAnswer::retry; answer = blocks_.yield(page)) io.waiter().pause();
  return answer == YieldAnswer::yielded;
}

bool Mover::hand_back(comm::Blocking& io, PageId page, Rank to) {
  PageLock lock(directory_, page);
  for (; !lock.try_lock(io);) io.waiter().pause();
  if (lock.found().owner != transport_.rank()) return lock.store(io, lock.found()), false;
  const MoveVerdict verdict = begin_move(lock.found(), to).verdict;
  const bool claimed = verdict == MoveVerdict::claim, on_ssd = verdict == MoveVerdict::on_ssd;
  KASANE_CHECK(claimed || on_ssd || verdict == MoveVerdict::in_part, "a page is handed to somebody else");
  if (claimed) recall(io, lock);  // elsewhere than in DRAM its location has no holders
  if (!on_ssd) KASANE_CHECK(disarm(io, page), "a page handed back is not pinned");
  lock.store(io, in_tier(claimed ? end_move(lock.now(), to) : end_take(lock.now(), to),
                         on_ssd ? Tier::ssd : addresses_.initial_tier(page)));
  blocks_.note(page, PageNews::replaced);
  return true;
}

bool Mover::touch(comm::Blocking& io, PageId page, mem::BlockRange used) {
  if (blocks_.claim(page, ClaimFor::arrival, &io) == Claim::ours) return false;
  const Rank me = transport_.rank();
  PageLock lock(directory_, page);
  const bool locked = lock.try_lock(io);
  const MoveVerdict verdict = begin_move(lock.found(), me).verdict;
  const bool first =
      lock.found().untouched && (verdict == MoveVerdict::claim || verdict == MoveVerdict::already_there);
  if (locked) lock.store(io, first ? end_touch(lock.now(), me) : lock.found());
  blocks_.settle(page, first ? Settled::owned : Settled::as_it_was, used);
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
      if (directory_.replace(io, page, found, after))
        return blocks_.note(page, PageNews::replaced), Result<void>{};
      continue;
    }
    PageLock lock(directory_, page);
    if (!lock.try_lock(io, found)) continue;
    const bool in_part = found.tier == Tier::partial;
    // as if another rank took it: holders are recalled, and own blocks disarmed
    if (!in_part) recall(io, lock);  // the location of a partial page has no holders
    const bool disarmed = disarm(io, page);
    Location after = in_part ? (disarmed ? end_page_in(lock.now()) : found) : end_move(lock.now(), me);
    after.untouched = disarmed;
    lock.store(io, after);
    blocks_.note(page, PageNews::replaced);
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
      if (found.allocated && found.tier != Tier::dram) blocks_.note(page, PageNews::replaced);
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
