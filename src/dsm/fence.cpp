// SPDX-License-Identifier: Apache-2.0
#include "dsm/fence.h"

#include <atomic>
#include <cstring>

#include "base/trace.h"
#include "dsm/outbox.h"

namespace kasane::dsm {

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

/// A block with changes whose page this rank has become the owner of: M has been the master copy since,
/// whatever the twin says. It can be stored to, as if the rest had been paged in for other ranks.
[[nodiscard]] BlockState become_owned(const BlockState& before) noexcept {
  return next(before, BlockEvent::found_own).after;
}

}  // namespace

// ---- claims ----------------------------------------------------------------------------------------------

/// Where data races are told of, a change is what a release finds protected.
bool Fence::stays_open(BlockId b, const BlockState& s) noexcept {
  if (!may_stay_open_ || s.busy || !s.twin || s.pins != 0 || p_.races != nullptr) return false;
  if (event_ == BlockEvent::acquire) return f_.rewritten_.stays_open(b);
  if (p_.engine.crowded()) return false;
  const std::uint64_t at = mem::offset_of(b);
  return f_.rewritten_.stays_open(
      b, [&] { return std::memcmp(p_.space.a(at), p_.space.t(at), kBlockBytes) != 0; });
}

bool Fence::add(BlockId b) {
  if (block_count_ + back_count_ == kMostBlocks ||
      (page_count_ == kMostPages && page_[page_count_ - 1].page != pages_.page_of(b)))
    run();
  const BlockState s = blocks_.state(b);
  return try_take(b, s, stays_open(b, s));
}

/// False: another thread has it.
bool Fence::try_take(BlockId b, const BlockState& s, bool open) {
  const BlockEvent event = !open                           ? event_
                           : event_ == BlockEvent::acquire ? BlockEvent::acquire_open
                                                           : BlockEvent::release_open;
  const BlockStep step = next(s, event);
  if (step.verdict != Verdict::proceed) return step.verdict != Verdict::wait;
  if (!blocks_.try_claim(b, s, step)) return false;
  take(b, s, step, event == BlockEvent::release_open);
  return true;
}

void Fence::wait_and_take(BlockId b) {
  run();
  const BlockStep step = blocks_.claim(io_, b, event_);
  if (step.verdict == Verdict::proceed) take(b, blocks_.before(b), step, false);
  run();
}

bool Fence::take(Held& one, const BlockStep& step) {
  take(one[0], one.before(0), step, false);
  one.keep();
  let_all_go();
  if (back_count_ == 0) return true;
  back_count_ = 0;
  f_.fetches_.page_in(io_, pages_.page_of(one[0]));
  return false;
}

void Fence::take(BlockId b, const BlockState& s, const BlockStep& step, bool open) {
  if (acts_alone(s, step, open)) return act_alone(b, step);
  const PageId page = pages_.page_of(b);
  if (page_count_ == 0 || page_[page_count_ - 1].page != page) {
    page_[page_count_].page = page;
    page_[page_count_].first = block_count_;
    page_[page_count_++].put = PutState::put;
  }
  open_[block_count_] = open;
  block_[block_count_++] = b;
  page_[page_count_ - 1].end = block_count_;
  if (s.dirty() && event_ != BlockEvent::discard_block) page_[page_count_ - 1].put = PutState::begin;
}

void Fence::act_alone(BlockId b, const BlockStep& step) {
  PutState put = PutState::put;
  const auto unless_absent = [](Fetches::Again again) {
    return again == Fetches::Again::absent ? PutState::later : PutState::put;
  };
  switch (step.actions[0]) {
    case Action::diff_put_live:
    case Action::put_all_live: put = put_live(b, step); break;
    case Action::refresh: put = unless_absent(f_.fetches_.refresh(io_, b, step.claimed.twin)); break;
    case Action::find: put = unless_absent(f_.fetches_.stay_reader(io_, pages_.page_of(b))); break;
    default: break;
  }
  if (put == PutState::put && step.actions[1] == Action::refresh)
    put = unless_absent(f_.fetches_.refresh(io_, b, true));
  if (put == PutState::later) give_back_later(b);
  const BlockState before = blocks_.before(b);
  blocks_.finish(b, before,
                 put == PutState::later  ? before
                 : put == PutState::kept ? become_owned(before)
                                         : step.after);
}

// ---- all that was added -----------------------------------------------------------------------------------

