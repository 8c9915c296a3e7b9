// SPDX-License-Identifier: Apache-2.0
// Relocation: changes which rank owns a page, by the handshake of gas/relocation.h (the `own` of MGAS-2,
// Endo's thesis ch. 5, here by active message). The steps of a move, and what they wait for:
//
//   1 claim the page's blocks here     other threads of this rank, holding nothing
//   2 set busy in word 0, and read     if it moves already: unclaim the blocks, wait, start again (rule 8)
//     which ranks know the location
//   3 ask the owner to yield and the   handlers that never block; the owner answers yielded, retry (a block
//     holders to forget it; swap       is in use) or pinned, the others when the puts that they have under
//     word 2 with 0                    way have completed
//   4 read the live bytes, merge       one-sided
//   5 entry := {this rank, not busy}   and finish the blocks: after it, or before it (EntryWrite)
//
// Each of 2, 3, 4, 5 is one round trip, of which only 3 is by message (docs/design/gas.md says why this is
// safe). Where operations are messages anyway, one message does 2 and the swap, and the owner, asked after
// the others, answers with the bytes. A mover that holds busy waits only for puts under way and for handlers,
// so no cycle of waits can close (rule 11). The same holds for several pages at once: while any page is held,
// further ones are only tried, and those that could not be claimed wait until nothing is held.
//
// Thread safety: any thread, given its own Blocking, whose waiter polls. Handlers run in progress().
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "comm/index_pool.h"
#include "gas/page_lock.h"

namespace kasane::gas {

enum class YieldAnswer : std::uint64_t { yielded = 1, retry = 2, pinned = 3 };

/// A run of bytes of the space; empty where begin == end.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  [[nodiscard]] bool empty() const noexcept { return begin >= end; }
};

/// Blocks of a page, by their index in it.
using BlockMask = std::bitset<mem::kMostBlocksOfAPage>;

/// What the busy bits of a page's blocks are claimed for.
enum class ClaimFor : std::uint8_t {
  arrival,  ///< this rank may become the page's owner
  page_in,  ///< an own page, which is on SSD or partial, will be paged in
};
/// How the blocks of a page could be claimed.
enum class Claim : std::uint8_t {
  taken,   ///< every block's busy bit
  ours,    ///< nothing was taken: this rank owns the page already
  in_use,  ///< nothing was taken: another thread has one of the bits
};

/// Of a page whose bits are claimed.
struct BlocksHere {
  BlockMask held;     ///< their bytes here are as new as those on SSD, or newer
  BlockMask changed;  ///< this rank has changed them, and sent nothing
  BlockMask saved;    ///< held, and as the spill file has them
};

/// What becomes of a page whose bits are claimed. All of them are free afterwards.
enum class Settled : std::uint8_t {
  as_it_was,
  owned,   ///< owned, writable: the entry names this rank, or is being written
  unused,  ///< as owned; if there is nothing of it here or on SSD it is armed when a thread here uses it
};

/// Bytes of a page that arrive from another rank's frame.
struct Arrival {
  PageId page;
  ByteRange live;
  Rank from;
};

enum class PageNews : std::uint8_t {
  /// From now until entry_written, a release of this rank has something to wait for,
  /// Mover::await_entry_updates(), and other ranks can see that it has. Told before the page is settled.
  entry_under_way,
  entry_written,  ///< The entry is known to name this rank. In a completion, perhaps before it is settled.
  /// The page has got a new owner, or will get one, without its bytes, or its owner may have lost them when
  /// it was freed on SSD: what ranks have cached of it is not what the owner has (rule 7). Told after the
  /// entry says so.
  replaced,
};

/// What relocation needs of the layer that knows a page's blocks here (dsm).
class PageBlocks {
 public:
  virtual ~PageBlocks() = default;
  /// Called before anything of the page is held: waits until there is room for its bytes here.
  virtual void admit(comm::Blocking&, PageId) {}
  /// Called at the owner, in a handler: protects the page in V if every block of it is free. Never blocks.
  virtual YieldAnswer yield(PageId) noexcept = 0;
  /// Memory is short, and the page is locked. Protects it in V; or changes nothing if a block is in use,
  /// pinned, or has unreleased changes (also of an own page: this rank may have become its owner without
  /// taking part). punch: the frames are freed at once. unsaved: set to the own blocks that the spill file
  /// does not have, or not as they are; null: not wanted. Never blocks.
  virtual bool try_evict(PageId, bool /*punch*/, BlockMask* /*unsaved*/) noexcept { return false; }
  /// Takes every block's busy bit. waits: for each that another thread has, and the answer is never in_use;
  /// null: for none, so all bits are taken or none.
  virtual Claim claim(PageId, ClaimFor, comm::Blocking* waits) = 0;
  [[nodiscard]] virtual BlocksHere blocks_here(PageId) const noexcept { return {}; }
  /// Brings the live bytes of these pages, which are claimed, into this rank's frames, all reads at once.
  /// What this rank has changed and not sent stays.
  virtual void merge(comm::Blocking&, std::span<const Arrival>) = 0;
  /// used: of a page that was untouched, the blocks that are about to be used; others may never be.
  virtual void settle(PageId, Settled, mem::BlockRange used = {}) = 0;
  virtual void note(PageId, PageNews) noexcept {}
};

