// SPDX-License-Identifier: Apache-2.0
// Whether a thread that waits for the disk polls for the end of its read, or sleeps until it is woken.
//
// A device that answers within tens of µs answers sooner than a sleeping thread can run: its core is idle,
// takes an interrupt, and switches back. Polling occupies a core, so a thread
//
//   polls    while no more threads of the rank wait than it has cores, and recent reads took less than
//            kShortNs; at most for twice the usual time of a read
//   sleeps   else; and for kRepay times as long as a polling thread lost its core between two looks, since
//            another thread or the host of a virtual machine needs the core
//
// No clock is read here: times are passed in, in nanoseconds. Thread safety: everything from any thread,
// fault handlers too; a Wait belongs to its thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace kasane::mem {

class Polling {
 public:
  static constexpr std::uint64_t kShortNs = 100'000;
  static constexpr std::uint64_t kGraceNs = 20'000;  ///< polled for in any case
  static constexpr std::uint64_t kLostNs = 100'000;  ///< between two looks: more than interrupts take
  static constexpr std::uint64_t kRepay = 10;
  /// The most for which a single read counts: an outlier says little of the next reads
  static constexpr std::uint64_t kMostNs = 4 * kShortNs;
  static constexpr std::uint64_t kWeight = 8;  ///< a read is one of so many in the usual time

  /// most: threads that may poll at once, the rank's cores; 0: all sleep.
  explicit Polling(std::uint32_t most) noexcept : most_(most) {}

  /// From the submission of a request until it has ended.
  class Wait {
   public:
    Wait(Polling& polling, std::uint64_t now) noexcept
        : polling_(polling), began_(now), last_(now), until_(now) {
      polling_.waiting_.fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t usual = polling_.usual_ns();
      if (usual < kShortNs && now >= polling_.not_before_.load(std::memory_order_relaxed))
        until_ = now + 2 * usual + kGraceNs;
    }
    ~Wait() { polling_.waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

    /// Called before each look. False: this look is the last one; then sleep.
    [[nodiscard]] bool keeps_polling(std::uint64_t now) noexcept {
      if (const std::uint64_t lost = now - last_; lost >= kLostNs) {
        polling_.not_before_.store(now + kRepay * lost, std::memory_order_relaxed);
        until_ = now;
      }
      last_ = now;
      return now < until_ && polling_.waiting_.load(std::memory_order_relaxed) <= polling_.most_;
    }
    /// The read has ended, seen by a look or after a sleep.
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
  // relaxed, all of them: they choose between two ways of waiting with the same result. If two threads update
  // the usual time at once, one of the two reads is lost.
  const std::uint32_t most_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint64_t> usual_ns_{0};
  std::atomic<std::uint64_t> not_before_{0};
};

}  // namespace kasane::mem
