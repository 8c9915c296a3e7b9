// SPDX-License-Identifier: Apache-2.0
// Pages whose next touch an eviction policy wants to know of, until V shows them no more (they are laid to rest): many at once, since each system call that takes translations away
// interrupts the other cores.
//
//   armed ─┬─ looked at soon ─────────────▶ at rest, with all others of this turn
//          └─ after many others (kMany) ──▶ waits until a quarter as many pages wait as are looked at before it: of each 2 MiB of memory several are among them then, for which one call will
//                                           do, and each is still watched for most of the time ─▶ at rest, an eighth of them a turn: who makes room must not be away for long
//   asked for while it waits ─▶ all that wait go to rest first: else the policy would find it touched, go on to the next one, and come round again and again
//
// Thread safety: none; whoever drives the policy. Memory: a bit a page of the space, taken when touched, and 8 bytes a page that waits.
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

  /// waiting: an empty set of as many as there are pages. rest: lays pages to rest.
  Arming(PageSet waiting, Retire retire) : waiting_(std::move(waiting)), retire_(std::move(retire)) {}

  /// before: so many other pages, at least, are looked at before it is.
  void arm(PageId page, std::uint32_t before);
  /// At the end of a turn.
  void end_turn();
  /// The page is about to be looked at.
  void before_look(PageId page);

 private:
  static constexpr std::uint32_t kMany = 256;

  void retire_all(std::vector<PageId>&);
  void retire(std::span<const PageId> sorted);
  void retire_some(std::size_t most);

  PageSet waiting_;   ///< what is in one of these
  std::vector<PageId> soon_, later_;
  std::vector<PageId> retiring_;       ///< sorted; those before retired_ are gone
  std::size_t retired_ = 0;
  Retire retire_;
};

}  // namespace kasane::mem
