// SPDX-License-Identifier: Apache-2.0
#include "dsm/gathering.h"

#include <algorithm>
#include <cstring>

#include "base/trace.h"
#include "dsm/read_back.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

namespace {

[[nodiscard]] bool has(const BlockStep& step, Action action) noexcept {
  return std::ranges::find(step.actions, action) != step.actions.end();
}
[[nodiscard]] bool looks(const BlockStep& step) noexcept {
  return step.actions[0] == Action::fetch || step.actions[0] == Action::find;
}

}  // namespace

void Coherence::Gathering::gather() {
  if (sweeps()) {
    for (std::uint64_t i = 0; i < count(); ++i) held_[i] = true;
  } else {
    claim();
  }
  if (held_.none()) return;
  find_pages();
  read_pages();
  if (on_ssd_.any()) {
    read_ahead();
    read_back();
  }
  open();
}

std::uint32_t Coherence::Gathering::served_in_a_row() const noexcept {
  std::uint32_t n = 0;
  while (n < blocks_.count && served_[faulting_ == 0 ? n : faulting_ - n]) ++n;
  return n;
}

BlockStep Coherence::Gathering::step(std::uint64_t i) const noexcept {
  BlockState before = c_.state(block(i));
  before.busy = false;
  return on_ssd_[i] ? found_on_ssd(before, wanted_.event(block(i))) : next(before, wanted_.event(block(i)));
}

bool Coherence::Gathering::missing(std::uint64_t i) const noexcept { return held_[i] && looks(step(i)); }

/// Blocks that are present as wanted are finished at once.
void Coherence::Gathering::claim() noexcept {
  const std::uint64_t most =
      std::min(kMostBlocks, raw(mem::block_of(wanted_.end + kBlockBytes - 1)) - raw(blocks_.first));
  std::size_t pages = 0;
  PageId page{0};
  for (; blocks_.count < most; ++blocks_.count) {
    const std::uint64_t i = blocks_.count;
    const BlockId b = block(i);
    if (i == 0 || c_.pages_.page_of(b) != page) {
      if (pages++ == kMostPages) break;
      page = c_.pages_.page_of(b);
    }
    const BlockState s = c_.state(b);
    const BlockStep step = next(s, wanted_.event(b));
    if (step.verdict != Verdict::proceed || !c_.try_claim(b, s, step)) break;
    if (step.actions[0] == Action::end) {
      c_.finish(b, step.after);
      served_[i] = true;
    } else {
      held_[i] = true;
    }
  }
  // the first one is waited for by its caller, which pins it
  blocks_.count = std::max<std::uint32_t>(blocks_.count, 1);
}

/// Of a sweep, from b on. If a page cannot be read now, it and what follows are left out: the sweep is
/// expected to fault there.
void Coherence::Gathering::find_pages() {
  std::array<PageId, kMostPages> pages;
  for (std::uint64_t i = 0; i < count(); ++i) {
    if (!missing(i)) continue;
    c_.cached_.insert(block(i));  // before the fetch begins, as in a fault
    // a view may have many blocks: other threads must not be admitted for the same room meanwhile
    if (!sweeps()) c_.fill_staged(BlockRange{block(i), 1});
    const PageId page = c_.pages_.page_of(block(i));
    if (parts_ == 0 || pages[parts_ - 1] != page) {
      pages[parts_] = page;
      part_[parts_++].first = i;
    }
    part_[parts_ - 1].end = i + 1;
  }
  c_.addresses_.learn(ctx_.io, {pages.data(), parts_}, false, gas::AddressCache::PagesIn::none);
  const bool down = sweeps() && faulting_ != 0;
  for (std::size_t n = 0; n < parts_; ++n) {
    const std::size_t p = down ? parts_ - 1 - n : n;
    Part& part = part_[p];
    part.where = c_.locate(ctx_.io, pages[p], part.found);
    if (sweeps() && part.where != Fetched::yes) break;
    if (part.where == Fetched::on_ssd) take_from_ssd(pages[p], part);
  }
  for (std::size_t p = 0; p < parts_; ++p) {
    if (part_[p].where == Fetched::yes) joining_[joiners_++] = {pages[p], part_[p].found.owner, {}};
  }
}

/// The page's missing blocks are read from this rank's spill file.
void Coherence::Gathering::take_from_ssd(PageId page, const Part& part) {
  if (!c_.tiers_->make_partial(ctx_.io, page, gas::Location::of(part.found.word))) return;
  for (std::uint64_t i = part.first; i < part.end; ++i) {
    if (!missing(i)) continue;
    c_.cached_.erase(block(i));
    on_ssd_[i] = true;
    if (!has(step(i), Action::read_back) || !c_.tiers_->stored(block(i)))
      c_.fill_otherwise(BlockRange{block(i), 1});
  }
}

/// Counts the frames of the page's missing blocks. Returns how many blocks are fetched from the owner.
std::uint64_t Coherence::Gathering::fill(const Part& part) noexcept {
  std::uint64_t fetched = 0;
  for (std::uint64_t i = part.first; i < part.end; ++i) {
    if (!held_[i]) continue;
    const BlockStep s = step(i);
    if (!looks(s)) continue;
    if (sweeps())
      c_.fill(BlockRange{block(i), 1});
    else
      c_.fill_otherwise(BlockRange{block(i), 1});
    fetched += s.actions[0] == Action::fetch;
  }
  return fetched;
}

