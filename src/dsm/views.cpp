// SPDX-License-Identifier: Apache-2.0
// Ranges that are made present at once, and kept so (views): no fault, all transfers under way together, a system call a run of blocks. The steps of a block are
// those of a fault (dsm/protocol.h, events pin_…); here they are taken for many blocks side by side:
//
//   claim what is free, in ascending order, without waiting     a block that somebody has in hand ends the gathering
//   where are the pages                                         what is not to be had with the others is given back
//   join the readers of all; read all                           comm::Batch
//   twins; rights in runs; finish
//   what was given back, block by block, as a fault does it
#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <optional>
#include <span>

#include "base/assert.h"
#include "base/trace.h"
#include "dsm/coherence.h"
#include "dsm/incoming.h"
#include "dsm/last_seen.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

namespace {

constexpr std::uint64_t kMostBlocks = 512;   ///< whose bits are held at once
constexpr std::size_t kMostPages = gas::Sharing::kTogether;
static_assert(kMostPages <= gas::AddressCache::kMostLearnt);

[[nodiscard]] bool has(const Step& step, Action action) noexcept { return std::ranges::find(step.actions, action) != step.actions.end(); }
[[nodiscard]] bool looks(const Step& step) noexcept { return step.actions[0] == Action::fetch || step.actions[0] == Action::find; }

}  // namespace

/// A range that is being pinned.
struct Coherence::Pinning {
  std::uint64_t begin, end;   ///< offsets
  Use use;

  [[nodiscard]] Event event(BlockId b) const noexcept {
    return pin_event(use, mem::offset_of(b) >= begin && mem::offset_of(b) + kBlockBytes <= end);
  }
};

/// Up to kMostBlocks blocks in a row of it.
class Coherence::Gathering {
 public:
  Gathering(Coherence& coherence, ThreadContext& ctx, const Pinning& pinning, BlockId first) noexcept
      : c_(coherence), ctx_(ctx), pinning_(pinning), first_(first) {}

  /// Pins what can be had together.
  void gather() {
    claim();
    if (held_.none()) return note_used();
    find_pages();
    read_pages();
    if (on_ssd_.any()) {
      read_ahead();
      read_back();
    }
    open();
    note_used();
  }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Blocks that went to the write buffer.
  [[nodiscard]] std::uint64_t noted() const noexcept { return noted_; }
  [[nodiscard]] bool pinned(std::uint64_t i) const noexcept { return pinned_[i]; }
  [[nodiscard]] BlockId block(std::uint64_t i) const noexcept { return BlockId{raw(first_) + i}; }

 private:
  /// A page of which blocks [first, end) are wanted, some of them missing.
  struct Part {
    std::uint64_t first, end;
    gas::AddressCache::Found found;
    Fetched where;
    std::optional<LastSeen> last_seen;   ///< of the first block that is read: for the attractor
    std::optional<Predictor::Question> asked;
  };

  [[nodiscard]] Step step(std::uint64_t i) const noexcept {
    BlockState before = c_.state(block(i));
    before.busy = false;
    return on_ssd_[i] ? found_on_ssd(before, pinning_.event(block(i))) : next(before, pinning_.event(block(i)));
  }
  [[nodiscard]] bool fetches(std::uint64_t i) const noexcept { return held_[i] && step(i).actions[0] == Action::fetch; }
  [[nodiscard]] bool missing(std::uint64_t i) const noexcept { return held_[i] && looks(step(i)); }
  [[nodiscard]] std::span<gas::Sharing::Joining> joining() noexcept { return {joining_.data(), joiners_}; }

  void claim() noexcept {
    const std::uint64_t blocks = std::min(kMostBlocks, raw(mem::block_of(pinning_.end + kBlockBytes - 1)) - raw(first_));
    std::size_t pages = 0;
    PageId page{0};
    for (; count_ < blocks; ++count_) {
      const BlockId b = block(count_);
      if (count_ == 0 || c_.pages_.page_of(b) != page) {
        if (pages++ == kMostPages) break;
        page = c_.pages_.page_of(b);
      }
      const BlockState s = c_.state(b);
      const Step step = next(s, pinning_.event(b));
      if (step.verdict != Verdict::proceed || !c_.try_claim(b, s, step)) break;
      if (step.actions[0] == Action::end) {
        c_.finish(b, step.after);
        pinned_[count_] = true;
      } else {
        held_[count_] = true;
      }
    }
    count_ = std::max<std::uint64_t>(count_, 1);   // the first is waited for by who pins it
  }

