// SPDX-License-Identifier: Apache-2.0
// What lies in the memory that the ranks of a job share. Zeroed memory is the valid start state of everything here,
// because no rank is first: each may be written to before its process has run at all.
//
//   JobArea                  how far attach() has come
//   RankArea of position 0   doorbells | reply slots | ring of message cells          position: of a rank among those of this host
//   RankArea of position 1 …
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
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "atomics between processes must not use a lock table of one of them");

/// One message. turn of the cell of position p, with lap = p / kRingCells: 2 × lap: empty, for the producer that claims
/// p; 2 × lap + 1: published, for the consumer; 2 × (lap + 1): consumed, that is, empty for p + kRingCells.
struct alignas(kLine) Cell {
  std::atomic<std::uint64_t> turn;
  std::uint32_t from;
  std::uint32_t handler;
  std::uint32_t bytes;
  std::uint32_t reply_slot;   ///< kNoReply for a one-way message
  std::uint64_t reply_stamp;
  std::byte payload[kMaxPayload];
};
static_assert(offsetof(Cell, payload) % 8 == 0, "payloads are aligned to 8 bytes");
static_assert(offsetof(Cell, payload) == 32, "the header and the first half of a line's payload share a line");
static_assert(sizeof(Cell) % kLine == 0 && sizeof(Cell) == 3648);

struct alignas(4096) RankArea {
  Bells bells;
  alignas(kLine) std::atomic<std::uint64_t> tail;   ///< position that the next producer claims
  ReplySlot replies[kReplySlots];
  Cell cells[kRingCells];
};

struct alignas(4096) JobArea {
  std::atomic<std::uint32_t> failed;                  ///< some rank's attach failed: nobody waits any longer
  /// ranks that have mapped everybody's region; the top bit: some rank failed in it
  std::atomic<std::uint32_t> attached[kMaxRegions];
  /// 2 × its bytes, + 1 where descriptors are passed; by whoever came first
  std::atomic<std::uint64_t> agreed[kMaxRegions];
};

}  // namespace kasane::comm::shm
