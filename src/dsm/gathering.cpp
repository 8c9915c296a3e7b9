// SPDX-License-Identifier: Apache-2.0
#include "dsm/gathering.h"

#include <algorithm>
#include <cstring>

#include "base/trace.h"

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

void Gathering::gather() {
  if (!sweeps()) claim();
  if (held_.none()) return;
  find_pages();
  read_pages();
  if (on_ssd_.any()) {
    read_ahead();
    read_back();
  }
  open();
}

std::uint32_t Gathering::served_in_a_row() const noexcept {
  std::uint32_t n = 0;
  while (n < count() && served_[faulting_ == 0 ? n : faulting_ - n]) ++n;
  return n;
}

BlockStep Gathering::step(std::uint64_t i) const noexcept {
  const BlockState before = held_.before(i);
  return on_ssd_[i] ? found_on_ssd(before, wanted_.event(block(i))) : next(before, wanted_.event(block(i)));
}

bool Gathering::missing(std::uint64_t i) const noexcept { return held_.has(i) && looks(step(i)); }

/// Blocks that are present as wanted are finished at once.
void Gathering::claim() noexcept {
  const std::uint64_t most =
      std::min(kMostBlocks, raw(mem::block_of(wanted_.end + kBlockBytes - 1)) - raw(block(0)));
  std::size_t pages = 0;
  PageId page{0};
  while (count() < most) {
    const std::uint64_t i = count();
    const BlockId b = block(i);
    if (i == 0 || f_.pages_.page_of(b) != page) {
      if (pages++ == kMostPages) break;
      page = f_.pages_.page_of(b);
    }
    if (!held_.extend_by(1, wanted_.event(b))) break;
    if (step(i).actions[0] != Action::end) continue;
    held_.finish_one(i, step(i).after);
    served_[i] = true;
  }
}

/// Of a sweep, from b on. If a page cannot be read now, it and what follows are left out: the sweep is
/// expected to fault there.
void Gathering::find_pages() {
  std::array<PageId, kMostPages> pages;
  for (std::uint64_t i = 0; i < count(); ++i) {
    if (!missing(i)) continue;
    held_.insert_cached(i);  // before the fetch begins, as in a fault
    // a view may have many blocks: other threads must not be admitted for the same room meanwhile
    if (!sweeps()) f_.frames_.fill_staged(BlockRange{block(i), 1});
    const PageId page = f_.pages_.page_of(block(i));
    if (parts_ == 0 || pages[parts_ - 1] != page) {
      pages[parts_] = page;
      part_[parts_++].first = i;
    }
    part_[parts_ - 1].end = i + 1;
  }
  f_.p_.addresses.learn(ctx_.io, {pages.data(), parts_}, false, gas::AddressCache::PagesIn::none);
  const bool down = sweeps() && faulting_ != 0;
  for (std::size_t n = 0; n < parts_; ++n) {
    const std::size_t p = down ? parts_ - 1 - n : n;
    Part& part = part_[p];
    part.where = f_.fetches_.locate(ctx_.io, pages[p], part.found);
    if (sweeps() && part.where != Fetched::yes) break;
    if (part.where == Fetched::on_ssd) take_from_ssd(pages[p], part);
  }
  for (std::size_t p = 0; p < parts_; ++p) {
    if (part_[p].where == Fetched::yes) joining_[joiners_++] = {pages[p], part_[p].found.owner, {}};
  }
}

/// The page's missing blocks are read from this rank's spill file.
void Gathering::take_from_ssd(PageId page, const Part& part) {
  if (!f_.p_.tiers->make_partial(ctx_.io, page, gas::Location::of(part.found.word))) return;
  for (std::uint64_t i = part.first; i < part.end; ++i) {
    if (!missing(i)) continue;
    on_ssd_[i] = true;
    if (!has(step(i), Action::read_back) || !f_.p_.tiers->stored(block(i)))
      f_.frames_.fill_otherwise(BlockRange{block(i), 1});
  }
}

