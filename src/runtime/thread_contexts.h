// SPDX-License-Identifier: Apache-2.0
// The state that each OS thread of this rank passes to dsm: waiter, counters, read-ahead state. Workers and
// the service thread have theirs from the start; any other OS thread gets one when it first touches global
// memory (they share one block of counters). The threads that serve faults of other threads
// (mem/fault_threads.h) do so one at a time, and share one context.
// Thread safety: here() from any thread, also in a fault handler: it allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/assert.h"
#include "dsm/coherence.h"

namespace kasane::runtime {

class ThreadContexts {
 public:
  /// counters: `workers` of the workers, then the service thread's, those of all other threads, and those of
  /// faults that are served for other threads.
  ThreadContexts(comm::Transport& transport, Counters* counters, std::uint32_t workers) noexcept
      : transport_(transport),
        counters_(counters),
        workers_(workers),
        for_others_(transport, counters[workers + 2], dsm::Serves::others) {}
  ~ThreadContexts() {
    for (std::uint32_t i = 0; i < used_.load(); ++i)
      std::launder(reinterpret_cast<Entry*>(entries_[i].bytes))->~Entry();
  }

  /// The calling OS thread is worker `index` from now on; index == workers: the service thread.
  void enter(std::uint32_t index) noexcept { t_context = make(counters_[index]); }
  [[nodiscard]] dsm::ThreadContext& here() noexcept {
    if (t_context == nullptr) t_context = make(counters_[workers_ + 1]);
    return *t_context;
  }
  /// The context of the thread that serves a fault.
  [[nodiscard]] dsm::ThreadContext& of(mem::Served served) noexcept {
    return served == mem::Served::in_place ? here() : for_others_.context;
  }

 private:
  struct Entry {
    Entry(comm::Transport& transport, Counters& counters, dsm::Serves serves = dsm::Serves::itself) noexcept
        : waiter(transport), context(transport, waiter, counters, serves) {}
    comm::PollWaiter waiter;
    dsm::ThreadContext context;
  };
  static constexpr std::uint32_t kMost = 1024;

  dsm::ThreadContext* make(Counters& counters) noexcept {
    const std::uint32_t i = used_.fetch_add(1);
    KASANE_CHECK_OP(i, <, kMost);
    return &(new (entries_[i].bytes) Entry(transport_, counters))->context;
  }

  comm::Transport& transport_;
  Counters* counters_;
  std::uint32_t workers_;
  Entry for_others_;
  std::atomic<std::uint32_t> used_{0};
  // Allocated in advance, since a fault handler may need one. Not constructed until used, so that they take
  // no frames (2 MiB), as an array of optionals would.
  struct Room {
    alignas(Entry) std::byte bytes[sizeof(Entry)];
  };
  std::unique_ptr<Room[]> entries_ = std::make_unique_for_overwrite<Room[]>(kMost);
  // One runtime a process. initial-exec: no allocation on first use, so a fault handler may use it.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit dsm::ThreadContext* t_context =
      nullptr;
};

}  // namespace kasane::runtime
