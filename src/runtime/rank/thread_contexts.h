// SPDX-License-Identifier: Apache-2.0
// The state that each OS thread of this rank passes to dsm: waiter, counters, read-ahead state. Workers and
// the service thread have theirs from the start; any other OS thread gets one when it first touches global
// memory (they share one block of counters), which another thread takes over when it has ended. The threads
// that serve faults of other threads (mem/fault_threads.h) do so one at a time, and share one context.
// A thread may outlive the object (attach/attach.h): what it kept of a former one is not used any more.
// Thread safety: here() from any thread, also in a fault handler: it allocates nothing.
#pragma once

#include <pthread.h>

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
        for_others_(transport, counters[workers + 2], dsm::Serves::others) {
    has_key_ = ::pthread_key_create(&key_, &ThreadContexts::end_of_thread) == 0;
  }
  ~ThreadContexts() {
    if (has_key_) ::pthread_key_delete(key_);
    for (std::uint32_t i = 0; i < used_.load(); ++i)
      std::launder(reinterpret_cast<Entry*>(entries_[i].bytes))->~Entry();
  }

  /// The calling OS thread is worker `index` from now on; index == workers: the service thread.
  void enter(std::uint32_t index) noexcept { t_kept = {&make(counters_[index])->context, number_}; }
  [[nodiscard]] dsm::ThreadContext& here() noexcept {
    if (t_kept.number != number_) [[unlikely]]
      t_kept = {take(), number_};
    return *t_kept.context;
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
    std::atomic<bool> free{false};
  };
  static constexpr std::uint32_t kMost = 1024;

  [[nodiscard]] Entry& entry(std::uint32_t i) noexcept {
    return *std::launder(reinterpret_cast<Entry*>(entries_[i].bytes));
  }
  Entry* make(Counters& counters) noexcept {
    const std::uint32_t i = used_.fetch_add(1);
    KASANE_CHECK(i < kMost, "more than 1000 OS threads of a rank use global memory at a time");
    Entry* const made = new (entries_[i].bytes) Entry(transport_, counters);
    made_.fetch_add(1);  // seq_cst, as the load in take(): all before are constructed when the sums agree
    return made;
  }
  /// One of a thread that has ended, or a new one.
  [[gnu::noinline]] dsm::ThreadContext* take() noexcept {
    const std::uint32_t n = made_.load() == used_.load() ? made_.load() : 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      bool free = true;
      // acquire: what its last thread has left
      if (!entry(i).free.compare_exchange_strong(free, false, std::memory_order_acquire)) continue;
      return note_for_end(&entry(i));
    }
    return note_for_end(make(counters_[workers_ + 1]));
  }
  /// libc keeps the values of the first 32 keys in the thread itself, so a fault handler may set one.
  dsm::ThreadContext* note_for_end(Entry* taken) noexcept {
    constexpr pthread_key_t kInThread = 32;
    if (has_key_ && key_ < kInThread) ::pthread_setspecific(key_, taken);
    return &taken->context;
  }
  static void end_of_thread(void* taken) noexcept {
    t_kept = {};
    static_cast<Entry*>(taken)->free.store(true, std::memory_order_release);  // release: for the next thread
  }

  comm::Transport& transport_;
  Counters* counters_;
  std::uint32_t workers_;
  Entry for_others_;
  std::atomic<std::uint32_t> used_{0}, made_{0};
  pthread_key_t key_ = 0;
  bool has_key_ = false;
  // Allocated in advance, since a fault handler may need one. Not constructed until used, so that they take
  // no frames (2 MiB), as an array of optionals would.
  struct Room {
    alignas(Entry) std::byte bytes[sizeof(Entry)];
  };
  std::unique_ptr<Room[]> entries_ = std::make_unique_for_overwrite<Room[]>(kMost);
  struct Kept {
    dsm::ThreadContext* context;
    std::uint32_t number;  ///< number_ of whose it is; 0: none
  };
  // One runtime a process at a time. initial-exec: no allocation on first use, so a fault handler may use it.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit Kept t_kept{};
  static inline constinit std::uint32_t g_made = 0;  ///< objects so far
  const std::uint32_t number_ = ++g_made;
};

}  // namespace kasane::runtime
