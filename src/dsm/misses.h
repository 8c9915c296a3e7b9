// SPDX-License-Identifier: Apache-2.0
// Faults whose bytes are on their way from another rank while their threads wait elsewhere: a fault is a
// continuation (rule 11; docs/design/misses.md).
//
//   fault: bits claimed, owner known, this rank a reader ─▶ begin(): reads posted, the bits are the miss's
//     ─▶ the last read completes, in whichever thread makes progress: did the page stood, no acquire? ─▶ V
//        shows the blocks ─▶ bits free; else the bits are given back, and the access faults again
//
// No thread holds bits meanwhile, and who waits for one makes progress, so nobody waits for a thread that
// waits.
//
// Thread safety: every call from any thread, also in a fault handler. Nothing allocates.
// Invariant: a miss is free, or has its blocks' bits until all of its reads have completed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "comm/index_pool.h"
#include "dsm/fetches.h"
#include "dsm/last_seen.h"

namespace kasane::dsm {

class Misses {
 public:
  static constexpr std::uint32_t kMost = 256;  ///< at a time

  Misses(Blocks& blocks, const Frames& frames, const Fetches& fetches);

  enum class Begun : std::uint8_t {
    no,        ///< by the long way: a page that is not known here, or memory that is mapped here
    at_once,   ///< the blocks are there, or will be asked for again
    under_way  ///< the blocks' bits will be free when they are
  };
  /// `held` are blocks of b's page that are fetched for a load or a store: nothing is held afterwards, unless
  /// it was not begun.
  Begun begin(ThreadContext&, BlockId b, Held& held, const BlockStep&);
  /// Returns when none is under way. None begins any more.
  void await_all(comm::Blocking& io) {
    io.waiter().until([this] { return under_way_.load() == 0; });
  }

  /// Before V allows stores.
  void make_twins(const Held&) const noexcept;

 private:
  struct Miss : comm::Completion {
    Misses* misses = nullptr;
    std::uint32_t index = 0;
    std::atomic<std::uint32_t> left{0};  ///< reads, and 1 while they are posted
    Stripe within{BlockId{0}, 1, 0};
    std::uint64_t held = 0;  ///< which of the stripe
    PageId page{0};
    gas::AddressCache::Found found;
    std::uint64_t drops = 0;
    BlockState after;
    bool makes_twins = false;
    std::optional<LastSeen> last_seen;
  };
  bool part_ended(Miss&) noexcept;
  void complete(Miss&) noexcept;

  Blocks& blocks_;
  const Frames& frames_;
  const Fetches& fetches_;
  const Parts& p_ = blocks_.parts();
  std::unique_ptr<Miss[]> misses_;
  comm::IndexPool<> free_{kMost};
  std::atomic<std::uint32_t> under_way_{0};
};

}  // namespace kasane::dsm