/// Counts the frames of the page's missing blocks. Returns how many blocks are fetched from the owner.
std::uint64_t Gathering::fill(const Part& part) noexcept {
  std::uint64_t fetched = 0;
  for (std::uint64_t i = part.first; i < part.end; ++i) {
    if (!missing(i)) continue;
    const BlockStep s = step(i);
    if (sweeps())
      f_.frames_.fill(BlockRange{block(i), 1});
    else
      f_.frames_.fill_otherwise(BlockRange{block(i), 1});
    fetched += s.actions[0] == Action::fetch;
  }
  return fetched;
}

/// An acquire that begins meanwhile waits for these blocks, and looks at them afterwards (rule 2).
void Gathering::read_pages() {
  f_.p_.sharing.join(ctx_.io, joining());
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
      good = f_.p_.addresses.stood(ctx_.io, joined->page, part.found);  // rule 9
      if (good) f_.p_.sharing.joined(joined->page, joined->state);
      if (good && f_.p_.auto_relocator != nullptr)
        f_.p_.auto_relocator->used(joined->page, part.last_seen && part.last_seen->changed());
      ++joined;
    }
    if (!good) give_back(part);
  }
}

/// Reads the page's missing blocks in runs; those that will be overwritten as a whole are not read.
void Gathering::read(comm::Batch& batch, Part& part) {
  for (std::uint64_t i = part.first; i < part.end;) {
    std::uint64_t end = i;
    while (end < part.end && fetches(end) && (end == i || held_.in_a_row())) ++end;
    const std::uint64_t at = mem::offset_of(block(i));
    if (end != i && !part.last_seen && f_.p_.auto_relocator != nullptr)
      part.last_seen.emplace(f_.p_.space.a(at), f_.fetches_.frame_of(part.found.owner, at));
    if (end != i)
      batch.read({part.found.owner, gas::kFrames, at}, f_.p_.space.a(at), (end - i) * kBlockBytes);
    i = std::max(end, i + 1);
  }
}

void Gathering::give_back(const Part& part) noexcept {
  if (sweeps() && part.first <= faulting_ && faulting_ < part.end) {
    left_ = &part;
    return;
  }
  for (std::uint64_t i = part.first; i < part.end; ++i) {
    if (missing(i)) held_.give_back(i);
  }
}

/// Starts reading ahead in the sweep to which the view may belong, before the view's own blocks are waited
/// for. Not for blocks that need not be read.
void Gathering::read_ahead() {
  for (std::uint64_t i = 0; i < count(); i += kWindowBlocks - index_in_window(block(i))) {
    if (on_ssd_[i] && has(step(i), Action::read_back))
      f_.tiering_.read_ahead(ctx_, block(i), wanted_.event(block(i)));
  }
}

/// Blocks of this rank's pages that are on SSD.
void Gathering::read_back() {
  ReadBack incoming(f_.p_);
  bool all_stored = true;
  for (std::uint64_t i = 0; i < count(); ++i) {
    if (!on_ssd_[i] || !has(step(i), Action::read_back)) continue;
    const bool saved = step(i).after.saved;
    incoming.add(block(i), saved);
    if (saved)
      all_stored = false;
    else
      f_.p_.sharing.mark(f_.pages_.page_of(block(i)));
  }
  incoming.read(ctx_.io, all_stored ? mem::Access::write : mem::Access::read);
}

void Gathering::open() noexcept {
  const auto left = [this](std::uint64_t i) {
    return left_ != nullptr && left_->first <= i && i < left_->end;
  };
  held_.for_each([&](std::uint64_t i, BlockId b) {
    if (left(i)) return;
    const BlockStep s = step(i);
    if (s.claimed.saved) f_.frames_.fill(BlockRange{b, 1});  // undefined bytes may become defined again
    served_[i] = true;
    if (!has(s, Action::make_twin)) return;
    f_.frames_.fill_twin(b);
    std::memcpy(f_.p_.space.t(mem::offset_of(b)), f_.p_.space.a(mem::offset_of(b)), kBlockBytes);
  });
  held_.open([&](std::uint64_t i, const BlockState& before) {
    BlockState after = left(i) ? before : step(i).after;
    after.busy = left(i);
    return after;
  });
  if (f_.blocks_.engine().crowded()) f_.blocks_.make_room();
}

}  // namespace kasane::dsm
