// SPDX-License-Identifier: Apache-2.0
// The implementation of a Pool: its workers, how a worker finds its next thread, and what it does for a
// thread that has left. Public calls are in pool.cpp, the rest in worker_loop.cpp.
//
// Thread safety: as noted. Invariant: a thread is in exactly one of these states: running on a worker, in one
// run queue, in one ready list, held by a synchronisation object, ended.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "base/full_fence.h"
#include "ult/controls.h"
#include "ult/idle_workers.h"
#include "ult/join_record.h"
#include "ult/outside_callers.h"
#include "ult/pool.h"
#include "ult/slots.h"
#include "ult/timers.h"
#include "ult/worker.h"

namespace kasane::ult {

/// Words of the own region only: what a job of one rank uses.
class OwnWords final : public Words {
 public:
  explicit OwnWords(std::byte* region) noexcept : region_(region) {}
  [[nodiscard]] std::byte* region(Rank) noexcept override { return region_; }
  std::uint64_t load(Rank, std::uint64_t offset) override;
  void store(Rank, std::uint64_t offset, std::uint64_t value) override;
  std::uint64_t compare_swap(Rank, std::uint64_t offset, std::uint64_t expected,
                             std::uint64_t desired) override;
  std::uint64_t fetch_or(Rank, std::uint64_t offset, std::uint64_t operand) override;
  std::uint64_t fetch_and(Rank, std::uint64_t offset, std::uint64_t operand) override;

 private:
  [[nodiscard]] std::atomic_ref<Word> at(std::uint64_t offset) const noexcept {
    return atomic(*reinterpret_cast<Word*>(region_ + offset));
  }
  std::byte* region_;
};

class PoolCore {
 public:
  PoolCore(Pool* pool, const Config& config);

  // ---- on a thread, or on a worker's own stack ----

  /// Makes continuation available: on top of the worker's queue.
  void push(Worker& worker, SlotId continuation) {
    worker.queue.push(controls, continuation);
    pushed();
  }
  /// After something has become available here: wakes a sleeper if one is to be woken.
  void pushed() {
    if (wake_wanted()) [[unlikely]]
      wake_for_push();
  }
  /// After a push: whether a sleeper is to be woken, here or on another rank.
  [[nodiscard]] bool wake_wanted() noexcept {
    // relaxed: a hint for sleepers of other ranks. They look again after a membarrier, as ours do
    // (ult/idle_workers.h).
    return idle_workers.wanted() || idle_ranks().load(std::memory_order_relaxed) != 0;
  }
  /// A coarser and cheaper wake_wanted(): true where that may say yes.
  [[nodiscard]] bool wake_perhaps_wanted() const noexcept {
    // relaxed: a hint, as in wake_wanted()
    return (idle_workers.perhaps_wanted() | idle_ranks().load(std::memory_order_relaxed)) != 0;
  }
  void wake_for_push();
  /// Answers what other ranks ask, if they do. Only where the worker holds nothing.
  void answer_if_asked() {
    // relaxed: a hint; answer() reads it again
    if (idle_ranks().load(std::memory_order_relaxed) & kRequestPending) [[unlikely]]
      answer();
  }
  [[gnu::noinline]] void answer();
  void make_ready(SlotId slot, Rank rank);
  /// An OS thread of any rank, which waits with that slot (kOsThread).
  void wake_os_thread(SlotId);
  /// Some worker rings it when it is due.
  void start_timer(const Timer&);

  // ---- on a thread ----

  /// Leaves the thread for the worker's own stack, where publish(context, slot) runs. Returns on the worker
  /// that resumes the thread.
  void suspend(Worker& worker, AfterSwitch after);
  /// The thread is over: publishes its exit from the worker's own stack.
  [[noreturn]] void leave_for_good(Worker& worker);
  /// As leave_for_good(), for a thread that has published its exit: its control block may be another's now.
  [[noreturn]] void leave_ended(Worker& worker, Word stack_end);
  /// Somebody wants work: the oldest record becomes a thread, if there is one and the run queue is short.
  void serve_wanted(Worker& worker);
  /// All records of the running thread become threads, or are kept: it leaves the worker.
  void promote_all(Worker& worker);
  void save_exceptions(Worker& worker);
  void restore_exceptions(Worker& worker);

