// SPDX-License-Identifier: Apache-2.0
#include "dsm/faults.h"

#include <algorithm>
#include <cstdlib>

#include "base/time_spent.h"
#include "dsm/gathering.h"
#include "dsm/opened.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

Faults::Outcome Faults::serve(ThreadContext& ctx, std::uint64_t offset, Access wanted, bool may_leave) {
  const Spent spent(ctx.counters, wanted == Access::write ? Account::store_faults : Account::load_faults,
                    wanted == Access::write ? TraceKind::store_fault : TraceKind::load_fault, offset);
  const BlockEvent event = wanted == Access::write ? BlockEvent::store : BlockEvent::load;
  count(wanted == Access::write ? ctx.counters.faults_write : ctx.counters.faults_read);
  const BlockId b = mem::block_of(offset);
  if (may_leave && busy(b)) return Outcome::later;
  if (may_leave && must_ask(b)) return Outcome::unknown;
  // there is no room yet: the access will fault again
  if (!tiering_.admit(ctx, pages_.page_of(b), Sweeps::kMost)) return Outcome::served;
  Held held(blocks_, b);
  const BlockStep step = held.claim(ctx.io, 0, event);
  Outcome fault = Outcome::served;
  if (step.verdict == Verdict::done) {
    if (cannot_be_served(ctx, offset)) fault = Outcome::not_allocated;
  } else {
    fault = carry_out(ctx, held, event, step, may_leave);
    if (fault == Outcome::again) {  // the access faults again, and the page has got a little further
      count(ctx.counters.faults_again);
      ctx.sweeps->will_repeat();
      await_page(ctx.io, pages_.page_of(b));
      fault = Outcome::served;
    }
  }
  if (blocks_.engine().crowded()) blocks_.make_room();
  return fault;
}

bool Faults::must_ask(BlockId b) const noexcept {
  const PageId page = pages_.page_of(b);
  if (const BlockState s = blocks_.glance(b); s.owned || s.access != Access::none) return false;
  const auto* const word = directory_.near_word(page);
  if (word == nullptr) return !p_.addresses.known_here(page, false) || !p_.sharing.is_reader(page);
  const gas::Location where = gas::Location::of(word->load());
  const Fetched source = fetch_source(where, p_.me());
  return source == Fetched::on_ssd_elsewhere ||
         (source == Fetched::yes && fetches_.frame_of(where.owner, 0) == nullptr &&
          !p_.sharing.is_reader(page));
}

/// Waits for a while until the page has moved: until then the access would only fault again. The caller holds
/// no bit. Not longer, since this thread may have to serve other threads' faults too.
void Faults::await_page(comm::Blocking& io, PageId page) {
  const auto* const word = directory_.near_word(page);
  if (word == nullptr) return io.waiter().pause();
  unsigned looks = 0;
  // acquire: what the mover did is visible to what follows.
  blocks_.await(io, [&] {
    return !gas::Location::of(word->load(std::memory_order_acquire)).busy || ++looks > kLooksAtPage;
  });
}

bool Faults::cannot_be_served(ThreadContext& ctx, std::uint64_t offset) noexcept {
  ctx.idle_faults = offset == ctx.idle_fault ? ctx.idle_faults + 1 : 0;
  ctx.idle_fault = offset;
  return ctx.idle_faults > kMaxIdle;
}

