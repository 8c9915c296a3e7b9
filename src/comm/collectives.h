// SPDX-License-Identifier: Apache-2.0
// Barrier, broadcast, allreduce and allgather over any transport, built from active messages (dissemination and
// binomial trees). Every rank calls the same collectives in the same order, one thread a rank at a time.
// One object a job and rank; it owns HandlerId 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/waiter.h"

namespace kasane::comm {

inline constexpr HandlerId kCollectiveHandler{0};

class Collectives {
 public:
  /// Sets its handler; construct on every rank before the transport's first message.
  Collectives(Transport&, Waiter&);
  ~Collectives();

  void barrier();
  /// Copies root's bytes to every rank; sizes are equal everywhere, any size.
  void broadcast(Rank root, std::span<std::byte> bytes);
  enum class Reduce { sum, min, max, bit_or, bit_and };
  /// Element-wise; every rank gets the result.
  void allreduce(Reduce, std::span<std::uint64_t> values);
  /// out is ranks × in.size() bytes, in rank order.
  void allgather(std::span<const std::byte> in, std::span<std::byte> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kasane::comm