  void find_pages() {
    std::array<PageId, kMostPages> pages;
    for (std::uint64_t i = 0; i < count_; ++i) {
      if (!missing(i)) continue;
      c_.cached_.insert(block(i));   // before the fetch begins, as in a fault
      c_.fill(BlockRange{block(i), 1});
      const PageId page = c_.pages_.page_of(block(i));
      if (parts_ == 0 || pages[parts_ - 1] != page) {
        pages[parts_] = page;
        part_[parts_++].first = i;
      }
      part_[parts_ - 1].end = i + 1;
    }
    c_.addresses_.learn(ctx_.io, {pages.data(), parts_}, false, gas::AddressCache::Rouses::none);
    for (std::size_t p = 0; p < parts_; ++p) {
      part_[p].where = c_.locate(ctx_.io, pages[p], part_[p].found);
      if (part_[p].where == Fetched::yes) joining_[joiners_++] = {pages[p], part_[p].found.owner, {}};
      if (part_[p].where == Fetched::on_ssd) enter(pages[p], part_[p]);
    }
  }

  /// What is missing of the page comes from this rank's spill file.
  void enter(PageId page, const Part& part) {
    if (!c_.tiers_->enter(ctx_.io, page, gas::Location::of(part.found.word))) return;
    for (std::uint64_t i = part.first; i < part.end; ++i) {
      if (!missing(i)) continue;
      c_.cached_.erase(block(i));
      on_ssd_[i] = true;
    }
  }

  /// An acquire that begins meanwhile waits for these blocks, and looks at them afterwards (rule 2).
  void read_pages() {
    c_.sharing_.join(ctx_.io, joining());
    std::uint64_t blocks = 0;
    for (std::size_t p = 0; p < parts_; ++p) {
      for (std::uint64_t i = part_[p].first; part_[p].where == Fetched::yes && i < part_[p].end; ++i) blocks += fetches(i);
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
        good = c_.addresses_.stood(ctx_.io, joined->page, part.found);   // rule 9
        if (good) c_.sharing_.joined(joined->page, joined->stay);
        if (good && part.asked) c_.answer(ctx_.counters, joined->page, *part.asked);
        if (good && c_.attractor_ != nullptr) c_.attractor_->used(joined->page, part.last_seen && part.last_seen->changed());
        ++joined;
      }
      if (!good) give_back(part);
    }
  }

  /// The missing blocks of the page, in runs; those that are wanted whole are not read.
  void read(comm::Batch& batch, Part& part) {
    for (std::uint64_t i = part.first; i < part.end;) {
      std::uint64_t end = i;
      while (end < part.end && fetches(end)) ++end;
      const std::uint64_t at = mem::offset_of(block(i));
      if (end != i && !part.last_seen && c_.attractor_ != nullptr) part.last_seen.emplace(c_.space_.a(at), c_.frame_of(part.found.owner, at));
      if (end != i && !part.asked) part.asked = c_.question(c_.pages_.page_of(block(i)), part.found.owner, block(i), end - i);
      if (end != i) batch.read({part.found.owner, gas::kFrames, at}, c_.space_.a(at), (end - i) * kBlockBytes);
      i = end + 1;
    }
  }

  void give_back(const Part& part) noexcept {
    for (std::uint64_t i = part.first; i < part.end; ++i) {
      if (!missing(i)) continue;
      c_.cached_.erase(block(i));
      c_.finish(block(i), BlockState{});
      held_[i] = false;
    }
  }

  /// What follows in the sweep that the view belongs to, perhaps; sent for before its own blocks are waited for.
  void read_ahead() {
    for (std::uint64_t i = 0; i < count_; i += kWindowBlocks - index_in_window(block(i))) {
      if (on_ssd_[i]) c_.read_ahead(ctx_, block(i));
    }
  }

  /// Blocks of our pages that are on SSD.
  void read_back() {
    Incoming incoming(c_);
    for (std::uint64_t i = 0; i < count_; ++i) {
      if (on_ssd_[i] && has(step(i), Action::read_back)) incoming.add({block(i), 1}, step(i).after.saved);
    }
    incoming.read(ctx_.io);
  }

  void open() noexcept {
    for (std::uint64_t i = 0; i < count_; ++i) {
      if (!held_[i]) continue;
      const Step s = step(i);
      if (s.claimed.saved) c_.fill({block(i), 1});   // what did not matter may do so again
      const std::uint64_t at = mem::offset_of(block(i));
      if (has(s, Action::make_twin)) {
        c_.fill_twin(block(i));
        std::memcpy(c_.space_.t(at), c_.space_.a(at), kBlockBytes);
      }
      if (s.after.dirty()) {
        c_.mark_dirty(ctx_.counters, block(i));
        note(i);
      }
      if (has(s, Action::mark_page)) c_.sharing_.mark(c_.pages_.page_of(block(i)));
    }
    for (std::uint64_t i = 0; i < count_;) {
      std::uint64_t end = i;
      while (end < count_ && held_[end] && step(end).after.view == step(i).after.view) ++end;
      if (end != i) open_run(i, end);
      i = std::max(end, i + 1);
    }
    note_run();
    if (c_.engine_.crowded()) c_.make_room();
  }
  /// Of pages that are not ours.
  void note_used() noexcept {
    if (c_.predictor_ == nullptr) return;
    for (std::uint64_t i = 0; i < count_; ++i) {
      const bool first_of_page = i == 0 || c_.pages_.page_of(block(i)) != c_.pages_.page_of(block(i - 1));
      if (first_of_page && !c_.state(block(i)).owned) c_.note_used(c_.pages_.page_of(block(i)));
    }
  }
  /// Runs of what is changed from now on go to the write buffer.
  void note(std::uint64_t i) noexcept {
    if (changed_.count == 0 || raw(changed_.first) + changed_.count != raw(block(i))) {
      note_run();
      changed_ = {block(i), 0};
    }
    ++changed_.count;
    ++noted_;
  }
  void note_run() noexcept {
    if (changed_.count != 0 && c_.write_buffer_.on()) c_.write_buffer_.note(changed_);
    changed_.count = 0;
  }
  void open_run(std::uint64_t first, std::uint64_t end) noexcept {
    c_.protect({block(first), end - first}, step(first).after.view == View::write ? mem::Access::write : mem::Access::read);
    for (std::uint64_t i = first; i < end; ++i) {
      c_.finish(block(i), step(i).after);
      pinned_[i] = true;
    }
  }

  Coherence& c_;
  ThreadContext& ctx_;
  const Pinning& pinning_;
  const BlockId first_;
  std::uint64_t count_ = 0;              ///< blocks looked at
  std::bitset<kMostBlocks> held_;        ///< whose bits are held, with something to do
  std::bitset<kMostBlocks> pinned_;
  std::bitset<kMostBlocks> on_ssd_;      ///< of those held: their bytes are in this rank's spill file
  std::array<Part, kMostPages> part_;
  std::size_t parts_ = 0, joiners_ = 0;
  std::array<gas::Sharing::Joining, kMostPages> joining_;
  BlockRange changed_{BlockId{0}, 0};
  std::uint64_t noted_ = 0;
};

