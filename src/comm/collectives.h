// SPDX-License-Identifier: Apache-2.0
// The collectives of a job: the group of all ranks (group.h), from which all other groups are made, over any
// transport. One object for each rank of a job; it owns HandlerId 0. See collective_schedule.h (algorithms),
// collective_group.h (how messages are carried), docs/design/comm_collectives.md.
//
// Thread safety: as Group's for the calls of the world; progress() and peer_lost() from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "comm/group.h"
#include "comm/waiter.h"

namespace kasane::comm {

inline constexpr HandlerId kCollectiveHandler{0};
inline constexpr RegionId kCollectiveRegion{14};

class Collectives {
 public:
  using Reduce = comm::Reduce;

  /// Sets its handler; construct on every rank before the transport's first message.
  Collectives(Transport&, Waiter&);
  /// After the last collective, and after every other group was destroyed.
  ~Collectives();

  /// Collective, optional, while no other collective is outstanding: attaches region kCollectiveRegion,
  /// through which ranks of a host store into each other's memory instead of sending messages. Of the groups
  /// that exist then only the world uses it. Memory: sparse; at most about 270 KiB are touched for each pair
  /// of members.
  Result<void> attach();

  /// All ranks; member i is rank i.
  [[nodiscard]] Group& world() noexcept { return *world_; }

  void barrier() { world_->barrier(); }
  /// Copies root's bytes to every rank; sizes are equal everywhere, any size.
  void broadcast(Rank root, std::span<std::byte> bytes) { world_->broadcast(raw(root), bytes); }
  /// Element-wise; every rank gets the result.
  void allreduce(Reduce op, std::span<std::uint64_t> values) { world_->allreduce(op, values); }
  /// out is ranks × in.size() bytes, in rank order.
  void allgather(std::span<const std::byte> in, std::span<std::byte> out) { world_->allgather(in, out); }

  /// Advances all outstanding collectives; for the service thread of a rank whose threads compute. Never
  /// waits; not from a fault handler.
  void progress() noexcept;
  /// Groups that have rank as a member fail: their outstanding and all later collectives end with
  /// Status::peer_lost. For the transport's peer-lost hook.
  void peer_lost(Rank rank) noexcept;

 private:
  std::unique_ptr<CollectiveCore> core_;
  std::unique_ptr<Group> world_;
};

}  // namespace kasane::comm
