// SPDX-License-Identifier: Apache-2.0
// OS threads that make the calls for which threads wait on their workers (Pool::call_outside): each makes one
// at a time, and sleeps between them. As many as threads have waited at once; few of them stay.
//
//   thread ─ ask ─► caller: makes the call ─ deliver ─► OutsideWaits of the thread's worker ─► thread
//
// What a caller and its worker run against each other is ult/outside_call.h.
//
// Thread safety: take() and give_back() from any worker; the rest as noted. A caller's record is private
// memory, and its OS thread's own when the pool has ended: the call may never end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/malloc_allocator.h"
#include "ult/outside_call.h"

namespace kasane::ult {

class OutsideWaits;
class PoolCore;
struct WorkerWait;

/// Sent to callers to interrupt them. Its handler, interrupt_nothing(), has no SA_RESTART; the user of
/// Pool::call_outside installs it. No other program part uses this signal on Linux.
extern const int kOutsideSignal;
void interrupt_nothing(int) noexcept;

struct OutsideRequest {
  static constexpr std::size_t kWords = 7;
  const char* call = nullptr;  ///< a literal, for reports
  /// Runs on the caller, with a copy of the words. Returns a result, or -errno.
  long (*function)(const long (&words)[kWords]) = nullptr;
  long words[kWords] = {};
  /// A handler that was installed with SA_RESTART does not interrupt it.
  bool restarts = true;
};

/// How many of the program's handlers have run on a worker, all and those without SA_RESTART.
struct HandlersRun {
  std::uint32_t all = 0, without_restart = 0;
  friend bool operator==(const HandlersRun&, const HandlersRun&) = default;
};

class OutsideCaller {
 public:
  /// request and result belong to the thread that has taken this caller, until it gives the caller back.
  OutsideRequest request;
  long result = 0;

  // What follows belongs to the worker while the call is under way.
  OutsideWaits* waits = nullptr;
  WorkerWait* wait = nullptr;
  OutsideCaller *before = nullptr, *after = nullptr;
  bool interrupted = false;
  OutsideCaller* delivered_before = nullptr;  ///< in the list of those that were delivered

  /// On the worker.
  void ask() noexcept { (void)step(OutsideEvent::ask); }
  /// True: a signal was sent, and may have come too early.
  bool interrupt() noexcept { return step(OutsideEvent::interrupt) == OutsideAction::signal; }

 private:
  friend class OutsideCallers;
  static void* begin(void* self) noexcept;
  void run() noexcept;
  void deliver() noexcept;
  OutsideAction step(OutsideEvent event) noexcept;

  PoolCore* core_ = nullptr;
  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::int32_t> os_thread_{0};
  std::atomic<bool> delivers_{false};  ///< the OS thread may touch the pool, though the call has ended
};

class OutsideCallers {
 public:
  explicit OutsideCallers(PoolCore* core) noexcept : core_(core) {}
  /// No thread asks any more. Callers whose call has not ended outlive the pool.
  ~OutsideCallers();
  OutsideCallers(const OutsideCallers&) = delete;
  OutsideCallers& operator=(const OutsideCallers&) = delete;

  /// Null: the system has no OS thread.
  [[nodiscard]] OutsideCaller* take() noexcept;
  void give_back(OutsideCaller*) noexcept;
  /// Whether a thread has taken a caller and not given it back.
  [[nodiscard]] bool busy() noexcept;
  /// OS threads now, for reports.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kMostIdle = 32;
  [[nodiscard]] OutsideCaller* make() noexcept;
  void dismiss(OutsideCaller*) noexcept;

  PoolCore* core_;
  std::mutex mutex_;  // held for a few instructions, over no switch
  std::vector<OutsideCaller*, MallocAllocator<OutsideCaller*>> idle_, busy_;
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace kasane::ult
