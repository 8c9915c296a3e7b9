// SPDX-License-Identifier: Apache-2.0
// Accesses that V does not allow yet: what a fault claims, where it gets a page's bytes from, and what it leaves visible.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/trace.h"
#include "dsm/coherence.h"
#include "dsm/last_seen.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

bool Coherence::fault(ThreadContext& ctx, std::uint64_t offset, Access wanted) {
  const Timed timed(ctx.counters, ctx.counters.ns_fault, wanted == Access::write ? TraceKind::store_fault : TraceKind::load_fault, offset);
  const Event event = wanted == Access::write ? Event::store : Event::load;
  count(wanted == Access::write ? ctx.counters.faults_write : ctx.counters.faults_read);
  const BlockId b = mem::block_of(offset);
  if (!admit(ctx, pages_.page_of(b), kWindowBlocks)) return true;   // later: there is no room yet
  const Step step = claim_block(ctx.io, b, event);
  bool good = true;
  if (step.verdict == Verdict::done) {
    good = !hopeless(ctx, offset);
  } else {
    const Fault fault = carry_out_fault(ctx, b, event, step);
    if (fault == Fault::again) ctx.io.waiter().pause();   // the access runs into its next fault, with the page a little further
    good = fault != Fault::wild;
    if (event == Event::store) write_back(ctx, 0);
  }
  if (engine_.crowded()) make_room();
  return good;
}

bool Coherence::hopeless(ThreadContext& ctx, std::uint64_t offset) noexcept {
  ctx.idle_faults = offset == ctx.idle_fault ? ctx.idle_faults + 1 : 0;
  ctx.idle_fault = offset;
  return ctx.idle_faults > kMaxIdleFaults;
}

/// The caller holds b's bit for a load, store or pin, and has given it back when this returns.
Coherence::Fault Coherence::carry_out_fault(ThreadContext& ctx, BlockId b, Event event, const Step& step) {
  const BlockId window = window_of(b);
  const bool fetches = step.actions[0] == Action::fetch, looks = fetches || step.actions[0] == Action::find;
  Mask mask = Mask{1} << index_in_window(b);
  if (step.actions[0] != Action::end && event != Event::pin_whole) mask |= claim_window(ctx, b, event, step);
  if (looks) {
    // Before the fetch begins: an acquire that does not see the block here began before it and needs nothing of it.
    for_each_bit(mask, [&](unsigned i) { cached_.insert(block_at(window, i)); });
    const auto blocks = static_cast<std::uint32_t>(std::popcount(mask));
    fill(window, mask);   // whatever comes of it
    gas::AddressCache::Found found;
    const Fetched fetched = fetch(ctx, b, blocks, fetches, found);
    if (fetched != Fetched::yes) {
      for_each_bit(mask, [&](unsigned i) { cached_.erase(block_at(window, i)); });
      if (fetched == Fetched::own) {
        arm_own_page(b, blocks, step.after.pins);
        return Fault::served;
      }
      if (fetched == Fetched::on_ssd) return bring_blocks(ctx, b, mask, event, gas::Location::of(found.word));
      for_each_bit(mask, [&](unsigned i) { finish(block_at(window, i), BlockState{}); });
      make_present(ctx, pages_.page_of(b), fetched, found.owner);   // with no bit held; the access then finds the page ours, or somebody else's
      return fetched == Fetched::wild ? Fault::wild : Fault::again;
    }
  }
  if (step.claimed.saved) fill(window, mask);   // what did not matter may do so again
  for (const Action action : step.actions) {
    if (action == Action::make_twin) {
      for_each_run(mask, [&](unsigned first, unsigned n) {
        const std::uint64_t at = mem::offset_of(block_at(window, first));
        std::memcpy(space_.t(at), space_.a(at), n * kBlockBytes);
      });
      for_each_bit(mask, [&](unsigned i) {
        fill_twin(block_at(window, i));
        mark_dirty(ctx.counters, block_at(window, i));
      });
    } else if (action == Action::allow_write && step.after.whole) {
      mark_dirty(ctx.counters, b);
      protect({b, 1}, Access::write);
    } else if (action == Action::mark_page) {
      sharing_.mark(pages_.page_of(b));
    } else if (action == Action::allow_read) {
      protect(window, mask, Access::read);
    } else if (action == Action::allow_write) {
      protect(window, mask, Access::write);
    }
  }
  for_each_bit(mask, [&](unsigned i) {
    BlockState after = step.after;
    if (block_at(window, i) != b) after.pins = 0;
    finish(block_at(window, i), after);
  });
  if (!step.after.owned) note_used(pages_.page_of(b));
  if (step.claimed.saved) read_ahead(ctx, b);
  if (write_buffer_.on() && step.after.dirty() && !step.claimed.dirty()) {
    for_each_run(mask, [&](unsigned first, unsigned n) { write_buffer_.note({block_at(window, first), n}); });
  }
  return Fault::served;
}

