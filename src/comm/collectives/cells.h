// SPDX-License-Identifier: Apache-2.0
// The memory in which a rank receives the messages of collectives: a block, either in the collectives'
// region, where other ranks of the host map it and store into it, or in private memory, where the rank's
// message handler stores. Zeroed memory is the start state.
//
//   Block:  floor | of each peer: cells [collective mod kActive][phase] | ready notes [same] | chunk stream
//
// Thread safety: every datum is written by one side and published by the word beside it. Invariants:
// docs/design/comm_collectives.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/collectives/schedule.h"

namespace kasane::comm {

/// A rank may be so many collectives ahead of another, less one.
inline constexpr std::uint64_t kActive = 16;

/// Collective n uses cell n mod kActive. stamp = n + 1: holds its message; less: empty.
struct alignas(64) CollectiveCell {
  std::atomic<std::uint64_t> stamp;
  std::uint64_t signature;
  std::byte data[kShortBytes];
};
static_assert(sizeof(CollectiveCell) == 1024, "eight bytes of payload share the line of the stamp");

/// Written by the receiver of a long message at its sender: the receiver has room for it. stamp = n + 1, too.
struct CollectiveReady {
  std::atomic<std::uint64_t> stamp;
  std::uint64_t signature;
  std::uint64_t token;  ///< the receiver's step
};

/// Chunks of long messages through mapped memory: one producer, one consumer. The consumer can always take
/// the next chunk, since the receiver was ready before it was sent.
struct CollectiveStream {
  static constexpr std::uint64_t kChunks = 8;
  static constexpr std::size_t kChunkBytes = 16 * 1024;
  struct Head {
    std::atomic<std::uint64_t> full;  ///< position of its chunk, + 1
    std::uint64_t collective, offset;
    std::uint32_t token, bytes;
  };
  alignas(64) std::atomic<std::uint64_t> taken;  ///< chunks that the consumer has read
  struct alignas(64) Slot {
    Head head;
  } slots[kChunks];
  alignas(64) std::byte data[kChunks][kChunkBytes];
};

struct alignas(64) CollectivePeerArea {
  CollectiveCell cells[kActive][2];
  CollectiveReady ready[kActive][2];
  CollectiveStream stream;
};

struct CollectiveBlock {
  alignas(64) std::atomic<std::uint64_t> floor;  ///< every collective below it has completed at this rank
  /// The area into which the peer sends.
  [[nodiscard]] CollectivePeerArea& from(std::uint32_t peer) noexcept {
    return reinterpret_cast<CollectivePeerArea*>(this + 1)[peer];
  }
  [[nodiscard]] static constexpr std::size_t bytes(std::uint32_t members) noexcept {
    return sizeof(CollectiveBlock) + members * sizeof(CollectivePeerArea);
  }
};
static_assert(sizeof(CollectiveBlock) == 64);

}  // namespace kasane::comm
