// SPDX-License-Identifier: Apache-2.0
// The public calls of a Pool, and the body of every thread.
//
// Rule for every function here that may switch: after the switch it does not use what it learnt from
// current_worker() before.
#include "ult/pool.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/call_selector.h"
#include "base/clock.h"
#include "base/exception_word.h"
#include "base/misuse.h"
#include "base/raw_call.h"
#include "base/time_spent.h"
#include "ult/context.h"
#include "ult/forced_unwind.h"
#include "ult/leaves_thread.h"
#include "ult/locals.h"
#include "ult/pool_core.h"
#include "ult/runtime_section.h"

namespace {
/// Of OS threads that are no worker.
constinit kasane::ult::LazyWorker no_worker{.wanted_word = 0,
                                            .apart = {},
                                            .newest = nullptr,
                                            .stack_limit = kasane::ult::LazyWorker::kNoStack,
                                            .behind = {}};
}  // namespace

extern "C" {
constinit thread_local kasane::ult::Worker* kasane_ult_worker = nullptr;
constinit thread_local kasane::ult::LazyWorker* kasane_lazy_worker = &no_worker;
}

namespace kasane::ult {
namespace {

/// Stacks are multiples of it.
constexpr std::size_t kSmallestStackBytes = 64 * 1024;

/// What exit() throws. No base class: only the thread's first frame, or catch (...), sees it.
struct ThreadExit {};

constexpr Word kRunning = JoinRecord{JoinKind::running}.pack();

[[noreturn, gnu::noinline]] void refuse(std::errc code, const char* what) {
  throw std::system_error(std::make_error_code(code), what);
}

/// The calling OS thread is worker for the lifetime of this object.
class Attached {
 public:
  explicit Attached(Worker& worker) : worker_(worker) {
    KASANE_CHECK(current_worker() == nullptr, "this OS thread is a worker already: run inside of run");
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr_), "=m"(x87_));
    asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(worker.core->mxcsr), "m"(worker.core->x87));
    worker.exceptions = ExceptionState::of_os_thread();
    worker.exceptions->move_to(exceptions_);
    worker.sanitizer.attach();
    // By a raw call: libc's sigaltstack() answers with the program's stack (traps/alt_stack.h).
    raw_call(SYS_sigaltstack, 0, reinterpret_cast<long>(&worker.signal_stack));
    // relaxed: a number
    worker.os_thread.store(static_cast<std::int32_t>(::syscall(SYS_gettid)), std::memory_order_relaxed);
    kasane_ult_worker = &worker;
    kasane_lazy_worker = worker.lazy;
  }
  ~Attached() {
    kasane_ult_worker = nullptr;
    kasane_lazy_worker = &no_worker;
    worker_.os_thread.store(0, std::memory_order_relaxed);
    worker_.exceptions->take(exceptions_[0], exceptions_[1]);
    asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr_), "m"(x87_));
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  Worker& worker_;
  std::uint32_t mxcsr_;
  std::uint16_t x87_;
  Word exceptions_[2];
};

struct RootCall {
  void (*entry)(void*);
  void* argument;
};
void run_root_call(void* call) {
  const auto [entry, argument] = *static_cast<RootCall*>(call);
  entry(argument);
}

// ---- the body of a thread ----

// Called in the handler of what the thread's function threw, on the worker where the thread runs now; it may
// have begun on another one.
[[gnu::noinline]] void keep_exception() noexcept {
  const Word word = word_of(std::current_exception());
  Worker& worker = *current_worker();
  const Controls& controls = worker.core->controls;
  controls.put(worker.self(), offsetof(SlotControl, exception), word);
  controls.put(worker.self(), offsetof(SlotControl, flags),
               controls.get(worker.self(), offsetof(SlotControl, flags)) | kSlotException);
}

// A frame that an exception left without ending its record, as one of C would.
[[gnu::noinline]] void check_no_records() {
  KASANE_CHECK(current_worker()->lazy->newest == nullptr,
               "a thread ended, by an exception or an exit, within kasane_invoke");
}

// ---- fork ----

[[noreturn, gnu::noinline]] void refuse_argument(std::size_t size, std::size_t stack_bytes) {
  throw std::length_error("kasane: a thread's argument of " + std::to_string(size) +
                          " bytes does not fit in half a call stack of " + std::to_string(stack_bytes) +
                          " bytes");
}

/// The argument's address is a multiple of alignment, if that divides stack sizes, and of what divides size.
inline Pool::Allocated make_thread(SlotControl& control, Word stack_end, std::size_t alignment,
                                   std::size_t size) {
  const std::uintptr_t argument = (stack_end - size) & ~(alignment - 1);
  control.stack_end = stack_end;
  // relaxed: other threads learn of this thread through something that orders memory.
  atomic(control.join).store(kRunning, std::memory_order_relaxed);
  return {ThreadId{control.id}, reinterpret_cast<void*>(argument)};
}

/// With a stack of this rank, which is given back if there is no slot.
Pool::Allocated allocate_on(Worker& worker, Word stack_end, std::size_t alignment, std::size_t size) {
  PoolCore& core = *worker.core;
  try {
    return make_thread(core.slots.take(worker.cache), stack_end, alignment, size);
  } catch (...) {
    core.slots.release_stack(worker.stacks, stack_end);
    throw;
  }
}

[[gnu::noinline]] Pool::Allocated allocate_slowly(std::size_t alignment, std::size_t size) {
  Worker& worker = *current_worker();
  PoolCore& core = *worker.core;
  KASANE_REQUIRE(worker.polling == 0, kPollingText);
  if (size + alignment > core.config.stack_bytes / 2) refuse_argument(size, core.config.stack_bytes);
  return allocate_on(worker, core.slots.take_stack(worker.stacks), alignment, size);
}

