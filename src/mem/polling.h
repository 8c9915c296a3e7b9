// SPDX-License-Identifier: Apache-2.0
// Whether a thread that waits for the disk looks for the end of its read again and again, or sleeps until it is told.
//
// A device that answers within tens of µs answers sooner than a sleeper gets there: its core has gone idle, takes an interrupt, and switches back. Looking costs a core, so:
//
//   looks      while no more threads of the rank wait than it has cores, and reads take no longer than kShortNs by the last ones; at most twice what they take
//   sleeps     else; and for kRepay times as long as a looker lost its core between two looks: somebody else wants it, another thread or the host of a virtual machine
//
// Nothing here knows a clock: times are passed in, in nanoseconds. Thread safety: everything from any thread, fault handlers too; a Wait belongs to its thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace kasane::mem {

class Polling {
 public:
  static constexpr std::uint64_t kShortNs = 100'000;
  static constexpr std::uint64_t kGraceNs = 20'000;    ///< is looked for in any case
  static constexpr std::uint64_t kLostNs = 100'000;    ///< between two looks: more than interrupts take
  static constexpr std::uint64_t kRepay = 10;
  static constexpr std::uint64_t kMostNs = 4 * kShortNs;   ///< that a single read counts for: a hiccup says little of the next ones
  static constexpr std::uint64_t kWeight = 8;              ///< a read's in the usual time: one in so many

  /// most: threads that may look at once, those cores that the rank has; 0: all sleep.
  explicit Polling(std::uint32_t most) noexcept : most_(most) {}

  /// From a request's way to the disk until it has ended.
  class Wait {
   public:
    Wait(Polling& polling, std::uint64_t now) noexcept : polling_(polling), began_(now), last_(now), until_(now) {
      polling_.waiting_.fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t usual = polling_.usual_ns();
      if (usual < kShortNs && now >= polling_.not_before_.load(std::memory_order_relaxed)) until_ = now + 2 * usual + kGraceNs;
    }
    ~Wait() { polling_.waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

    /// Asked before each look. False: it is the last one, then sleep.
    [[nodiscard]] bool looks_on(std::uint64_t now) noexcept {
      if (const std::uint64_t lost = now - last_; lost >= kLostNs) {
        polling_.not_before_.store(now + kRepay * lost, std::memory_order_relaxed);
        until_ = now;
      }
      last_ = now;
      return now < until_ && polling_.waiting_.load(std::memory_order_relaxed) <= polling_.most_;
    }
    /// It has ended, seen by a look or after a sleep.
    void ended(std::uint64_t now) noexcept {
      const std::uint64_t usual = polling_.usual_ns(), took = std::min(now - began_, kMostNs);
      polling_.usual_ns_.store(usual - usual / kWeight + took / kWeight, std::memory_order_relaxed);
    }

   private:
    Polling& polling_;
    const std::uint64_t began_;
    std::uint64_t last_, until_;
  };

  /// What a read takes, by the last ones.
  [[nodiscard]] std::uint64_t usual_ns() const noexcept { return usual_ns_.load(std::memory_order_relaxed); }

 private:
  // relaxed, all of them: they choose between two ways to wait that end alike. Two threads that learn at once lose one of two reads.
  const std::uint32_t most_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint64_t> usual_ns_{0};
  std::atomic<std::uint64_t> not_before_{0};
};

}  // namespace kasane::mem
