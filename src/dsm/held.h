// SPDX-License-Identifier: Apache-2.0
// Blocks whose busy bits a thread holds: of a stripe, at most as many as the largest page has. With
// dsm/fence.h the only code that changes a block's word.
//
//   claim        waiting for each in ascending order; all or none; or as far as it goes
//   (act)        read, copy, make twins: the owner of the object may use M and T of these blocks
//   open(after)  V's rights first, in runs; then the words, which frees the bits
//   the end      what is still held is given back as it was
//
// The holder of a bit never waits for another thread's, but for claims of a page's blocks in ascending order.
// Thread safety: an object belongs to one thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "dsm/blocks.h"
#include "dsm/windows.h"

namespace kasane::dsm {

class Held {
 public:
  static constexpr std::uint64_t kMost = mem::kMostBlocksOfAPage;

  /// Nothing is held yet.
  Held(Blocks& blocks, const Stripe& within) noexcept : blocks_(blocks), within_(within) {
    KASANE_ASSERT(within.count <= kMost);
  }
  Held(Blocks& blocks, mem::BlockRange within) noexcept
      : Held(blocks, Stripe{within.first, 1, static_cast<std::uint32_t>(within.count)}) {}
  /// One block, to which extend() adds.
  Held(Blocks& blocks, BlockId b) noexcept : Held(blocks, Stripe{b, 1, 1}) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { give_back(); }

  // ---- claims ----

  /// Waits while another thread has the i-th block. The step's verdict is done, refuse, or proceed: then it
  /// is held.
  BlockStep claim(comm::Blocking& io, std::uint64_t i, BlockEvent event) {
    const BlockStep step = blocks_.claim(io, within_[i], event);
    if (step.verdict == Verdict::proceed) set(i);
    return step;
  }
  /// All in ascending order, waiting for each; or none, if one has no step: then its verdict.
  Verdict claim_all(comm::Blocking& io, BlockEvent event) {
    return all([&](std::uint64_t i) { return claim(io, i, event).verdict; });
  }
  /// Without waiting; only if suits(state, step). proceed: it is held. wait: it may be, later.
  template <class Suits>
  Verdict try_claim(std::uint64_t i, BlockEvent event, const Suits& suits) noexcept {
    const BlockState s = blocks_.state(within_[i]);
    const BlockStep step = next(s, event);
    if (step.verdict != Verdict::proceed) return step.verdict;
    if (!suits(s, step)) return Verdict::done;
    if (!blocks_.try_claim(within_[i], s, step)) return Verdict::wait;
    set(i);
    return Verdict::proceed;
  }
  Verdict try_claim(std::uint64_t i, BlockEvent event) noexcept {
    return try_claim(i, event, [](const BlockState&, const BlockStep&) { return true; });
  }
  /// As claim_all(), without waiting.
  Verdict try_claim_all(BlockEvent event) noexcept {
    return all([&](std::uint64_t i) { return try_claim(i, event); });
  }
  /// The stripe becomes one block longer, and that block is claimed, unless it cannot be or does not suit.
  /// The distance, up or down, is the stripe's if that has several blocks.
  template <class Suits>
  bool extend(std::int64_t distance, BlockEvent event, const Suits& suits) noexcept {
    const Stripe was = within_;
    const Words held = held_;
    within_.stride = static_cast<std::uint64_t>(distance < 0 ? -distance : distance);
    ++within_.count;
    if (distance < 0) {
      within_.first = BlockId{raw(within_.first) - within_.stride};
      for (std::size_t w = kWords; w-- != 0;) held_[w] = held_[w] << 1 | (w == 0 ? 0 : held_[w - 1] >> 63);
    }
    if (try_claim(distance < 0 ? 0 : within_.count - 1, event, suits) == Verdict::proceed) return true;
    within_ = was;
    held_ = held;
    return false;
  }
  /// Of a row: the next blocks too, all of them or none.
  bool extend_by(std::uint64_t blocks, BlockEvent event) noexcept {
    const std::uint64_t was = size();
    KASANE_ASSERT(was + blocks <= kMost);
    for (std::uint64_t n = 0; n < blocks; ++n) {
      ++within_.count;
      if (try_claim(within_.count - 1, event) == Verdict::proceed) continue;
      shorten(was);
      return false;
    }
    return true;
  }
  /// Of a row: the next block too, waiting for it.
  BlockStep extend(comm::Blocking& io, BlockEvent event) { return claim(io, within_.count++, event); }
  /// The stripe keeps its first blocks; the others are given back.
  void shorten(std::uint64_t blocks) noexcept {
    while (size() != blocks) {
      give_back(size() - 1);
      --within_.count;
    }
  }
  /// All of them, whose bits were claimed and kept, for this thread, before.
  void adopt() noexcept {
    for (std::uint64_t i = 0; i < size(); ++i) set(i);
  }
  void adopt(std::uint64_t i) noexcept { set(i); }
  /// They stay claimed when this object ends: another one will adopt them.
  void keep() noexcept { held_ = {}; }