inline void fork_on(Worker& worker, SlotControl* control, Pool::Allocated thread, void (*function)(void*)) {
  count(worker.counters->forks);
  if (worker.lazy->newest != nullptr) [[unlikely]]
    worker.core->promote_all(worker);
  worker.core->slots.sanitizer.leaving_to_thread(thread.id.slot());
  // In builds without a sanitizer the last call: the child, or the worker that resumes this thread, returns
  // straight to our caller.
  kasane_ult_fork(&worker, control, worker.control, thread.argument, function);
  SanitizerSlots::arrived();
}

void adopt_for_fork(Worker& worker, Pool::Allocated thread) {
  RuntimeSection section;
  PoolCore& core = *worker.core;
  const SlotId slot = thread.id.slot();
  const Word stack_end = core.controls.get(slot, offsetof(SlotControl, stack_end));
  core.slots.prepare_foreign(stack_end - 1);
  core.config.mover->adopt(core.slots.stack_at(stack_end - 1),
                           reinterpret_cast<std::uintptr_t>(thread.argument), stack_end,
                           core.controls.layout().birth_rank(slot));
  core.controls.put(slot, offsetof(SlotControl, rank), raw(core.config.rank));
}

Parent running_on(const Worker& worker) noexcept {
  return {worker.runs_one_of_elsewhere() ? Word{raw(worker.self())} << 32 | 1
                                         : reinterpret_cast<Word>(worker.control)};
}
bool born_here(Parent parent) noexcept { return (parent.word & 1) == 0; }
// born here
SlotControl* control_of(Parent parent) noexcept { return reinterpret_cast<SlotControl*>(parent.word); }
/// The slot of the parent, which may have been stolen, and have ended.
SlotId slot_of(Parent parent) noexcept {
  return born_here(parent) ? Worker::slot_of(*control_of(parent))
                           : SlotId{static_cast<std::uint32_t>(parent.word >> 32)};
}

// The less usual half of kasane_ult_thread_begin, in these cases: a root; a parent that was born elsewhere or
// is in the middle of a catch block (its control block gets what the next worker to run it must know); a
// sleeper to wake; a full deque. In all but the third the child sets kSlotReturnsSlowly, and returns by
// end_slowly.
[[gnu::noinline]] Parent begin_slowly(Worker& worker, SlotControl& own) {
  worker.settle_leftover();  // before a thief may take the forker
  const Parent parent = running_on(worker);
  const bool none = worker.self() == kNoSlot;  // a root
  if (!none) {
    worker.core->save_exceptions(worker);
    if (worker.runs_one_of_elsewhere())
      worker.core->controls.put(worker.self(), offsetof(SlotControl, sp), worker.control->sp);
  }
  worker.control = &own;
  own.flags |= kSlotReturnsSlowly;
  if (!none) worker.core->push(worker, slot_of(parent));
  return parent;
}

[[gnu::noinline]] Parent push_slowly(Worker& worker, Parent parent) {
  worker.control->flags |= kSlotReturnsSlowly;
  worker.core->push(worker, slot_of(parent));
  return parent;
}
[[gnu::noinline]] Parent wake_slowly(PoolCore& core, Parent parent) {
  if (core.wake_wanted()) {
    core.wake_for_push();
    core.answer_if_asked();
  }
  return parent;
}

// Back to the parent, which pop gave. Last on the child's stack.
KASANE_ULT_SWITCHES inline SlotControl* return_to(Worker& worker, Parent parent) {
  SlotControl* const child = worker.control;
  PoolCore& core = *worker.core;
  worker.control = born_here(parent) ? control_of(parent) : worker.stand_in(slot_of(parent));
  worker.set_stack(core.controls.get(worker.self(), offsetof(SlotControl, stack_end)));
  if (core.controls.get(worker.self(), offsetof(SlotControl, flags)) & kSlotExceptionState)
    core.restore_exceptions(worker);
  core.slots.sanitizer.leaving_to_thread(worker.self());
  return child;
}

// The less usual half of kasane_ult_thread_end, for a thread that was switched out, or has values to destroy
// (which may switch it out), or began by begin_slowly or push_slowly, and for a full cache of stacks.
[[gnu::noinline]] KASANE_ULT_SWITCHES SlotControl* end_slowly(Parent parent) {
  Locals::destroy_all();
  Worker& here = *current_worker();
  here.settle_leftover();
  if ((here.control->flags & ~Word{kSlotReturnsSlowly}) != 0) here.core->leave_for_good(here);
  here.control->flags = 0;
  if (here.queue.pop(here.core->controls) == kNoSlot) here.core->leave_for_good(here);
  return return_to(here, parent);
}

// In the middle of a pop: a joiner waits for the child, or the child is detached, so its end is not known
// yet.
[[gnu::noinline]] KASANE_ULT_SWITCHES SlotControl* end_waited(Worker& worker, Parent parent,
                                                              std::uint64_t pop) {
  if (!worker.queue.end_pop(pop, [&] { return slot_of(parent); })) worker.core->leave_for_good(worker);
  return return_to(worker, parent);
}

[[noreturn, gnu::noinline]] void end_alone(Worker& worker, Word stack_end) {
  worker.core->leave_ended(worker, stack_end);
}

