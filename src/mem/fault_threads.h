// SPDX-License-Identifier: Apache-2.0
// Two threads that serve the faults of a userfaultfd while those who faulted sleep in the kernel, perhaps in a system call.
//
//                       an event: allowed? served at once ──────────────────────────────▶ who waits wakes
//     ┌─ receives ◀──┐  else noted ─▶ nobody answers? then I do, one after the other ───▶ who waits wakes
//     │              │ takes over, when an answer takes longer than kPatienceMs
//     └─ is deputy ──┘  sleeps meanwhile, without end where nothing happens
//
// Why two: an answer may wait (for a page, a block's bit, room), and whoever it waits for may touch memory that V allows, but whose translation the kernel has taken away, or that was never
// mapped: its own stack, in the middle of a protocol step. Such a fault needs no answer, only somebody who does not wait. So one thread always receives, whatever the other waits for. It
// is no third who takes over at every fault: a fault costs one switch to here and one back.
// Why one answers at a time: nothing may depend on more. Whoever answers must not wait for something that only another thread's fault brings about (docs/design/mem.md, "Who waits for whom").
//
// What a thread does next, fault_duty.h decides: this carries it out.
//
// Thread safety: start() and stop() from one thread. Invariants: at most one thread answers; who does not answer receives, or is deputy.
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

/// Who knows what to do with a fault. Nothing allocates: a thread that faulted may hold the allocator's lock.
class FaultServer {
 public:
  /// False: V does not allow the access. Else it has been made possible, and who faulted wakes. Never waits for another thread.
  virtual bool serve_allowed(const UserFault&) noexcept = 0;
  /// Whatever comes of it, who faulted wakes. Never in two threads at once.
  virtual void answer(const UserFault&) noexcept = 0;
  /// Who faulted wakes, and faults again.
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
  /// Returns when no thread serves a fault any more; an answer that is under way ends, and what V allows is served until then. Whoever was not answered, or faults later, sleeps until the caller
  /// wakes the whole range.
  void stop() noexcept;
  /// Any thread but those two: returns when the answer that is under way, if there is one, has ended.
  void await_answer() const noexcept;

 private:
  static constexpr int kPatienceMs = 1;
  static constexpr std::uint32_t kMostNoted = 1024;   ///< a thread that sleeps has one, or more where signals woke it

  struct Own;   ///< what a thread keeps from one act to the next

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
  int stop_bell_ = -1;                       ///< an eventfd: both look at it in poll()
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> receiver_{0};        ///< which of the two
  Bell periods_{};                           ///< of answering, begun and ended: odd while one is under way
  std::mutex lock_;                          ///< of the two: nobody else takes it, and neither answers with it
  FaultAnswers answers_;                     ///< under lock_, as all below
  std::array<UserFault, kMostNoted> noted_;  ///< a ring
  std::size_t oldest_ = 0;
};

}  // namespace kasane::mem