/// What is given back is taken again page by page: together what is free, alone what another thread has.
void Fence::run() {
  let_all_go();
  while (back_count_ != 0) {
    const PageId page = pages_.page_of(last_back());
    f_.fetches_.page_in(io_, page);
    for (std::size_t left = back_count_; left != 0 && pages_.page_of(last_back()) == page; --left) {
      const BlockId b = last_back();
      --back_count_;
      if (try_take(b, blocks_.state(b), false)) continue;
      let_all_go();
      const BlockStep step = blocks_.claim(io_, b, event_);
      if (step.verdict == Verdict::proceed) take(b, blocks_.before(b), step, false);
    }
    let_all_go();
  }
}

void Fence::let_all_go() {
  if (block_count_ == 0) return;
  let_go(
      [this] {
        blocks_.show(
            [this](const auto& f) {
              for (std::size_t i = 0; i < block_count_; ++i) f(i, block_[i]);
            },
            [this](std::uint64_t i, const BlockState& before) { return after(i, before); });
      },
      [this] { put(); }, [this] { finish(); });
  block_count_ = page_count_ = 0;
}

void Fence::put() {
  std::array<PageId, kMostPages> pages;
  std::size_t changed = 0;
  for (const Of& of : of_pages()) {
    if (of.put == PutState::begin) pages[changed++] = of.page;
  }
  if (changed == 0) return;
  const Traced traced(counters_, TraceKind::put_changes, block_count_);
  Outbox out(io_, counters_);
  const auto send = [&](Of& of) { return put_blocks(out, of); };
  if (changed > 1) {
    p_.addresses.learn(io_, {pages.data(), changed}, true, gas::AddressCache::PagesIn::sent_for);
    for (Of& of : of_pages()) go_on(of, out, send, PutState::send);
    for (const Of& of : of_pages()) {  // owner by owner
      if (of.put != PutState::send) continue;
      const Rank owner = of.use->owner();
      for (Of& same : of_pages()) {
        if (same.put == PutState::send && same.use->owner() == owner) go_on(same, out, send, PutState::await);
      }
    }
    for (Of& of : of_pages()) {
      if (of.put != PutState::begin) go_on(of, out, send);
    }
  }
  for (Of& of : of_pages()) {
    go_on(of, out, send);
    if (of.put == PutState::kept) p_.sharing.mark(of.page);
    if (of.put > PutState::put) open_changed(of);
  }
}

/// Drives the put to that state, or its end. Only to `send`: if it can begin without waiting for the page.
/// The caller holds bits, so a page that is on SSD is not paged in: that would wait for room, and for bits.
template <class Send>
void Fence::go_on(Of& of, Outbox& out, const Send& send, PutState until) {
  gas::Location on_ssd;
  while (of.put != until && of.put < PutState::put) {
    PutEvent event = PutEvent::done;
    switch (of.put) {
      case PutState::begin:
        if (until == PutState::send)
          of.use.emplace(p_.addresses, io_, of.page, gas::AddressCache::kOnlyHere);
        else
          of.use.emplace(p_.addresses, io_, of.page, on_ssd);
        of.use->is_diff();
        event = on_ssd.tier != gas::Tier::dram
                    ? of.use->owner() == p_.me() ? PutEvent::on_ssd : PutEvent::absent
                : of.use->owner() == kNoRank ? PutEvent::freed
                                             : PutEvent::begun;
        if (event != PutEvent::begun) of.use.reset();
        if (event == PutEvent::freed && until == PutState::send) return;
        break;
      case PutState::keep:
        if (!p_.tiers->make_partial(io_, of.page, on_ssd)) event = PutEvent::moved;
        on_ssd = {};
        break;
      case PutState::send: event = send(of); break;
      case PutState::await:
        out.await();
        if (of.changed == 0) event = PutEvent::nothing;
        break;
      case PutState::note: sent_changes(of.page, of.changed); break;
      case PutState::end: of.use.reset(); break;
      case PutState::put:
      case PutState::kept:
      case PutState::later: break;
    }
    of.put = next(of.put, event);
  }
}

/// From the last on: what is given back lies where finished ones lay.
void Fence::finish() noexcept {
  for (std::size_t p = page_count_; p-- != 0;) {
    const PutState put = page_[p].put;
    for (std::size_t i = page_[p].end; i-- != page_[p].first;) {
      const BlockId b = block_[i];
      const BlockState before = blocks_.before(b);
      const bool is_put = put == PutState::put || !before.dirty(), later = put == PutState::later;
      if (!is_put && later) give_back_later(b);
      blocks_.finish(b, before, is_put ? after(i, before) : later ? before : become_owned(before));
    }
  }
}

// ---- puts ------------------------------------------------------------------------------------------------

