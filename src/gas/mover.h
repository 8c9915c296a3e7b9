// SPDX-License-Identifier: Apache-2.0
// Relocation: changes which rank owns a page, by the handshake of gas/relocation.h (the `own` of MGAS-2, Endo's thesis ch. 5, here by
// active message). The steps of bring(), and who can make them wait:
//
//   1 claim the page's blocks here      waits for other threads of this rank, holding nothing
//   2 compare-swap busy into the entry  if it moves already: give the blocks back, then wait, start again (rule 8)
//   3 swap word 2 with 0                who knows the location (gas/address_cache.h)
//   4 ask the owner to yield, and       handlers that never block; the owner answers yielded, retry (a block is in use) or pinned,
//     those to forget the location      the others when the puts that they have under way have completed
//   5 read the live bytes, merge        one-sided
//   6 entry := {this rank, not busy}    and finish the blocks
//
// Whoever holds busy waits only for puts under way and for handlers; so no cycle of waits can close (rule 11).
//
// Thread safety: any thread, given its own Blocking. Handlers run in progress().
#pragma once

#include <cstdint>

#include "base/result.h"
#include "gas/address_cache.h"

namespace kasane::gas {

enum class YieldAnswer : std::uint64_t { yielded = 1, retry = 2, pinned = 3 };

/// A run of bytes of the space; empty where begin == end.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  [[nodiscard]] bool empty() const noexcept { return begin >= end; }
};

/// What relocation needs of the layer that knows the blocks of a page here (dsm).
class PageHolder {
 public:
  virtual ~PageHolder() = default;
  /// The owner's side, in a handler: protects the page in V if every block of it is free. Never blocks.
  virtual YieldAnswer yield(PageId) noexcept = 0;
  /// The taker's side: takes every block's busy bit, waiting for each. False: this rank owns the page already, nothing was taken.
  virtual bool claim(comm::Blocking&, PageId) = 0;
  virtual void give_up(PageId) noexcept = 0;
  /// Merges the live bytes of `from`'s frame into ours (an empty range: nothing of it is live).
  virtual void merge(comm::Blocking&, PageId, ByteRange live, Rank from) = 0;
  /// After the entry names us: owned, writable, free.
  virtual void settle(PageId) = 0;
};

class Mover {
 public:
  /// Sets kYieldHandler.
  Mover(comm::Transport&, AddressCache&, PageHolder&);

  /// Makes this rank the owner of the page; of its bytes those in `live` arrive. A pinned page or one that is not allocated is refused.
  Result<void> bring(comm::Blocking&, PageId, ByteRange live);
  /// Makes `to` the owner without data, where this rank owns the page and has stopped using its bytes.
  void hand_back(comm::Blocking&, PageId, Rank to);
  /// Names `owner` in the entry of a page whose bytes do not matter. A former owner elsewhere yields first.
  Result<void> assign(comm::Blocking&, PageId, Rank owner);

 private:
  YieldAnswer recall(comm::Blocking&, PageId, Rank owner);
  static void on_yield(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  AddressCache& addresses_;
  const Directory& directory_;
  PageHolder& holder_;
};

}  // namespace kasane::gas
