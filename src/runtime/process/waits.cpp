// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/waits.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>

#include "base/call_selector.h"
#include "runtime/language/held_mutexes.h"
#include "runtime/process/descriptor_turns.h"
#include "runtime/process/streams.h"
#include "runtime/process/system_calls.h"
#include "runtime/process/wrapped_call.h"
#include "runtime/rank/call_memory.h"
#include "runtime/rank/own_code.h"
#include "runtime/rank/runtime.h"
#include "traps/signal_dispatch.h"
#include "ult/outside_callers.h"
#include "ult/pool.h"

// kasane_ult_thread_run, by the linker.
extern "C" [[gnu::visibility("hidden")]] const char __start_kasane_runs_threads[],
    __stop_kasane_runs_threads[];

namespace kasane::runtime {
namespace {

using traps::CaughtCall;

/// What calls here name is private memory: a stack may be absent.
struct Named {
  pollfd file;
  int bytes;
  struct stat status;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Named t_named{};

// Not inlined, as others here that use t_named: the caller may go on in another OS thread between two calls.
[[gnu::noinline]] bool is_ready(int descriptor, short events) noexcept {
  Named& named = t_named;
  named.file = {descriptor, events, 0};
  return traps::issue_call(SYS_poll, {word_of(&named.file), 1, 0, 0, 0, 0}) != 0;
}

// ---- on callers (ult/outside_callers.h) ----

/// EPIPE, and the thread is to get a SIGPIPE.
constexpr long kBrokenPipe = -EPIPE - 4096;

/// Takes the SIGPIPE that the kernel has just sent to the calling OS thread, which blocks it.
bool take_broken_pipe() noexcept {
  const std::uint64_t set = std::uint64_t{1} << (SIGPIPE - 1);
  const timespec at_once{};
  return traps::issue_call(SYS_rt_sigtimedwait, {word_of(&set), 0, word_of(&at_once), sizeof set, 0, 0}) ==
         SIGPIPE;
}

/// The call for the same input that does not wait. Number -1: there is none.
CaughtCall at_once(CaughtCall call, iovec& bytes) noexcept {
  long(&a)[6] = call.argument;
  switch (call.number) {
    case SYS_read:
      bytes = {reinterpret_cast<void*>(a[1]), static_cast<std::size_t>(a[2])};
      return call_of(SYS_preadv2, a[0], &bytes, 1, -1, 0, RWF_NOWAIT);
    case SYS_readv: return call_of(SYS_preadv2, a[0], a[1], a[2], -1, 0, RWF_NOWAIT);
    case SYS_recvfrom:
    case SYS_recvmsg: {
      long& flags = a[call.number == SYS_recvmsg ? 2 : 3];
      if ((flags & MSG_WAITALL) != 0) call.number = -1;
      flags |= MSG_DONTWAIT;
      return call;
    }
    default: return call_of(-1);
  }
}

/// Until there is input, the time of SO_RCVTIMEO is over, or an interruption. The kernel's answer; 0: late.
long await_input(long descriptor) noexcept {
  timeval time{};
  int bytes = sizeof time;
  const bool timed = traps::issue_call(SYS_getsockopt, {descriptor, SOL_SOCKET, SO_RCVTIMEO, word_of(&time),
                                                        word_of(&bytes), 0}) == 0 &&
                     (time.tv_sec != 0 || time.tv_usec != 0);
  const timespec limit = {time.tv_sec, time.tv_usec * 1000};
  pollfd file = {static_cast<int>(descriptor), POLLIN, 0};
  return traps::issue_call(SYS_ppoll, {word_of(&file), 1, timed ? word_of(&limit) : 0, 0, 8, 0});
}

/// With a budget no memory is pinned while a call waits for input: many threads may.
long call_for_input(const CaughtCall& call) noexcept {
  iovec bytes{};
  const CaughtCall attempt = at_once(call, bytes);
  Runtime* const runtime = Runtime::current();
  if (attempt.number < 0 || runtime == nullptr || !runtime->call_memory().has_budget())
    return make_call_here(call);
  // One at a time, so that of many that wait for one descriptor one pins its memory. acquire and release, as
  // of a lock: the one before has unpinned.
  static constinit std::array<std::atomic<bool>, 256> tries{};
  std::atomic<bool>& tried = tries[static_cast<std::size_t>(call.argument[0]) % tries.size()];
  for (;;) {
    const long ready = await_input(call.argument[0]);
    if (ready <= 0) return ready == 0 ? -EAGAIN : ready;
    if (tried.exchange(true, std::memory_order_acquire)) {
      constexpr timespec kNap = {0, 10'000'000};
      if (traps::issue_call(SYS_nanosleep, {word_of(&kNap), 0, 0, 0, 0, 0}) == -EINTR) return -EINTR;
      continue;
    }
    const long result =
        is_ready(static_cast<int>(call.argument[0]), POLLIN) ? make_call_here(attempt) : -EAGAIN;
    tried.store(false, std::memory_order_release);
    if (result == -EOPNOTSUPP) return make_call_here(call);  // pipes before Linux 6.5, terminals
    if (result != -EAGAIN) return result;
  }
}

long call_of_thread(const long (&w)[ult::OutsideRequest::kWords]) {
  const long result = call_for_input(call_of(w[0], w[1], w[2], w[3], w[4], w[5], w[6]));
  return result == -EPIPE && take_broken_pipe() ? kBrokenPipe : result;
}

void allow_interruptions() noexcept {
  static constinit std::atomic<bool> done{false};
  if (done.load(std::memory_order_acquire)) return;  // acquire: the kernel has it
  struct sigaction action = {};
  action.sa_handler = ult::interrupt_nothing;
  traps::raw_sigaction(ult::kOutsideSignal, &action, nullptr);
  done.store(true, std::memory_order_release);
}

// ---- descriptors ----

/// The order of descriptor_turns.h. Some descriptors share one, and wait outside for nothing then.
class Turns {
 public:
  Turns(int descriptor, bool input) noexcept
      : word_(g_words[static_cast<std::size_t>(2 * descriptor + (input ? 1 : 0)) % g_words.size()]) {}
  TurnAction step(TurnEvent event) noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    TurnStep step;
    do step = next(DescriptorTurns::unpack(word), event);
    // acq_rel: one after the other uses the descriptor
    while (!word_.compare_exchange_weak(word, step.next.pack(), std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
    return step.action;
  }

 private:
  static constinit inline std::array<std::atomic<std::uint32_t>, 1024> g_words{};
  std::atomic<std::uint32_t>& word_;
};

/// Calls on it do not wait, or for as long only as a device takes.
bool never_waits(int descriptor) noexcept {
  const mode_t kind = kind_of(descriptor);
  return kind == S_IFREG || kind == S_IFBLK || kind == S_IFDIR || is_non_blocking(descriptor);
}

/// On the stack of a thread that stays on its rank.
long call_in_turn(const char* name, const CaughtCall& call, int descriptor, bool input) noexcept {
  Turns turns(descriptor, input);
  TurnAction action = turns.step(TurnEvent::enter);
  for (; action == TurnAction::again; action = turns.step(TurnEvent::enter)) {
    if (never_waits(descriptor)) return make_call_here(call);
    traps::issue_call(SYS_sched_yield, {});
  }
  bool here = false;
  if (action == TurnAction::outside) {
    here = never_waits(descriptor);
  } else if (is_ready(descriptor, input ? POLLIN : POLLOUT) || is_non_blocking(descriptor)) {
    const long result = make_call_here(call);
    turns.step(TurnEvent::called);
    return result;
  } else {
    turns.step(TurnEvent::go_outside);
  }
  const long result = here ? make_call_here(call) : wait_in(name, call);
  turns.step(TurnEvent::end);
  return result;
}

long wait_for(const char* name, const CaughtCall& call, bool input) noexcept {
  const int descriptor = static_cast<int>(call.argument[0]);
  go_to_descriptor(descriptor);
  bring_memory_of(call);
  return call_in_turn(name, call, descriptor, input);
}

}  // namespace

bool waits_without_worker(const void* caller) noexcept {
  // Compilers turn a thread's last call into a jump.
  const bool last = caller >= __start_kasane_runs_threads && caller < __stop_kasane_runs_threads;
  return calls() == Calls::caught && ult::Pool::may_wait() && (last || !is_code_of_runtime(caller)) &&
         !holds_mutex_of_libc();
}

void bring_memory_of(const CaughtCall& call) noexcept {
  constexpr std::size_t kMostVectors = 16;
  Runtime* const runtime = Runtime::current();
  if (runtime == nullptr) return;
  CallMemory& memory = runtime->call_memory();
  std::size_t left = memory.room_of_calls();
  const auto bring = [&](const void* p, std::size_t bytes) {
    const std::size_t part = std::min(bytes, left);
    left -= part;
    memory.bring(p, part);
  };
  const auto* const named = reinterpret_cast<const void*>(call.argument[1]);
  const auto n = static_cast<std::size_t>(call.argument[2]);
  switch (call.number) {
    case SYS_read:
    case SYS_write:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_sendto:
    case SYS_recvfrom: return bring(named, n);
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv:
    case SYS_pwritev: {
      std::array<iovec, kMostVectors> vectors;
      const std::size_t few = std::min(n, kMostVectors);
      if (!traps::copy_named(vectors.data(), named, few * sizeof(iovec))) return;
      for (std::size_t i = 0; i < few; ++i) bring(vectors[i].iov_base, vectors[i].iov_len);
      return;
    }
    default: return;
  }
}

long wait_in(const char* name, const CaughtCall& call, bool restarts) noexcept {
  allow_interruptions();
  ult::OutsideRequest request{.call = name, .function = call_of_thread, .restarts = restarts};
  request.words[0] = call.number;
  std::copy(std::begin(call.argument), std::end(call.argument), request.words + 1);
  const auto result = ult::Pool::call_outside(request);
  if (!result) return make_call_here(call);
  if (*result != kBrokenPipe) return *result;
  traps::issue_call(SYS_tgkill,
                    {traps::issue_call(SYS_getpid, {}), traps::issue_call(SYS_gettid, {}), SIGPIPE, 0, 0, 0});
  return -EPIPE;
}

long wait_for_input(const char* name, const CaughtCall& call) noexcept { return wait_for(name, call, true); }
long wait_for_output(const char* name, const CaughtCall& call) noexcept {
  return wait_for(name, call, false);
}

[[gnu::noinline]] mode_t kind_of(int descriptor) noexcept {
  struct stat& status = t_named.status;
  return traps::issue_call(SYS_fstat, {descriptor, word_of(&status), 0, 0, 0, 0}) == 0
             ? status.st_mode & S_IFMT
             : 0;
}

bool is_non_blocking(int descriptor) noexcept {
  const long flags = traps::issue_call(SYS_fcntl, {descriptor, F_GETFL, 0, 0, 0, 0});
  return flags < 0 || (flags & O_NONBLOCK) != 0;
}

[[gnu::noinline]] long readable_bytes(int descriptor) noexcept {
  int& bytes = t_named.bytes;
  return traps::issue_call(SYS_ioctl, {descriptor, FIONREAD, word_of(&bytes), 0, 0, 0}) == 0 ? bytes : 0;
}

void go_to_descriptor(int descriptor) noexcept {
  const Rank owner = descriptor_elsewhere(descriptor);
  if (owner == kNoRank) return;
  check_no_mutex_held("a call on a descriptor of another rank");
  ult::Pool::go_to(owner);
}

}  // namespace kasane::runtime