// A slot born elsewhere: its allocator moved between allocate and fork. The child never returns into its
// parent (control is null).
[[gnu::noinline]] void fork_foreign(Worker& worker, Pool::Allocated thread, void (*function)(void*)) {
  adopt_for_fork(worker, thread);
  SlotControl* const own = worker.stand_in(thread.id.slot());
  own->stack_end = worker.controls.get(thread.id.slot(), offsetof(SlotControl, stack_end));
  fork_on(worker, own, thread, function);
}

// ---- join ----

struct JoinWait {
  PoolCore* core;
  SlotId target;
};

// On the worker's own stack: the thread becomes the waiter. If the target has ended or has another waiter,
// the thread goes on at once and finds that out.
void publish_join(void* context, SlotId self) {
  // Once the record names the waiter, it may run elsewhere: *context is gone then.
  const auto [core, target] = *static_cast<JoinWait*>(context);
  Word word = core->controls.get(target, offsetof(SlotControl, join));
  for (;;) {
    const JoinStep step = next(JoinRecord::unpack(word), {JoinEvent::Kind::join, core->config.rank, self});
    if (step.action != JoinAction::suspend) return core->make_ready(self, core->config.rank);
    if (core->controls.compare_swap(target, offsetof(SlotControl, join), word, step.next.pack())) return;
  }
}

void check_generation(const PoolCore& core, ThreadId id) {
  if (id.value == 0 || core.controls.get(id.slot(), offsetof(SlotControl, id)) != id.value)
    refuse(std::errc::invalid_argument, "kasane: this thread was joined, or was detached and has ended");
}

// The record said exited on rank: its writes become visible, its slot is freed, its exception is thrown here.
[[gnu::noinline]] void collect(SlotId slot, Rank exit_rank) {
  Worker& worker = worker_of_thread();
  PoolCore& core = *worker.core;
  core.pool->cross(exit_rank, Account::fence_joins);
  std::exception_ptr exception = core.take_exception(slot);
  core.slots.release(worker.cache, slot);
  if (exception) std::rethrow_exception(std::move(exception));
}

[[gnu::noinline]] void join_slowly(ThreadId id) {
  const SlotId slot = id.slot();
  check_generation(*worker_of_thread().core, id);
  if (Pool::self() == slot) refuse(std::errc::resource_deadlock_would_occur, "kasane: a thread joins itself");
  for (bool waited = false;; waited = true) {
    Worker& worker = worker_of_thread();
    PoolCore& core = *worker.core;
    const JoinRecord record = JoinRecord::unpack(core.controls.get(slot, offsetof(SlotControl, join)));
    const JoinStep step = next(record, {JoinEvent::Kind::join, core.config.rank, worker.self()});
    if (step.action == JoinAction::collect) return collect(slot, record.rank);
    if (step.action == JoinAction::refuse || waited)
      refuse(std::errc::invalid_argument,
             "kasane: this thread is being joined by another thread, or is detached");
    JoinWait wait{&core, slot};
    Pool::suspend(publish_join, &wait, {.kind = WaitsFor::Kind::thread, .call = "join", .object = raw(slot)});
  }
}

struct Departure {
  PoolCore* core;
  Rank rank;
};
void publish_departure(void* context, SlotId self) {
  // from the push on the thread may run elsewhere: *context is gone then
  const auto [core, rank] = *static_cast<Departure*>(context);
  core->make_ready(self, rank);
}

void publish_wait(void* context, SlotId self) {
  auto& wait = *static_cast<WorkerWait*>(context);
  wait.slot = self;
  current_worker()->wait_for_turn(wait);
}

/// A thread that waits for something outside of the job; one of the two.
struct OutsideThread {
  WorkerWait wait{.ready = [](const void*) { return true; }, .argument = nullptr};
  OutsideCaller* caller = nullptr;
  OutsideSleep sleep{};
};
void publish_outside(void* context, SlotId self) {
  auto& thread = *static_cast<OutsideThread*>(context);
  thread.wait.slot = self;
  OutsideWaits& waits = current_worker()->outside;
  if (thread.caller == nullptr) {
    thread.sleep.wait = &thread.wait;
    return waits.add(thread.sleep);
  }
  thread.caller->wait = &thread.wait;
  waits.add(*thread.caller);
}

void publish_yield(void* context, SlotId self) {
  auto& core = *static_cast<PoolCore*>(context);
  core.make_ready(self, core.config.rank);
}

Account account_of(WaitsFor::Kind kind) noexcept {
  switch (kind) {
    case WaitsFor::Kind::turn:
    case WaitsFor::Kind::network:
    case WaitsFor::Kind::page: return Account::idle;
    case WaitsFor::Kind::mutex:
    case WaitsFor::Kind::permits: return Account::wait_locks;
    case WaitsFor::Kind::barrier: return Account::wait_barriers;
    case WaitsFor::Kind::thread: return Account::wait_joins;
    case WaitsFor::Kind::outside:
    case WaitsFor::Kind::condition:
    case WaitsFor::Kind::latch:
    case WaitsFor::Kind::word: break;
  }
  return Account::wait_others;
}

/// With --stats: the worker was idle until the calling thread could go on, which has waited since begin_ns.
[[gnu::noinline]] void blame_for_idling(Worker& worker, WaitsFor::Kind kind, std::uint64_t begin_ns) {
  const std::uint64_t ns = std::min(std::exchange(worker.idle_ns, 0), now_ns() - begin_ns);
  if (account_of(kind) == Account::idle) return;
  RuntimeSection section;
  count(worker.counters->ns_idle, std::uint64_t{0} - ns);
  spend(*worker.counters, account_of(kind), ns);
}

}  // namespace