Faults::Outcome Faults::carry_out(ThreadContext& ctx, Held& held, BlockEvent event, const BlockStep& step,
                                  bool may_leave) {
  const BlockId b = held[0];
  const bool fetches = step.actions[0] == Action::fetch, looks = fetches || step.actions[0] == Action::find;
  if (step.actions[0] != Action::end && event != BlockEvent::pin_whole &&
      claim_sweep(ctx, held, event, step) && gather_sweep(ctx, held, b, event))
    return Outcome::served;
  if (looks) {
    // Before the fetch begins: an acquire that does not find the block in the set began before and needs
    // nothing of it.
    held.insert_cached();
    frames_.fill_staged(held);  // at least so many, whatever happens
    if (may_leave) {
      const Misses::Begun begun = misses_.begin(ctx, b, held, step);
      if (begun != Misses::Begun::no) ctx.sweeps->last().served();
      if (begun == Misses::Begun::at_once) return Outcome::served;
      if (begun == Misses::Begun::under_way) return leaves(ctx);
    }
    gas::AddressCache::Found found;
    const Fetched fetched = fetches_.fetch(ctx, b, held, fetches, found);
    if (fetched == Fetched::own) {
      frames_.fill_otherwise(held);
      arm_own_page(b, held, step.after.pins);
      return Outcome::served;
    }
    if (fetched == Fetched::on_ssd) {
      switch (tiering_.bring(ctx, b, held, event, gas::Location::of(found.word), may_leave)) {
        case Tiering::Brought::yes: count(ctx.counters.faults_waited); return Outcome::served;
        case Tiering::Brought::no: return Outcome::again;
        case Tiering::Brought::later: return leaves(ctx);
      }
    }
    if (fetched == Fetched::yes && fetches_.frame_of(found.owner, 0) == nullptr)
      count(ctx.counters.faults_waited);
    if (fetched != Fetched::yes) {
      const std::uint64_t together = held.in_a_row() && held[0] == b ? held.count() : 1;
      held.give_back();
      // no bit is held; a repeated access finds the page owned here or by another rank
      if (make_present(ctx, {b, together}, fetched, found.owner) &&
          (event == BlockEvent::load || event == BlockEvent::store))
        return Outcome::served;
      return fetched == Fetched::not_allocated ? Outcome::not_allocated : Outcome::again;
    }
  }
  if (step.claimed.saved) frames_.fill(held);  // undefined bytes may become defined again
  if (step.after.twin && !step.claimed.twin) misses_.make_twins(held);
  held.open([&](std::uint64_t i, const BlockState&) {
    BlockState after = step.after;
    if (held[i] != b) after.pins = 0;
    return after;
  });
  if (!step.after.owned) ctx.sweeps->last().served();
  if (step.claimed.saved) tiering_.read_ahead(ctx, b, event);
  return Outcome::served;
}

/// Claims further blocks of the held one's sweep that need the same actions: in its page, and in other pages
/// if the sweep may leave its page. True: it has.
bool Faults::claim_sweep(ThreadContext& ctx, Held& held, BlockEvent event, const BlockStep& step) {
  const BlockId b = held[0];
  const PageId page = pages_.page_of(b);
  // From SSD four blocks cost little more than one, and many sweeps are short.
  const auto* const word = directory_.near_word(page);
  const gas::Location where = gas::Location::of(word != nullptr ? word->load() : 0);
  const bool from_disk = p_.tiers != nullptr && where.owner == p_.me() && !where.untouched;
  // in DRAM: nothing need be fetched, but some have no frames yet
  const bool hidden = step.claimed.owned && step.claimed.access == Access::none;
  const FramesAround frames = hidden ? frames_around(b) : FramesAround{};
  const bool fresh = !frames.has(0);
  Sweeps::Sweep& sweep =
      ctx.sweeps->match(raw(b), from_disk && !fresh ? Sweeps::kMost : 2, fences_.acquires());
  const bool advised_against = p_.tiers != nullptr && !p_.tiers->reads_ahead(page);  // by the program
  if (advised_against) sweep.shorten();
  std::uint32_t most = hidden && !fresh ? Sweeps::kMost : sweep.blocks();
  if (fresh) most = std::max(most, frames.used_with(index_in_window(b)));
  BlockRange within = pages_.blocks_of(page);
  // Other windows are read from SSD, or retired, separately. A run ends with its window, where a page or an
  // array may end.
  const bool runs = std::abs(sweep.stride()) == 1;
  if ((from_disk || hidden || runs) && within.count > kWindowBlocks) within = {window_of(b), kWindowBlocks};
  if (most == 1 && event == BlockEvent::store && !from_disk && !step.claimed.owned && !advised_against)
    most = std::min(changed_below(b, within) + 1, Sweeps::kMost);
  const BlockEvent alike =
      event == BlockEvent::store || event == BlockEvent::pin_write ? BlockEvent::store : BlockEvent::load;
  // downwards: modulo 2^64
  const auto at = [&](std::uint32_t i) {
    return BlockId{raw(b) + static_cast<std::uint64_t>(i * sweep.stride())};
  };
  const auto is_within = [&](BlockId ahead) { return raw(ahead) - raw(within.first) < within.count; };
  const auto take = [&] {
    return held.extend(sweep.stride(), alike, [&](const BlockState& s, const BlockStep& like) {
      return like.actions == step.actions && s.pins == 0;
    });
  };
  std::uint32_t here = 1;
  const auto alike_here = [&](std::uint32_t i) {
    return !hidden || fresh || frames.has(static_cast<std::int64_t>(i) * sweep.stride());
  };
  while (here < most && is_within(at(here)) && alike_here(here) && take()) ++here;
  std::uint32_t took = here;
  const std::uint32_t beyond = std::min(most, sweep.beyond_page());
  const bool leaves = here < beyond && !from_disk && !hidden && !step.claimed.owned &&
                      (event == BlockEvent::load || event == BlockEvent::store);
  // The fault was admitted for blocks of its own page, and a holder of bits cannot wait for room.
  if (leaves && !is_within(at(here)) && frames_.admitted(beyond)) {
    for (PageId last = page; took < beyond && (!runs || window_of(at(took)) == window_of(b)); ++took) {
      const PageId other = pages_.page_of(at(took));
      if ((other != last && !leads_to(other, page)) || !take()) break;
      last = other;
    }
  }
  sweep.took(took);
  return took != here;
}

