// SPDX-License-Identifier: Apache-2.0
// What one rank has to do in one collective, as data: steps that send, receive, combine and
// copy. Pure: built from sizes, numbers and addresses, without communication. state.cpp carries it
// out; the tests carry it out in random orders, too.
//
// After Hoefler, Lumsdaine and Rehm, "Implementation and Performance Analysis of Non-Blocking Collective
// Operations for MPI": a schedule is a list of rounds. A round is a run of network steps (all at once, in any
// order), then a run of local steps (one after the other); then the next round.
//
// Algorithms: docs/design/comm_collectives.md.
//
// Invariants: a schedule has at most one message for each (from, to, phase), with phase 0 or 1, of the same
// size at both ends. So (collective, from, phase) identifies a message. Operands are combined in rank order,
// and every member of an allreduce computes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/collectives/reduction.h"

namespace kasane::comm {

enum class Collective : std::uint8_t { barrier = 1, broadcast, allreduce, allgather };

struct CollectiveStep {
  enum class Kind : std::uint8_t { send, receive, combine, copy };
  Kind kind;
  std::uint8_t phase = 0;
  /// by the carrier: this end's half of a long message's handshake is done
  bool announced = false;
  bool done = false;  ///< by the carrier
  std::uint32_t peer = 0;
  std::byte* into = nullptr;         ///< receive, combine, copy
  const std::byte* from = nullptr;   ///< send, copy; the left operand
  const std::byte* right = nullptr;  ///< the right operand
  std::size_t bytes = 0;
  /// by the carrier: bytes sent, or arrived (then changed by atomic_ref only)
  std::size_t moved = 0;
};

/// The input of a schedule. All members give the same values for a collective, except me and the pointers.
struct Plan {
  Collective collective;
  std::uint32_t me = 0, members = 1, root = 0;
  std::byte* out = nullptr;       ///< broadcast, allreduce: in place here
  const std::byte* in = nullptr;  ///< allgather: this member's part
  std::size_t bytes = 0;          ///< of a member's part
  Reduction reduction{};          ///< of an allreduce
};

class Schedule {
 public:
  /// Builds the steps; reuses the memory of an earlier schedule.
  void build(const Plan&);
  [[nodiscard]] std::vector<CollectiveStep>& steps() noexcept { return steps_; }
  /// The reduction of the schedule's combine steps.
  [[nodiscard]] const Reduction& reduction() const noexcept { return reduction_; }

 private:
  friend class Builder;
  std::vector<CollectiveStep> steps_;
  Reduction reduction_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

/// Messages of up to so many bytes are short (the choice of algorithm depends on it).
inline constexpr std::size_t kShortBytes = 1008;

}  // namespace kasane::comm
