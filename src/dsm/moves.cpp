// SPDX-License-Identifier: Apache-2.0
#include "dsm/moves.h"

#include <algorithm>
#include <span>

#include "comm/batch.h"
#include "dsm/opened.h"
#include "traps/restartable.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

gas::YieldAnswer Moves::yield(PageId page) noexcept {
  // owned blocks; a page may have others, which no fault has armed
  Held owned(blocks_, pages_.blocks_of(page));
  const Verdict verdict = owned.claim(Way::try_own, BlockEvent::yield);
  if (verdict == Verdict::refuse) return gas::YieldAnswer::pinned;
  if (verdict == Verdict::wait) return gas::YieldAnswer::retry;
  owned.open_as(BlockState{});
  // Whatever looked at the blocks' words before has changed a byte by now, or looks again. seq_cst: a thread
  // that is allowed to do so later sees the claims.
  if (restartable_.load()) traps::restart_sequences();
  return gas::YieldAnswer::yielded;
}

gas::Claim Moves::claim(PageId page, gas::ClaimFor why, comm::Blocking* waits) {
  const BlockEvent event = why == gas::ClaimFor::arrival ? BlockEvent::arrive : BlockEvent::page_in;
  Held held(blocks_, pages_.blocks_of(page));
  // Movers claim in ascending order; other threads that hold a bit never wait for a second one.
  const Verdict verdict = held.claim(waits != nullptr ? Way::all : Way::try_all, event, waits);
  held.keep();
  return verdict == Verdict::proceed ? gas::Claim::taken
         : verdict == Verdict::done  ? gas::Claim::ours
                                     : gas::Claim::in_use;
}

gas::BlocksHere Moves::blocks_here(PageId page) const noexcept {
  const BlockRange all = pages_.blocks_of(page);
  gas::BlocksHere here;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockState s = blocks_.state(block_at(all.first, i));
    here.held[i] = s.owned || s.dirty();
    here.changed[i] = s.dirty();
    here.saved[i] = s.saved;
  }
  return here;
}

/// Calls part(offset, bytes, has a twin) for the live bytes of the page in order: blocks without a twin in
/// runs, blocks with one singly, whole ones not at all.
template <class F>
void Moves::for_each_arriving(PageId page, gas::ByteRange live, const F& part) const {
  const std::uint64_t end = std::min(live.end, pages_.end_of(page));
  const auto end_of_block = [end](std::uint64_t offset) {
    return std::min(end, mem::offset_of(mem::block_of(offset)) + kBlockBytes);
  };
  for (std::uint64_t at = std::max(live.begin, pages_.offset_of(page)); at < end;) {
    std::uint64_t next_at = end_of_block(at);
    const BlockState s = blocks_.state(mem::block_of(at));
    while (!s.dirty() && next_at < end && !blocks_.state(mem::block_of(next_at)).dirty())
      next_at = end_of_block(next_at);
    if (!s.whole) part(at, next_at - at, s.twin);
    at = next_at;
  }
}

/// Blocks without a twin are simply copied. This rank's threads may be storing to those with one: only bytes
/// that they have not changed are taken (rule 4).
void Moves::merge(comm::Blocking& io, std::span<const gas::Arrival> arrivals) {
  comm::Batch batch(io);
  for (const gas::Arrival& a : arrivals) {
    for_each_arriving(a.page, a.live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
      if (!twin) batch.read({a.from, gas::kFrames, at}, p_.space.a(at), bytes);
    });
  }
  batch.await();
  for (const gas::Arrival& a : arrivals) {
    for_each_arriving(a.page, a.live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
      if (!twin) return;
      alignas(8) std::byte fresh[kBlockBytes];
      io.read({a.from, gas::kFrames, at}, fresh, bytes);
      std::byte *mine = p_.space.a(at), *base = p_.space.t(at);
      if (p_.races != nullptr) tell_races(io.counters(), *p_.races, at, bytes, base, mine, fresh);
      for (std::size_t k = 0; k < bytes; ++k) {
        if (fresh[k] != base[k]) mine[k] = fresh[k];
      }
    });
  }
}

void Moves::settle(PageId page, gas::Settled how, BlockRange used) {
  const BlockRange all = pages_.blocks_of(page);
  Held held(blocks_, all);
  held.adopt();
  bool has_something = false;  // an unused page: a copy of before this rank owned it
  held.for_each([&](std::uint64_t i, BlockId) { has_something |= held.before(i) != BlockState{}; });
  if (how == gas::Settled::as_it_was) return;
  frames_.fill(all);
  if (how == gas::Settled::unused && !has_something) return;
  const BlocksOfAPage open = opened(p_.space, blocks_, all, used.count,
                                    [&](BlockId b) { return raw(b) - raw(used.first) < used.count; });
  // Not earlier: a release of this rank would take the mark while other ranks still join the old owner's
  // readers. If the entry is still being written, entry_written marks the page once more.
  p_.sharing.mark(page);
  held.open([&](std::uint64_t i, const BlockState& before) {
    // as after BlockEvent::arrive; a page that was paged in had owned blocks
    const BlockState after = next(before, BlockEvent::page_in).after;
    return open[i] ? after : next(after, BlockEvent::retire).after;
  });
}

void Moves::note(PageId page, gas::PageNews news) noexcept {
  switch (news) {
    case gas::PageNews::entry_under_way:
      // counts like a changed block: a release that begins from now on waits for it
      return p_.sharing.add_dirty();
    case gas::PageNews::entry_written:
      // again: a release that began before the page arrived may have taken settle()'s mark while other ranks
      // still joined the old owner's readers
      p_.sharing.mark(page);
      return p_.sharing.remove_dirty();
    case gas::PageNews::replaced:
      // Ranks that have a copy get a notice at the next release of this rank, before the memory can be given
      // to another thread.
      return p_.sharing.changed(page, gas::kAllParts);
  }
}

}  // namespace kasane::dsm
