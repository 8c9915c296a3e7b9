// SPDX-License-Identifier: Apache-2.0
// Pages whose next touch an eviction policy wants to know. A page is armed, and later retired: V drops its
// translations, so that the next access faults. Pages are retired in batches, since each system call that
// drops translations interrupts the other cores.
//
//   armed ─┬─ examined soon ───────────▶ retired at the end of the turn, with all others of the turn
//          └─ examined after kMany ────▶ waits until a quarter as many pages wait as are examined before it
//                                        ─▶ an eighth of those that waited is retired each turn
//   examined while it waits ─▶ all pages that wait are retired first
//
// Why a quarter: several of those pages lie in each 2 MiB of memory, so one call serves them, and each page
// is still watched for most of the time. Why an eighth a turn: the pager must return soon to making room.
// Why all are retired before a page that waits is examined: the policy would take it for touched, go on to
// the next page, and come back again and again.
//
// Thread safety: none; the thread that drives the policy. Memory: a bit a page of the space, committed when
// it is touched, and 8 bytes a page that waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "mem/block_table.h"

namespace kasane::mem {

class Arming {
 public:
  using Retire = std::function<void(std::span<const PageId> sorted)>;

  /// waiting: an empty set for as many pages as there are. retire: drops V's translations of these pages.
  Arming(PageSet waiting, Retire retire) : waiting_(std::move(waiting)), retire_(std::move(retire)) {}

  /// before: at least so many other pages are examined before this one.
  void arm(PageId page, std::uint32_t before);
  /// Retires what is due.
  void end_turn();
  /// The policy is about to examine the page.
  void before_look(PageId page);

 private:
  static constexpr std::uint32_t kMany = 256;

  void retire_all(std::vector<PageId>&);
  void retire(std::span<const PageId> sorted);
  void retire_some(std::size_t most);

  PageSet waiting_;  ///< the pages of the three vectors
  std::vector<PageId> soon_, later_;
  std::vector<PageId> retiring_;  ///< sorted; the first retired_ are done
  std::size_t retired_ = 0;
  Retire retire_;
};

}  // namespace kasane::mem
