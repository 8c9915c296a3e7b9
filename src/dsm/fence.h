// SPDX-License-Identifier: Apache-2.0
// Takes the step of a release or an acquire, or that of freed memory, for one block or many (rules 3, 4, 7
// and 11):
//
//   add(b) …           claims a free block, without waiting
//   run()              protects in runs; puts the changes of all pages whose owners are known here at once;
//                      awaits them together; finishes
//   wait_and_take(b)   the same for a block that another thread may hold
//
// Each of the other pages is put separately: a put under way waits for nothing but its completion, so not for
// the end of another page's move. A block whose access does not change (a pinned one; a whole one at an
// acquire) takes its step at once and alone. Blocks of a page that another rank has on SSD are given back as
// they were, and taken again when that rank has paged it in.
//
// Thread safety: an object belongs to one thread. From add() to run() it holds busy bits, and waits neither
// for others nor for a page-in.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "dsm/fence_protocol.h"
#include "dsm/fences.h"

namespace kasane::dsm {

class Outbox;

class Fence {
 public:
  /// event: release or acquire; release_open or acquire_open: then what this rank changes again and again
  /// stays writable; discard or discard_block. counters: null: not counted.
  Fence(Fences& fences, comm::Blocking& io, Counters* counters, BlockEvent event) noexcept
      : f_(fences),
        p_(fences.p_),
        blocks_(fences.blocks_),
        pages_(fences.p_.pages()),
        io_(io),
        counters_(counters),
        event_(event == BlockEvent::release_open   ? BlockEvent::release
               : event == BlockEvent::acquire_open ? BlockEvent::acquire
                                                   : event),
        may_stay_open_(event != event_) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  ~Fence() { run(); }

  /// False: another thread has claimed the block.
  bool add(BlockId);
  /// The block's step at once, waiting for its bit; before that, what was added.
  void wait_and_take(BlockId);
  /// The claimed block's step, at once. False: its page had to be paged in, so it was given back as it was.
  bool take(Held& one, const BlockStep&);
  void run();

 private:
  static constexpr std::size_t kMostBlocks = 128, kMostPages = 32;
  static_assert(kMostPages <= gas::AddressCache::kMostLearnt);
  /// Claimed blocks [first, end) of a page.
  struct Of {
    PageId page;
    std::size_t first, end;
    PutState put;           ///< of its changes, if it has any
    gas::PartMask changed;  ///< parts to which something was sent
    std::optional<gas::AddressCache::Put> use;
  };

  [[nodiscard]] std::span<Of> of_pages() noexcept { return {page_.data(), page_count_}; }
  [[nodiscard]] bool stays_open(BlockId, const BlockState&) noexcept;
  bool try_take(BlockId, const BlockState&, bool open);
  void take(BlockId, const BlockState&, const BlockStep&, bool open);
  void act_alone(BlockId, const BlockStep&);
  void let_all_go();
  /// Of those that were given back, the last.
  [[nodiscard]] BlockId& last_back() noexcept { return block_[kMostBlocks - back_count_]; }
  void give_back_later(BlockId b) noexcept {
    ++back_count_;
    last_back() = b;
  }
  [[nodiscard]] BlockState after(std::size_t i, const BlockState& before) const noexcept {
    return next(before, open_[i] ? BlockEvent::release_open : event_).after;
  }
  void put();
  template <class Send>
  void go_on(Of&, Outbox&, const Send&, PutState until = PutState::put);
  void open_changed(const Of&) noexcept;
  PutState put_live(BlockId, const BlockStep&);
  PutEvent put_blocks(Outbox&, Of&);
  std::size_t put_changed(Outbox&, Rank owner, std::uint64_t offset, const std::byte* bytes, std::byte* base,
                          bool open = false);
  void close(const Of&) noexcept;
  void sent_changes(PageId, gas::PartMask) noexcept;
  void finish() noexcept;

  Fences& f_;
  const Parts& p_;
  Blocks& blocks_;
  const mem::Pages& pages_;
  comm::Blocking& io_;
  Counters* counters_;
  const BlockEvent event_;
  const bool may_stay_open_;
  std::array<BlockId, kMostBlocks> block_;  ///< claimed; from the end on those given back
  std::array<bool, kMostBlocks> open_;      ///< V goes on allowing stores to it
  std::array<Of, kMostPages> page_;
  std::size_t block_count_ = 0, page_count_ = 0;
  std::size_t back_count_ = 0;  ///< given back, until their pages are in DRAM
};

}  // namespace kasane::dsm