Worker& worker_of_thread() {
  Worker* worker = current_worker();
  KASANE_REQUIRE(worker != nullptr && worker->self() != kNoSlot,
                 "this call belongs on a user-level thread (inside of kasane::run)");
  return *worker;
}

// ---- words of the own region ----

// seq_cst throughout: the promise of Words.
std::uint64_t OwnWords::load(Rank, std::uint64_t offset) { return at(offset).load(); }
void OwnWords::store(Rank, std::uint64_t offset, std::uint64_t value) { at(offset).store(value); }
std::uint64_t OwnWords::compare_swap(Rank, std::uint64_t offset, std::uint64_t expected,
                                     std::uint64_t desired) {
  at(offset).compare_exchange_strong(expected, desired);
  return expected;
}
std::uint64_t OwnWords::fetch_or(Rank, std::uint64_t offset, std::uint64_t operand) {
  return at(offset).fetch_or(operand);
}
std::uint64_t OwnWords::fetch_and(Rank, std::uint64_t offset, std::uint64_t operand) {
  return at(offset).fetch_and(operand);
}

// ---- life of a pool ----

Result<std::unique_ptr<Pool>> Pool::create(const Config& config) {
  const auto wrong = [](const char* what) {
    return fail(Errc::invalid_argument, std::string("threads of a rank: ") + what);
  };
  if (config.workers == 0) return wrong("workers is 0; give at least 1");
  if (config.slots_per_rank == 0 || config.stacks_per_rank == 0)
    return wrong("slots_per_rank or stacks_per_rank is 0; set KASANE_SLOTS to at least 1");
  if (std::uint64_t{config.ranks} * config.slots_per_rank >= raw(kNoSlot))
    return wrong("ranks × slots_per_rank must be below 2^32 - 1; set KASANE_SLOTS to less");
  if (config.stack_bytes == 0 || config.stack_bytes % kSmallestStackBytes != 0)
    return wrong("stack_bytes must be a multiple of 64 KiB");
  if (config.stacks == nullptr || config.region == nullptr || config.counters == nullptr)
    return wrong("stacks, region and counters must be given");
  if (raw(config.rank) >= config.ranks) return wrong("rank must be below ranks");
  if (!config.worker_nodes.empty() && config.worker_nodes.size() != config.workers)
    return wrong("worker_nodes must name a node for each worker, or none");
  if (config.ranks > 1 && !(config.words && config.edges && config.mover && config.other_ranks))
    return wrong("with several ranks words, edges, mover and other_ranks must be given");
  std::unique_ptr<Pool> pool(new Pool);
  pool->core_ = std::make_unique<PoolCore>(pool.get(), config);
  return pool;
}

Pool::Pool() = default;
Pool::~Pool() = default;

void Pool::run_worker(std::uint32_t index) {
  const PassedCalls passed;  // those of the worker's loop
  Worker& worker = *core_->workers.at(index);
  Attached attached(worker);
  core_->work(worker, kNoSlot);
}

void Pool::run_root(std::uint32_t index, void (*entry)(void*), void* arg) {
  Worker& worker = *core_->workers.at(index);
  std::exception_ptr exception;
  {
    Attached attached(worker);
    const Allocated root =
        allocate_on(worker, core_->slots.take_stack_of_root(worker.stacks), 16, sizeof(RootCall));
    const SlotId slot = root.id.slot();
    new (root.argument) RootCall{entry, arg};
    // It has no parent to return into: what is in the deque then is left over from an earlier root.
    core_->controls.put(slot, offsetof(SlotControl, flags), kSlotResumed);
    // No other worker knows the thread yet. Its waiter is no thread: its end rings this rank.
    core_->controls.put(slot, offsetof(SlotControl, join),
                        JoinRecord{JoinKind::waited, core_->config.rank, kNoSlot}.pack());
    core_->start_root(worker, slot, root.argument, run_root_call);
    core_->work(worker, slot);
    cross(JoinRecord::unpack(core_->controls.get(slot, offsetof(SlotControl, join))).rank,
          Account::fence_joins);
    exception = core_->take_exception(slot);
    core_->slots.release(worker.cache, slot);
  }
  if (exception) std::rethrow_exception(std::move(exception));
}

void Pool::stop() noexcept {
  // seq_cst: before the ring, in one order with a sleeper's last look.
  core_->stopping.store(true, std::memory_order_seq_cst);
  core_->idle_workers.wake_all();
}

bool Pool::has_refused_threads() const noexcept { return core_->slots.has_refused(); }

std::uint32_t Pool::trim_stacks(std::uint32_t most) { return core_->slots.trim(most); }

bool Pool::asleep() const noexcept { return core_->idle_workers.sleepers() == core_->config.workers; }

