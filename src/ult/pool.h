// SPDX-License-Identifier: Apache-2.0
// The threads of one rank: W workers (OS threads) run user-level threads, the child of a fork first.
//
//   fork: the parent's continuation goes to the worker's deque, the child runs at once on its own slot
//   exit: pop the parent and return into it, or, if it was stolen, look for other work
//
// A pool is complete for one rank. With several, OtherRanks, Edges, StackMover and Words (edges.h) let
// continuations leave and arrive.
// Thread safety: as noted. "On a thread": called by code that runs on a user-level thread of this pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/counters.h"
#include "base/ids.h"
#include "base/result.h"
#include "ult/edges.h"
#include "ult/waits_for.h"

namespace kasane::ult {

/// A thread's name in the whole job: generation 32 | slot 32. 0 is no thread.
struct ThreadId {
  std::uint64_t value = 0;
  [[nodiscard]] SlotId slot() const noexcept { return SlotId{static_cast<std::uint32_t>(value)}; }
  friend bool operator==(ThreadId, ThreadId) = default;
};

struct OutsideRequest;  // ult/outside_callers.h
struct LazyRecord;      // ult/lazy.h

/// What a worker asks of other ranks; the defaults are those of a job of one rank.
class OtherRanks {
 public:
  virtual ~OtherRanks() = default;
  /// The own rank has no work: tries to bring a continuation from another rank. The slot returned has been
  /// claimed, adopted and crossed, its SlotControl::rank is this rank, and it may be resumed. kNoSlot: none.
  virtual SlotId steal(std::uint32_t /*worker*/) { return kNoSlot; }
  /// The thread was taken from the own ready list and ran last on another rank, `last`. Afterwards it is here
  /// as if it had been stolen. On a worker's own stack.
  virtual void take_over(SlotId, Rank /*last*/) {}
  /// Looks at every other rank's deques and ready list without claiming: is there anything to steal?
  /// Workers without any are told that this rank wants some (LazyWorker::wanted).
  virtual bool work_elsewhere(std::uint32_t /*worker*/) { return false; }
  /// A worker goes to sleep: sets this rank's bit in the idle-ranks words of the ranks that may have work
  /// later. forget_idle() clears it.
  virtual void announce_idle(std::uint32_t /*worker*/) {}
  virtual void forget_idle(std::uint32_t /*worker*/) {}
  /// A push saw a bit in the idle-ranks word: wakes one of those ranks. Slow path.
  virtual void wake_idle_rank() {}
  /// The own idle-ranks word says that another rank has sent requests (kRequestPending): answers them. Called
  /// where the worker holds nothing.
  virtual void answer() {}
  /// The ready list of rank got an entry: ring it.
  virtual void ring(Rank) {}
  /// Tells a rank whose memory is not mapped here to wake the OS thread (ult/os_thread.h).
  virtual void wake_os_thread(Rank, SlotId) {}
  /// Whether no worker of that rank searches or sleeps, as far as is known at no cost.
  [[nodiscard]] virtual bool all_work_at(Rank) { return false; }
  /// Takes what has arrived from the network; called by workers on which threads wait.
  virtual void progress() {}
  /// The activity number of the own rank's work doorbell, and sleeping on it (see comm::Transport).
  virtual std::uint32_t activity() = 0;
  virtual void sleep(std::uint32_t seen, std::int64_t timeout_ns) = 0;
};

/// What a rank's threads have printed in part: settle() is called before others may learn what a thread did,
/// where *begin and *end differ. The default: never.
struct Leftover {
  static constexpr char* kNothing = nullptr;
  char* const* begin = &kNothing;
  char* const* end = &kNothing;
  void (*settle)() noexcept = nullptr;
};

struct Config {
  Rank rank{0};
  std::uint32_t ranks = 1;
  std::uint32_t workers = 1;
  std::uint32_t slots_per_rank = 4096;   ///< threads that may not be joined yet
  std::uint32_t stacks_per_rank = 4096;  ///< threads that may not have ended yet
  std::size_t stack_bytes = 64 * 1024;   ///< a multiple of 64 KiB
  /// the stacks segment: ranks × stacks_per_rank × stack_bytes, at the same address on every rank
  std::byte* stacks = nullptr;
  /// of the stack with id 0, which run_root() on rank 0 uses and no other thread: it begins so much below its
  /// end, and its last bytes are the mover's (kReservedOfFirstStack). 0: it is like the others
  std::size_t first_stack_bytes = 0;
  /// this rank's threads region: layout.h says how many bytes; zeroed
  std::byte* region = nullptr;
  Counters* counters = nullptr;       ///< workers of them
  std::uint64_t clock_offset_ns = 0;  ///< the job's clock less now_ns() of this rank's host
  Words* words = nullptr;             ///< null with one rank: all words are local
  Edges* edges = nullptr;
  StackMover* mover = nullptr;
  OtherRanks* other_ranks = nullptr;  ///< null: a futex of the pool's own
  /// Called on a worker before it uses a stack it never used: makes V of it usable here (guard, access). May
  /// be null.
  void (*prepare_stack)(void* context, StackId) = nullptr;
  /// Called by trim_stacks(): gives back the frames of an unused stack. May be null: the frames stay.
  void (*trim_stack)(void* context, StackId) = nullptr;
  /// Called on a worker before it uses such a stack again.
  void (*use_trimmed_stack)(void* context, StackId) = nullptr;
  void* stack_context = nullptr;  ///< of the three
  /// workers that sleep while threads wait there; null: nobody wants to know
  std::atomic<std::uint32_t>* waits_asleep = nullptr;
  Leftover leftover;  ///< looked at where a thread forks and where it ends
  /// The NUMA node on which each worker stays, or a number that no node has. Empty: all stay on one node. A
  /// worker steals from the workers of its node first (ult/steal_order.h).
  std::vector<std::uint32_t> worker_nodes;

