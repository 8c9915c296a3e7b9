// SPDX-License-Identifier: Apache-2.0
// rand, random and drand48 for the whole program: the numbers that libc gives one process, in one sequence
// for all ranks. The rank that draws holds the state (state_holder.h):
//
//   a rank that wants it         rank 0             the predecessor's handler
//   ask for the predecessor ───▶ the last so far
//        ◀──────────────────────
//   ask for the state ────────────────────────────▶ given or refused: then again
//   read its words ───────────────────────────────▶ which stay as they are until the state comes back
//
// Waiting: a thread that draws waits for these answers, holding nothing; those of its rank wait for it.
// Thread safety: draw() from any thread, and the handler from the one that polls.
#pragma once

#include <atomic>
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

/// From the state of this process alone. The result's bits; seed48: the 48 bits of before.
std::uint64_t draw(const RandomCall&) noexcept;

/// In a fork's child, where the thread that was drawing is not.
void forget_drawing() noexcept;

class RandomNumbers {
 public:
  explicit RandomNumbers(comm::Transport&);
  RandomNumbers(const RandomNumbers&) = delete;
  RandomNumbers& operator=(const RandomNumbers&) = delete;

  /// From the state of all ranks.
  std::uint64_t draw(comm::Blocking&, const RandomCall&);

 private:
  static void on_message(void* self, const comm::Message&) noexcept;
  void fetch_state(comm::Blocking&);

  comm::Transport& transport_;
  std::atomic<std::uint32_t> last_{0};  ///< on rank 0: the rank that wanted the state last
};

}  // namespace kasane::runtime
