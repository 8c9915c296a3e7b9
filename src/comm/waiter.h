// SPDX-License-Identifier: Apache-2.0
// How code waits. gas and dsm know no threads: their caller passes a Waiter. PollWaiter makes progress and,
// after a while, sleeps on the doorbell; the scheduler's Waiter parks the user-level thread; the simulator's
// switches to another scripted thread.
#pragma once

#include "comm/transport.h"

namespace kasane::comm {

class Waiter {
 public:
  virtual ~Waiter() = default;

  /// Returns once ready() is true; ready is called repeatedly, must be cheap and must not wait.
  template <class Pred>
  void until(const Pred& ready) {
    if (ready()) return;
    wait([](const void* p) { return (*static_cast<const Pred*>(p))(); }, &ready);
  }

  /// Lets other threads run once: between two tries of something that no event announces.
  void pause() {
    unsigned looks = 0;
    until([&looks] { return looks++ >= 2; });  // the second look comes after wait() has made progress
  }

 protected:
  virtual void wait(bool (*ready)(const void*), const void* arg) = 0;
};

/// The delay of doorbells (PendingReply) of a thread that waits with a PollWaiter: longer than a busy rank
/// takes to its next fork and its answer; shorter than the waiter spins, since a sleeping waiter must be
/// woken; and shorter than waking a service thread takes.
inline constexpr std::uint32_t kDoorbellDelayNs = 15'000;

/// Polls; async-signal-safe, so fault handlers use it, too. spin_ns: how long it spins before it sleeps on
/// the messages doorbell (bounded naps, since a block's busy bit rings no bell).
class PollWaiter final : public Waiter {
 public:
  explicit PollWaiter(Transport& transport, std::int64_t spin_ns = 20'000) noexcept
      : transport_(transport), spin_ns_(spin_ns) {}

 protected:
  void wait(bool (*ready)(const void*), const void* arg) override;

 private:
  Transport& transport_;
  std::int64_t spin_ns_;
};

}  // namespace kasane::comm
