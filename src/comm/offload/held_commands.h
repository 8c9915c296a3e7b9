// SPDX-License-Identifier: Apache-2.0
// Commands that were answered `again`, kept in order for each peer until they can be issued: a peer that
// accepts nothing delays its own commands only.
//
//   blocked peers ──▶ peer 3: c7 → c9        each round tries the oldest of every peer, then the peer's next
//                 └─▶ peer 5: c8
//
// Bounded: capacity commands over all peers, allocated at the start; the executor checks full() before it
// takes another one.
//
// Thread safety: none; only the executor uses it.
// Invariants: a peer is in blocked_ exactly when it has commands; every slot is in the free list or in one
// peer's list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/assert.h"
#include "comm/command.h"

namespace kasane::comm::offload {

class HeldCommands {
 public:
  HeldCommands(std::size_t capacity, std::uint32_t ranks) : slots_(capacity), peers_(ranks) {
    KASANE_CHECK(capacity < kNone, "slots are named by 32 bits");
    blocked_.reserve(ranks);
    for (std::uint32_t i = 0; i < capacity; ++i) slots_[i].next = i + 1 < capacity ? i + 1 : kNone;
    free_ = capacity != 0 ? 0 : kNone;
  }

  [[nodiscard]] bool empty() const noexcept { return blocked_.empty(); }
  [[nodiscard]] bool full() const noexcept { return free_ == kNone; }
  [[nodiscard]] std::uint32_t held(Rank peer) const noexcept { return peers_[raw(peer)].count; }

  /// Keeps command behind the others of its peer. Returns the copy that will be retried. position: its place
  /// in the ring.
  /// Pre: !full().
  Command& hold(const Command& command, std::uint64_t position) noexcept {
    const std::uint32_t slot = free_;
    free_ = slots_[slot].next;
    slots_[slot] = {command, position, kNone};
    Peer& peer = peers_[raw(command.remote.rank)];
    if (peer.count++ == 0) {
      peer.first = slot;
      blocked_.push_back(raw(command.remote.rank));  // reserved: at most one entry a peer
    } else {
      slots_[peer.last].next = slot;
    }
    peer.last = slot;
    return slots_[slot].command;
  }

  /// Calls issue(command) for the oldest of each peer, and for the next ones of that peer while it returns
  /// true, at most `turn` times; then left(peer, held). True if anything was issued.
  template <class Issue, class Left>
  bool retry(std::uint32_t turn, const Issue& issue, const Left& left) noexcept {
    bool any = false;
    std::size_t kept = 0;
    for (const std::uint32_t index : blocked_) {
      Peer& peer = peers_[index];
      for (std::uint32_t n = 0; n < turn && peer.count != 0 && issue(slots_[peer.first].command); ++n) {
        drop_first(peer);
        any = true;
      }
      left(Rank{index}, peer.count);
      if (peer.count != 0) blocked_[kept++] = index;
    }
    blocked_.resize(kept);
    return any;
  }

  /// The ring position of the oldest command that is kept; the greatest number if none is.
  [[nodiscard]] std::uint64_t oldest() const noexcept {
    std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint32_t index : blocked_) {
      const std::uint64_t first = slots_[peers_[index].first].position;
      if (first < oldest) oldest = first;
    }
    return oldest;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Slot {
    Command command;
    std::uint64_t position;
    std::uint32_t next;
  };
  struct Peer {
    std::uint32_t first = kNone, last = kNone, count = 0;
  };

  void drop_first(Peer& peer) noexcept {
    const std::uint32_t slot = peer.first;
    peer.first = slots_[slot].next;
    --peer.count;
    slots_[slot].next = free_;
    free_ = slot;
  }

  std::vector<Slot> slots_;
  std::vector<Peer> peers_;             // by rank
  std::vector<std::uint32_t> blocked_;  // ranks
  std::uint32_t free_;
};

}  // namespace kasane::comm::offload
