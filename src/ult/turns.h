// SPDX-License-Identifier: Apache-2.0
// Fairness among the threads of one worker, pure: when a thread that never waits lets others run (Turn), and
// which of the worker's sources the next thread comes from (Picks). docs/design/ult.md, "Fairness", has the
// bounds; tests/unit/ult/turns_walk_test.cpp walks both.
//
//   calls of the running thread that may wait ─ every so many ─▶ look at the clock ─ turn over ─▶ yield
//   a worker without a running thread ─▶ Picks says which sources to ask, in which order
//
// Thread safety: pure; a worker has one of each. Invariants: a thread keeps its worker for at most kTurnNs
// and 2 × kMostCalls calls while another one could run there; a source that has a thread that can run gives
// one after a bounded number of picks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace kasane::ult {

/// How long a thread runs, through calls that could wait and need not, while others could run on its worker.
/// About the kernel's time slice: a switch costs its cache, not only its instructions.
inline constexpr std::uint64_t kTurnNs = 4'000'000;
/// Calls between two looks at the clock. A look costs as much as some ten of the cheapest calls.
inline constexpr std::uint32_t kFirstCalls = 64, kMostCalls = 256;

struct Turn {
  std::uint32_t calls_left = kFirstCalls;  ///< until the next look
  std::uint32_t calls = kFirstCalls;       ///< between the last look and the next
  std::uint64_t looked_ns = 0;             ///< when the last look was
  std::uint64_t began_ns = 0;              ///< when thread was first seen to keep others waiting
  std::uint64_t thread = 0;                ///< the thread that keeps others waiting; 0: none does

  /// One call. True: it is time to look().
  [[nodiscard]] constexpr bool call() noexcept { return --calls_left == 0; }
  /// Looks at the clock. others: another thread could run on this worker. True: thread is to yield.
  [[nodiscard]] constexpr bool look(std::uint64_t running, std::uint64_t now_ns, bool others) noexcept {
    // As many calls as fit into an eighth of a turn, so that slow calls do not make turns long.
    const std::uint64_t passed = std::max<std::uint64_t>(now_ns - looked_ns, 1);
    calls =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(calls * (kTurnNs / 8) / passed, 1, kMostCalls));
    calls_left = calls;
    looked_ns = now_ns;
    if (!others || thread != running) {
      thread = others ? running : 0;
      began_ns = now_ns;
      return false;
    }
    if (now_ns - began_ns < kTurnNs) return false;
    thread = 0;
    return true;
  }
};

/// Where a worker's next thread comes from.
enum class Source : std::uint8_t {
  waiting,  ///< the oldest of the threads that wait on this worker (Pool::wait_here) and can go on
  newest,   ///< the newest of its own continuations
  oldest,   ///< the oldest of them
  ready,    ///< the oldest of the rank's ready list; the younger ones become continuations of the worker
};

/// Waiting threads first, since what they wait for has arrived; but after as many as there are, one of the
/// others. Of these the newest, depth first; but where the queue has not been empty for many picks, once the
/// ready list, then the oldest.
class Picks {
 public:
  using Order = std::array<Source, 4>;
  static constexpr std::uint32_t kTurnOfReady = 16, kTurnOfOldest = 32, kCycle = 32;

  /// The sources to ask, one after the other, until one has a thread. waiting: how many wait on this worker.
  [[nodiscard]] constexpr Order order(std::uint32_t waiting) const noexcept {
    const bool waiting_first = waiting != 0 && waiting_left_ != 0;
    const Source first = turns_ == kTurnOfReady    ? Source::ready
                         : turns_ == kTurnOfOldest ? Source::oldest
                                                   : Source::newest;
    const Source second = first == Source::newest ? Source::ready : Source::newest;
    return waiting_first ? Order{Source::waiting, first, second, Source::ready}
                         : Order{first, second, Source::ready, Source::waiting};
  }
  /// A thread was taken from `source`; so many wait on this worker now.
  constexpr void picked(Source source, std::uint32_t waiting) noexcept {
    if (source == Source::waiting) {
      waiting_left_ -= waiting_left_ != 0;
      return;
    }
    waiting_left_ = waiting;
    const bool queue_was_empty = source == Source::ready && turns_ != kTurnOfReady;
    turns_ = queue_was_empty ? 1 : turns_ % kCycle + 1;
  }
  /// For walks: equal objects have equal states.
  [[nodiscard]] constexpr std::uint64_t state() const noexcept {
    return std::uint64_t{waiting_left_} << 32 | turns_;
  }

 private:
  std::uint32_t waiting_left_ = 0;  ///< threads that wait here to be picked before one of the others is
  std::uint32_t turns_ = 1;         ///< 1 … kCycle
};

}  // namespace kasane::ult