/// An acquire that begins meanwhile waits for these blocks, and looks at them afterwards (rule 2).
void Coherence::Gathering::read_pages() {
  c_.sharing_.join(ctx_.io, joining());
  std::uint64_t blocks = 0;
  for (std::size_t p = 0; p < parts_; ++p) {
    if (part_[p].where == Fetched::yes) blocks += fill(part_[p]);
  }
  if (blocks != 0) {
    const Traced traced(&ctx_.counters, TraceKind::fetch, blocks * kBlockBytes);
    comm::Batch batch(ctx_.io);
    for (std::size_t p = 0; p < parts_; ++p) {
      if (part_[p].where == Fetched::yes) read(batch, part_[p]);
    }
  }
  kasane::count(ctx_.counters.blocks_fetched, blocks);
  kasane::count(ctx_.counters.bytes_fetched, blocks * kBlockBytes);
  auto joined = joining().begin();
  for (std::size_t p = 0; p < parts_; ++p) {
    Part& part = part_[p];
    bool good = false;
    if (part.where == Fetched::yes) {
      good = c_.addresses_.stood(ctx_.io, joined->page, part.found);  // rule 9
      if (good) c_.sharing_.joined(joined->page, joined->state);
      if (good && c_.auto_relocator_ != nullptr)
        c_.auto_relocator_->used(joined->page, part.last_seen && part.last_seen->changed());
      ++joined;
    }
    if (!good) unclaim(part);
  }
}

/// Reads the page's missing blocks in runs; those that will be overwritten as a whole are not read.
void Coherence::Gathering::read(comm::Batch& batch, Part& part) {
  for (std::uint64_t i = part.first; i < part.end;) {
    std::uint64_t end = i;
    while (end < part.end && fetches(end) && (end == i || blocks_.stride == 1)) ++end;
    const std::uint64_t at = mem::offset_of(block(i));
    if (end != i && !part.last_seen && c_.auto_relocator_ != nullptr)
      part.last_seen.emplace(c_.space_.a(at), c_.frame_of(part.found.owner, at));
    if (end != i) batch.read({part.found.owner, gas::kFrames, at}, c_.space_.a(at), (end - i) * kBlockBytes);
    i = std::max(end, i + 1);
  }
}

void Coherence::Gathering::unclaim(const Part& part) noexcept {
  const bool callers = sweeps() && part.first <= faulting_ && faulting_ < part.end;
  for (std::uint64_t i = part.first; i < part.end; ++i) {
    if (!missing(i)) continue;
    held_[i] = false;
    if (callers) continue;
    c_.cached_.erase(block(i));
    c_.finish(block(i), BlockState{});
  }
}

/// Starts reading ahead in the sweep to which the view may belong, before the view's own blocks are waited
/// for. Not for blocks that need not be read.
void Coherence::Gathering::read_ahead() {
  for (std::uint64_t i = 0; i < count(); i += kWindowBlocks - index_in_window(block(i))) {
    if (on_ssd_[i] && has(step(i), Action::read_back)) c_.read_ahead(ctx_, block(i), wanted_.event(block(i)));
  }
}

/// Blocks of this rank's pages that are on SSD.
void Coherence::Gathering::read_back() {
  ReadBack incoming(c_);
  bool all_stored = true;
  for (std::uint64_t i = 0; i < count(); ++i) {
    if (!on_ssd_[i] || !has(step(i), Action::read_back)) continue;
    const bool saved = step(i).after.saved;
    incoming.add({block(i), 1}, saved);
    if (saved)
      all_stored = false;
    else
      c_.sharing_.mark(c_.pages_.page_of(block(i)));
  }
  incoming.read(ctx_.io, all_stored ? mem::Access::write : mem::Access::read);
}

void Coherence::Gathering::open() noexcept {
  for (std::uint64_t i = 0; i < count(); ++i) {
    if (!held_[i]) continue;
    const BlockStep s = step(i);
    if (s.claimed.saved) c_.fill({block(i), 1});  // undefined bytes may become defined again
    const std::uint64_t at = mem::offset_of(block(i));
    if (has(s, Action::make_twin)) {
      c_.fill_twin(block(i));
      std::memcpy(c_.space_.t(at), c_.space_.a(at), kBlockBytes);
    }
    if (s.after.dirty()) c_.mark_dirty(block(i));
    if (has(s, Action::mark_page)) c_.sharing_.mark(c_.pages_.page_of(block(i)));
  }
  for (std::uint64_t i = 0; i < count();) {
    std::uint64_t end = i;
    while (end < count() && held_[end] && step(end).after.access == step(i).after.access &&
           (end == i || blocks_.stride == 1))
      ++end;
    if (end != i) open_run(i, end);
    i = std::max(end, i + 1);
  }
  if (c_.engine_.crowded()) c_.make_room();
}

void Coherence::Gathering::open_run(std::uint64_t first, std::uint64_t end) noexcept {
  c_.protect(BlockRange{block(first), end - first}, step(first).after.access);
  for (std::uint64_t i = first; i < end; ++i) {
    c_.finish(block(i), step(i).after);
    served_[i] = true;
  }
}

}  // namespace kasane::dsm
