// SPDX-License-Identifier: Apache-2.0
// Pages that a rank must examine: a set in the rank's directory region to which every rank adds by one-sided
// atomics, and which the rank itself empties. Two of them serve coherence (gas/sharing.h): pages that a
// release examines, and pages that an acquire drops.
//
//   head      bits 0…31: a count of what else keeps the set's owner busy, see begin();
//             bits 32…63: one for every 32nd branch
//   branch    a bit a leaf, for 64 leaves
//   leaf      a bit a page, for 64 pages
//
// An add sets bits from the leaf up, each when the one below has completed; a take clears from the head down.
// So a page whose add has returned is found by every take that begins later, or was found by one that ended
// its look at the page's leaf after the add had begun. What the adder did before is then known to the taker
// (tests/model walks it). The head is one word, so one load says that nothing is in the set and that no
// thread is at work on what was in it.
//
// Thread safety: add() and add_here() from any thread, take() by one thread at a time. Nothing allocates;
// usable in fault handlers and completions.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>

#include "comm/region_words.h"

namespace kasane::gas {

/// Where the bits of a page lie.
struct MarkPlace {
  static constexpr std::uint64_t kGroups = 32;
  std::uint64_t leaf, branch, leaf_bit, branch_bit, head_bit;

  [[nodiscard]] static constexpr MarkPlace of(PageId page) noexcept {
    const std::uint64_t leaf = raw(page) / 64, branch = leaf / 64;
    return {leaf, branch, std::uint64_t{1} << raw(page) % 64, std::uint64_t{1} << leaf % 64,
            std::uint64_t{1} << (32 + branch % kGroups)};
  }
  [[nodiscard]] static constexpr std::uint64_t leaves(std::uint64_t pages) noexcept {
    return (pages + 63) / 64;
  }
  [[nodiscard]] static constexpr std::uint64_t branches(std::uint64_t pages) noexcept {
    return (leaves(pages) + 63) / 64;
  }
};

class PageMarks {
 public:
  struct Notice {
    Rank rank;  ///< to whose set it is added
    PageId page;
  };

  [[nodiscard]] static constexpr std::size_t bytes(std::uint64_t pages) noexcept {
    return (MarkPlace::leaves(pages) + MarkPlace::branches(pages)) * 8;
  }
  /// head, table: offsets in the region, equal on every rank.
  PageMarks(const comm::RegionWords& words, Rank me, std::uint64_t pages, std::uint64_t head,
            std::uint64_t table) noexcept
      : words_(words),
        me_(me),
        branches_(MarkPlace::branches(pages)),
        head_(head),
        branch_(table),
        leaf_(table + branches_ * 8) {}

  /// Adds all at once (kMostNotices at most), in three round trips.
  static constexpr std::size_t kMostNotices = 64;
  void add(comm::Blocking& io, std::span<const Notice>) const;
  void add_here(PageId page) const noexcept;

  /// Calls f(page) for what was in this rank's set when the call began, perhaps also for what is added
  /// meanwhile. f may add.
  template <class F>
  void take(const F& f) const {
    for_each(here(head_).fetch_and(kCount) >> 32, [&](unsigned group) {
      for (std::uint64_t b = group; b < branches_; b += MarkPlace::kGroups) {
        if (here(branch_ + b * 8).load() == 0) continue;
        for_each(here(branch_ + b * 8).exchange(0), [&](unsigned i) {
          const std::uint64_t leaf = b * 64 + i;
          for_each(here(leaf_ + leaf * 8).exchange(0), [&](unsigned k) { f(PageId{leaf * 64 + k}); });
        });
      }
    });
  }

  /// From begin() to end() this rank is not idle(). A taker calls begin() before take() and end() when all
  /// that it found has been dealt with.
  void begin() const noexcept { here(head_).fetch_add(1); }
  void end() const noexcept { here(head_).fetch_sub(1); }
  /// How often begin() was called without end().
  [[nodiscard]] std::uint32_t begun() const noexcept {
    return static_cast<std::uint32_t>(here(head_).load() & kCount);
  }
  /// Nothing is in the set and no thread is between begin() and end().
  [[nodiscard]] bool idle() const noexcept { return here(head_).load() == 0; }
  /// The word that is 0 then.
  [[nodiscard]] const std::atomic<std::uint64_t>& word() const noexcept { return here(head_); }
  /// Is the page in the set, or may a thread have taken it and not called end() yet? The set is read first: a
  /// taker calls begin() before.
  [[nodiscard]] bool may_hold(PageId page) const noexcept {
    const MarkPlace place = MarkPlace::of(page);
    return !idle() && ((here(leaf_ + place.leaf * 8).load() & place.leaf_bit) != 0 ||
                       (here(head_).load() & kCount) != 0);
  }
  /// As idle(), with a full fence before the look: what this thread stored is visible to every rank that adds
  /// a page after it.
  [[nodiscard]] bool idle_after_stores() const noexcept { return here(head_).fetch_add(0) == 0; }

 protected:
  // seq_cst: Dekker-style between adders and takers. The words of this rank are mapped here (rule 15: the
  // runtime refuses transports whose atomics the CPU does not see).
  [[nodiscard]] std::atomic<std::uint64_t>& here(std::uint64_t offset) const noexcept {
    return *words_.here(me_, offset);
  }
  const comm::RegionWords& words_;

 private:
  static constexpr std::uint64_t kCount = 0xFFFFFFFF;
  template <class F>
  static void for_each(std::uint64_t bits, const F& f) {
    for (; bits != 0; bits &= bits - 1) f(static_cast<unsigned>(std::countr_zero(bits)));
  }

  Rank me_;
  std::uint64_t branches_;
  std::uint64_t head_, branch_, leaf_;  ///< offsets in the region
};

}  // namespace kasane::gas
