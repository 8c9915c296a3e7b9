// SPDX-License-Identifier: Apache-2.0
// The layout of the memory that the ranks of a host share. Zeroed memory is a valid start state of everything
// here, because no rank is first: peers may write to a rank's area before its process has run.
//
//   JobArea                  progress of attach()
//   RankArea of position 0   doorbells | reply slots | ring of message cells
//   RankArea of position 1 …                                   position: of a rank among those of this host
//   … and all of it a second time, for the control plane
//   region: memory of position 0, of position 1, …      as make_memory() was asked; one mapping shows all
//   next region …
//
// Thread safety and invariants: see each type; docs/design/comm.md has the state tables.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/mailbox_replies.h"
#include "comm/transport.h"

namespace kasane::comm::shm {

inline constexpr std::size_t kLine = 64;
inline constexpr std::uint64_t kRingCells = 256;
inline constexpr std::uint32_t kReplySlots = 1024;
inline constexpr std::uint32_t kNoReply = 0xFFFFFFFFu;

static_assert((kRingCells & (kRingCells - 1)) == 0, "a position's cell is found by a mask");
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                  std::atomic<std::uint64_t>::is_always_lock_free,
              "atomics between processes must not use a lock table of one of them");

/// One message. For the cell of position p, with lap = p / kRingCells, turn is 2 × lap: empty, for the
/// producer that claims p; 2 × lap + 1: published, for the consumer; 2 × (lap + 1): consumed, that is, empty
/// for p + kRingCells.
struct alignas(kLine) Cell {
  std::atomic<std::uint64_t> turn;
  std::uint32_t from;
  std::uint32_t handler;
  std::uint32_t bytes;
  std::uint32_t reply_slot;  ///< kNoReply for a one-way message
  std::uint64_t reply_stamp;
  std::byte payload[kMaxPayload];
};
static_assert(offsetof(Cell, payload) % 8 == 0, "payloads are aligned to 8 bytes");
static_assert(offsetof(Cell, payload) == 32,
              "the header and the first half of a line's payload share a line");
static_assert(sizeof(Cell) % kLine == 0 && sizeof(Cell) == 3648);

struct alignas(4096) RankArea {
  Bells bells;
  alignas(kLine) std::atomic<std::uint64_t> tail;  ///< the position that the next producer claims
  ReplySlot replies[kReplySlots];
  Cell cells[kRingCells];
};

struct alignas(4096) JobArea {
  /// attach() failed on some rank: no rank may wait any longer
  std::atomic<std::uint32_t> failed;
  /// number of ranks that have mapped all peers' regions; the top bit: some rank failed in it
  std::atomic<std::uint32_t> attached[kMaxRegions];
  /// 2 × the region's bytes, + 1 where descriptors are passed; written by the first rank that comes
  std::atomic<std::uint64_t> agreed[kMaxRegions];
};

}  // namespace kasane::comm::shm
