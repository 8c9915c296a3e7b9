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
  if (block_count_ == kMostBlocks ||
      (page_count_ == kMostPages && page_[page_count_ - 1].page != pages_.page_of(b)))
    run();
  const BlockState s = blocks_.state(b);
  const bool open = stays_open(b, s);
  const BlockEvent event = !open                           ? event_
                           : event_ == BlockEvent::acquire ? BlockEvent::acquire_open
                                                           : BlockEvent::release_open;
  const BlockStep step = next(s, event);
  if (step.verdict != Verdict::proceed) return step.verdict != Verdict::wait;
  if (!blocks_.try_claim(b, s, step)) return false;
  take(b, s, step, open);
  return true;
}

void Fence::wait_and_take(BlockId b) {
  run();
  const BlockStep step = blocks_.claim(io_, b, event_);
  if (step.verdict == Verdict::proceed) take(b, blocks_.before(b), step, false);
  run();
}

void Fence::add(Held& one, const BlockStep& step) {
  take(one[0], one.before(0), step, false);
  one.keep();
}

void Fence::take(BlockId b, const BlockState& s, const BlockStep& step, bool open) {
  if (step.after.access == s.access && (event_ == BlockEvent::acquire || !open)) return act_alone(b, step);
  const PageId page = pages_.page_of(b);
  if (page_count_ == 0 || page_[page_count_ - 1].page != page) {
    page_[page_count_].page = page;
    page_[page_count_].first = block_count_;
    page_[page_count_].now_owned = false;
    page_[page_count_++].unsent = false;
  }
  open_[block_count_] = open;
  block_[block_count_++] = b;
  page_[page_count_ - 1].end = block_count_;
  page_[page_count_ - 1].unsent |= s.dirty() && event_ != BlockEvent::discard_block;
}

void Fence::act_alone(BlockId b, const BlockStep& step) {
  bool now_owned = false;
  switch (step.actions[0]) {
    case Action::diff_put_live:
    case Action::put_all_live: now_owned = put_live(b, step); break;
    case Action::refresh: f_.fetches_.refresh(io_, b, step.claimed.twin); break;
    case Action::find: f_.fetches_.stay_reader(io_, pages_.page_of(b)); break;
    default: break;
  }
  const BlockState before = blocks_.before(b);
  blocks_.finish(b, before, now_owned ? become_owned(before) : step.after);
}

// ---- all that was added
// ------------------------------------------------------------------------------------

void Fence::run() {
  if (block_count_ == 0) return;
  blocks_.show(
      [this](const auto& f) {
        for (std::size_t i = 0; i < block_count_; ++i) f(i, block_[i]);
      },
      [this](std::uint64_t i, const BlockState& before) { return after(i, before); });
  put();
  finish();
  block_count_ = page_count_ = 0;
}

void Fence::put() {
  std::array<PageId, kMostPages> pages;
  std::size_t changed = 0;
  for (const Of& of : of_pages()) {
    if (of.unsent) pages[changed++] = of.page;
  }
  if (changed == 0) return;
  const Traced traced(counters_, TraceKind::put_changes, block_count_);
  if (changed > 1) {
    p_.addresses.learn(io_, {pages.data(), changed}, true, gas::AddressCache::PagesIn::none);
    put_together();
  }
  for (Of& of : of_pages()) {
    if (of.unsent) of.now_owned = put_page(of);
  }
}

/// Puts what can be put without waiting for a page, owner by owner.
void Fence::put_together() {
  Outbox out(io_, counters_);
  for (Of& of : of_pages()) {
    if (!of.unsent) continue;
    of.put.emplace(p_.addresses, io_, of.page, gas::AddressCache::kOnlyHere);
    of.put->is_diff();
    of.changed = 0;
    if (of.put->owner() == kNoRank) of.put.reset();
  }
  for (const Of& of : of_pages()) {
    if (!of.unsent || !of.put) continue;
    for (Of& same : of_pages()) {
      if (!same.unsent || !same.put || same.put->owner() != of.put->owner()) continue;
      same.changed = put_blocks(out, same.put->owner(), same);
      same.unsent = false;
    }
  }
  out.await();
  for (Of& of : of_pages()) {
    if (!of.put) continue;
    if (of.changed != 0) sent_changes(of.page, of.changed);
    of.put.reset();
  }
}