std::optional<BlockId> Coherence::pin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, Use use) {
  const Traced traced(&ctx.counters, TraceKind::view, bytes);
  const Pinning pinning{offset, offset + bytes, use};
  const std::uint64_t first = raw(mem::block_of(offset)), end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  std::uint64_t noted = 0;
  for (std::uint64_t b = pin_shown(first, end, use); b < end;) {
    admit(ctx.io, std::min(kMostBlocks, end - b), Serves::itself);
    Gathering gathering(*this, ctx, pinning, BlockId{b});
    gathering.gather();
    noted += gathering.noted();
    for (std::uint64_t i = 0; i < gathering.count(); ++i) {
      if (gathering.pinned(i) || pin_block(ctx, BlockId{b + i}, pinning.event(BlockId{b + i}))) continue;
      unpin(ctx, mem::offset_of(BlockId{first}), (b + i - first) * kBlockBytes);
      for (std::uint64_t k = i + 1; k < gathering.count(); ++k) {
        if (gathering.pinned(k)) unpin(ctx, mem::offset_of(BlockId{b + k}), kBlockBytes);
      }
      return BlockId{b + i};
    }
    b += gathering.count();
  }
  if (noted != 0) write_back(ctx, noted);
  return std::nullopt;
}

/// Blocks [first, end): the first one that V does not show as the use needs it.
std::uint64_t Coherence::shown_until(std::uint64_t first, std::uint64_t end, Use use) const noexcept {
  // relaxed: nothing is done on the strength of it.
  while (first < end && shows(BlockState::of(table_[BlockId{first}].load(std::memory_order_relaxed)), use)) ++first;
  return first;
}

/// Pins those at the beginning of [first, end) that need no more than that, whose use nobody wants to know of. Returns the first one that does.
std::uint64_t Coherence::pin_shown(std::uint64_t first, std::uint64_t end, Use use) noexcept {
  for (; first < end; ++first) {
    const BlockState s = state(BlockId{first});
    if (!shows(s, use) || (predictor_ != nullptr && !s.owned) || !count_pin(BlockId{first}, s, 1)) break;
  }
  return first;
}

/// The claim and the finish of a step without actions, in one. False: the word has changed meanwhile.
bool Coherence::count_pin(BlockId b, BlockState before, int by) noexcept {
  BlockState after = before;
  after.pins += static_cast<std::uint32_t>(by);
  std::uint32_t expected = before.word();
  return table_[b].compare_exchange_strong(expected, after.word());   // seq_cst, as any claim
}

/// As a fault does it, waiting. False: not allocated.
bool Coherence::pin_block(ThreadContext& ctx, BlockId b, Event event) {
  for (;;) {
    const Step step = claim_block(ctx.io, b, event);
    const Fault fault = carry_out_fault(ctx, b, event, step);
    if (fault != Fault::again) return fault == Fault::served;
    ctx.io.waiter().pause();
  }
}

void Coherence::unpin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t first = raw(mem::block_of(offset)), end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  for (std::uint64_t b = first; b < end; ++b) {
    for (;;) {
      const BlockState s = state(BlockId{b});
      KASANE_CHECK(s.pins > 0, "a view ends that was not made on this rank");
      if (s.busy) wait_free(ctx.io, BlockId{b});
      else if (count_pin(BlockId{b}, s, -1)) break;
    }
  }
}

}  // namespace kasane::dsm