/// Nothing was put: V allows stores to the page's blocks that are changed, as it did.
void Fence::open_changed(const Of& of) noexcept {
  for (std::size_t i = of.first; i < of.end; ++i) {
    if (blocks_.state(block_[i]).dirty()) blocks_.protect({block_[i], 1}, Access::write);
  }
}

/// Changes of these parts of the page have arrived at its owner.
void Fence::sent_changes(PageId page, gas::PartMask parts) noexcept {
  p_.sharing.changed(page, parts);
  if (p_.auto_relocator == nullptr || !p_.sharing.on()) return;
  const BlockRange all = pages_.blocks_of(page);
  if (parts == gas::parts_of(all, all.first, block_at(all.first, all.count - 1)))
    p_.auto_relocator->released(page);
}

/// Puts the changes of the page's blocks, which are not writable but for the open ones. Blocks that a fault
/// made writable before they were stored to may be unchanged.
PutEvent Fence::put_blocks(Outbox& out, Of& of) {
  const Rank owner = of.use->owner();
  if (owner == p_.me()) {  // M here is the master copy
    close(of);
    return PutEvent::nothing;
  }
  const BlockRange all = pages_.blocks_of(of.page);
  gas::PartMask& changed = of.changed = 0;
  std::uint64_t whole_at = 0;
  std::size_t whole_bytes = 0;  // of the run of whole blocks that ends here
  const auto put_whole = [&] {
    if (whole_bytes == 0) return;
    out.put(owner, whole_at, p_.space.a(whole_at), whole_bytes);
    if (counters_ != nullptr) count(counters_->bytes_put, whole_bytes);
    whole_bytes = 0;
  };
  for (std::size_t i = of.first; i < of.end; ++i) {
    const BlockId b = block_[i];
    const std::uint64_t at = mem::offset_of(b);
    const BlockState s = blocks_.state(b);
    if (s.whole) changed |= gas::part_of(all, b);
    if (s.whole && whole_at + whole_bytes == at && whole_bytes != 0) {
      whole_bytes += kBlockBytes;
      continue;
    }
    put_whole();
    if (s.whole) {
      whole_at = at;
      whole_bytes = kBlockBytes;
    } else if (s.twin && put_changed(out, owner, at, p_.space.a(at), p_.space.t(at), open_[i]) != 0) {
      changed |= gas::part_of(all, b);
    }
  }
  put_whole();
  return PutEvent::sent;
}

/// An open block of a page that is not another rank's is protected, and open no more.
void Fence::close(const Of& of) noexcept {
  for (std::size_t i = of.first; i < of.end; ++i) {
    if (open_[i]) blocks_.protect({block_[i], 1}, Access::read);
    open_[i] = false;
  }
}

/// Returns how many bytes are put.
std::size_t Fence::put_changed(Outbox& out, Rank owner, std::uint64_t offset, const std::byte* bytes,
                               std::byte* base, bool open) {
  const std::size_t total = p_.races != nullptr
                                ? put_checked(out.io(), *p_.races, {owner, gas::kFrames, offset}, bytes, base)
                                : out.put_changed(owner, offset, bytes, base, open);
  if (counters_ != nullptr) {
    count(counters_->diffs);
    count(counters_->bytes_put, total);
  }
  return total;
}

/// A pinned, writable block stays so: its changes so far are put, and the twin becomes what was sent (rules 3
/// and 10). Of a whole block all is put. kept: nothing was, since this rank owns the page, which is partial.
PutState Fence::put_live(BlockId b, const BlockStep& step) {
  alignas(8) std::byte now[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  Of one{pages_.page_of(b), 0, 0, PutState::begin, 0, {}};
  Outbox out(io_, counters_);
  go_on(one, out, [&](Of& of) {
    const Rank owner = of.use->owner();
    snapshot(now, p_.space.a(at));
    bool changed = true;
    if (!step.claimed.whole)
      // M here may be the master copy: a thread may have stored since
      changed = owner == p_.me() ? std::memcmp(now, p_.space.t(at), kBlockBytes) != 0
                                 : put_changed(out, owner, at, now, p_.space.t(at)) != 0;
    else if (owner != p_.me())
      out.put(owner, at, now, kBlockBytes);
    f_.frames_.fill_twin(b);
    std::memcpy(p_.space.t(at), now, kBlockBytes);
    of.changed = changed ? gas::part_of(pages_.blocks_of(of.page), b) : 0;
    return PutEvent::sent;
  });
  if (one.put == PutState::kept) p_.sharing.mark(one.page);
  return one.put;
}

}  // namespace kasane::dsm