/// Why a page did not move.
struct MoveRefusal {
  Errc why;  ///< out_of_range: not allocated; busy: its owner has pinned it, or does not change
  PageId page;
};

class Mover {
 public:
  [[nodiscard]] const AddressCache& addresses() const noexcept { return addresses_; }
  /// Sets kYieldHandler.
  Mover(comm::Transport&, AddressCache&, PageBlocks&);

  /// Makes this rank the owner of the page; of its bytes those in `live` arrive. A pinned page or one that is
  /// not allocated is refused.
  Result<void> bring(comm::Blocking&, PageId, ByteRange live);
  /// Brings whole pages, several at once. Stops at the first refusal; other pages may have moved. This rank
  /// can use the pages at once; other ranks may find the former owner, and wait for the end of the move,
  /// until await_entry_updates() or a release.
  std::optional<MoveRefusal> bring_all(comm::Blocking&, PageId first, std::uint64_t pages);
  /// Waits until the entries of all pages that bring_all() has brought name this rank.
  void await_entry_updates(comm::Blocking&);
  /// Brings a whole page. Waits for blocks that are in use, since this rank is using the page. False: it is
  /// here already, moves, is pinned, or was never touched.
  bool pull(comm::Blocking&, PageId);
  /// Makes `to` the owner without data; this rank owns the page and has stopped using its bytes. False: it
  /// does not own it (any more).
  [[nodiscard]] bool hand_back(comm::Blocking&, PageId, Rank to);
  /// Makes this rank the owner of a page that was never touched; afterwards it is touched. The caller has
  /// been admitted, and is about to use these blocks of it. Waits for nothing but this rank's blocks. False:
  /// another thread was faster.
  bool touch(comm::Blocking&, PageId, mem::BlockRange used);
  /// Makes the page untouched, whatever it was, with this rank as its provisional owner: the first rank that
  /// faults on it becomes its owner. The bytes are lost; no other rank may use the page meanwhile. Refused if
  /// it is pinned.
  Result<void> assign_untouched(comm::Blocking&, PageId);
  /// Makes `owner` the owner of a page whose bytes are undefined, fixed or not whatever it was. A former
  /// owner elsewhere yields first.
  Result<void> assign(comm::Blocking&, PageId, Rank owner, bool fixed = false);

 private:
  /// Pages that are moved at once: enough to hide a network's latency behind 64 KiB each, and few to hold at
  /// a time.
  static constexpr std::size_t kTogether = 8;
  struct Move;
  /// Is the write of the entry awaited before the page is used here? deferred: its user has the page a round
  /// trip earlier.
  enum class EntryWrite : std::uint8_t { awaited, deferred };
  /// A write of an entry that is outstanding.
  struct EntryUpdate : comm::Completion {
    Mover* mover;
    std::uint32_t index;
    PageLock lock;
  };
  static constexpr std::uint32_t kMostUpdates = 64;

  /// Steps 2 to 5 for pages whose blocks are claimed; each move's outcome() says how it ended.
  void perform(comm::Blocking&, std::span<Move>, EntryWrite = EntryWrite::awaited);
  [[nodiscard]] std::span<std::byte> arrival_frame(const Move&) const noexcept;
  /// Step 5 for all of them; returns when those writes have completed that are not deferred.
  void write_entries(comm::Blocking&, std::span<Move>, EntryWrite);
  /// Finishes the blocks.
  void settle(comm::Blocking&, std::span<Move>);
  void update_entry_later(comm::Blocking&, Move&);
  void entry_updated(EntryUpdate&) noexcept;
  /// Locks the pages and reads which ranks know where they are.
  void lock(comm::Blocking&, std::span<Move>);
  void recall(comm::Blocking&, std::span<Move>);
  void recall(comm::Blocking&, PageLock&);
  void ask_to_yield(comm::Blocking&, comm::Requests&, Move&) const;
  void count_request(comm::Blocking&, Rank to) const noexcept;
  [[nodiscard]] bool disarm(comm::Blocking&, PageId);
  std::optional<MoveRefusal> bring_one(comm::Blocking&, PageId, ByteRange live, EntryWrite);
  [[nodiscard]] ByteRange all_of(PageId page) const noexcept {
    return {pages_.offset_of(page), pages_.end_of(page)};
  }
  static void on_yield(void* self, const comm::Message&) noexcept;
  static void on_take(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  AddressCache& addresses_;
  const Directory& directory_;
  const mem::Pages& pages_;
  PageBlocks& blocks_;
  /// between ranks that are not mapped here an operation is a message to the other program, and answers may
  /// bring bytes
  const bool by_messages_;
  std::array<EntryUpdate, kMostUpdates> updates_;
  comm::IndexPool<> free_updates_{kMostUpdates};
  std::atomic<std::uint32_t> updates_under_way_{0};
};

}  // namespace kasane::gas
