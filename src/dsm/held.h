// SPDX-License-Identifier: Apache-2.0
// Blocks whose busy bits a thread holds: of a stripe, at most as many as the largest page has. With
// dsm/fence.h the only code that changes a block's word.
//
//   claim        waiting for each in ascending order; all or none; or as far as it goes (dsm/held_protocol.h)
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
#include "dsm/held_protocol.h"
#include "dsm/windows.h"

namespace kasane::dsm {

class Held {
  struct Any {
    bool operator()(const BlockState&, const BlockStep&) const noexcept { return true; }
  };

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
  /// Without waiting; only if suits(state, step). proceed: it is held. wait: it may be, later.
  template <class Suits = Any>
  Verdict try_claim(std::uint64_t i, BlockEvent event, const Suits& suits = {}) noexcept {
    const BlockState s = blocks_.state(within_[i]);
    const BlockStep step = next(s, event);
    if (step.verdict != Verdict::proceed) return step.verdict;
    if (!suits(s, step)) return Verdict::done;
    if (!blocks_.try_claim(within_[i], s, step)) return Verdict::wait;
    set(i);
    return Verdict::proceed;
  }
  /// Those of [first, end) of the stripe that suit, in ascending order, as the way says. io: for Way::all.
  /// Returns proceed, or the verdict that has ended it.
  template <class Suits = Any>
  Verdict claim(Way way, BlockEvent event, std::uint64_t first, std::uint64_t end,
                comm::Blocking* io = nullptr, const Suits& suits = {}) {
    for (std::uint64_t i = first; i != end;) {
      const Verdict verdict = try_claim(i, event, suits);
      switch (next(way, verdict)) {
        case Claiming::next: ++i; break;
        case Claiming::wait: blocks_.wait_free(*io, within_[i]); break;
        case Claiming::give_back:
          while (i != first) give_back(--i);
          return verdict;
      }
    }
    return Verdict::proceed;
  }
  /// All of the stripe.
  Verdict claim(Way way, BlockEvent event, comm::Blocking* io = nullptr) {
    return claim(way, event, 0, size(), io);
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
  /// Of a row: the next blocks too, all of them or none. io: waiting for each.
  bool extend_by(std::uint64_t blocks, BlockEvent event, comm::Blocking* io = nullptr) {
    const auto was = within_.count;
    KASANE_ASSERT(was + blocks <= kMost);
    within_.count += static_cast<std::uint32_t>(blocks);
    const Way way = io != nullptr ? Way::all : Way::try_all;
    const bool all = claim(way, event, was, size(), io) == Verdict::proceed;
    if (!all) within_.count = was;
    return all;
  }
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
  [[nodiscard]] const Stripe& within() const noexcept { return within_; }
  /// Which of the first 64.
  [[nodiscard]] std::uint64_t first_bits() const noexcept { return held_[0]; }
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
  /// V allows what after(i, before) says; then shown() acts on what V does not show any more; then the words
  /// say so. A block whose after is busy stays held.
  template <class After, class Shown>
  void open(const After& after, const Shown& shown) noexcept {
    let_go([&] { blocks_.show([this](const auto& f) { for_each(f); }, after); }, shown,
           [&] { finish(after); });
  }
  template <class After>
  void open(const After& after) noexcept {
    open(after, [] {});
  }
  /// By the protocol's step for the event.
  void open(BlockEvent event) noexcept {
    open([event](std::uint64_t, const BlockState& before) { return next(before, event).after; });
  }
  void open_as(const BlockState& state) noexcept {
    open([&](std::uint64_t, const BlockState&) { return state; });
  }
  /// What becomes of one, as V shows it already.
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
  template <class After>
  void finish(const After& after) noexcept {
    for_each([&](std::uint64_t i, BlockId b) {
      const BlockState was = blocks_.before(b), becomes = after(i, was);
      if (becomes.busy) return;
      blocks_.finish(b, was, becomes);
      held_[i / 64] &= ~(std::uint64_t{1} << i % 64);
    });
  }
  void set(std::uint64_t i) noexcept { held_[i / 64] |= std::uint64_t{1} << i % 64; }

  Blocks& blocks_;
  Stripe within_;
  Words held_{};
};

}  // namespace kasane::dsm
