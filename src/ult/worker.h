// SPDX-License-Identifier: Apache-2.0
// One worker: the state of an OS thread that runs user-level threads, and the one way to find it.
//
// Thread safety: a Worker's fields belong to its OS thread, except the thief's side of the deque. Signal
// handlers on that OS thread read self, too.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "base/counters.h"
#include "base/ids.h"
#include "ult/controls.h"
#include "ult/exception_state.h"
#include "ult/join_record.h"
#include "ult/lazy.h"
#include "ult/outside_waits.h"
#include "ult/pool.h"
#include "ult/run_queue.h"
#include "ult/runtime_section.h"
#include "ult/sanitizer.h"
#include "ult/slots.h"
#include "ult/steal_order.h"
#include "ult/turns.h"

namespace kasane::ult {

class PoolCore;

inline constexpr const char* kPollingText =
    "in a polling scope there is no fork, join, move, lock or other wait";

/// What the worker does on its own stack when a thread has left it: publish(context, slot).
struct AfterSwitch {
  void (*publish)(void* context, SlotId);
  void* context;
  bool in_runtime = false;             ///< the thread left from within the runtime
  struct WorkerWait* stays = nullptr;  ///< this worker alone resumes it, and catches no exception
};

/// A thread that waits for something that this rank itself will see (Pool::wait_here). It lies on that
/// thread's stack, which stays here meanwhile.
struct WorkerWait {
  SlotId slot = kNoSlot;
  bool (*ready)(const void*);
  const void* argument;
  WorkerWait* next = nullptr;
  Word sp = 0;        ///< of a thread born elsewhere: its control block, a trip away, is not told. 0: it is
  bool polls = true;  ///< where nothing else can run it goes on before it is ready, and polls itself
};

/// Stands for a thread whose control block is another rank's, as far as switching goes: id, sp (until it is
/// written there) and flags.
struct StandIn : SlotControl {
  explicit StandIn(SlotId slot) noexcept : SlotControl{} { stand_for(slot); }
  void stand_for(SlotId slot) noexcept {
    atomic(id).store(raw(slot), std::memory_order_relaxed);  // reports read it from other OS threads
    flags = kSlotElsewhere;
  }
};

struct alignas(128) Worker {
  Worker(PoolCore* core_, const Controls& controls_, std::uint32_t index_, RunQueue queue_, SlotCache cache_,
         StackCache stacks_, Counters* counters_, const Leftover& leftover_, Word lazy_depth_)
      : core(core_),
        index(index_),
        queue(queue_),
        counters(counters_),
        controls(controls_),
        cache(cache_),
        stacks(stacks_),
        lazy(reinterpret_cast<LazyWorker*>(&controls_.own_word(controls_.layout().lazy(index_)))),
        lazy_depth(lazy_depth_),
        leftover(leftover_),
        random(index_ + 1) {}

  PoolCore* core;
  SlotControl* control = &idle;  ///< of the running thread, or a stand-in; never null
  std::uint32_t index;
  std::atomic<std::int32_t> os_thread{0};  ///< its id while it works; for reports
  UserCode::Depth runtime_sections;        ///< of the running thread
  ExceptionState* exceptions = nullptr;
  RunQueue queue;
  Counters* counters;
  const Controls controls;  ///< a copy of the core's: one look less at each fork
  /// the join record of a thread that exited on this rank
  const Word exited_here{JoinRecord{JoinKind::exited, controls.own_rank()}.pack()};
  SlotCache cache;
  StackCache stacks;

  LazyWorker* const lazy;  ///< records of the running thread
  const Word lazy_depth;   ///< so far below a stack's end fork–joins are lazy