  // ---- what is held ----

  /// Of the stripe, held or not.
  [[nodiscard]] std::uint64_t size() const noexcept { return within_.count; }
  [[nodiscard]] BlockId operator[](std::uint64_t i) const noexcept { return within_[i]; }
  [[nodiscard]] std::uint64_t index_of(BlockId b) const noexcept {
    return (raw(b) - raw(within_.first)) / within_.stride;
  }
  [[nodiscard]] bool in_a_row() const noexcept { return within_.stride == 1; }
  [[nodiscard]] bool has(std::uint64_t i) const noexcept { return (held_[i / 64] >> i % 64 & 1) != 0; }
  [[nodiscard]] bool has(BlockId b) const noexcept { return within_.contains(b) && has(index_of(b)); }
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t n = 0;
    for (const std::uint64_t word : held_) n += static_cast<std::uint64_t>(std::popcount(word));
    return n;
  }
  [[nodiscard]] bool none() const noexcept { return held_ == Words{}; }
  /// The block's state, as if it were free.
  [[nodiscard]] BlockState before(std::uint64_t i) const noexcept { return blocks_.before(within_[i]); }
  /// Calls f(i, block) for those that are held, in ascending order.
  template <class F>
  void for_each(const F& f) const {
    for (std::size_t w = 0; w * 64 < size(); ++w) {
      for (std::uint64_t word = held_[w]; word != 0; word &= word - 1) {
        const std::uint64_t i = w * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
        f(i, within_[i]);
      }
    }
  }
  /// Calls f(range) for each run of those that are held.
  template <class F>
  void for_each_run(const F& f) const {
    mem::BlockRange run{BlockId{0}, 0};
    for_each([&](std::uint64_t, BlockId b) {
      if (run.count != 0 && raw(run.first) + run.count != raw(b)) {
        f(run);
        run.count = 0;
      }
      if (run.count++ == 0) run.first = b;
    });
    if (run.count != 0) f(run);
  }

  // ---- changes ----

  /// Before the bytes of other ranks' blocks are read.
  void insert_cached() const noexcept {
    for_each([&](std::uint64_t, BlockId b) { blocks_.p_.cached.insert(b); });
  }
  void insert_cached(std::uint64_t i) const noexcept { blocks_.p_.cached.insert(within_[i]); }
  /// V allows what after(i, before) says; the bits stay held.
  template <class After>
  void show(const After& after) const noexcept {
    blocks_.show([this](const auto& f) { for_each(f); }, after);
  }
  /// The words become after(i, before), whose access V has already. A block whose after is busy stays held.
  template <class After>
  void finish(const After& after) noexcept {
    for_each([&](std::uint64_t i, BlockId b) {
      const BlockState was = blocks_.before(b), becomes = after(i, was);
      if (becomes.busy) return;
      blocks_.finish(b, was, becomes);
      held_[i / 64] &= ~(std::uint64_t{1} << i % 64);
    });
  }
  template <class After>
  void open(const After& after) noexcept {
    show(after);
    finish(after);
  }
  /// By the protocol's step for the event.
  void open(BlockEvent event) noexcept {
    open([event](std::uint64_t, const BlockState& before) { return next(before, event).after; });
  }
  void open_as(const BlockState& state) noexcept {
    open([&](std::uint64_t, const BlockState&) { return state; });
  }
  /// What becomes of one whose access does not change.
  void finish_one(std::uint64_t i, const BlockState& after) noexcept {
    blocks_.finish(within_[i], before(i), after);
    held_[i / 64] &= ~(std::uint64_t{1} << i % 64);
  }
  void give_back() noexcept {
    finish([](std::uint64_t, const BlockState& before) { return before; });
  }
  void give_back(std::uint64_t i) noexcept {
    if (has(i)) finish_one(i, before(i));
  }

 private:
  static constexpr std::size_t kWords = kMost / 64;
  using Words = std::array<std::uint64_t, kWords>;
  template <class Claim>
  Verdict all(const Claim& claim_one) {
    for (std::uint64_t i = 0; i < size(); ++i) {
      const Verdict verdict = claim_one(i);
      if (verdict == Verdict::proceed) continue;
      give_back();
      return verdict;
    }
    return Verdict::proceed;
  }
  void set(std::uint64_t i) noexcept { held_[i / 64] |= std::uint64_t{1} << i % 64; }

  Blocks& blocks_;
  Stripe within_;
  Words held_{};
};

}  // namespace kasane::dsm
