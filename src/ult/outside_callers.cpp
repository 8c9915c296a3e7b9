// SPDX-License-Identifier: Apache-2.0
#include "ult/outside_callers.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "base/futex.h"
#include "topo/threads.h"
#include "ult/outside_waits.h"
#include "ult/pool_core.h"

namespace kasane::ult {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

/// What stops a job in the background that uses its terminal goes to the OS thread that does.
void let_through_signals_of_calls() noexcept {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {kOutsideSignal, SIGTTIN, SIGTTOU}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace

const int kOutsideSignal = SIGSTKFLT;
void interrupt_nothing(int) noexcept {}

// ---- a caller ----

OutsideAction OutsideCaller::step(OutsideEvent event) noexcept {
  std::uint32_t word = word_.load(std::memory_order_relaxed);
  OutsideStep step;
  do {
    step = next(OutsideWord::unpack(word), event);
    // acq_rel: the request before `ask`, the result before `end`; each side reads what the other wrote.
  } while (!word_.compare_exchange_weak(word, step.next.pack(), std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  if (step.action == OutsideAction::wake) futex_wake(word_, 1, FutexOf::process);
  if (step.action == OutsideAction::signal)
    // relaxed: stored before its first call began
    ::syscall(SYS_tgkill, ::getpid(), os_thread_.load(std::memory_order_relaxed), kOutsideSignal);
  return step.action;
}

void* OutsideCaller::begin(void* self) noexcept {
  topo::block_signals_of_program();
  let_through_signals_of_calls();
  auto* const caller = static_cast<OutsideCaller*>(self);
  caller->os_thread_.store(static_cast<std::int32_t>(::syscall(SYS_gettid)), std::memory_order_relaxed);
  caller->run();
  caller->~OutsideCaller();
  std::free(self);
  return nullptr;
}

void OutsideCaller::run() noexcept {
  for (;;) {
    const std::uint32_t word = word_.load(std::memory_order_acquire);  // acquire: the request
    const OutsideState state = OutsideWord::unpack(word).state;
    if (state == OutsideState::free || state == OutsideState::ended) {
      futex_wait(word_, word, -1, FutexOf::process);
      continue;
    }
    switch (step(OutsideEvent::begin)) {
      case OutsideAction::quit: return;
      case OutsideAction::refuse: result = -EINTR; break;
      case OutsideAction::flush:
        ::sched_yield();
        [[fallthrough]];  // any system call: signals come at its end
      default: result = request.function(request.words);
    }
    delivers_.store(true, std::memory_order_relaxed);  // relaxed: before the step, which is a release
    if (step(OutsideEvent::end) == OutsideAction::quit) return;
    deliver();
  }
}

void OutsideCaller::deliver() noexcept {
  waits->deliver(*this);
  // From here on the thread may have given this back, and others may have asked: only the pool is used.
  core_->idle_workers.wake_all();
  delivers_.store(false, std::memory_order_release);  // release: nothing of the pool is touched after it
}

// ---- all ----

OutsideCallers::~OutsideCallers() {
  for (OutsideCaller* const caller : busy_) dismiss(caller);
  for (OutsideCaller* const caller : idle_) dismiss(caller);
}

void OutsideCallers::dismiss(OutsideCaller* caller) noexcept {
  std::uint32_t word = caller->word_.load(std::memory_order_acquire);
  for (;;) {
    const OutsideState state = OutsideWord::unpack(word).state;
    const bool in_call = state == OutsideState::runs || state == OutsideState::told;
    // A caller that delivers touches the pool, for a moment. acquire: it has not, since.
    if (!in_call && caller->delivers_.load(std::memory_order_acquire)) {
      ::sched_yield();
      word = caller->word_.load(std::memory_order_acquire);
      continue;
    }
    const OutsideStep step = next(OutsideWord::unpack(word), OutsideEvent::leave);
    // acq_rel: as in step(). From here on the record is the OS thread's.
    if (caller->word_.compare_exchange_weak(word, step.next.pack(), std::memory_order_acq_rel)) break;
  }
  futex_wake(caller->word_, 1, FutexOf::process);
}

OutsideCaller* OutsideCallers::make() noexcept {
  void* const memory = std::malloc(sizeof(OutsideCaller));
  if (memory == nullptr) return nullptr;
  auto* const caller = new (memory) OutsideCaller;
  caller->core_ = core_;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, kStackBytes + topo::thread_local_bytes());
  pthread_t thread;
  const int error = ::pthread_create(&thread, &attributes, OutsideCaller::begin, caller);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) {
    count_.fetch_add(1, std::memory_order_relaxed);
    return caller;
  }
  std::free(memory);
  return nullptr;
}

OutsideCaller* OutsideCallers::take() noexcept {
  const std::lock_guard lock(mutex_);
  OutsideCaller* caller = nullptr;
  if (!idle_.empty()) {
    caller = idle_.back();
    idle_.pop_back();
  } else if (caller = make(); caller == nullptr) {
    return nullptr;
  }
  busy_.push_back(caller);
  return caller;
}

bool OutsideCallers::busy() noexcept {
  const std::lock_guard lock(mutex_);
  return !busy_.empty();
}

void OutsideCallers::give_back(OutsideCaller* caller) noexcept {
  (void)caller->step(OutsideEvent::take);
  const std::lock_guard lock(mutex_);
  *std::find(busy_.begin(), busy_.end(), caller) = busy_.back();
  busy_.pop_back();
  if (idle_.size() < kMostIdle) return idle_.push_back(caller);
  count_.fetch_sub(1, std::memory_order_relaxed);
  dismiss(caller);
}

}  // namespace kasane::ult
