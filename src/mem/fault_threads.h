// SPDX-License-Identifier: Apache-2.0
// Two threads that serve the faults of a userfaultfd while the faulting threads sleep in the kernel, perhaps
// in a system call.
//
//                       an event: allowed? served at once ──────────────────────▶ the faulting thread wakes
//     ┌─ receives ◀──┐  else noted ─▶ no thread answers? this one, one by one ──▶ the faulting thread wakes
//     │              │  takes over when an answer takes longer than kPatienceMs
//     └─ is deputy ──┘  sleeps meanwhile; without a limit while nothing happens
//
// Why two threads: an answer may wait (for a page, a block's bit, room). The thread that it waits for may
// touch memory that V allows but that has no translation, as the kernel has taken it away or it was never
// mapped: its own stack, in the middle of a protocol step. Such a fault needs no answer, only a thread that
// does not wait. So one thread always receives, whatever the other waits for. A third thread that takes over
// at every fault would cost more: with two, a fault costs one switch to here and one back.
//
// Why one thread answers at a time: nothing may depend on more. An answer must not wait for what only another
// thread's fault brings about (docs/design/mem.md, "What may wait for what").
//
// fault_duty.h decides what a thread does next; the code here carries it out.
//
// Thread safety: start() and stop() from one thread. Invariants: at most one thread answers; the other one
// receives, or is the deputy.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/bell.h"
#include "base/result.h"
#include "mem/fault_duty.h"
#include "mem/userfaultfd.h"

namespace kasane::mem {

/// Handles the faults. Nothing allocates: a thread that faulted may hold the allocator's lock.
class FaultServer {
 public:
  /// False: V does not allow the access. Else the access was made possible, and the faulting thread wakes.
  /// Never waits for another thread.
  virtual bool serve_allowed(const UserFault&) noexcept = 0;
  /// In any case the faulting thread wakes. Never in two threads at once.
  virtual void answer(const UserFault&) noexcept = 0;
  /// The faulting thread wakes, and faults again.
  virtual void put_off(const UserFault&) noexcept = 0;

 protected:
  ~FaultServer() = default;
};

class FaultThreads {
 public:
  FaultThreads(const Userfaultfd& uffd, FaultServer& server) noexcept : uffd_(uffd), server_(server) {}
  ~FaultThreads() { stop(); }
  FaultThreads(const FaultThreads&) = delete;
  FaultThreads& operator=(const FaultThreads&) = delete;

  Result<void> start();
  /// Returns when no thread serves faults any more. An answer under way ends, and faults that V allows are
  /// served until then. Threads that were not answered, or fault later, sleep until the caller wakes the
  /// whole range.
  void stop() noexcept;
  /// From any thread but those two. Returns when the answer that is under way, if any, has ended.
  void await_answer() const noexcept;

 private:
  static constexpr int kPatienceMs = 1;
  /// A sleeping thread has one, or more where signals woke it
  static constexpr std::uint32_t kMostNoted = 1024;

  struct Own;  ///< what a thread keeps from one act to the next

  void run(unsigned me) noexcept;
  std::uint32_t carry_out(FaultDuty, Own&) noexcept;
  std::size_t receive() noexcept;
  bool note(const UserFault&) noexcept;
  bool begin() noexcept;
  bool take(UserFault&) noexcept;
  void rest(Own&) const noexcept;
  void sleep(int timeout_ms, bool for_faults) const noexcept;

  const Userfaultfd& uffd_;
  FaultServer& server_;
  std::thread threads_[2];
  int stop_bell_ = -1;  ///< an eventfd: both look at it in poll()
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> receiver_{0};        ///< which of the two
  Bell periods_{};                           ///< of answering, begun and ended: odd while one is under way
  std::mutex lock_;                          ///< of the two threads only; neither holds it while it answers
  FaultAnswers answers_;                     ///< under lock_, as all below
  std::array<UserFault, kMostNoted> noted_;  ///< a ring
  std::size_t oldest_ = 0;
};

}  // namespace kasane::mem