void Pool::for_each_thread(void (*visit)(void* context, const ThreadState&), void* context) const {
  const Controls& controls = core_->controls;
  for (std::uint32_t i = 0; i < core_->slots.used(); ++i) {
    const SlotId slot = controls.layout().slot_at(core_->config.rank, i);
    const auto kind = JoinRecord::unpack(controls.get(slot, offsetof(SlotControl, join))).kind;
    if (kind != JoinKind::running && kind != JoinKind::waited && kind != JoinKind::detached) continue;
    visit(context, {slot, Rank{static_cast<std::uint32_t>(controls.get(slot, offsetof(SlotControl, rank)))},
                    controls.get(slot, offsetof(SlotControl, sp)),
                    controls.get(slot, offsetof(SlotControl, stack_end))});
  }
}
// The worker stores its control and calls_left plainly, since each fork does: an aligned word is whole. So
// ThreadSanitizer is not asked about these two functions.
[[gnu::no_sanitize_thread]] SlotId Pool::running_on(std::uint32_t worker) const noexcept {
  // whatever it runs at some recent time; control blocks and stand-ins live as long as the pool
  SlotControl* const control = *const_cast<SlotControl* volatile*>(&core_->workers[worker]->control);
  return Worker::slot_of(*control);
}
bool Pool::quiet() const noexcept {
  const PoolCore& core = *core_;
  if (!asleep() || core.timers.earliest() != Timers::kNever) return false;
  // relaxed: a thread that is pushed later wakes a worker, or changes activity()
  if (atomic(core.controls.own_word(Layout::ready_head())).load(std::memory_order_relaxed) != 0) return false;
  // Nothing is pushed for the waiter of a root: the worker looks when it runs, which may be late.
  for (const auto& worker : core.workers)
    if (worker->queue.stealable() || worker->outside.any() ||
        core.finished(worker->root.load(std::memory_order_relaxed)))
      return false;
  return true;
}
[[gnu::no_sanitize_thread]] Pool::WorkerState Pool::state_of(std::uint32_t index) const noexcept {
  const Worker& worker = *core_->workers[index];
  const volatile auto& calls_left = worker.turn.calls_left;
  // relaxed, all: numbers at some recent time
  return {running_on(index), calls_left,
          worker.counters->suspends.load(std::memory_order_relaxed) +
              worker.counters->threads.load(std::memory_order_relaxed) +
              worker.counters->forks.load(std::memory_order_relaxed)};
}
std::int32_t Pool::os_thread_of(std::uint32_t worker) const noexcept {
  return core_->workers[worker]->os_thread.load(std::memory_order_relaxed);  // relaxed: a number
}
std::uint64_t Pool::activity() const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t w = 0; w < core_->config.workers; ++w) sum += state_of(w).activity;
  return sum;
}

std::uint32_t Pool::outside_callers() const noexcept { return core_->outside_callers.count(); }
bool Pool::calls_outside() const noexcept { return core_->outside_callers.busy(); }

const Config& Pool::config() const noexcept { return core_->config; }
std::uint64_t Pool::clock_ns() const noexcept { return now_ns() + core_->config.clock_offset_ns; }

