// SPDX-License-Identifier: Apache-2.0
// rand, random and drand48 for the whole program: the numbers that libc gives one process, in one sequence for
// all ranks. Rank 0 has the state; other ranks ask it for each number (random_calls.cpp).
// Thread safety: draw() from any thread, and the handler from the one that polls.
#pragma once

#include <cstdint>

#include "comm/blocking.h"
#include "comm/transport.h"

namespace kasane::runtime {

/// One call of libc's functions of that name.
struct RandomCall {
  enum class Kind : std::uint8_t { random, srandom, drand48, lrand48, mrand48, srand48, seed48, lcong48 };
  Kind kind = Kind::random;
  std::uint16_t parameter[7] = {};  ///< of seed48 and lcong48
  std::uint64_t seed = 0;
};

/// From the state of this process. The result's bits; seed48: the 48 bits of before.
std::uint64_t draw(const RandomCall&) noexcept;

class RandomNumbers {
 public:
  explicit RandomNumbers(comm::Transport&);
  RandomNumbers(const RandomNumbers&) = delete;
  RandomNumbers& operator=(const RandomNumbers&) = delete;

  /// From rank 0's state.
  std::uint64_t draw(comm::Blocking&, const RandomCall&);
};

}  // namespace kasane::runtime
