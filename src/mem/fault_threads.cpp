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
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/process.h"
#include "topo/threads.h"
#include "traps/alt_stack.h"

namespace kasane::mem {
namespace {

constexpr std::uint64_t kSpinNs = 20'000;  // as comm::PollWaiter

}  // namespace

struct FaultThreads::Own {
  unsigned me;
  UserFault fault;            ///< the fault that the thread answers
  std::uint64_t busy_ns = 0;  ///< when the thread last was busy
  bool busy = false;          ///< since it last rested
};

Result<void> FaultThreads::start() {
  KASANE_CHECK(stop_bell_ < 0);
  stop_bell_ = ::eventfd(0, EFD_CLOEXEC);
  if (stop_bell_ < 0) return fail_errno(Errc::limit, "an eventfd for the threads that serve faults");
  stop_.store(false);
  receiver_.store(0);
  for (unsigned i = 0; i < 2; ++i) {
    auto thread = topo::start_thread("the threads that serve faults", [this, i] { run(i); });
    if (!thread) stop();
    KASANE_TRY(thread);
    threads_[i] = std::move(*thread);
  }
  return {};
}

void FaultThreads::stop() noexcept {
  if (stop_bell_ < 0) return;
  stop_.store(true);
  const std::uint64_t one = 1;
  KASANE_CHECK(::write(stop_bell_, &one, sizeof one) == sizeof one);
  periods_.ring(2);  // for a deputy that waits without a limit
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  ::close(std::exchange(stop_bell_, -1));
  answers_ = {};
}

void FaultThreads::await_answer() const noexcept {
  for (const std::uint32_t seen = periods_.activity(); (seen & 1) != 0 && periods_.activity() == seen;)
    ::sched_yield();
}

void FaultThreads::run(unsigned me) noexcept {
  topo::block_signals_of_program();
  const auto alternate = traps::AltStack::create();  // for the report of a crash
  KASANE_CHECK(alternate.has_value(), "no memory for an alternate signal stack");
  set_thread_role("faults");
  ::pthread_setname_np(::pthread_self(), "kasane-faults");
  Own own{.me = me, .fault = {}};
  for (FaultDuty duty; duty.act != FaultAct::gone;) duty = duty.next(carry_out(duty, own));
}

/// Returns what the thread saw. seq_cst for all that the two threads tell each other outside the lock, as in
/// the model's walk. These operations are rare but for the periods, of which a fault has two.
std::uint32_t FaultThreads::carry_out(FaultDuty duty, Own& own) noexcept {
  using Act = FaultAct;
  switch (duty.act) {
    case Act::look_stop: return stop_.load();
    case Act::look_receiver: return receiver_.load() == own.me;
    case Act::receive: {
      const std::size_t n = receive();
      own.busy |= n != 0;
      return n != 0;
    }
    case Act::rest: rest(own); break;
    case Act::begin: return begin();
    case Act::announce: periods_.ring(); break;
    case Act::take: return take(own.fault);
    case Act::answer: server_.answer(own.fault); break;
    case Act::see:
    case Act::look_again: return periods_.activity();
    case Act::patience: sleep(kPatienceMs, false); return stop_.load();
    case Act::wait: periods_.sleep(duty.period, -1); break;
    case Act::take_over: receiver_.store(own.me); break;
    case Act::leave: {
      const std::lock_guard lock(lock_);
      return answers_.answering;
    }
    case Act::gone: break;
  }
  return 0;
}

/// The number of faults received.
std::size_t FaultThreads::receive() noexcept {
  std::array<UserFault, 16> faults;
  const std::size_t n = uffd_.receive(faults);
  for (const UserFault& fault : std::span(faults).first(n)) {
    if (!server_.serve_allowed(fault) && !note(fault)) server_.put_off(fault);
  }
  return n;
}

/// False: too many are noted.
bool FaultThreads::note(const UserFault& fault) noexcept {
  const std::lock_guard lock(lock_);
  const std::size_t at = (oldest_ + answers_.noted) % kMostNoted;
  if (!answers_.note(kMostNoted)) return false;
  noted_[at] = fault;
  return true;
}

bool FaultThreads::begin() noexcept {
  const std::lock_guard lock(lock_);
  return answers_.begin(stop_.load());
}

/// Takes the oldest.
bool FaultThreads::take(UserFault& fault) noexcept {
  const std::lock_guard lock(lock_);
  if (!answers_.take(stop_.load())) {
    periods_.events.fetch_add(1);  // no thread waits for the end of a period
    return false;
  }
  fault = noted_[oldest_];
  oldest_ = (oldest_ + 1) % kMostNoted;
  return true;
}

/// Faults come in quick succession, and waking a sleeping core takes longer than serving a fault.
/// sched_yield() leaves the core to any other thread that needs it.
void FaultThreads::rest(Own& own) const noexcept {
  const std::uint64_t now = now_ns();
  if (std::exchange(own.busy, false)) own.busy_ns = now;
  if (now - own.busy_ns < kSpinNs)
    ::sched_yield();
  else
    sleep(-1, true);
}

/// Returns at a fault (for_faults), after timeout_ms, and when the threads have to end.
void FaultThreads::sleep(int timeout_ms, bool for_faults) const noexcept {
  pollfd fds[2] = {{stop_bell_, POLLIN, 0}, {uffd_.descriptor(), POLLIN, 0}};
  const int ready = ::poll(fds, for_faults ? 2 : 1, timeout_ms);
  KASANE_CHECK(ready >= 0 || errno == EINTR);
}

}  // namespace kasane::mem