Pool* Pool::current() noexcept {
  const Worker* worker = current_worker();
  return worker ? worker->core->pool : nullptr;
}
std::uint32_t Pool::worker() noexcept { return current_worker()->index; }
SlotId Pool::self() noexcept {
  const Worker* worker = current_worker();
  return worker ? worker->self() : kNoSlot;
}
namespace {
// The state of an OS thread that runs the program outside of user-level threads. It does not move, so the
// address may be kept; noinline, since callers may be on a user-level thread.
struct Outside {
  bool program = false;
  UserCode::Depth runtime_sections;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Outside t_outside;
[[gnu::noinline]] Outside& outside() noexcept { return t_outside; }
}  // namespace

bool Pool::in_user_code() noexcept {
  const Worker* worker = current_worker();
  return worker && worker->self() != kNoSlot && worker->runtime_sections.sections == 0;
}

bool Pool::in_program() noexcept {
  if (current_worker() != nullptr) return in_user_code();
  const Outside& here = outside();
  return here.program && here.runtime_sections.sections == 0;
}

void Pool::enter_program() noexcept { outside().program = true; }

LazyRecord* Pool::records() noexcept { return kasane_lazy_worker->newest; }
void Pool::keep_records(LazyRecord* newest) noexcept {
  for (LazyRecord* at = newest; at != nullptr; at = at->older)
    at->thread = next(at->thread, LazyEvent::refuse).next;
}

void Pool::forget_process() noexcept {
  kasane_ult_worker = nullptr;
  kasane_lazy_worker = &no_worker;
  outside() = {};
}

UserCode::Depth& UserCode::depth() noexcept {
  Worker* const worker = current_worker();
  return worker != nullptr ? worker->runtime_sections : outside().runtime_sections;
}
UserCode::UserCode() noexcept : sections_(depth()), calls_(calls()) {
  depth() = {};
  leave_runtime(Calls::caught);
}
UserCode::~UserCode() {
  set_calls(calls_);
  depth() = sections_;
}

void RuntimeSection::enter() noexcept {
  Worker* const worker = current_worker();
  UserCode::Depth& depth = worker != nullptr ? worker->runtime_sections : outside().runtime_sections;
  if (depth.sections++ != 0) return;
  depth.before = calls();
  set_calls(Calls::passed);
}
void RuntimeSection::leave() noexcept {
  Worker* const worker = current_worker();
  UserCode::Depth& depth = worker != nullptr ? worker->runtime_sections : outside().runtime_sections;
  if (--depth.sections == 0) leave_runtime(depth.before);
}

// ---- threads ----

Pool::Allocated Pool::allocate_sixteens(std::size_t size) {
  KASANE_ASSERT(current_worker() != nullptr && self() != kNoSlot, "threads are made on a user-level thread");
  Worker& worker = *current_worker();
  if (worker.cache.empty() || worker.stacks.empty() || size > kSmallestStackBytes / 2 || kSanitized ||
      worker.polling != 0) [[unlikely]]
    return allocate_slowly(16, size);
  return make_thread(*worker.cache.pop(), worker.stacks.pop(), 1, size);
}

Pool::Allocated Pool::allocate_aligned(std::size_t alignment, std::size_t size) {
  KASANE_ASSERT(current_worker() != nullptr && self() != kNoSlot, "threads are made on a user-level thread");
  return allocate_slowly(alignment, size);
}

void Pool::abandon(Allocated thread) {
  Worker& worker = worker_of_thread();
  PoolCore& core = *worker.core;
  const SlotId slot = thread.id.slot();
  if (core.controls.is_local(slot))
    core.slots.release_stack(worker.stacks, core.controls.local(slot)->stack_end);
  else
    core.controls.put(slot, offsetof(SlotControl, flags), kSlotAbandoned);
  core.slots.release(worker.cache, slot);
}

void Pool::fork(Allocated thread, void (*function)(void*)) {
  Worker* worker = current_worker();
  KASANE_ASSERT(worker != nullptr && worker->self() != kNoSlot);
  KASANE_ASSERT(worker->runtime_depth() == 0, "a fork inside of a runtime section");
  const Controls& controls = worker->controls;
  const SlotId slot = thread.id.slot();
  if (!controls.is_local(slot)) [[unlikely]]
    return fork_foreign(*worker, thread, function);
  fork_on(*worker, controls.local(slot), thread, function);
}

bool Pool::begin_lazy(LazyRecord& record) {
  Worker* const worker = current_worker();
  if (worker == nullptr || worker->self() == kNoSlot || worker->on_signal_stack()) return false;
  KASANE_REQUIRE(worker->polling == 0, kPollingText);
  const Config& config = worker->core->config;
  const auto sp = reinterpret_cast<Word>(__builtin_frame_address(0));
  if (sp < config.stack_end(config.stack_at(sp)) - worker->lazy_depth) return false;
  record.thread = LazyRecord::kLinked;
  record.older = std::exchange(worker->lazy->newest, &record);
  if (worker->lazy->wanted() != 0) worker->core->serve_wanted(*worker);
  return true;
}

bool Pool::end_lazy(LazyRecord& record) {
  if (current_worker() == nullptr) std::exit(0);  // a child of fork(): as where its thread ends
  LazyStep step = next(record.thread, LazyEvent::end);
  if (step.action != LazyAction::join) return step.action == LazyAction::call;
  Worker& worker = worker_of_thread();
  PoolCore& core = *worker.core;
  const SlotId slot = ThreadId{record.thread}.slot();
  const SlotId newest = worker.queue.pop(core.controls);
  if (newest == kNoSlot) return false;
  const auto never_ran = [&](SlotId s) {
    // A slot of another rank: the caller has moved since.
    if (!core.controls.is_local(s)) return false;
    const SlotControl& control = *core.controls.local(s);
    return control.sp == control.stack_end - start_bytes(record.kind->copied());
  };
  if (newest != slot || !never_ran(slot)) {
    core.push(worker, newest);
    return false;
  }
  step = next(record.thread, LazyEvent::end_and_untaken);
  abandon({ThreadId{record.thread}, nullptr});
  record.thread = step.next;
  return true;
}

bool Pool::exits() noexcept {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  return type != nullptr && *type == typeid(ThreadExit);
}

void Pool::join(ThreadId id) {
  Worker* worker = current_worker();
  KASANE_ASSERT(worker != nullptr && worker->self() != kNoSlot);
  const SlotId slot = id.slot();
  if (!worker->controls.is_local(slot)) [[unlikely]]
    return join_slowly(id);
  SlotControl& control = *worker->controls.local(slot);
  // acquire: pairs with the exit's compare-swap.
  const Word record = atomic(control.join).load(std::memory_order_acquire);
  // relaxed: a slot is reused only after this join.
  const Word found = atomic(control.id).load(std::memory_order_relaxed);
  if (record != worker->exited_here || found != id.value || control.flags != 0) [[unlikely]]
    return join_slowly(id);
  Slots::end_generation(control);
  if (worker->cache.full()) [[unlikely]]
    return worker->core->slots.spill_and_push(worker->cache, control);
  worker->cache.push(&control);
}

void Pool::detach(ThreadId id) {
  Worker& worker = worker_of_thread();
  PoolCore& core = *worker.core;
  check_generation(core, id);
  Word word = core.controls.get(id.slot(), offsetof(SlotControl, join));
  for (;;) {
    const JoinStep step = next(JoinRecord::unpack(word), {JoinEvent::Kind::detach});
    if (step.action == JoinAction::refuse)
      refuse(std::errc::invalid_argument, "kasane: this thread is joined or detached already");
    if (!core.controls.compare_swap(id.slot(), offsetof(SlotControl, join), word, step.next.pack())) continue;
    if (step.action == JoinAction::free_slot) {
      if (std::exception_ptr exception = core.take_exception(id.slot()))
        [&]() noexcept { std::rethrow_exception(exception); }();
      core.slots.release(worker.cache, id.slot());
    }
    return;
  }
}

void Pool::yield() {
  // Nothing else can run here: lets other OS threads run, which may be about to make something ready.
  if (!others_here() || !may_switch()) {
    ::sched_yield();
    return;
  }
  suspend(publish_yield, worker_of_thread().core);
}

bool Pool::may_switch() noexcept {
  const Worker* const worker = current_worker();
  return worker != nullptr && worker->self() != kNoSlot && !worker->on_signal_stack();
}
bool Pool::may_wait() noexcept { return in_user_code() && may_switch(); }

void Pool::move_to(Rank rank) {
  Departure departure{worker_of_thread().core, rank};
  if (rank != departure.core->config.rank) suspend(publish_departure, &departure);
}

void Pool::go_to(Rank rank) {
  while (worker_of_thread().core->config.rank != rank) move_to(rank);
}

void Pool::begin_polling() noexcept {
  if (Worker* const worker = current_worker(); worker != nullptr && worker->runs_a_thread()) {
    if (worker->polling++ == 0)
      worker->limit_before_polling = std::exchange(worker->lazy->stack_limit, LazyWorker::kNoStack);
  }
}
void Pool::end_polling() noexcept {
  Worker* const worker = current_worker();
  if (worker == nullptr || !worker->runs_a_thread()) return;
  KASANE_CHECK(worker->polling != 0, "a polling scope ends where it began");
  if (--worker->polling == 0) worker->lazy->stack_limit = worker->limit_before_polling;
}

bool Pool::others_here() noexcept {
  Worker& worker = worker_of_thread();
  if (worker.polling != 0) return false;
  // relaxed: a hint.
  return worker.lazy->newest != nullptr || !worker.queue.empty_for_owner() || worker.waits != nullptr ||
         (worker.outside.any() && worker.outside.ready()) ||
         atomic(worker.core->controls.own_word(Layout::ready_head())).load(std::memory_order_relaxed) != 0;
}

bool Pool::wait_here(bool (*ready)(const void*), const void* argument) {
  if (!others_here() || !may_switch()) return false;
  WorkerWait wait{.ready = ready, .argument = argument};
  suspend(publish_wait, &wait, {.kind = WaitsFor::Kind::network}, &wait);
  return true;
}

bool Pool::may_leave(std::uintptr_t sp, std::uint32_t most) noexcept {
  const Worker* const worker = current_worker();
  if (worker == nullptr || worker->self() == kNoSlot || worker->runtime_sections.sections != 0 || kSanitized)
    return false;
  const Config& config = worker->core->config;
  const auto first = reinterpret_cast<std::uintptr_t>(config.stacks);
  const std::uintptr_t bytes = std::uintptr_t{config.ranks} * config.stacks_per_rank * config.stack_bytes;
  if (sp - first >= bytes) return false;  // a stack of the program's own, or that of a signal
  const StackId stack = config.stack_at(sp);
  return sp - (config.stack_end(stack) - config.stack_bytes) >= kLeastLeft && worker->waiting < most &&
         others_here();
}

void Pool::load_control_words() noexcept {
  const PoolCore& core = *worker_of_thread().core;
  asm volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(core.mxcsr), "m"(core.x87));
}

