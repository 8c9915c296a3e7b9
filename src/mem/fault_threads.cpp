// SPDX-License-Identifier: Apache-2.0
#include "mem/fault_threads.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/process.h"
#include "mem/alt_stack.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kSpinNs = 20'000;   // as comm::PollWaiter

/// All but those of crashes: a handler of the program's could touch V, and nobody would answer.
void block_signals() noexcept {
  sigset_t mask;
  ::sigfillset(&mask);
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&mask, crash);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

Result<void> FaultThreads::start() {
  KASANE_CHECK(stop_bell_ < 0);
  stop_bell_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_bell_ < 0) return fail_errno(Errc::limit, "an eventfd for the threads that serve faults");
  stop_.store(false);
  receiver_.store(0);
  try {
    for (unsigned i = 0; i < 2; ++i) threads_[i] = std::thread([this, i] { run(i); });
  } catch (const std::system_error& e) {
    stop();
    return fail(Errc::limit, std::string("starting the threads that serve faults: ") + e.what());
  }
  return {};
}

void FaultThreads::stop() noexcept {
  if (stop_bell_ < 0) return;
  stop_.store(true);
  const std::uint64_t one = 1;
  KASANE_CHECK(::write(stop_bell_, &one, sizeof one) == sizeof one);
  periods_.fetch_add(2);   // for a deputy that sleeps without end
  periods_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  ::close(std::exchange(stop_bell_, -1));
  count_ = 0;
}

void FaultThreads::await_answer() const noexcept {
  // acquire: what it did.
  for (const std::uint32_t seen = periods_.load(std::memory_order_acquire); (seen & 1) != 0 && periods_.load(std::memory_order_acquire) == seen;) ::sched_yield();
}

void FaultThreads::run(unsigned me) noexcept {
  block_signals();
  const auto alternate = AltStack::create();   // for the report of a crash
  KASANE_CHECK(alternate.has_value(), "no memory for an alternate signal stack");
  set_thread_role("faults");
  ::pthread_setname_np(::pthread_self(), "kasane-faults");
  while (!stop_.load()) {
    // seq_cst, all that the two tell each other beside noted_: rare but for the periods, of which a fault has two.
    if (receiver_.load() == me) receive(me);
    else if (be_deputy()) receiver_.store(me);
  }
}

/// True: an answer takes long.
bool FaultThreads::be_deputy() noexcept {
  std::uint32_t seen = periods_.load();
  if (stop_.load()) return false;   // after the look: stop() changes the number after it has said so
  if ((seen & 1) == 0) periods_.wait(seen);
  // As long as there are faults it looks once in a while, so that whoever answers need not wake it each time.
  do seen = periods_.load();
  while (sleep(kPatienceMs, false) && periods_.load() != seen);
  return periods_.load() == seen && (seen & 1) != 0;
}

/// Until the deputy has taken over.
void FaultThreads::receive(unsigned me) noexcept {
  std::array<UserFault, 16> faults;
  std::uint64_t last_ns = 0;
  while (receiver_.load() == me && !stop_.load()) {
    const std::size_t n = uffd_.receive(faults);
    if (n == 0) {
      // Faults come in rows, and a core that sleeps takes longer to wake than a fault to serve. Whoever else wants the core has it.
      if (now_ns() - last_ns < kSpinNs) ::sched_yield();
      else sleep(-1, true);
      continue;
    }
    for (const UserFault& fault : std::span(faults).first(n)) {
      if (!server_.serve_allowed(fault) && !note(fault)) server_.put_off(fault);
    }
    if (begin_answering()) {
      for (UserFault fault; next(fault);) server_.answer(fault);
    }
    last_ns = now_ns();
  }
}

/// False: too many are.
bool FaultThreads::note(const UserFault& fault) noexcept {
  const std::lock_guard lock(lock_);
  if (count_ == kMostNoted) return false;
  noted_[(oldest_ + count_++) % kMostNoted] = fault;
  return true;
}

/// False: there is nothing to answer, or the other one is at it and comes to it.
bool FaultThreads::begin_answering() noexcept {
  {
    const std::lock_guard lock(lock_);
    if (answering_ || count_ == 0) return false;
    answering_ = true;
  }
  periods_.fetch_add(1);
  periods_.notify_one();
  return true;
}

/// The oldest. False: there is none, and the caller has ended answering.
bool FaultThreads::next(UserFault& fault) noexcept {
  const std::lock_guard lock(lock_);
  if (count_ != 0 && !stop_.load()) {
    fault = noted_[oldest_];
    oldest_ = (oldest_ + 1) % kMostNoted;
    --count_;
    return true;
  }
  answering_ = false;
  periods_.fetch_add(1);
  return false;
}

/// False: stop() was called.
bool FaultThreads::sleep(int timeout_ms, bool for_faults) noexcept {
  pollfd fds[2] = {{stop_bell_, POLLIN, 0}, {uffd_.descriptor(), POLLIN, 0}};
  const int ready = ::poll(fds, for_faults ? 2 : 1, timeout_ms);
  KASANE_CHECK(ready >= 0 || errno == EINTR);
  return !stop_.load();
}

}  // namespace kasane::mem
