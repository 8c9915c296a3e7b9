// SPDX-License-Identifier: Apache-2.0
// Accesses that V does not allow yet: which blocks a fault claims, where it gets a page's bytes from, and
// what it makes visible.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/time_spent.h"
#include "comm/batch.h"
#include "dsm/coherence.h"
#include "dsm/gathering.h"
#include "dsm/last_seen.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

bool Coherence::fault(ThreadContext& ctx, std::uint64_t offset, Access wanted) {
  const Spent spent(ctx.counters, wanted == Access::write ? Account::store_faults : Account::load_faults,
                    wanted == Access::write ? TraceKind::store_fault : TraceKind::load_fault, offset);
  const BlockEvent event = wanted == Access::write ? BlockEvent::store : BlockEvent::load;
  count(wanted == Access::write ? ctx.counters.faults_write : ctx.counters.faults_read);
  const BlockId b = mem::block_of(offset);
  // there is no room yet: the access will fault again
  if (!admit(ctx, pages_.page_of(b), Sweeps::kMost)) return true;
  const BlockStep step = claim_block(ctx.io, b, event);
  bool good = true;
  if (step.verdict == Verdict::done) {
    good = !cannot_be_served(ctx, offset);
  } else {
    const Fault fault = carry_out_fault(ctx, b, event, step);
    if (fault == Fault::again) {  // the access faults again, and the page has got a little further
      count(ctx.counters.faults_again);
      ctx.sweeps.will_repeat();
      await_page(ctx.io, pages_.page_of(b));
    }
    good = fault != Fault::not_allocated;
  }
  if (engine_.crowded()) make_room();
  return good;
}

/// Waits for a while until the page has moved: until then the access would only fault again. The caller holds
/// no bit. Not longer, since this thread may have to serve other threads' faults too.
void Coherence::await_page(comm::Blocking& io, PageId page) {
  const auto* const word = directory_.near_word(page);
  if (word == nullptr) return io.waiter().pause();
  unsigned looks = 0;
  // acquire: what the mover did is visible to what follows.
  await(io, [&] {
    return !gas::Location::of(word->load(std::memory_order_acquire)).busy || ++looks > kLooksAtPage;
  });
}

bool Coherence::cannot_be_served(ThreadContext& ctx, std::uint64_t offset) noexcept {
  ctx.idle_faults = offset == ctx.idle_fault ? ctx.idle_faults + 1 : 0;
  ctx.idle_fault = offset;
  return ctx.idle_faults > kMaxIdleFaults;
}

/// The caller holds b's bit for a load, store or pin. The bit is free when this returns.
Coherence::Fault Coherence::carry_out_fault(ThreadContext& ctx, BlockId b, BlockEvent event,
                                            const BlockStep& step) {
  const bool fetches = step.actions[0] == Action::fetch, looks = fetches || step.actions[0] == Action::find;
  const Claimed sweep = step.actions[0] != Action::end && event != BlockEvent::pin_whole
                            ? claim_sweep(ctx, b, event, step)
                            : Claimed{{b, 1, 1}, 1};
  if (sweep.here != sweep.blocks.count && gather_sweep(ctx, b, event, sweep)) return Fault::served;
  const Stripe blocks = sweep.blocks.from(b, sweep.here);
  if (looks) {
    // Before the fetch begins: an acquire that does not find the block in the set began before and needs
    // nothing of it.
    blocks.for_each([&](BlockId claimed) { cached_.insert(claimed); });
    fill_staged(blocks);  // at least so many, whatever happens
    gas::AddressCache::Found found;
    const Fetched fetched = fetch(ctx, b, blocks, fetches, found);
    if (fetched != Fetched::yes) {
      blocks.for_each([&](BlockId claimed) { cached_.erase(claimed); });
      if (fetched == Fetched::own) {
        fill_otherwise(blocks);
        arm_own_page(b, blocks, step.after.pins);
        return Fault::served;
      }
      if (fetched == Fetched::on_ssd)
        return bring_blocks(ctx, b, blocks, event, gas::Location::of(found.word));
      blocks.for_each([&](BlockId claimed) { finish(claimed, BlockState{}); });
      // no bit is held; a repeated access finds the page owned here or by another rank
      const std::uint64_t together = blocks.stride == 1 && blocks.first == b ? blocks.count : 1;
      if (make_present(ctx, {b, together}, fetched, found.owner) &&
          (event == BlockEvent::load || event == BlockEvent::store))
        return Fault::served;
      return fetched == Fetched::not_allocated ? Fault::not_allocated : Fault::again;
    }
  }
  if (step.claimed.saved) fill(blocks);  // undefined bytes may become defined again
  carry_out_actions(b, blocks, step);
  blocks.for_each([&](BlockId served) {
    BlockState after = step.after;
    if (served != b) after.pins = 0;
    finish(served, after);
  });
  if (!step.after.owned) ctx.sweeps.last().served();
  if (step.claimed.saved) read_ahead(ctx, b, event);
  return Fault::served;
}