void Pool::wait_for_page(bool (*ready)(const void*), const void* argument, const void* address) {
  WorkerWait wait{.ready = ready, .argument = argument, .polls = false};
  suspend(publish_wait, &wait, {.kind = WaitsFor::Kind::page, .address = address}, &wait);
}

std::optional<long> Pool::call_outside(const OutsideRequest& request) {
  OutsideThread thread;
  OutsideCallers* const callers = &worker_of_thread().core->outside_callers;
  {
    const RuntimeSection section;
    thread.caller = callers->take();
  }
  if (thread.caller == nullptr) return std::nullopt;
  thread.caller->request = request;
  suspend(publish_outside, &thread, {.kind = WaitsFor::Kind::outside, .call = request.call}, &thread.wait);
  const RuntimeSection section;
  const long result = thread.caller->result;
  callers->give_back(thread.caller);
  return result;
}

bool Pool::sleep(const char* call, std::uint64_t until_ns) {
  OutsideThread thread;
  thread.sleep.until_ns = until_ns;
  suspend(publish_outside, &thread, {.kind = WaitsFor::Kind::outside, .call = call}, &thread.wait);
  return !thread.sleep.interrupted;
}

void Pool::note_handler(bool restarts) noexcept {
  Worker* const worker = current_worker();
  if (worker == nullptr) return;
  worker->outside.note_handler(restarts);
  if (!worker->outside.any()) return;
  const PassedInHandler passed;  // the kernel may go on with the worker's sleep after the handler
  worker->core->idle_workers.wake_all();
}

void Pool::look_at_turn(bool stays) {
  Worker& worker = *current_worker();
  // In a runtime section the thread may hold what others need. Its own stack: no thread runs.
  const bool others = !stays && worker.self() != kNoSlot && worker.runtime_depth() == 0 &&
                      !worker.on_signal_stack() && others_here();
  if (!worker.turn.look(worker.control->id, now_ns(), others)) return;
  WorkerWait wait{.ready = [](const void*) { return true; }, .argument = nullptr};
  suspend(publish_wait, &wait, {}, &wait);
}

void Pool::exit() { throw ThreadExit{}; }
void Pool::end_by_unwinding(const char* call) {
  ForcedUnwind::to(reinterpret_cast<const void*>(&kasane_ult_thread_run), call);
}

ThreadId Pool::id() noexcept {
  const Worker* worker = current_worker();
  if (worker == nullptr || worker->self() == kNoSlot) return {};
  return {worker->controls.get(worker->self(), offsetof(SlotControl, id))};
}

void Pool::suspend(void (*publish)(void* context, SlotId), void* context, const WaitsFor& waits,
                   WorkerWait* stays) {
  const WaitNote note(waits);
  Worker& worker = worker_of_thread();
  KASANE_REQUIRE(
      !worker.on_signal_stack(),
      "a handler of a signal waits for a thread, which can never run: set a flag in the handler, and "
      "wait outside of it");
  worker.settle_leftover();
  const UserCode::Depth sections = worker.runtime_sections;
  count(worker.counters->suspends);
  const std::uint64_t begin_ns = worker.counters->places != nullptr ? now_ns() : 0;
  worker.core->suspend(worker, {publish, context, calls() == Calls::passed, stays});
  Worker& here = *current_worker();
  here.runtime_sections = sections;
  if (here.idle_ns != 0) [[unlikely]]
    blame_for_idling(here, waits.kind, begin_ns);
}