  static constexpr std::size_t kReservedOfFirstStack = 64;
  /// The stack that holds the address.
  [[nodiscard]] StackId stack_at(std::uintptr_t address) const noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(stacks);
    return StackId{address < first ? 0 : static_cast<std::uint32_t>((address - first) / stack_bytes)};
  }
  /// The stack's highest address, exclusive.
  [[nodiscard]] std::uintptr_t stack_end(StackId stack) const noexcept {
    return reinterpret_cast<std::uintptr_t>(stacks) + (std::uintptr_t{raw(stack)} + 1) * stack_bytes;
  }
  [[nodiscard]] std::size_t bytes_of_stack(StackId stack) const noexcept {
    return raw(stack) == 0 && first_stack_bytes != 0 ? first_stack_bytes : stack_bytes;
  }
};

class PoolCore;

class Pool {
 public:
  static Result<std::unique_ptr<Pool>> create(const Config&);
  ~Pool();

  /// The body of worker index's OS thread; returns after stop(). Any OS thread may call it, once per index.
  void run_worker(std::uint32_t index);
  /// Runs entry(arg) as a user-level thread and returns when it has exited. For the OS thread that is worker
  /// index (main on rank 0), which works as that worker meanwhile. Rethrows an exception of entry.
  void run_root(std::uint32_t index, void (*entry)(void*), void* arg);
  /// Do all of its workers sleep? From any thread; it may be otherwise at once.
  [[nodiscard]] bool asleep() const noexcept;
  /// Gives back the frames of up to `most` free stacks, those first that have been free for longest, and of
  /// each once until it is used again. Returns how many. Any thread.
  std::uint32_t trim_stacks(std::uint32_t most);
  /// Was a thread refused because all call stacks were in use? Any thread, also from a fault handler.
  [[nodiscard]] bool has_refused_threads() const noexcept;
  /// Makes the workers return from run_worker. Any thread.
  void stop() noexcept;

  [[nodiscard]] const Config& config() const noexcept;
  /// The job's clock: now_ns() where all ranks are on one host, else as near to one clock as the hosts' times
  /// of day were when the job began.
  [[nodiscard]] std::uint64_t clock_ns() const noexcept;
  /// The pool whose worker the calling OS thread is, or null. Also from a fault handler.
  [[nodiscard]] static Pool* current() noexcept;
  /// The calling worker's index; only where current() is not null.
  [[nodiscard]] static std::uint32_t worker() noexcept;
  /// The thread that the calling OS thread runs, or kNoSlot. Also from a fault handler.
  [[nodiscard]] static SlotId self() noexcept;
  /// Whether the calling OS thread runs user code on a user-level thread, outside every RuntimeSection
  /// (ult/runtime_section.h). Also from a fault handler.
  [[nodiscard]] static bool in_user_code() noexcept;
  /// As in_user_code(), or the calling OS thread is main or one that the program has started.
  [[nodiscard]] static bool in_program() noexcept;
  /// The calling OS thread runs code of the program from now on wherever it runs no user-level thread: main.
  static void enter_program() noexcept;