  Leftover leftover;  ///< a copy of the core's
  AfterSwitch after{};
  WorkerWait* waits = nullptr;  ///< threads that wait here, the oldest first; no thief sees them
  WorkerWait** waits_end = &waits;
  std::uint32_t waiting = 0;          ///< how many
  std::atomic<SlotId> root{kNoSlot};  ///< what PoolCore::work() waits for; for reports
  Word waited_sp = 0;                 ///< WorkerWait::sp of the thread that is about to run
  OutsideWaits outside;               ///< threads that join them when what they wait for is there
  Picks picks;
  Turn turn;                  ///< of the running thread
  std::uint32_t polling = 0;  ///< its polling scopes (Pool::begin_polling)
  Word limit_before_polling = 0;
  std::uint64_t idle_ns = 0;  ///< with --stats: how long the worker was idle before it; 0: it was not
  SanitizerWorker sanitizer;
  /// control while no thread runs; its sp is the worker's own stack while one does
  StandIn idle{kNoSlot};
  /// control while a thread born elsewhere runs; two, since such a thread may fork another one
  StandIn elsewhere[2]{StandIn{kNoSlot}, StandIn{kNoSlot}};
  StealOrder<Worker*> steal_order;  ///< set before any worker runs
  std::uint32_t random;             ///< state of pick()
  stack_t signal_stack{};           ///< of the OS thread

  [[nodiscard]] std::uint32_t& runtime_depth() noexcept { return runtime_sections.sections; }
  /// A handler of a signal runs: no switch to another thread.
  [[nodiscard]] bool on_signal_stack() const noexcept {
    return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) -
               reinterpret_cast<std::uintptr_t>(signal_stack.ss_sp) <
           signal_stack.ss_size;
  }
  /// At the end of the list, so that all waiting threads have their turn.
  void wait_for_turn(WorkerWait& wait) noexcept {
    wait.next = nullptr;
    *waits_end = &wait;
    waits_end = &wait.next;
    ++waiting;
  }
  /// The running thread, or kNoSlot.
  [[nodiscard]] SlotId self() const noexcept { return slot_of(*control); }
  [[nodiscard]] bool runs_a_thread() const noexcept { return control != &idle; }
  [[nodiscard]] bool runs_one_of_elsewhere() const noexcept { return (control->flags & kSlotElsewhere) != 0; }
  /// A stand-in for slot that is not in use.
  [[nodiscard]] SlotControl* stand_in(SlotId slot) noexcept {
    StandIn& free = elsewhere[control == &elsewhere[0]];
    free.stand_for(slot);
    return &free;
  }
  [[nodiscard]] static SlotId slot_of(SlotControl& control) noexcept {
    // relaxed: the half that is read never changes; the other does when the slot is freed.
    return SlotId{static_cast<std::uint32_t>(atomic(control.id).load(std::memory_order_relaxed))};
  }

  [[nodiscard]] bool has_leftover() const noexcept { return *leftover.begin != *leftover.end; }
  void settle_leftover() const noexcept {
    if (has_leftover()) [[unlikely]]
      leftover.settle();
  }

  /// From now on a thread with this stack runs.
  void set_stack(Word stack_end) const noexcept {
    // Builds with assertions look at each fork–join whether the thread holds a mutex of libc's.
    lazy->stack_limit = KASANE_ASSERT_LEVEL >= 1 ? LazyWorker::kNoStack : stack_end - lazy_depth;
  }

  /// A number below n, for the order of victims (xorshift32 after Marsaglia, "Xorshift RNGs").
  std::uint32_t pick(std::uint32_t n) noexcept {
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return random % n;
  }
};

}  // namespace kasane::ult

/// The worker that the calling OS thread is, or null. Only current_worker() reads it.
extern "C" {
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local kasane::ult::Worker* kasane_ult_worker;
}

namespace kasane::ult {

/// The calling OS thread's worker. In assembly: a compiler may keep a thread_local's address, or the result
/// of a function that it can see, over a switch that continues in another OS thread (rule 13). It must run a
/// volatile asm each time. Async-signal-safe.
[[nodiscard]] inline Worker* current_worker() noexcept {
  Worker* worker;
  asm volatile(
      "movq kasane_ult_worker@gottpoff(%%rip), %0\n\t"
      "movq %%fs:(%0), %0"
      : "=&r"(worker)
      :
      : "memory");
  return worker;
}

/// The worker of a caller that is a user-level thread. Ends the program where no such thread runs: no program
/// recovers from that mistake.
[[nodiscard]] Worker& worker_of_thread();

}  // namespace kasane::ult
