// SPDX-License-Identifier: Apache-2.0
#include "mem/spill_threads.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <vector>

#include "base/assert.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/mpsc_ring.h"
#include "base/process.h"

namespace kasane::mem {
namespace {

constexpr unsigned kMostThreads = 8;

void wait_for(sem_t& s) noexcept {
  while (::sem_wait(&s) != 0) KASANE_CHECK_OP(errno, ==, EINTR);
}

std::int32_t transfer(const SpillTransfer& t) noexcept {
  for (;;) {
    const auto at = static_cast<off_t>(t.offset);
    const ssize_t moved =
        t.op == SpillOp::read ? ::pread(t.fd, t.memory, t.bytes, at) : ::pwrite(t.fd, t.memory, t.bytes, at);
    if (moved >= 0) return static_cast<std::int32_t>(moved);
    if (errno != EINTR) return -errno;
  }
}

class SpillThreads final : public SpillEngine {
 public:
  explicit SpillThreads(unsigned depth) : transfers_(depth), results_(std::max(2u, depth)) {
    ::sem_init(&work_, 0, 0);
  }
  ~SpillThreads() override {
    // relaxed: the semaphore publishes it.
    ending_.store(true, std::memory_order_relaxed);
    for (std::size_t i = 0; i < threads_.size(); ++i) ::sem_post(&work_);
    for (pthread_t t : threads_) ::pthread_join(t, nullptr);
    ::sem_destroy(&work_);
  }

  /// 0 or an errno.
  int run(unsigned threads) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (threads_.size() < threads && error == 0) {
      pthread_t t;
      error = ::pthread_create(
          &t, nullptr,
          [](void* self) -> void* {
            set_thread_role("spill");
            static_cast<SpillThreads*>(self)->serve();
            return nullptr;
          },
          this);
      if (error == 0) threads_.push_back(t);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return threads_.empty() ? error : 0;
  }

  void start(std::uint32_t slot, const SpillTransfer& t) noexcept override {
    transfers_[slot] = t;
    // release: the thread that takes the bit sees the transfer.
    started_[slot / 64].fetch_or(std::uint64_t{1} << slot % 64, std::memory_order_release);
    ::sem_post(&work_);
  }
  void flush() noexcept override {}

  unsigned reap(std::span<SpillResult> results) noexcept override {
    unsigned n = 0;
    while (n < results.size() && results_.try_pop(results[n])) ++n;
    return n;
  }

  bool ready() noexcept override { return results_.front() != nullptr; }

  void sleep() noexcept override {
    for (;;) {
      // Rung after the push, so a count that stays the same means that front() missed nothing.
      const std::uint32_t seen = made_.activity();
      if (ready()) return;
      made_.sleep(seen, -1);
    }
  }

 private:
  void serve() noexcept {
    for (;;) {
      wait_for(work_);
      if (ending_.load(std::memory_order_relaxed)) return;  // posted after it was set
      const std::uint32_t slot = take();
      const SpillResult result{slot, transfer(transfers_[slot])};
      // Near full, the ring may report full while the reaping thread is in it
      while (results_.try_push(result) == Push::full) relax();
      made_.ring();
    }
  }

  // There are as many set bits as posts that were taken and not yet used, so there is one for this thread;
  // other threads may take any of them meanwhile.
  std::uint32_t take() noexcept {
    for (;; relax()) {
      for (std::uint32_t w = 0; w < started_.size(); ++w) {
        // A guess, which the compare-swap checks
        std::uint64_t bits = started_[w].load(std::memory_order_relaxed);
        while (bits != 0) {
          // acquire: pairs with start().
          if (started_[w].compare_exchange_weak(bits, bits & (bits - 1), std::memory_order_acquire,
                                                std::memory_order_relaxed))
            return w * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
        }
      }
    }
  }

  std::vector<SpillTransfer> transfers_;                 // by slot
  std::array<std::atomic<std::uint64_t>, 4> started_{};  // slots that no thread has taken
  MpscRing<SpillResult> results_;
  Bell made_{};  // results pushed
  sem_t work_;
  std::atomic<bool> ending_{false};
  std::vector<pthread_t> threads_;
};

}  // namespace

Result<std::unique_ptr<SpillEngine>> make_spill_threads(unsigned depth) {
  auto engine = std::make_unique<SpillThreads>(depth);
  if (const int error = engine->run(std::min(depth, kMostThreads)); error != 0)
    return fail_errno(Errc::limit,
                      "no thread for spill I/O can be started (ulimit -u, pids of the control group)", error);
  return engine;
}

}  // namespace kasane::mem