/// The actions of a fault after the fetch, for all of `blocks`.
void Coherence::carry_out_actions(BlockId b, const Stripe& blocks, const BlockStep& step) {
  for (const Action action : step.actions) {
    if (action == Action::make_twin) {
      blocks.for_each_run([&](BlockRange run) {
        const std::uint64_t at = mem::offset_of(run.first);
        std::memcpy(space_.t(at), space_.a(at), run.count * kBlockBytes);
      });
      blocks.for_each([&](BlockId twinned) {
        fill_twin(twinned);
        mark_dirty(twinned);
      });
    } else if (action == Action::allow_write && step.after.whole) {
      mark_dirty(b);
      protect(blocks, Access::write);
    } else if (action == Action::mark_page) {
      sharing_.mark(pages_.page_of(b));
    } else if (action == Action::allow_read) {
      protect(blocks, Access::read);
    } else if (action == Action::allow_write) {
      protect(blocks, Access::write);
    }
  }
}

/// Claims further blocks of b's sweep that need the same actions: in b's page, and in other pages if the
/// sweep may leave its page.
Coherence::Claimed Coherence::claim_sweep(ThreadContext& ctx, BlockId b, BlockEvent event,
                                          const BlockStep& step) {
  const PageId page = pages_.page_of(b);
  // From SSD four blocks cost little more than one, and many sweeps are short.
  const auto* const word = directory_.near_word(page);
  const gas::Location where = gas::Location::of(word != nullptr ? word->load() : 0);
  const bool from_disk = tiers_ != nullptr && where.owner == transport_.rank() && !where.untouched;
  // in DRAM: nothing need be fetched, but some have no frames yet
  const bool hidden = step.claimed.owned && step.claimed.access == Access::none;
  const FramesAround frames = hidden ? frames_around(b) : FramesAround{};
  const bool fresh = !frames.has(0);
  Sweeps::Sweep& sweep = ctx.sweeps.match(raw(b), from_disk && !fresh ? Sweeps::kMost : 2, acquires_.load());
  const bool advised_against = tiers_ != nullptr && !tiers_->reads_ahead(page);  // by the program
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
  const auto take = [&](BlockId ahead) {
    const BlockState s = state(ahead);
    const BlockStep like = next(s, alike);
    return like.verdict == Verdict::proceed && like.actions == step.actions && s.pins == 0 &&
           try_claim(ahead, s, like);
  };
  std::uint32_t here = 1;
  const auto alike_here = [&](std::uint32_t i) {
    return !hidden || fresh || frames.has(static_cast<std::int64_t>(i) * sweep.stride());
  };
  while (here < most && is_within(at(here)) && alike_here(here) && take(at(here))) ++here;
  std::uint32_t took = here;
  const std::uint32_t beyond = std::min(most, sweep.beyond_page());
  const bool leaves = here < beyond && !from_disk && !hidden && !step.claimed.owned &&
                      (event == BlockEvent::load || event == BlockEvent::store);
  // The fault was admitted for blocks of its own page, and a holder of bits cannot wait for room.
  if (leaves && !is_within(at(here)) && (residency_ == nullptr || residency_->admitted(beyond))) {
    for (PageId last = page; took < beyond && (!runs || window_of(at(took)) == window_of(b)); ++took) {
      const PageId other = pages_.page_of(at(took));
      if ((other != last && !leads_to(other, page)) || !take(at(took))) break;
      last = other;
    }
  }
  const Stripe blocks{std::min(b, at(took - 1)), static_cast<std::uint64_t>(std::abs(sweep.stride())), took};
  sweep.took(took);
  return {blocks, here};
}

/// Which blocks near b, up to a window away, have frames. All, where the engine does not make them.
FramesAround Coherence::frames_around(BlockId b) const noexcept {
  FramesAround around;
  if (raw(b) < kWindowBlocks || !engine_.makes_frames(b)) return around;
  mem::look_for_frames(space_.a(mem::offset_of(b) - kWindowBlocks * kBlockBytes), around.frames);
  return around;
}

/// So many blocks in a row, just below b in `within`, have changes that this rank has not sent: a sweep
/// upwards that the thread does not know (any more), since it follows eight.
std::uint32_t Coherence::changed_below(BlockId b, BlockRange within) const noexcept {
  std::uint32_t n = 0;
  while (raw(b) - n > raw(within.first) && state(BlockId{raw(b) - n - 1}).dirty()) ++n;
  return n;
}

/// May a sweep that leaves `page` go on in `other`? Not if word 0, where it is mapped here, shows that the
/// blocks cannot be read together with the others: the page is this rank's, on SSD, or not allocated.
bool Coherence::leads_to(PageId other, PageId page) const noexcept {
  if (!pages_.contains(other) || pages_.bytes_of(other) != pages_.bytes_of(page)) return false;
  const auto* const word = directory_.near_word(other);
  return word == nullptr || fetch_source(gas::Location::of(word->load()), transport_.rank()) == Fetched::yes;
}

