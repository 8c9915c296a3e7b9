// SPDX-License-Identifier: Apache-2.0
// std::atomic::wait and notify, std::counting_semaphore, latch and barrier: libstdc++'s headers wait for a
// word by syscall(SYS_futex, …). libkasane defines syscall(): on a user-level thread such a wait suspends the
// thread, not its worker, and a wake-up reaches the threads of all ranks (ult/watch.h). All other calls go on
// to the kernel.
//
//   waits on              a user-level thread                    another OS thread
//   private memory        a watch list                           the kernel
//   global memory         a watch list                           looks again and again (kNap): a wake-up of
// another rank would not reach the kernel's list
//
// A wake-up goes to both. The word is compared where its atomics are executed (runtime/atomics.h).
//
// A userfaultfd of the runtime's, and calls that close its descriptors, are seen here, too
// (runtime/own_descriptors.h).
//
// Thread safety: from any thread. The runtime's own calls of syscall() come here, too, and pass.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <utility>

#include "base/raw_call.h"
#include "runtime/atomics.h"
#include "runtime/futex_calls.h"
#include "runtime/own_descriptors.h"
#include "runtime/runtime.h"
#include "runtime/system_calls.h"
#include "runtime/waits.h"
#include "runtime/wrapped_call.h"
#include "ult/pool.h"
#include "ult/runtime_section.h"
#include "ult/watch.h"

namespace kasane::runtime {
namespace {

using Arguments = std::array<long, 6>;

/// With libc's convention for errors.
long by_kernel(long number, const Arguments& a) noexcept {
  return as_libc(raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

// Not inlined: where errno is has to be found again after a wait, which may move the thread.
[[gnu::noinline]] long fail_with(int error) noexcept {
  errno = error;
  return -1;
}

constexpr long kNapNs = 200'000;

/// A futex of the program.
class Futex {
 public:
  explicit Futex(void* word) noexcept : word_(word), global_(here().contains(word)) {}

  [[nodiscard]] bool is_global() const noexcept { return global_; }
  [[nodiscard]] std::uint32_t value() const noexcept { return load_atomic(word_); }

  /// On a user-level thread. call: in reports.
  long wait(std::uint32_t expected, const char* call = "atomic::wait") const {
    if (value() != expected) return fail_with(EAGAIN);
    const ult::Watch list = watch();
    const std::uint32_t epoch = list.prepare();
    if (value() != expected) return fail_with(EAGAIN);
    list.wait(epoch, call);
    return 0;
  }
  /// Until wait() would return, or the time has come: the thread lets others run meanwhile.
  long wait_until(std::uint32_t expected, clockid_t clock, const timespec& deadline) const {
    while (value() == expected) {
      timespec now;
      ::clock_gettime(clock, &now);
      if (now.tv_sec > deadline.tv_sec || (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec))
        return fail_with(ETIMEDOUT);
      if (ult::Pool::self() != kNoSlot && ult::Pool::others_here()) {
        ult::Pool::yield();
      } else {
        const timespec nap{0, kNapNs};
        ::nanosleep(&nap, nullptr);
      }
    }
    return fail_with(EAGAIN);
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

long wait(const Futex& futex, int op, const Arguments& a) {
  const auto expected = static_cast<std::uint32_t>(a[2]);
  const auto* const time = reinterpret_cast<const timespec*>(a[3]);
  if (time == nullptr && ult::Pool::may_wait()) return futex.wait(expected);
  const clockid_t clock = (op & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
  timespec deadline{kForEver, 0};
  if (time != nullptr) deadline = *time;
  if (time != nullptr && (op & FUTEX_CMD_MASK) == FUTEX_WAIT) {  // relative
    timespec now;
    ::clock_gettime(clock, &now);
    deadline.tv_sec += now.tv_sec;
    deadline.tv_nsec += now.tv_nsec;
    if (deadline.tv_nsec >= 1'000'000'000) deadline.tv_nsec -= 1'000'000'000, ++deadline.tv_sec;
  }
  return futex.wait_until(expected, clock, deadline);
}

/// A futex call of the program.
long call_futex(const Arguments& a) {
  const Futex futex(reinterpret_cast<void*>(a[0]));
  const int op = static_cast<int>(a[1]), command = op & FUTEX_CMD_MASK;
  const bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
  const bool on_thread = ult::Pool::may_wait();
  if (waits && (on_thread || futex.is_global())) return wait(futex, op, a);
  if (command != FUTEX_WAKE && command != FUTEX_WAKE_BITSET) return by_kernel(SYS_futex, a);
  futex.wake(a[2] != 1);
  return futex.is_global() ? 1 : by_kernel(SYS_futex, a);
}

}  // namespace

namespace {
[[gnu::noinline]] int exchange_errno(int value) noexcept { return std::exchange(errno, value); }
}  // namespace

int wait_for_word(void* word, std::uint32_t expected, const Deadline* deadline, const char* call) noexcept {
  const int before = exchange_errno(0);
  const Futex futex(word);
  const Deadline never{CLOCK_MONOTONIC, {kForEver, 0}};
  const Deadline& until = deadline != nullptr ? *deadline : never;
  if (ult::Pool::in_user_code()) {
    (void)(deadline == nullptr ? futex.wait(expected, call)
                               : futex.wait_until(expected, until.clock, until.time));
  } else if (futex.is_global()) {
    (void)futex.wait_until(expected, until.clock, until.time);
  } else {
    const int clock = until.clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0;
    by_kernel(SYS_futex, {reinterpret_cast<long>(word), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | clock,
                          static_cast<long>(expected), reinterpret_cast<long>(&until.time), 0,
                          static_cast<long>(FUTEX_BITSET_MATCH_ANY)});
  }
  return exchange_errno(before) == ETIMEDOUT ? ETIMEDOUT : 0;
}
void wake_word(void* word, bool all) noexcept {
  const Futex futex(word);
  futex.wake(all);
  if (!futex.is_global())
    by_kernel(SYS_futex, {reinterpret_cast<long>(word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, all ? kForEver : 1});
}

}  // namespace kasane::runtime

extern "C" long syscall(long number, ...) noexcept {
  using namespace kasane::runtime;
  std::va_list list;
  va_start(list, number);
  Arguments a;
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) [[unlikely]] {
    const Runtime* const runtime = Runtime::current();
    if (runtime != nullptr && runtime->running() && !is_code_of_runtime(__builtin_return_address(0)))
      return call_futex(a);
  }
  const kasane::mem::CaughtCall call{number, {a[0], a[1], a[2], a[3], a[4], a[5]}, 0, 0, 0, 0};
  if (calls_are_wrapped() || (in_user_code() && concerns_descriptors(call))) [[unlikely]]
    return make_wrapped_call(call);
  if (number != SYS_userfaultfd) return by_kernel(number, a);
  const OwnDescriptors own(__builtin_return_address(0));
  return own(static_cast<int>(by_kernel(number, a)));
}

#endif
