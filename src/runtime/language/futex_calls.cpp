// SPDX-License-Identifier: Apache-2.0
// std::atomic::wait and notify, std::counting_semaphore, latch and barrier: libstdc++'s headers wait for a
// word by syscall(SYS_futex, …). libkasane defines syscall() (call_wrappers.cpp): on a user-level thread such
// a wait suspends the thread, not its worker, and a wake-up reaches the threads of all ranks
// (ult/sync/watch.h).
//
//   waits on              a user-level thread                    another OS thread
//   private memory        a watch list                           the kernel
//   global memory         a watch list                           a watch list: the kernel's does not hear of
//                                                                a wake-up of another rank
//
// A wake-up goes to both. The word is compared where its atomics are executed (runtime/language/atomics.h).
//
// Thread safety: from any thread.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/raw_call.h"
#include "runtime/language/atomics.h"
#include "runtime/language/cancellation.h"
#include "runtime/language/futex_calls.h"
#include "runtime/language/threads_check.h"
#include "runtime/rank/own_code.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"
#include "ult/sync/watch.h"
#include "ult/timers.h"

namespace kasane::runtime {
namespace {

using Arguments = FutexArguments;

/// With libc's convention for errors.
long by_kernel(long number, const Arguments& a) noexcept {
  return as_libc(raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

// Not inlined: where errno is has to be found again after a wait, which may move the thread.
[[gnu::noinline]] long fail_with(int error) noexcept {
  errno = error;
  return -1;
}

constexpr std::uint64_t kNever = ult::Timers::kNever;

/// A time before the clock's first one has come; that of the standard library has less than no nanoseconds.
bool is_time(const timespec& t) noexcept {
  return t.tv_sec < 0 || (t.tv_nsec >= 0 && t.tv_nsec < 1'000'000'000);
}

/// The time of now_ns() at which a deadline comes; 0: it has come. A clock may be set meanwhile. A century is
/// never: no sum is beyond its type then, whatever the program gives.
std::uint64_t due_at(const Deadline* deadline) noexcept {
  if (deadline == nullptr) return kNever;
  constexpr std::int64_t kCentury = std::int64_t{100} * 366 * 24 * 3600;
  const timespec& time = deadline->time;
  timespec now;
  if (time.tv_sec < 0 || ::clock_gettime(deadline->clock, &now) != 0) return 0;
  const std::int64_t seconds = time.tv_sec - now.tv_sec;
  if (seconds > kCentury) return kNever;
  const std::int64_t left = seconds * 1'000'000'000 + time.tv_nsec - now.tv_nsec;
  return seconds < -1 || left <= 0 ? 0 : now_ns() + static_cast<std::uint64_t>(left);
}

/// A futex of the program.
class Futex {
 public:
  explicit Futex(void* word) noexcept : word_(word), global_(here().contains(word)) {}

  [[nodiscard]] bool is_global() const noexcept { return global_; }
  [[nodiscard]] std::uint32_t value() const noexcept { return load_atomic(word_); }

  /// Until the word is not `expected`, perhaps a wake-up, or the deadline, if there is one. A thread is
  /// suspended, another OS thread sleeps. call: in reports.
  long wait(std::uint32_t expected, const Deadline* deadline, const char* call = "atomic::wait") const {
    if (value() != expected) return fail_with(EAGAIN);
    if (due_at(deadline) == 0) return fail_with(ETIMEDOUT);
    const std::uint32_t epoch = prepare();
    if (value() != expected) return fail_with(EAGAIN);
    return wait({epoch, expected}, deadline, call);
  }
  [[nodiscard]] std::uint32_t prepare() const { return watch().prepare(here().pool()); }
  long wait(const PreparedWait& prepared, const Deadline* deadline, const char* call) const {
    const auto [epoch, expected] = prepared;
    const std::uint64_t due_ns = due_at(deadline);
    if (due_ns == 0) return fail_with(ETIMEDOUT);
    if (ult::Pool::may_switch())
      watch().wait(epoch, call, due_ns);
    else
      watch().sleep(here().pool(), epoch, due_ns);
    // A change that came together with the deadline is not lost: who was woken for it says so.
    return deadline != nullptr && due_at(deadline) == 0 && value() == expected ? fail_with(ETIMEDOUT) : 0;
  }
  void wake(bool all) const {
    // Of private memory threads of another rank may have the same key: their wake-up would be lost.
    const ult::Watch list = watch();
    all || !global_ ? list.notify_all(here().pool()) : list.notify_one(here().pool());
  }

 private:
  [[nodiscard]] ult::Watch watch() const {
    return {global_ ? here().space().offset(word_) : reinterpret_cast<std::uintptr_t>(word_), here().ranks(),
            word_};
  }
  /// Of the rank where the thread is now: each look at the word may let others run, and so move it.
  [[nodiscard]] static Runtime& here() noexcept { return *Runtime::current(); }
  void* word_;
  bool global_;
};

constexpr int kForEver = 0x7fffffff;

/// The deadline that a call names by a time, absolute; one that has come stays so, and so does the last one.
Deadline deadline_of(int op, timespec time) noexcept {
  const clockid_t clock = (op & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
  timespec now;
  ::clock_gettime(clock, &now);
  if ((op & FUTEX_CMD_MASK) == FUTEX_WAIT && time.tv_sec >= 0) {
    const bool carries = time.tv_nsec + now.tv_nsec >= 1'000'000'000;
    time.tv_nsec += now.tv_nsec - (carries ? 1'000'000'000 : 0);
    if (__builtin_add_overflow(time.tv_sec, now.tv_sec + carries, &time.tv_sec))
      time.tv_sec = std::numeric_limits<time_t>::max();
  }
  return {clock, time};
}

/// Words of the runtime's own lie nowhere there. The last call of a thread's function may be a jump, which
/// returns into the runtime.
bool is_programs(const Runtime& runtime, const void* word) noexcept {
  return runtime.contains(word) || runtime.one_rank_variables().contains(word);
}

[[gnu::noinline]] int exchange_errno(int value) noexcept { return std::exchange(errno, value); }

/// For reports of the program's OS threads.
class NotedWait {
 public:
  NotedWait(const char* call, const void* word) noexcept
      : thread_(Cancellation::here()), call_(call), since_ns_(ThreadsCheck::on() ? now_ns() : 0) {
    if (thread_ != nullptr) thread_->note_wait({call, word});
  }
  ~NotedWait() {
    if (thread_ == nullptr) return;
    thread_->note_wait({});
    if (since_ns_ != 0 && call_ != nullptr) ThreadsCheck::add_wait(call_, now_ns() - since_ns_);
  }
  NotedWait(const NotedWait&) = delete;
  NotedWait& operator=(const NotedWait&) = delete;

 private:
  Cancellation* const thread_;  ///< null on a user-level thread
  const char* const call_;
  const std::uint64_t since_ns_;
};
}  // namespace

bool is_futex_of_program(const void* word, const void* caller) noexcept {
  const Runtime* const runtime = Runtime::current();
  return runtime != nullptr && runtime->running() &&
         (!is_code_of_runtime(caller) || is_programs(*runtime, word));
}

long call_futex(const Arguments& a) noexcept {
  const Futex futex(reinterpret_cast<void*>(a[0]));
  const int op = static_cast<int>(a[1]), command = op & FUTEX_CMD_MASK;
  if (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) {
    const auto* const time = reinterpret_cast<const timespec*>(a[3]);
    if (time != nullptr && !is_time(*time)) return fail_with(EINVAL);
    // The kernel calls such a time an error, too, and the standard library ends the program then.
    if (time != nullptr && time->tv_sec < 0) return fail_with(ETIMEDOUT);
    if (!ult::Pool::may_wait() && !futex.is_global()) return by_kernel(SYS_futex, a);
    const auto expected = static_cast<std::uint32_t>(a[2]);
    const NotedWait noted("atomic::wait", reinterpret_cast<const void*>(a[0]));
    if (time == nullptr) return futex.wait(expected, nullptr);
    const Deadline deadline = deadline_of(op, *time);
    return futex.wait(expected, &deadline);
  }
  if (command != FUTEX_WAKE && command != FUTEX_WAKE_BITSET) return by_kernel(SYS_futex, a);
  futex.wake(a[2] != 1);
  return futex.is_global() ? 1 : by_kernel(SYS_futex, a);
}

int wait_for_word(void* word, std::uint32_t expected, const Deadline* deadline, const char* call) noexcept {
  if (deadline != nullptr && !is_time(deadline->time)) return EINVAL;
  KASANE_CHECK(ult::Pool::may_switch() || !ult::Pool::in_user_code() || deadline != nullptr,
               "a handler of a signal waits for a thread");
  const int before = exchange_errno(0);
  const Futex futex(word);
  const NotedWait noted(call, word);
  if (ult::Pool::in_user_code() || futex.is_global()) {
    (void)futex.wait(expected, deadline, call);
  } else if (const std::uint64_t due_ns = due_at(deadline); due_ns == 0) {
    exchange_errno(ETIMEDOUT);
  } else {
    const int clock = deadline != nullptr && deadline->clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0;
    by_kernel(SYS_futex,
              {reinterpret_cast<long>(word), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | clock,
               static_cast<long>(expected), due_ns == kNever ? 0 : reinterpret_cast<long>(&deadline->time), 0,
               static_cast<long>(FUTEX_BITSET_MATCH_ANY)});
  }
  return exchange_errno(before) == ETIMEDOUT ? ETIMEDOUT : 0;
}

PreparedWait prepare_wait(void* word) noexcept {
  const Futex futex(word);
  // The word last: a change after the first step that rouses nobody is none.
  const std::uint32_t epoch = futex.prepare();
  return {epoch, futex.value()};
}
int wait_prepared(void* word, const PreparedWait& prepared, const Deadline* deadline,
                  const char* call) noexcept {
  const Futex futex(word);
  if (!ult::Pool::in_user_code() && !futex.is_global())
    return wait_for_word(word, prepared.seen, deadline, call);  // by the kernel
  if (deadline != nullptr && !is_time(deadline->time)) return EINVAL;
  const int before = exchange_errno(0);
  const NotedWait noted(call, word);
  (void)futex.wait(prepared, deadline, call);
  return exchange_errno(before) == ETIMEDOUT ? ETIMEDOUT : 0;
}

void wake_word(void* word, bool all) noexcept {
  const Futex futex(word);
  futex.wake(all);
  if (!futex.is_global())
    by_kernel(SYS_futex, {reinterpret_cast<long>(word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, all ? kForEver : 1});
}

}  // namespace kasane::runtime

#else  // one rank runs: the kernel's waits hear of all wake-ups

#include <errno.h>

#include <atomic>
#include <cstdint>

#include "base/futex.h"
#include "runtime/language/futex_calls.h"

namespace kasane::runtime {

int wait_for_word(void* word, std::uint32_t expected, const Deadline* deadline, const char*) noexcept {
  std::int64_t left_ns = -1;
  if (deadline != nullptr) {
    timespec now{};
    ::clock_gettime(deadline->clock, &now);
    left_ns = (deadline->time.tv_sec - now.tv_sec) * 1'000'000'000 + deadline->time.tv_nsec - now.tv_nsec;
    if (left_ns <= 0) return ETIMEDOUT;
  }
  futex_wait(*static_cast<std::atomic<std::uint32_t>*>(word), expected, left_ns);
  return 0;
}
PreparedWait prepare_wait(void* word) noexcept {
  return {0, static_cast<std::atomic<std::uint32_t>*>(word)->load(std::memory_order_relaxed)};
}
int wait_prepared(void* word, const PreparedWait& prepared, const Deadline* deadline,
                  const char* call) noexcept {
  return wait_for_word(word, prepared.seen, deadline, call);
}
void wake_word(void* word, bool) noexcept { futex_wake_all(*static_cast<std::atomic<std::uint32_t>*>(word)); }

}  // namespace kasane::runtime

#endif
