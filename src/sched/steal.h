// SPDX-License-Identifier: Apache-2.0
// A theft from another rank, pure: a machine that requests one step at a time and gets its result, so that
// the model walks what ships (docs/design/sched.md, "A steal by another rank", has the table).
//
//   look ─► bottom ─► entry ─► claim ─► sp ─► ask release ─► adopt ─► acquire ─► set rank ─► taken
//     └─ empty ◄─┘               └─► lost
//
// Reads of the deque: top first, then bottom, then the entry, each complete before the next is issued, then
// the compare-swap on top. With bottom before top a thief may hold a bottom from before some pops and a top
// from after others' steals, and claim an entry that its owner popped. `look` reads both in one operation, in
// no order. It is a hint, except that its top is read before the bottom that counts.
//
// Why this order after the claim (rule 1):
// - The release is requested *after* the claim. Before the claim the owner may pop the continuation, run it,
//   write, and push it again, and the claim would take what the release has not seen.
// - adopt comes after the release. Then blocks of the stack that other ranks wrote (through pointers into it)
//   are in the owner's frame by their own edges; the victim's own stores are there at once because it owns
//   the slot (rule 12); and dirty bytes of other slots in the victim rank's cache are there, too.
// - acquire comes after adopt. Until then this rank has made no page of the stack visible on the strength of
//   an old copy: adopt merges the owner's bytes into M and makes the pages ours, and acquire drops cached
//   pages, which owned ones are not. In the other order a worker of this rank that reads the stack through a
//   pointer between the two could cache a block that the adoption then has to merge again: not wrong, but a
//   second transfer and one more case to prove.
// - The thread runs last, so everything it reads was fetched after the acquire or came with the stack.
//
// Thread safety: pure. Invariant: between a successful claim and `taken` the continuation is in no list.
#pragma once

#include <cstdint>

#include "base/deque.h"
#include "base/ids.h"

namespace kasane::sched {

struct TheftStep {
  enum class Kind : std::uint32_t {
    look,         ///< read top and bottom of the deque, in any order. results: top, bottom
    bottom,       ///< read bottom. result: bottom
    entry,        ///< read the ring's entry for index. result: the slot
    claim,        ///< compare-swap top from index to index + 1. result: the old top
    sp,           ///< read the saved stack pointer of slot. result: it
    ask_release,  ///< the victim's rank releases
    adopt,        ///< the slot's pages become ours; [value, top of the slot) arrives
    acquire,      ///< this rank acquires
    set_rank,     ///< SlotControl::rank := this rank
    done,         ///< outcome
    arrived,      ///< none: the start of Theft::arrival()
  };
  Kind kind;
  std::uint64_t index = 0;
  SlotId slot = kNoSlot;
  std::uint64_t value = 0;
  Steal outcome = Steal::empty;
};

[[nodiscard]] constexpr bool has_work(std::uint64_t top, std::uint64_t bottom) noexcept {
  return static_cast<std::int64_t>(bottom - top) > 0;  // signed: pop lets bottom be top - 1 for a moment
}

class Theft {
 public:
  /// A thread that moved into this rank's ready list from the rank where it last ran. No other rank can take
  /// it, so it needs no claim.
  [[nodiscard]] static constexpr Theft arrival(SlotId slot) noexcept {
    Theft theft;
    theft.slot_ = slot;
    theft.at_ = TheftStep::Kind::arrived;
    return theft;
  }
  /// The next step, given the results of the one before (any, the first time).
  [[nodiscard]] constexpr TheftStep next(std::uint64_t result = 0, std::uint64_t result2 = 0) noexcept {
    using Kind = TheftStep::Kind;
    switch (at_) {
      case Kind::done: return go(Kind::look);  // the start
      case Kind::arrived: return go(Kind::sp);
      case Kind::look:
        if (!has_work(result, result2)) return end(Steal::empty);
        index_ = result;
        return go(Kind::bottom);
      case Kind::bottom: return has_work(index_, result) ? go(Kind::entry) : end(Steal::empty);
      case Kind::entry: slot_ = SlotId{static_cast<std::uint32_t>(result)}; return go(Kind::claim);
      case Kind::claim: return result == index_ ? go(Kind::sp) : end(Steal::lost);
      case Kind::sp: sp_ = result; return go(Kind::ask_release);
      case Kind::ask_release: return go(Kind::adopt);
      case Kind::adopt: return go(Kind::acquire);
      case Kind::acquire: return go(Kind::set_rank);
      case Kind::set_rank: return end(Steal::taken);
    }
    return end(Steal::empty);
  }
  /// What was claimed; meaningful from the successful claim on.
  [[nodiscard]] constexpr SlotId slot() const noexcept { return slot_; }

 private:
  constexpr TheftStep go(TheftStep::Kind k) noexcept {
    at_ = k;
    return {.kind = k, .index = index_, .slot = slot_, .value = sp_};
  }
  constexpr TheftStep end(Steal outcome) noexcept {
    at_ = TheftStep::Kind::done;
    return {.kind = TheftStep::Kind::done, .index = index_, .slot = slot_, .value = sp_, .outcome = outcome};
  }

  std::uint64_t index_ = 0, sp_ = 0;
  SlotId slot_ = kNoSlot;
  TheftStep::Kind at_ = TheftStep::Kind::done;
};

}  // namespace kasane::sched