  /// The running thread's newest record, or null: before a fork(), for keep_records() in the child, on its
  /// copy of the stack. The child ends where the first function of such a record returns.
  [[nodiscard]] static LazyRecord* records() noexcept;
  static void keep_records(LazyRecord* newest) noexcept;
  /// In a child of fork(): the calling OS thread is no worker, and runs no user-level thread.
  static void forget_process() noexcept;

  // ---- for reports (runtime/report/thread_report.h), from any thread; what runs may change meanwhile ----
  struct ThreadState {
    SlotId slot;
    Rank rank;  ///< where it runs, or ran last
    Word sp, stack_end;
  };
  /// Threads that were born here and have not ended.
  void for_each_thread(void (*visit)(void* context, const ThreadState&), void* context) const;
  /// The thread that the worker runs, or kNoSlot.
  [[nodiscard]] SlotId running_on(std::uint32_t worker) const noexcept;
  /// What running_on() says, and two numbers that change when the thread makes a call that may wait, or when
  /// the worker runs another thread.
  struct WorkerState {
    SlotId slot;
    std::uint32_t calls_left;
    std::uint64_t activity;
  };
  [[nodiscard]] WorkerState state_of(std::uint32_t worker) const noexcept;
  /// The id of the OS thread that is the worker; 0: none is now.
  [[nodiscard]] std::int32_t os_thread_of(std::uint32_t worker) const noexcept;
  /// No worker runs anything, nothing is ready, and no thread waits with a deadline.
  [[nodiscard]] bool quiet() const noexcept;
  /// Changes whenever a thread of this rank was run.
  [[nodiscard]] std::uint64_t activity() const noexcept;
  /// OS threads that make calls for threads (ult/outside_callers.h) now.
  [[nodiscard]] std::uint32_t outside_callers() const noexcept;
  /// Whether one of them has a call to make.
  [[nodiscard]] bool calls_outside() const noexcept;