void Pool::make_ready(SlotId slot, Rank rank) { core_->make_ready(slot, rank); }

Words& Pool::words() noexcept { return core_->config.words ? *core_->config.words : core_->own_words; }

std::uint32_t Pool::cross(Rank source, Account account, ReleaseMark mark) {
  if (source == core_->config.rank) return 0;
  RuntimeSection section;
  return core_->config.edges->cross(source, account, mark);
}
void Pool::release(Account account) {
  if (core_->config.ranks == 1) return;
  RuntimeSection section;
  core_->config.edges->release(account);
}
ReleaseMark Pool::release_little(std::uint32_t blocks, Account account) {
  if (core_->config.ranks == 1) return kNoMark;
  RuntimeSection section;
  return core_->config.edges->release_little(blocks, account);
}
void Pool::acquire(Account account) {
  if (core_->config.ranks == 1) return;
  RuntimeSection section;
  core_->config.edges->acquire(account);
}

}  // namespace kasane::ult

// The three parts of a thread's life on its own stack, called in turn by kasane_ult_fork. Only the function
// and its argument are kept from one part to the next: the end asks the worker on which it runs.

kasane::ult::Parent kasane_ult_thread_begin(kasane::ult::Worker* worker, kasane::ult::SlotControl* own,
                                            kasane::ult::SlotControl* forker) {
  using namespace kasane;
  using namespace kasane::ult;
  SanitizerSlots::arrived();
  worker->set_stack(own->stack_end);
  if (forker->flags & kSlotElsewhere || !worker->exceptions->empty() || worker->has_leftover()) [[unlikely]]
    return begin_slowly(*worker, *own);
  const Parent parent{reinterpret_cast<Word>(forker)};
  worker->control = own;
  // From the push on the parent may run elsewhere; it finds sp in its control block (the push releases).
  if (!worker->queue.try_push(Worker::slot_of(*forker))) [[unlikely]]
    return push_slowly(*worker, parent);
  if (worker->core->wake_perhaps_wanted()) [[unlikely]]
    return wake_slowly(*worker->core, parent);
  return parent;
}

// In a section of its own (runtime/process/waits.cpp): a call that is its thread's last returns here.
[[gnu::section("kasane_runs_threads")]] void kasane_ult_thread_run(void* argument, void (*function)(void*)) {
  using namespace kasane::ult;
  try {
    return function(argument);
  } catch (abi::__forced_unwind&) {  // Pool::end_by_unwinding()
  } catch (ThreadExit&) {
    return check_no_records();
  } catch (LeavesThread&) {  // never
  } catch (...) {
    check_no_records();
    return keep_exception();
  }
  check_no_records();
  // libstdc++ counts each rethrow of a forced unwinding as an exception more that is under way.
  *current_worker()->exceptions = {};
}

KASANE_ULT_SWITCHES void kasane_ult_thread_start(void* argument, void (*function)(void*)) {
  kasane::ult::SanitizerSlots::arrived();
  kasane_ult_thread_run(argument, function);
  // It was resumed, so its end goes the long way, which asks no parent.
  kasane_ult_thread_end({});
  __builtin_unreachable();
}

KASANE_ULT_SWITCHES kasane::ult::SlotControl* kasane_ult_thread_end(kasane::ult::Parent parent) {
  using namespace kasane;
  using namespace kasane::ult;
  Worker* const here = current_worker();
  if (here == nullptr) [[unlikely]]
    std::exit(0);  // a child of fork(), whose only thread ends
  SlotControl* const child = here->control;
  // Sanitizers want each end in the fiber of the thread that goes on.
  if (child->flags != 0 || here->stacks.full() || here->has_leftover() || kSanitized) [[unlikely]]
    return end_slowly(parent);
  // The thread was never switched out: this is the worker on which it began, and all that was pushed after
  // the parent has been popped or stolen. So a pop gives the parent, or nothing if the parent was stolen. The
  // parent has no exception state to restore.
  const Word stack_end = child->stack_end;  // before another thread may take the control block
  const std::uint64_t pop = here->queue.begin_pop();
  // The end becomes known before it is known whether the parent is here: one locked instruction does for
  // both. From then on the control block may be another thread's. The stack is ours until it is in the cache,
  // from which only this worker takes it, and this worker leaves the stack first.
  // seq_cst: begin_pop() asks for it. Its release part publishes to the joiner what the child wrote.
  Word expected = kRunning;
  if (!atomic(child->join)
           .compare_exchange_strong(expected, here->exited_here, std::memory_order_seq_cst,
                                    std::memory_order_seq_cst)) [[unlikely]]
    return end_waited(*here, parent, pop);
  if (!here->queue.end_pop(pop, [&] { return slot_of(parent); })) [[unlikely]]
    end_alone(*here, stack_end);
  here->control = control_of(parent);
  here->set_stack(here->control->stack_end);
  here->stacks.push(stack_end);
  count(here->counters->threads);
  return nullptr;
}

// After end_slowly, or a joiner waits for the child, or the child is detached.
void kasane_ult_child_returned(kasane::ult::SlotControl* child) {
  using namespace kasane::ult;
  Worker& worker = *current_worker();
  // before another thread may take the control block
  worker.core->slots.release_stack(worker.stacks, child->stack_end);
  worker.core->end_thread(worker, worker.core->controls.slot_of(*child));
}
