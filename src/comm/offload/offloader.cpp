// SPDX-License-Identifier: Apache-2.0
// The executor: its start and end, and its loop: run_once() (retry, take, poll), and rest() when that found
// nothing.
#include "comm/offload/offloader.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/process.h"
#include "topo/threads.h"

namespace kasane::comm {
namespace {

using offload::Idle;

// While it lives, the calling thread blocks the signals that are meant for the program; threads made
// meanwhile inherit the mask. Signals that a thread's own faults raise stay open: if they were blocked, the
// kernel would end the process without the crash report.
class BlockSignals {
 public:
  BlockSignals() noexcept {
    sigset_t set;
    ::sigfillset(&set);
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      ::sigdelset(&set, signal);
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

/// The transport's messages doorbell as nap() wants it.
struct MessagesBell {
  Transport& transport;
  void sleep(std::uint32_t seen, std::int64_t limit_ns) noexcept {
    transport.sleep(Doorbell::messages, seen, limit_ns);
  }
};

}  // namespace

// ---- start and end ----------------------------------------------------------------------------------------

Result<std::unique_ptr<Offloader>> Offloader::start(Transport& transport, Issuer& issuer,
                                                    std::uint32_t ring_commands) {
  if (!std::has_single_bit(ring_commands) || ring_commands < 2) {
    return fail(Errc::invalid_argument, "an offloader with a ring of " + std::to_string(ring_commands) +
                                            " commands: give a power of two, at least 2");
  }
  std::unique_ptr<Offloader> offloader(new Offloader(transport, issuer, ring_commands));
  KASANE_TRY(offloader->start_thread());
  return offloader;
}

Offloader::Offloader(Transport& transport, Issuer& issuer, std::uint32_t ring_commands)
    : ring_(ring_commands),
      closed_(transport.ranks()),
      transport_(transport),
      issuer_(issuer),
      held_(most_held(ring_commands, transport.ranks()), transport.ranks()) {}

Result<void> Offloader::start_thread() {
  const BlockSignals blocked;
  auto thread = topo::start_thread("the thread that issues operations (KASANE_ISSUE=offload)", [this] {
    ::pthread_setname_np(::pthread_self(), "offload");
    set_thread_role("offload");
    run();
  });
  KASANE_TRY(thread);
  thread_ = std::move(*thread);
  return {};
}

Offloader::~Offloader() {
  if (!thread_.joinable()) return;
  // release: the executor sees the pushes before this call once it sees stop. It ends when nothing is left.
  stop_.store(true, std::memory_order_release);
  wake();  // after stop: an executor that read its doorbell before does not sleep, or is woken
  thread_.join();
}

// ---- the loop ---------------------------------------------------------------------------------------------

void Offloader::run() noexcept {
  for (Idle idle(one_core());;) {
    // Both before run_once(): what rings afterwards ends the sleep below, and what was pushed before stop was
    // set is found.
    const std::uint32_t seen = transport_.activity(Doorbell::messages);
    // acquire: pairs with the store in ~Offloader
    const bool stopping = stop_.load(std::memory_order_acquire);
    if (run_once()) {
      idle.moved();
      unpublished_ = 0;
    } else if (stopping && held_.empty() && taken_ == ring_.claimed()) {
      return;
    } else {
      rest(idle, seen);
    }
  }
}

bool Offloader::run_once() noexcept {
  bool moved = retry_held();
  moved = take() != 0 || moved;
  moved = transport_.progress() || moved;
  publish_issued();
  return moved;
}

bool Offloader::retry_held() noexcept {
  if (held_.empty()) return false;
  return held_.retry(
      kBatch, [this](const Command& command) { return issuer_.issue(command) == Issued::done; },
      [this](Rank peer, std::uint32_t held) {
        // relaxed: a hint to requesters.
        if (held < kPeerQuota && closed_[raw(peer)].load(std::memory_order_relaxed)) {
          closed_[raw(peer)].store(false, std::memory_order_relaxed);
        }
      });
}

std::uint32_t Offloader::take() noexcept {
  std::uint32_t took = 0;
  while (took < kBatch) {
    const Command* command = ring_.front();
    if (command == nullptr || !take_one(*command)) break;
    ring_.pop();
    ++taken_;
    ++took;
  }
  return took;
}

// False: it stays in the ring, since it can be neither issued nor held.
bool Offloader::take_one(const Command& command) noexcept {
  // Behind its peer's older ones: no order is promised, but no command may be overtaken for ever.
  if (held_.held(command.remote.rank) == 0 && issuer_.issue(command) == Issued::done) return true;
  if (held_.full()) {
    ring_.hand_back();
    return false;
  }
  hold(command);
  return true;
}

void Offloader::hold(const Command& command) noexcept {
  issuer_.hold(held_.hold(command, taken_));
  if (held_.held(command.remote.rank) >= kPeerQuota) {
    // relaxed: a hint to requesters
    closed_[raw(command.remote.rank)].store(true, std::memory_order_relaxed);
  }
}

void Offloader::publish_issued() noexcept {
  const std::uint64_t before = std::min(taken_, held_.oldest());
  // relaxed: only this thread writes it.
  if (before == issued_before_.load(std::memory_order_relaxed)) return;
  // release: a thread that reads the number sees what issuing did.
  issued_before_.store(before, std::memory_order_release);
}

void Offloader::rest(Idle& idle, std::uint32_t seen) noexcept {
  if (idle.step() != Idle::Step::sleep) return;
  // No transport announces that a blocked peer accepts something again: then the executor sleeps shortly, and
  // looks.
  const std::int64_t limit_ns = held_.empty() ? offload::kNoLimit : idle.next_nap_ns();
  MessagesBell bell{transport_};
  if (offload::nap(ring_, bell, seen, limit_ns)) return;
  // Commands are there that cannot be taken (held_ is full), or a producer was interrupted between its claim
  // and its publication.
  if (!held_.full() && unpublished_++ < kUnpublishedLooks) {
    ::sched_yield();
  } else {
    bell.sleep(seen, idle.next_nap_ns());
  }
}

}  // namespace kasane::comm