  // ---- on a thread (thesis §6.1) ----
  struct Allocated {
    ThreadId id;
    void* argument;  ///< size bytes on the new thread's stack, for a function object
  };
  /// A new thread that does not run yet, with room for its argument on its own stack. Throws when the rank
  /// has no slot or no stack left; what() says which.
  static Allocated allocate(std::size_t alignment, std::size_t size) {
    return alignment <= 16 ? allocate_sixteens((size + 15) & ~std::size_t{15})
                           : allocate_aligned(alignment, size);
  }
  /// Gives back a thread that was never forked (its argument's constructor threw).
  static void abandon(Allocated);
  /// Runs function(argument) as the thread: at once, while the caller's continuation may be stolen.
  static void fork(Allocated, void (*function)(void*));
  /// The long way of kasane_lazy_begin: the record is linked, and if others want work the oldest one becomes
  /// a thread. False: the caller goes on on another stack, since its own is nearly used up, or runs no
  /// thread.
  [[nodiscard]] static bool begin_lazy(LazyRecord&);
  /// The long way of kasane_lazy_end, for a record that is not linked any more. True: the caller calls its
  /// function. False: a thread runs it (record.thread), and the caller joins that.
  [[nodiscard]] static bool end_lazy(LazyRecord&);
  /// Is the exception that the caller's handler handles that of exit()?
  [[nodiscard]] static bool exits() noexcept;
  /// Waits for the thread; rethrows what it threw; its id is gone afterwards. From any rank. Throws
  /// std::system_error: invalid_argument if the thread was joined or detached before,
  /// resource_deadlock_would_occur for the caller itself.
  static void join(ThreadId);
  /// The thread will not be joined; its slot is freed when it has exited. An exception that leaves a detached
  /// thread ends the program (std::terminate).
  static void detach(ThreadId);
  /// Lets other ready threads of this rank run first; the caller goes to the end of the ready list.
  static void yield();
  /// The calling thread goes on at `rank`, with its stack, when a worker there takes it from the ready list.
  /// Does nothing if it is there already.
  static void move_to(Rank rank);
  /// Calls move_to() until the thread is there: on its way an idle worker of another rank may steal it.
  static void go_to(Rank rank);
  /// Until end_polling() the calling thread stays on its worker, which runs no other: wait_here() returns
  /// false, its turn does not end, and what would suspend it ends the program. Nothing outside of threads.
  static void begin_polling() noexcept;
  static void end_polling() noexcept;
  /// Is there another thread that the calling worker could run now, without looking elsewhere? Cheap.
  [[nodiscard]] static bool others_here() noexcept;
  /// Suspends the calling thread until ready(argument), which its worker evaluates between other threads.
  /// Returns false at once where there are no other threads. The thread goes on at the latest when nothing
  /// else is left to run, so ready may not be true then. Meanwhile it is not stolen: it goes on on this
  /// worker, and its stack stays where it is, so an outstanding operation may go on using the stack. The
  /// caller must hold nothing that another thread could wait for (block bits, pins, outstanding puts).
  static bool wait_here(bool (*ready)(const void*), const void* argument);
  /// In a handler, for the access that it serves: may the thread with this stack pointer wait_for_page()? Not
  /// in a runtime section, on another stack than its own, with less left of it than kLeastLeft, where `most`
  /// wait already, or where no other thread could run meanwhile.
  [[nodiscard]] static bool may_leave(std::uintptr_t sp, std::uint32_t most) noexcept;
  static constexpr std::size_t kLeastLeft = 16 * 1024;
  static constexpr std::uint32_t kMostWaiting = 64;  ///< of a worker
  /// First on a thread that has left a fault: MXCSR and the x87 control word become those of all workers.
  static void load_control_words() noexcept;
  /// As wait_here(), for a thread that has left the fault of an access to the address. It goes on only when
  /// ready(argument) is true, which the worker evaluates again and again.
  static void wait_for_page(bool (*ready)(const void*), const void* argument, const void* address);
  /// Suspends the calling thread until an OS thread of the pool's has run the request's function. Meanwhile
  /// its worker runs others, or sleeps; the thread goes on on this worker, and is not stolen. Empty: there is
  /// no OS thread to be had. -EINTR: also after a handler on this worker (note_handler) interrupted it.
  [[nodiscard]] static std::optional<long> call_outside(const OutsideRequest& request);
  /// Suspends the calling thread until a time of now_ns(); it goes on on this worker. False: a handler on
  /// this worker interrupted it. call: a literal, for reports.
  static bool sleep(const char* call, std::uint64_t until_ns);
  /// In a handler of a signal: one of the program's has run, which was installed with SA_RESTART or not.
  static void note_handler(bool restarts) noexcept;
  /// Whether the calling OS thread runs a user-level thread, and no handler of a signal on top of it.
  [[nodiscard]] static bool may_switch() noexcept;
  /// As may_switch(), and the thread is outside of every RuntimeSection.
  [[nodiscard]] static bool may_wait() noexcept;
  /// The slow half of let_others_run() (ult/fairness.h): the calling thread yields if its turn is over,
  /// and it does not have to stay. It goes on on this worker.
  static void look_at_turn(bool stays);
  /// Ends the calling thread from any depth: throws an object of a private type that the thread's first frame
  /// catches, so destructors run. A catch (...) that does not rethrow keeps the thread alive.
  [[noreturn]] static void exit();
  /// Ends the calling thread as exit() does, but passes every handler except those of `catch (...)`, which
  /// have to rethrow (ult/forced_unwind.h).
  [[noreturn]] static void end_by_unwinding(const char* call);
  [[nodiscard]] static ThreadId id() noexcept;

  // ---- for synchronisation objects (ult/sync/mutex.h …) ----
  /// Suspends the calling thread: saves its registers, then publish(context, slot) runs on the worker's own
  /// stack, and may make the thread ready at once. Returns when the thread was made ready.
  /// waits: for reports.
  /// stays: of a thread that this worker alone resumes.
  static void suspend(void (*publish)(void* context, SlotId), void* context, const WaitsFor& waits = {},
                      struct WorkerWait* stays = nullptr);
  /// Makes a suspended thread ready at rank (where it last ran), from any thread of any rank.
  void make_ready(SlotId, Rank rank);
  /// Local or remote words of the threads region.
  [[nodiscard]] Words& words() noexcept;
  /// Fence after having seen a fact fixed by source; nothing if source is this rank. mark: taken there
  /// before. Returns what Edges::cross() does.
  std::uint32_t cross(Rank source, Account, ReleaseMark mark = kNoMark);
  /// The two halves of a fence; nothing with one rank.
  void release(Account);
  ReleaseMark release_little(std::uint32_t blocks, Account);
  void acquire(Account);

  /// The pool's insides, for the other files of ult (ult/pool_core.h).
  [[nodiscard]] PoolCore& core() noexcept { return *core_; }

 private:
  Pool();
  static Allocated allocate_sixteens(std::size_t size);
  static Allocated allocate_aligned(std::size_t alignment, std::size_t size);
  std::unique_ptr<PoolCore> core_;
};

}  // namespace kasane::ult
