// SPDX-License-Identifier: Apache-2.0
// Barrier, broadcast, allreduce and allgather of all ranks of a job, over any transport. One object for each
// rank; it owns HandlerId 0. See schedule.h (algorithms), state.h (how messages are
// carried), docs/design/comm_collectives.md.
//
// Every rank makes the same calls in the same order, with the same sizes, types, operations and roots: where
// two ranks that differ exchange a message, a check fails and names collective and ranks. Sizes: any, also 0.
// No collective waits for a rank that it does not need.
//
// Thread safety: one thread at a time calls collectives; progress() and peer_lost() from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "comm/collectives/reduction.h"
#include "comm/waiter.h"

namespace kasane::comm {

inline constexpr HandlerId kCollectiveHandler{0};
inline constexpr RegionId kCollectiveRegion{14};

class CollectiveState;

class Collectives {
 public:
  using Reduce = comm::Reduce;

  /// Sets its handler; construct on every rank before the transport's first message.
  Collectives(Transport&, Waiter&);
  /// After the last collective.
  ~Collectives();

  /// Collective, optional: attaches region kCollectiveRegion, through which ranks of a host store into each
  /// other's memory instead of sending messages. Memory: sparse; at most about 270 KiB are touched for each
  /// pair of ranks.
  Result<void> attach();

  void barrier();
  /// Copies root's bytes to every rank; sizes are equal everywhere, any size.
  void broadcast(Rank root, std::span<std::byte> bytes);
  /// Element-wise; every rank gets the result, with the same bits.
  template <class T>
  void allreduce(Reduce op, std::span<T> values) {
    allreduce(reduction(scalar_of<T>(), op), std::as_writable_bytes(values));
  }
  void allreduce(Reduce op, std::span<std::uint64_t> values) { allreduce<std::uint64_t>(op, values); }
  /// out is ranks × in.size() bytes, in rank order.
  void allgather(std::span<const std::byte> in, std::span<std::byte> out);
  /// allgather() with another way to wait.
  void allgather(std::span<const std::byte> in, std::span<std::byte> out, Waiter&);

  /// Advances an outstanding collective; for the service thread of a rank whose threads compute. Never waits;
  /// not from a fault handler.
  void progress() noexcept;
  /// A thread that is in a collective, or comes to one, ends the program instead of waiting for the rank. For
  /// the transport's peer-lost hook.
  void peer_lost(Rank) noexcept;

 private:
  void allreduce(const Reduction&, std::span<std::byte> values);

  Waiter& waiter_;
  std::unique_ptr<CollectiveState> state_;
};

}  // namespace kasane::comm