  // ---- on a worker's own stack ----

  /// Runs threads until stop() (root none) or until root has exited.
  void work(Worker& worker, SlotId root);
  [[nodiscard]] bool finished(SlotId root) const;
  /// Runs function as a new thread without a parent; returns when it has left.
  void start_root(Worker& worker, SlotId slot, void* argument, void (*function)(void*));

  /// The exit of a thread whose stack the worker has left. worker: the calling one.
  void end_thread(Worker& worker, SlotId slot);
  /// Takes what the thread exited with (the caller collects or frees it).
  [[nodiscard]] std::exception_ptr take_exception(SlotId slot);

  Pool* pool;
  Config config;
  OwnWords own_words;
  Controls controls;
  Slots slots;
  IdleWorkers idle_workers;
  Timers timers;
  std::atomic<bool> stopping{false};
  std::vector<std::unique_ptr<Worker>> workers;
  OutsideCallers outside_callers{this};
  /// Edges::releases_begun(); null with one rank, too.
  const std::atomic<std::uint64_t>* releases_begun = nullptr;
  [[nodiscard]] bool marks() const noexcept { return releases_begun != nullptr; }
  /// A mark for a thread's stores, after a full fence behind them: else the look might come before the stores
  /// have left the core, and a release begin and end in between.
  [[nodiscard]] ReleaseMark mark() const noexcept {
    return marks() ? static_cast<ReleaseMark>(releases_begun->load()) : kNoMark;
  }
  [[nodiscard]] ReleaseMark mark_stores() const noexcept {
    full_fence();
    return mark();
  }
  /// Where the sync records of each rank are, if the CPU's atomics work on them; else null.
  std::vector<std::byte*> sync_records;
  /// The words of a record; null: Words.
  [[nodiscard]] SyncRecord* near_record(Rank rank, std::uint32_t index) const noexcept {
    std::byte* const records = sync_records[raw(rank)];
    return records == nullptr
               ? nullptr
               : reinterpret_cast<SyncRecord*>(records + std::size_t{index} * sizeof(SyncRecord));
  }
  std::uint32_t mxcsr;  ///< of the creator; all workers get it, so that a switch need not carry it
  std::uint16_t x87;

 private:
  [[nodiscard]] std::atomic_ref<Word> idle_ranks() const noexcept {
    return atomic(controls.own_word(Layout::idle_ranks()));
  }
  [[nodiscard]] std::uint32_t hungry_workers() const noexcept {
    return static_cast<std::uint32_t>(
        atomic(controls.own_word(Layout::hungry_workers())).load(std::memory_order_relaxed));
  }
  /// False: no thread is left.
  bool promote(Worker& worker, LazyRecord& record);
  SlotId find_work(Worker& worker, SlotId root);
  SlotId take_from(Source source, Worker& worker);
  SlotId take_ready(Worker& worker);
  void take_over(SlotId slot);
  SlotId take_waiting(Worker& worker, bool only_ready);
  /// Threads whose wait for something outside of the job is over wait for their turn from now on.
  static void collect_outside(Worker& worker);
  SlotId steal_here(Worker& worker);
  SlotId look_around(Worker& worker);
  /// Rings those that are due. One relaxed load where there is none.
  void fire_timers() {
    if (timers.earliest() != Timers::kNever) [[unlikely]]
      fire_due_timers();
  }
  [[gnu::noinline]] void fire_due_timers();
  /// How long the worker may sleep: until a timer or a sleep of a thread is over.
  [[nodiscard]] std::int64_t may_sleep_ns(const Worker&) const noexcept;
  [[gnu::noinline]] SlotId search(Worker& worker, SlotId root);
  [[nodiscard]] bool something_to_do(Worker& worker, SlotId root);
  void resume(Worker& worker, SlotId slot);
  void after_switch(Worker& worker);
};

}  // namespace kasane::ult
