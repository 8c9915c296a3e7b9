// SPDX-License-Identifier: Apache-2.0
// How many operations of this rank towards one peer are outstanding, and when those have completed that were
// posted before a flush. Two counters suffice: an operation counts in the epoch in which it was posted; a
// flush turns to the other epoch, and the old one only drains. Flushes that come meanwhile share the next
// turn.
//
//   | state           | post        | complete e                           | flush                       |
//   | idle  (old = 0) | current + 1 | current − 1                          | current = 0: over.          |
//   |                 |             |                                      | Else turn, drain            |
//   | drain (old > 0) | current + 1 | current − 1, or old − 1; if old = 0: | current = 0: shares this    |
//   |                 |             | idle, this turn is over; if again:   | turn. Else asks for another |
//   |                 |             | turns once more, as in idle          | turn (again)                |
//
// A turn has a number, the generation; a flush waits until its generation is over.
// Thread safety: FlushEpochs from any thread; a step is one compare-swap, and next() is pure.
// Invariants: idle ⇒ old = 0 and not again; a generation is over only after all posted before its flush has
// completed.
#pragma once

#include <cstdint>

#include "base/assert.h"
#include "base/atomics.h"

namespace kasane::comm {

struct FlushState {
  std::uint32_t generation = 0;  ///< modulo 2^30; its lowest bit is the current epoch
  bool draining = false;
  bool again = false;
  std::uint16_t count[2] = {0, 0};

  [[nodiscard]] std::uint32_t current() const noexcept { return generation & 1; }
  [[nodiscard]] std::uint32_t old() const noexcept { return current() ^ 1; }
  /// The last generation that is over.
  [[nodiscard]] std::uint32_t finished() const noexcept { return draining ? generation - 1 : generation; }
};

enum class FlushEvent : std::uint8_t { post, complete, flush };

struct FlushStep {
  FlushState state;
  std::uint32_t value = 0;  ///< post: the epoch to complete in. flush: the generation to wait for
  bool finished = false;    ///< this step ended a generation
};

inline constexpr std::uint32_t kGenerationMask = (1u << 30) - 1;

/// Is generation `wanted` over when `finished` is? Both are modulo 2^30 and never far apart.
[[nodiscard]] inline bool generation_over(std::uint32_t finished, std::uint32_t wanted) noexcept {
  return ((finished - wanted) & kGenerationMask) < (1u << 29);
}

namespace detail {

/// Turns to the next epoch; the old one drains, if anything counts in it.
inline void turn(FlushState& s) noexcept {
  s.generation = (s.generation + 1) & kGenerationMask;
  s.draining = s.count[s.old()] != 0;
}

inline FlushStep completed(FlushState s, std::uint32_t epoch) noexcept {
  --s.count[epoch];
  if (!s.draining || s.count[s.old()] != 0) return {.state = s};
  s.draining = false;
  if (s.again) {
    s.again = false;
    turn(s);
  }
  return {.state = s, .finished = true};
}

inline FlushStep flushed(FlushState s) noexcept {
  // idle: over; draining: shares it
  if (s.count[s.current()] == 0) return {.state = s, .value = s.generation};
  const std::uint32_t wanted = (s.generation + 1) & kGenerationMask;
  if (s.draining) {
    s.again = true;
  } else {
    turn(s);
  }
  return {.state = s, .value = wanted};
}

}  // namespace detail

[[nodiscard]] inline FlushStep next(FlushState s, FlushEvent event, std::uint32_t epoch = 0) noexcept {
  switch (event) {
    case FlushEvent::complete: return detail::completed(s, epoch);
    case FlushEvent::flush: return detail::flushed(s);
    case FlushEvent::post: break;
  }
  ++s.count[s.current()];
  return {.state = s, .value = s.current()};
}

[[nodiscard]] inline std::uint64_t pack(const FlushState& s) noexcept {
  return std::uint64_t{s.generation} << 34 | std::uint64_t{s.draining} << 33 | std::uint64_t{s.again} << 32 |
         std::uint64_t{s.count[1]} << 16 | s.count[0];
}
[[nodiscard]] inline FlushState unpack(std::uint64_t w) noexcept {
  return {.generation = static_cast<std::uint32_t>(w >> 34),
          .draining = (w >> 33 & 1) != 0,
          .again = (w >> 32 & 1) != 0,
          .count = {static_cast<std::uint16_t>(w), static_cast<std::uint16_t>(w >> 16)}};
}

template <class Atomics = StdAtomics>
class FlushEpochs {
 public:
  /// The epoch in which the operation counts.
  [[nodiscard]] std::uint32_t post() noexcept { return step(FlushEvent::post, 0).value; }
  /// True: a generation is over; look for flushes that waited for it.
  [[nodiscard]] bool complete(std::uint32_t epoch) noexcept {
    return step(FlushEvent::complete, epoch).finished;
  }
  /// The generation to wait for.
  [[nodiscard]] std::uint32_t flush() noexcept { return step(FlushEvent::flush, 0).value; }
  // seq_cst: "put the flush on the list, then look" against "complete, then look at the list".
  [[nodiscard]] bool over(std::uint32_t generation) const noexcept {
    return generation_over(unpack(word_.load(std::memory_order_seq_cst)).finished(), generation);
  }
  /// How many, as a hint: the effects of completed operations need not be visible.
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    return counted(word_.load(std::memory_order_relaxed));  // relaxed: a hint
  }
  /// True: everything posted before has completed, and its effects are visible.
  [[nodiscard]] bool idle() const noexcept {
    // acquire: pairs with every complete(), which are one release sequence
    return counted(word_.load(std::memory_order_acquire)) == 0;
  }

 private:
  [[nodiscard]] static std::uint32_t counted(std::uint64_t word) noexcept {
    const FlushState s = unpack(word);
    return std::uint32_t{s.count[0]} + s.count[1];
  }
  FlushStep step(FlushEvent event, std::uint32_t epoch) noexcept {
    std::uint64_t word = word_.load(std::memory_order_relaxed);  // relaxed: the compare-swap checks it
    for (;;) {
      const FlushStep s = next(unpack(word), event, epoch);
      if (pack(s.state) == word) return s;  // a flush that changes nothing: over() looks again, in order
      // seq_cst: acq_rel, so that a thread that sees the count sees what completed; the rest as in over().
      if (word_.compare_exchange_strong(word, pack(s.state), std::memory_order_seq_cst,
                                        std::memory_order_relaxed))
        return s;
    }
  }

  typename Atomics::template Atomic<std::uint64_t> word_{0};
};

}  // namespace kasane::comm
