// SPDX-License-Identifier: Apache-2.0
// The threads of the offload engine: started, named, and ended.
#include "comm/offload/offloader.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <string>
#include <utility>

#include "base/process.h"
#include "topo/threads.h"

namespace kasane::comm {
namespace {

using offload::Executor;
using offload::Idle;

// While it lives, the calling thread blocks the signals that are meant for the program; threads made meanwhile inherit that. Those that a thread raises by
// what it does stay open: blocked, the kernel would end the process without the crash report.
class BlockSignals {
 public:
  BlockSignals() noexcept {
    sigset_t set;
    ::sigfillset(&set);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&set, signal);
    ::pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

bool one_core() noexcept {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 && CPU_COUNT(&cores) == 1;
}

void name_thread(const std::string& name) noexcept {
  ::pthread_setname_np(::pthread_self(), name.c_str());
  set_thread_role(name.c_str());
}

// Threads started one after the other have ids one after the other, so that they spread over the executors. Constant for an OS thread, whatever
// user-level thread it runs.
std::uint32_t thread_number() noexcept {
  static thread_local std::uint32_t number = 0;
  if (number == 0) [[unlikely]] number = static_cast<std::uint32_t>(::gettid());
  return number;
}

}  // namespace

Result<std::unique_ptr<Offloader>> Offloader::start(Transport& transport, Issuer& issuer, const Options& options) {
  if (options.executors == 0 || !std::has_single_bit(options.ring_commands) || options.ring_commands < 2) {
    return fail(Errc::invalid_argument, "an offloader with " + std::to_string(options.executors) + " executors and rings of " +
                                            std::to_string(options.ring_commands) + " commands: give at least 1, and a power of two from 2");
  }
  std::unique_ptr<Offloader> offloader(new Offloader(transport, issuer, options));
  KASANE_TRY(offloader->start_threads(options.separate_completer));
  return offloader;
}

Offloader::Offloader(Transport& transport, Issuer& issuer, const Options& options) : transport_(transport), alone_(one_core()) {
  for (std::uint32_t i = 0; i < options.executors; ++i) {
    const bool polls = i == 0 && !options.separate_completer;
    executors_.push_back(std::make_unique<Executor>(transport, issuer, options.ring_commands, polls, alone_));
  }
}

Result<void> Offloader::start_threads(bool separate_completer) {
  const BlockSignals blocked;
  // At an error the destructor ends those that were started.
  for (std::size_t i = 0; i < executors_.size(); ++i) {
    auto thread = topo::start_thread("the threads that issue operations (KASANE_ISSUE=offload)", [this, i] {
      name_thread("offload " + std::to_string(i));
      executors_[i]->run(stop_);
    });
    KASANE_TRY(thread);
    threads_.push_back(std::move(*thread));
  }
  if (!separate_completer) return {};
  auto thread = topo::start_thread("the thread that completes operations (KASANE_ISSUE=offload)", [this] {
    name_thread("completer");
    complete();
  });
  KASANE_TRY(thread);
  threads_.push_back(std::move(*thread));
  return {};
}

Offloader::~Offloader() {
  // release: pushes before this call are seen by the executor that sees stop, and taken. It ends once nothing is left.
  stop_.store(true, std::memory_order_release);
  // After stop: whoever read its doorbell before does not sleep, or is woken. Ring the transport's for whoever polls.
  for (const auto& executor : executors_) executor->wake();
  transport_.wake(transport_.rank(), Doorbell::messages);
  for (std::thread& thread : threads_) thread.join();
}

void Offloader::drain() const {
  for (const auto& executor : executors_) {
    const std::uint64_t target = executor->accepted();
    for (Idle idle(alone_); !executor->issued_all_before(target);) {
      if (idle.step() != Idle::Step::sleep) continue;
      const timespec nap{.tv_sec = 0, .tv_nsec = idle.next_nap_ns()};
      ::nanosleep(&nap, nullptr);   // nobody announces it; a drain is rare
    }
  }
}

Executor& Offloader::own_executor() const noexcept { return *executors_[thread_number() % executors_.size()]; }

void Offloader::complete() noexcept {
  for (Idle idle(alone_);;) {
    // Both before the look, as in Executor::run().
    const std::uint32_t seen = transport_.activity(Doorbell::messages);
    const bool stopping = stop_.load(std::memory_order_acquire);   // acquire: pairs with ~Offloader
    if (transport_.progress()) {
      idle.moved();
    } else if (stopping) {
      return;
    } else if (idle.step() == Idle::Step::sleep) {
      transport_.sleep(Doorbell::messages, seen, offload::kNoLimit);
    }
  }
}

}  // namespace kasane::comm
