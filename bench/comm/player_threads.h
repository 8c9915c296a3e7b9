// SPDX-License-Identifier: Apache-2.0
// The threads of a player: started for an order, joined after it, while the first thread sleeps and watches
// the harness. If the harness goes away, or closes the connection because a player takes too long, the
// process ends at once: a system that hangs leaves nothing behind.
#pragma once

#include <atomic>
#include <functional>

namespace kasane::bench {

/// How all systems poll: without end where each thread has a core; else a bounded number of looks, then the
/// core is given away.
class Patience {
 public:
  explicit Patience(bool crowded) noexcept : crowded_(crowded) {}
  void look() noexcept {
    if (crowded_ && ++looks_ % kLooks == 0) give_way();
  }

 private:
  static constexpr unsigned kLooks = 64;
  static void give_way() noexcept;
  bool crowded_;
  unsigned looks_ = 0;
};

/// Runs fn(0 … threads - 1), each on a thread of its own; returns when all have returned. Ends the process if
/// harness_fd hangs up.
void run_player_threads(int harness_fd, unsigned threads, const std::function<void(unsigned)>& fn);

/// A barrier among the player's threads, which polls with patience.
class Gate {
 public:
  explicit Gate(unsigned threads) noexcept : missing_(threads) {}
  void pass(Patience patience) noexcept {
    // what all threads did before is visible to all after it
    missing_.fetch_sub(1, std::memory_order_acq_rel);
    while (missing_.load(std::memory_order_acquire) != 0) patience.look();
  }

 private:
  std::atomic<unsigned> missing_;
};

/// Cores that this process may use.
[[nodiscard]] unsigned usable_cores();

}  // namespace kasane::bench