void Fence::finish() noexcept {
  for (const Of& of : of_pages()) {
    for (std::size_t i = of.first; i < of.end; ++i) {
      const BlockState before = blocks_.before(block_[i]);
      blocks_.finish(block_[i], before,
                     of.now_owned && before.dirty() ? become_owned(before) : after(i, before));
    }
  }
}

// ---- puts ------------------------------------------------------------------------------------------------

/// The caller holds bits of the page, so a page that this rank owns by now is not paged in: that would wait
/// for room, and for these bits. False: there is nothing to put; the page is partial here, and its changed
/// blocks become owned.
bool Fence::begin_put(PageId page, std::optional<gas::AddressCache::Put>& put) {
  for (;;) {
    gas::Location own_location;
    put.emplace(p_.addresses, io_, page, own_location);
    put->is_diff();
    if (own_location.tier == gas::Tier::dram) return true;
    put.reset();
    if (p_.tiers->make_partial(io_, page, own_location)) break;  // else it moves, or is partial by now
  }
  p_.sharing.mark(page);
  return false;
}

/// Puts the changes of the page's blocks, which are not writable but for the open ones, and returns when they
/// have arrived. An open block of a page that is not another rank's is protected, and open no more. True:
/// nothing was put, since this rank owns the page, which is partial; V then allows stores to what is changed.
bool Fence::put_page(const Of& of) {
  std::optional<gas::AddressCache::Put> put;
  if (!begin_put(of.page, put)) {
    for (std::size_t i = of.first; i < of.end; ++i) {
      if (blocks_.state(block_[i]).dirty()) blocks_.protect({block_[i], 1}, Access::write);
    }
    return true;
  }
  // freed meanwhile, so it will not be read; or M here is the master copy
  if (put->owner() == kNoRank || put->owner() == p_.me()) {
    close(of);
    return false;
  }
  Outbox out(io_, counters_);
  const gas::PartMask changed = put_blocks(out, put->owner(), of);
  out.await();
  if (changed != 0) sent_changes(of.page, changed);
  return false;
}

/// Changes of these parts of the page have arrived at its owner.
void Fence::sent_changes(PageId page, gas::PartMask parts) noexcept {
  p_.sharing.changed(page, parts);
  if (p_.auto_relocator == nullptr || !p_.sharing.on()) return;
  const BlockRange all = pages_.blocks_of(page);
  if (parts == gas::parts_of(all, all.first, block_at(all.first, all.count - 1)))
    p_.auto_relocator->released(page);
}

/// Returns to which parts of the page a byte is put: blocks that a fault made writable before they were
/// stored to may be unchanged.
gas::PartMask Fence::put_blocks(Outbox& out, Rank owner, const Of& of) {
  if (owner == p_.me()) {  // M here is the master copy
    close(of);
    return 0;
  }
  const BlockRange all = pages_.blocks_of(of.page);
  gas::PartMask changed = 0;
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
  return changed;
}

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
/// and 10). Of a whole block all is put. True: as in put_page().
bool Fence::put_live(BlockId b, const BlockStep& step) {
  alignas(8) std::byte now[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  snapshot(now, p_.space.a(at));
  const PageId page = pages_.page_of(b);
  if (std::optional<gas::AddressCache::Put> put; !begin_put(page, put)) {
    return true;
  } else if (put->owner() != kNoRank) {
    Outbox out(io_, counters_);
    bool changed = true;
    if (!step.claimed.whole) {
      changed = put_changed(out, put->owner(), at, now, p_.space.t(at)) != 0;
    } else if (put->owner() != p_.me()) {
      out.put(put->owner(), at, now, kBlockBytes);
    }
    out.await();
    if (changed) sent_changes(page, gas::part_of(pages_.blocks_of(page), b));
    f_.frames_.fill_twin(b);
    std::memcpy(p_.space.t(at), now, kBlockBytes);
  }
  if (step.actions[1] == Action::refresh) f_.fetches_.refresh(io_, b, true);
  return false;
}

}  // namespace kasane::dsm