/// For a fault whose sweep has left its page. False: b's page cannot be read with the others, and what was
/// claimed in it is still held.
// noinline: the frame is large
[[gnu::noinline]] bool Coherence::gather_sweep(ThreadContext& ctx, BlockId b, BlockEvent event,
                                               const Claimed& sweep) {
  Gathering gathering(*this, ctx, Wanted::fault(event), sweep.blocks, b);
  gathering.gather();
  const std::uint32_t came = gathering.served_in_a_row();
  ctx.sweeps.last().took(came != 0 ? came : sweep.here);
  if (came == 0) return false;
  ctx.sweeps.last().served();
  return true;
}

/// This rank owns the page but has not armed it yet. The caller holds the bits of `held`, b's among them.
/// These blocks and all absent ones of the page become accessible, in runs, or are retired. b's bit is freed
/// last: while it is held, the page cannot leave.
void Coherence::arm_own_page(BlockId b, const Stripe& held, std::uint32_t pins) noexcept {
  BlockState after = next(BlockState{true}, BlockEvent::found_own).after;
  sharing_.mark(pages_.page_of(b));
  BlockRange run{b, 0};
  const auto arm_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::write);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      if (block_at(run.first, i) != b) finish(block_at(run.first, i), after);
    }
    run.count = 0;
  };
  const auto claim_absent = [this](BlockId absent) {
    const BlockState s = state(absent);
    const BlockStep step = next(s, BlockEvent::load);
    return step.verdict == Verdict::proceed && step.actions[0] == Action::fetch && try_claim(absent, s, step);
  };
  const BlockRange page = pages_.blocks_of(pages_.page_of(b));
  const BlocksOfAPage open = opened(page, held);
  for (std::uint64_t i = 0; i < page.count; ++i) {
    const BlockId absent = block_at(page.first, i);
    if (!held.contains(absent) && !claim_absent(absent)) {
      arm_run();
    } else if (!open[i]) {
      arm_run();
      finish(absent, next(after, BlockEvent::retire).after);
    } else if (run.count++ == 0) {
      run.first = absent;
    }
  }
  arm_run();
  after.pins = pins;
  finish(b, after);
}

/// Where the page's bytes can be read: yes, from found.owner; else why they cannot be read from another rank.
Fetched Coherence::locate(comm::Blocking& io, PageId page, gas::AddressCache::Found& found) {
  for (;;) {
    found = addresses_.look(io, page);
    if (found.by_entry && found.owner != transport_.rank()) return Fetched::yes;
    gas::Location where = gas::Location::of(found.word);
    // A cached location does not say whether the page is leaving: the owner may have been asked to yield
    // before its entry was recalled.
    if (found.by_entry && (where = directory_.lookup(io, page)).owner != found.owner) continue;
    found = {where.owner, false, where.word()};
    return fetch_source(where, transport_.rank());
  }
}

/// Fetches the owner's bytes of `blocks` into M at once; or only makes this rank a reader. All blocks lie in
/// one page, b among them, and the caller has claimed them.
Fetched Coherence::fetch(ThreadContext& ctx, BlockId b, const Stripe& blocks, bool bytes_too,
                         gas::AddressCache::Found& found) {
  const std::uint64_t offset = mem::offset_of(b);
  const PageId page = pages_.page_of(b);
  const bool counts = bytes_too && auto_relocator_ != nullptr && auto_relocator_->may_relocate(page);
  std::optional<LastSeen> last_seen;  // of b
  for (;;) {
    const std::uint64_t drops = drops_.load();
    if (const Fetched where = locate(ctx.io, page, found); where != Fetched::yes) return where;
    if (counts && !last_seen) last_seen.emplace(space_.a(offset), frame_of(found.owner, offset));
    const auto state = sharing_.join(ctx.io, page, found.owner);
    fill_otherwise(blocks);
    if (bytes_too) {
      const Traced traced(&ctx.counters, TraceKind::fetch, blocks.count * kBlockBytes);
      comm::Batch batch(ctx.io);
      blocks.for_each_run([&](BlockRange run) {
        const std::uint64_t at = mem::offset_of(run.first);
        batch.read({found.owner, gas::kFrames, at}, space_.a(at), run.count * kBlockBytes);
      });
      batch.await();
      count(ctx.counters.blocks_fetched, blocks.count);
      count(ctx.counters.bytes_fetched, blocks.count * kBlockBytes);
    }
    // Rules 2 and 9.
    if (!addresses_.stood(ctx.io, page, found)) continue;
    sharing_.joined(page, state);
    if (drops_.load() != drops) continue;
    if (counts) auto_relocator_->used(page, last_seen->changed());
    return Fetched::yes;
  }
}

}  // namespace kasane::dsm
