// SPDX-License-Identifier: Apache-2.0
#include "ult/idle_workers.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/call_selector.h"
#include "base/futex.h"

namespace kasane::ult {
namespace {

long membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

std::uint32_t FutexDoorbell::activity() {
  // seq_cst: read before the announcement, whatever comes later changes the number.
  return events_.load(std::memory_order_seq_cst);
}

void FutexDoorbell::sleep(std::uint32_t seen, std::int64_t timeout_ns) {
  const OpenForSignals waits;
  // Returns at once if the number has changed; the caller's loop handles early returns.
  futex_wait(events_, seen, timeout_ns, FutexOf::process);
}

void FutexDoorbell::ring(Rank) {
  // seq_cst: in one order with activity(). Who read the number before finds it changed, or is woken.
  events_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(events_, FutexOf::process);
}

void FutexDoorbell::ring_one() {
  // seq_cst: as in ring()
  events_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(events_, 1, FutexOf::process);
}

IdleWorkers::IdleWorkers(Rank own, bool several, OtherRanks* other_ranks)
    : several_(several), own_(own), other_ranks_(other_ranks ? other_ranks : &own_doorbell_) {
  // A process that is not registered is not reached by others' barriers, so its pushes must order themselves.
  const int command =
      several_ ? MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED : MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
  // relaxed: no other thread has it yet
  if (membarrier(command) != 0) word_.store(kOrderedPushes, std::memory_order_relaxed);
}

void IdleWorkers::barrier() noexcept {
  // If it fails, registering failed too, and pushes meet the announcement in the word itself.
  membarrier(several_ ? MEMBARRIER_CMD_GLOBAL_EXPEDITED : MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void IdleWorkers::wake() {
  std::uint64_t word = word_.load(std::memory_order_relaxed);
  while (is_wanted(word)) {
    // seq_cst: one order of transitions. The worker that sets the bit rings after setting it.
    if (!word_.compare_exchange_weak(word, word | kWaking, std::memory_order_seq_cst)) continue;
    if (other_ranks_ == &own_doorbell_) {
      own_doorbell_.ring_one();
    } else {
      other_ranks_->ring(own_);
    }
    return;
  }
}

void IdleWorkers::found() {
  // seq_cst: one order of transitions, as in wake()
  const std::uint64_t before = word_.fetch_sub(kSearching, std::memory_order_seq_cst);
  // The last searcher leaves: a push that counted on it may have left an item, so the next sleeper takes its
  // place.
  if (is_wanted(before - kSearching)) wake();
}

void IdleWorkers::search_again() noexcept {
  std::uint64_t word = word_.load(std::memory_order_relaxed);
  // seq_cst: one order of transitions. The wake-up, if one was under way, has arrived: here is its searcher.
  while (!word_.compare_exchange_weak(word, ((word - kSleeper) + kSearching) & ~kWaking,
                                      std::memory_order_seq_cst)) {
  }
}

}  // namespace kasane::ult