/// Which blocks near b, up to a window away, have frames. All, where the engine does not make them.
FramesAround Faults::frames_around(BlockId b) const noexcept {
  FramesAround around;
  if (raw(b) < kWindowBlocks || !blocks_.engine().makes_frames(b)) return around;
  mem::look_for_frames(p_.space.a(mem::offset_of(b) - kWindowBlocks * kBlockBytes), around.frames);
  return around;
}

/// So many blocks in a row, just below b in `within`, have changes that this rank has not sent: a sweep
/// upwards that the thread does not know (any more), since it follows eight.
std::uint32_t Faults::changed_below(BlockId b, BlockRange within) const noexcept {
  std::uint32_t n = 0;
  while (raw(b) - n > raw(within.first) && blocks_.state(BlockId{raw(b) - n - 1}).dirty()) ++n;
  return n;
}

/// May a sweep that leaves `page` go on in `other`? Not if word 0, where it is mapped here, shows that the
/// blocks cannot be read together with the others: the page is this rank's, on SSD, or not allocated.
bool Faults::leads_to(PageId other, PageId page) const noexcept {
  if (!pages_.contains(other) || pages_.bytes_of(other) != pages_.bytes_of(page)) return false;
  const auto* const word = directory_.near_word(other);
  return word == nullptr || fetch_source(gas::Location::of(word->load()), p_.me()) == Fetched::yes;
}

/// For a fault at b whose sweep has left its page. False: b's page cannot be read with the others; what was
/// claimed in it is still held, and nothing else is.
// noinline: the frame is large
[[gnu::noinline]] bool Faults::gather_sweep(ThreadContext& ctx, Held& held, BlockId b, BlockEvent event) {
  Gathering gathering(*this, ctx, Wanted::fault(event), held, b);
  gathering.gather();
  const std::uint32_t came = gathering.served_in_a_row();
  ctx.sweeps->last().took(came != 0 ? came : static_cast<std::uint32_t>(held.count()));
  if (came == 0) return false;
  ctx.sweeps->last().served();
  return true;
}

/// This rank owns the page but has not armed it yet. `held` are blocks of it, b among them. These blocks and
/// all absent ones of the page become accessible, in runs, or are retired. b's bit is freed last: while it is
/// held, the page cannot leave.
void Faults::arm_own_page(BlockId b, Held& held, std::uint32_t pins) noexcept {
  const BlockRange all = pages_.blocks_of(pages_.page_of(b));
  const BlocksOfAPage used =
      opened(p_.space, blocks_, all, held.count(), [&](BlockId block) { return held.has(block); });
  Held page(blocks_, all);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    if (held.has(page[i]))
      page.adopt(i);
    else
      page.try_claim(i, BlockEvent::load, [](const BlockState&, const BlockStep& step) {
        return step.actions[0] == Action::fetch;
      });
  }
  held.keep();
  BlockState armed = next(BlockState{}, BlockEvent::found_own).after;
  page.open([&](std::uint64_t i, const BlockState&) {
    BlockState after = used[i] ? armed : next(armed, BlockEvent::retire).after;
    after.busy = page[i] == b;  // not yet
    return after;
  });
  armed.pins = pins;
  page.finish_one(page.index_of(b), armed);
}

/// Nothing is held. owner: as it was just found. True: the blocks, of one page, can be used. False: the
/// access runs again.
bool Faults::make_present(ThreadContext& ctx, BlockRange used, Fetched why, Rank owner) {
  const PageId page = pages_.page_of(used.first);
  if (why == Fetched::on_ssd_elsewhere) p_.addresses.page_in(ctx.io, page, owner);
  return why == Fetched::untouched && tiering_.admit(ctx, page, pages_.blocks_of(page).count) &&
         mover_.touch(ctx.io, page, used);
}

}  // namespace kasane::dsm