/// Read-ahead and write-ahead: claims the blocks that follow b in its page and window and need the same actions, as many as b's sweep deserves.
Mask Coherence::claim_window(ThreadContext& ctx, BlockId b, Event event, const Step& step) {
  const auto find = [&](std::uint64_t ThreadContext::Sweep::*where) {
    return std::find_if(ctx.sweeps.begin(), ctx.sweeps.end(), [&](const auto& s) { return s.*where == raw(b); });
  };
  auto sweep = find(&ThreadContext::Sweep::expected);
  if (sweep != ctx.sweeps.end()) {
    // From the disk four blocks cost little more than one, and many sweeps are short.
    const bool from_disk = tiers_ != nullptr && directory_.near_owner(pages_.page_of(b)) == transport_.rank();
    sweep->window = from_disk ? kWindowBlocks : std::min<std::uint32_t>(sweep->window * 2, kWindowBlocks);
  } else if (sweep = find(&ThreadContext::Sweep::first); sweep != ctx.sweeps.end()) {
    sweep->window = static_cast<std::uint32_t>(std::min(sweep->expected - sweep->first, kWindowBlocks));
  } else {
    sweep = ctx.sweeps.begin() + ctx.next_sweep++ % ctx.sweeps.size();
    sweep->first = raw(b);
    sweep->window = 1;
  }
  if (tiers_ != nullptr && !tiers_->reads_ahead(pages_.page_of(b))) sweep->window = 1;   // as the program wants it
  if ((step.claimed.owned || step.claimed.dozing) && step.claimed.view == View::none) sweep->window = kWindowBlocks;   // here and hidden: nothing need be fetched
  Mask mask = 0;
  std::uint64_t end = raw(b) + 1;
  const std::uint64_t stop = std::min({raw(b) + sweep->window, raw(window_of(b)) + kWindowBlocks, end_of(pages_.blocks_of(pages_.page_of(b)))});
  const Event alike = event == Event::store || event == Event::pin_write ? Event::store : Event::load;
  for (; end < stop; ++end) {
    const BlockState s = state(BlockId{end});
    const Step ahead = next(s, alike);
    if (ahead.verdict != Verdict::proceed || ahead.actions != step.actions || s.pins != 0 || !try_claim(BlockId{end}, s, ahead)) break;
    mask |= Mask{1} << index_in_window(BlockId{end});
  }
  sweep->expected = end;
  return mask;
}

/// The page is ours but not armed yet, and the caller holds the bits of `held` blocks from b on: these are armed with whatever of the page is still absent, in
/// runs. b's bit comes free last: while it is held, the page cannot leave.
void Coherence::arm_own_page(BlockId b, std::uint32_t held, std::uint32_t pins) noexcept {
  BlockState after = next(BlockState{true}, Event::found_own).after;
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
    const Step step = next(s, Event::load);
    return step.verdict == Verdict::proceed && step.actions[0] == Action::fetch && try_claim(absent, s, step);
  };
  const BlockRange page = pages_.blocks_of(pages_.page_of(b));
  for (std::uint64_t i = raw(page.first); i < end_of(page); ++i) {
    if (i - raw(b) >= held && !claim_absent(BlockId{i})) {
      arm_run();
    } else if (run.count++ == 0) {
      run.first = BlockId{i};
    }
  }
  arm_run();
  after.pins = pins;
  finish(b, after);
}

/// Whom the page's bytes are to be read from: yes, from found.owner; or why from nobody.
Fetched Coherence::locate(comm::Blocking& io, PageId page, gas::AddressCache::Found& found) {
  for (;;) {
    found = addresses_.look(io, page);
    if (found.by_entry && found.owner != transport_.rank()) return Fetched::yes;
    gas::Location where = gas::Location::of(found.word);
    // A cached location does not say whether the page is leaving: the owner may have been asked to yield before its entry was recalled.
    if (found.by_entry && (where = directory_.lookup(io, page)).owner != found.owner) continue;
    found = {where.owner, false, where.word()};
    return whence(where, transport_.rank());
  }
}

/// Owner's bytes of `count` blocks, all of one page and claimed by the caller, into M; or only that this rank is among the page's readers.
Fetched Coherence::fetch(ThreadContext& ctx, BlockId first, std::uint32_t blocks, bool bytes_too, gas::AddressCache::Found& found) {
  const std::uint64_t offset = mem::offset_of(first);
  const PageId page = pages_.page_of(first);
  const bool counts = bytes_too && attractor_ != nullptr && attractor_->draws(page);
  std::optional<LastSeen> last_seen;   // of the first block
  std::optional<Predictor::Question> asked;
  for (;;) {
    const std::uint64_t drops = drops_.load();
    if (const Fetched where = locate(ctx.io, page, found); where != Fetched::yes) return where;
    if (counts && !last_seen) last_seen.emplace(space_.a(offset), frame_of(found.owner, offset));
    if (bytes_too && !asked) asked = question(page, found.owner, first, blocks);
    const auto stay = sharing_.join(ctx.io, page, found.owner);
    if (bytes_too) {
      const Traced traced(&ctx.counters, TraceKind::fetch, blocks * kBlockBytes);
      ctx.io.read({found.owner, gas::kFrames, offset}, space_.a(offset), blocks * kBlockBytes);
      count(ctx.counters.blocks_fetched, blocks);
      count(ctx.counters.bytes_fetched, blocks * kBlockBytes);
    }
    // Rules 2 and 9.
    if (!addresses_.stood(ctx.io, page, found)) continue;
    sharing_.joined(page, stay);
    if (drops_.load() != drops) continue;
    if (counts) attractor_->used(page, last_seen->changed());
    if (asked) answer(ctx.counters, page, *asked);
    return Fetched::yes;
  }
}

}  // namespace kasane::dsm
