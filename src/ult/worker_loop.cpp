// SPDX-License-Identifier: Apache-2.0
// How a worker finds its next thread and what it does for the one that left. All of it runs on the worker's
// own stack, except push, suspend and leave_for_good.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <utility>

#include "base/call_selector.h"
#include "base/clock.h"
#include "base/exception_word.h"
#include "base/misuse.h"
#include "base/time_spent.h"
#include "ult/context.h"
#include "ult/os_thread.h"
#include "ult/pool_core.h"
#include "ult/runtime_section.h"
#include "ult/timed.h"

namespace kasane::ult {
namespace {

/// How long a worker looks before it sleeps: about the cost of a wake-up (10 µs for the waker, 35 µs until
/// the sleeper runs).
constexpr std::uint64_t kSpinNs = 20'000;
/// How much longer it yields its core to others, while threads wait here for what is on its way; and how long
/// it then sleeps at most, since not all that such a thread waits for rings.
constexpr std::uint64_t kPollNs = 200'000;
constexpr std::int64_t kNapNs = 500'000;

// Runs on the worker's own stack once nothing of the thread's is in use any more.
void publish_exit(void* context, SlotId slot) {
  auto& core = *static_cast<PoolCore*>(context);
  Worker& worker = *current_worker();
  core.slots.sanitizer.ended(slot);
  // All before the record says that it has exited: the joiner may give the slot away at once.
  const Word exception = core.controls.get(slot, offsetof(SlotControl, flags)) & kSlotException;
  const bool moved = !core.controls.is_local(slot);
  const Word stack_end = core.controls.get(slot, offsetof(SlotControl, stack_end));
  if (moved)
    core.config.mover->surrender(core.slots.stack_at(stack_end - 1));
  else
    core.slots.release_stack(worker.stacks, stack_end);
  core.controls.put(slot, offsetof(SlotControl, flags), exception | (moved ? Word{kSlotMoved} : 0));
  core.end_thread(worker, slot);
}

// Gives back the stack of a thread that has published its end itself, and counts the thread.
void publish_ended(void* context, SlotId) {
  auto& core = *static_cast<PoolCore*>(context);
  Worker& worker = *current_worker();
  core.slots.release_stack(worker.stacks, worker.idle.stack_end);
  count(worker.counters->threads);
}

[[noreturn]] void terminate_with(std::exception_ptr exception) noexcept {
  std::rethrow_exception(std::move(exception));
}

}  // namespace

PoolCore::PoolCore(Pool* pool_, const Config& config_)
    : pool(pool_),
      config(config_),
      own_words(config_.region),
      controls(Layout(config_.workers, config_.slots_per_rank), config_.rank, config_.region,
               config_.words ? config_.words : &own_words),
      slots(config, controls),
      idle_workers(config_.rank, config_.ranks > 1, config_.other_ranks) {
  asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
  Words& words = config.words != nullptr ? *config.words : own_words;
  for (std::uint32_t r = 0; r < config.ranks; ++r) {
    std::byte* const region = Rank{r} == config.rank ? config.region : words.region(Rank{r});
    sync_records.push_back(region == nullptr ? nullptr : region + controls.layout().sync_records());
  }
  if (config.edges != nullptr && config.ranks > 1) releases_begun = config.edges->releases_begun();
  for (std::uint32_t i = 0; i < config.workers; ++i)
    workers.push_back(
        std::make_unique<Worker>(this, controls, i, RunQueue(config.region, controls.layout(), i),
                                 SlotCache(slots.cache_capacity(config.slots_per_rank)),
                                 StackCache(slots.cache_capacity(config.stacks_per_rank)),
                                 &config.counters[i], config.leftover, config.stack_bytes / 4 * 3));
  std::vector<Worker*> all;
  for (const auto& worker : workers) all.push_back(worker.get());
  for (Worker* worker : all)
    worker->steal_order = StealOrder<Worker*>(worker->index, all, config.worker_nodes);
}

// ---- leaving a thread ----

void PoolCore::suspend(Worker& worker, AfterSwitch after) {
  KASANE_REQUIRE(worker.polling == 0, kPollingText);
  if (worker.lazy->newest != nullptr) [[unlikely]]
    promote_all(worker);
  if (!worker.exceptions->empty()) after.stays = nullptr;
  save_exceptions(worker);
  worker.after = after;
  slots.sanitizer.leaving_to_worker(worker.sanitizer);
  kasane_ult_switch(&worker.control->sp, worker.idle.sp);
  // Another worker, or another rank's: worker and this are not ours any more.
  SanitizerSlots::arrived();
}

void PoolCore::leave_for_good(Worker& worker) {
  suspend(worker, {publish_exit, this});
  __builtin_unreachable();  // a thread that has ended is never resumed
}

void PoolCore::leave_ended(Worker& worker, Word stack_end) {
  worker.idle.stack_end = stack_end;
  // From here on this is no thread: nothing of the control block is touched. Its registers are saved in a
  // stand-in that is not read.
  worker.control = worker.stand_in(kNoSlot);
  worker.control->flags = 0;
  suspend(worker, {publish_ended, this});
  __builtin_unreachable();  // never resumed
}

// ---- lazy threads (ult/lazy.h) ----

bool PoolCore::promote(Worker& worker, LazyRecord& record) {
  const LazyKind& kind = *record.kind;
  Pool::Allocated thread{};
  try {
    thread = Pool::allocate(16, start_bytes(kind.copied()));
  } catch (const std::exception&) {
    record.thread = next(record.thread, LazyEvent::refuse).next;
    return false;
  }
  std::byte* const base = static_cast<std::byte*>(thread.argument);
  const void* const argument = kind.bytes != 0 ? record.argument : &record.argument;
  std::memcpy(base + sizeof(SavedContext), argument, kind.copied());
  SlotControl& control = *controls.local(thread.id.slot());
  control.sp = start_context(base, kind.run);
  const LazyStep step = next(record.thread, LazyEvent::promote, thread.id.value);
  KASANE_ASSERT(step.action == LazyAction::push);
  record.thread = step.next;
  count(worker.counters->forks);
  worker.queue.push(controls, thread.id.slot());
  return true;
}

void PoolCore::promote_all(Worker& worker) {
  // Oldest first: thieves take that, and this worker the newest.
  LazyRecord* oldest_first = nullptr;
  for (LazyRecord* at = worker.lazy->newest; at != nullptr;)
    at = std::exchange(at->older, std::exchange(oldest_first, at));
  worker.lazy->newest = nullptr;
  worker.settle_leftover();
  for (; oldest_first != nullptr; oldest_first = oldest_first->older) promote(worker, *oldest_first);
  pushed();
}

void PoolCore::serve_wanted(Worker& worker) {
  LazyWorker& lazy = *worker.lazy;
  const Word wanted = lazy.wanted();
  // Before the look at who is hungry: as with a push, a worker that falls asleep after that look stores
  // `wanted` behind a membarrier, and so after this.
  lazy.want(0);
  answer_if_asked();
  // relaxed, all three: hints
  const auto ranks = static_cast<std::uint32_t>(
      std::popcount(idle_ranks().load(std::memory_order_relaxed) & ~kRequestPending));
  const std::uint32_t hungry =
      std::max(hungry_workers() + ranks, (wanted & LazyWorker::kHungry) != 0 ? 1u : 0u);
  const std::uint64_t offered = worker.queue.size_hint();
  if (lazy.newest == nullptr || offered >= hungry) return pushed();
  worker.settle_leftover();
  LazyRecord** last = &lazy.newest;
  while ((*last)->older != nullptr) last = &(*last)->older;
  if (!promote(worker, *std::exchange(*last, nullptr))) return;
  if (offered + 1 < hungry) lazy.want(LazyWorker::kHungry);
  pushed();
}

void PoolCore::save_exceptions(Worker& worker) {
  if (worker.exceptions->empty()) [[likely]]
    return;
  Word eh[2];
  worker.exceptions->move_to(eh);
  const SlotId self = worker.self();
  controls.put(self, offsetof(SlotControl, eh[0]), eh[0]);
  controls.put(self, offsetof(SlotControl, eh[1]), eh[1]);
  controls.put(self, offsetof(SlotControl, flags),
               controls.get(self, offsetof(SlotControl, flags)) | kSlotExceptionState);
}

void PoolCore::restore_exceptions(Worker& worker) {
  const SlotId self = worker.self();
  worker.exceptions->take(controls.get(self, offsetof(SlotControl, eh[0])),
                          controls.get(self, offsetof(SlotControl, eh[1])));
  controls.put(self, offsetof(SlotControl, flags),
               controls.get(self, offsetof(SlotControl, flags)) & ~Word{kSlotExceptionState});
}

// ---- after it has left ----

void PoolCore::after_switch(Worker& worker) {
  set_calls(Calls::passed);
  const SlotId left = worker.self();
  const AfterSwitch after = worker.after;
  if (worker.runs_one_of_elsewhere()) {
    if (after.stays != nullptr)
      after.stays->sp = worker.control->sp;
    else
      controls.put(left, offsetof(SlotControl, sp), worker.control->sp);
  }
  if (after.in_runtime) [[unlikely]]
    saved_context(worker.control->sp).in_runtime = 1;
  worker.control = &worker.idle;
  worker.runtime_sections = {};
  after.publish(after.context, left);
}

void PoolCore::end_thread(Worker& worker, SlotId slot) {
  count(worker.counters->threads);
  Word word = controls.get(slot, offsetof(SlotControl, join));
  for (;;) {
    const JoinRecord record = JoinRecord::unpack(word);
    const JoinStep step = next(record, {JoinEvent::Kind::exit, config.rank});
    KASANE_CHECK(step.action != JoinAction::refuse, "a thread ends twice");
    if (!controls.compare_swap(slot, offsetof(SlotControl, join), word, step.next.pack())) continue;
    // From here on the joiner may free the slot: nothing of it is touched unless freeing is ours.
    if (step.action == JoinAction::wake) make_ready(record.slot, record.rank);
    if (step.action == JoinAction::free_slot) {
      if (std::exception_ptr exception = take_exception(slot)) terminate_with(std::move(exception));
      slots.release(worker.cache, slot);
    }
    return;
  }
}

std::exception_ptr PoolCore::take_exception(SlotId slot) {
  const Word flags = controls.get(slot, offsetof(SlotControl, flags));
  if (!(flags & kSlotException)) [[likely]]
    return {};
  controls.put(slot, offsetof(SlotControl, flags), flags & ~Word{kSlotException});
  return exception_of(controls.get(slot, offsetof(SlotControl, exception)));
}

void PoolCore::make_ready(SlotId slot, Rank rank) {
  RuntimeSection section;
  if (slot == kNoSlot) {  // the waiter of a root: the OS thread of one worker, which looks when it wakes
    if (rank == config.rank) return idle_workers.wake_all();
    return idle_workers.other_ranks().ring(rank);
  }
  controls.push(rank, Layout::ready_head(), slot);
  if (rank == config.rank) return pushed();
  idle_workers.other_ranks().ring(rank);
  // Who is idle may bring it, if it is not on its way there.
  if (idle_workers.other_ranks().all_work_at(rank) &&
      controls.get(slot, offsetof(SlotControl, rank)) == raw(rank))
    pushed();
}

void PoolCore::wake_os_thread(SlotId slot) {
  const RuntimeSection section;
  const Rank rank = controls.layout().birth_rank(slot);
  std::byte* const region = rank == config.rank ? config.region : config.words->region(rank);
  if (region == nullptr) return idle_workers.other_ranks().wake_os_thread(rank, slot);
  ult::wake_os_thread(region, controls.layout(), slot);
}

// A new timer wakes a sleeper that cannot know of it, as a push does (ult/idle_workers.h).
void PoolCore::start_timer(const Timer& timer) {
  if (timers.add(timer) && idle_workers.wanted()) idle_workers.wake();
}

void PoolCore::wake_for_push() {
  RuntimeSection section;
  if (idle_workers.wanted()) idle_workers.wake();
  if (idle_ranks().load(std::memory_order_relaxed) != 0) idle_workers.other_ranks().wake_idle_rank();
}

void PoolCore::answer() {
  RuntimeSection section;
  idle_workers.other_ranks().answer();
}

// ---- the loop ----

bool PoolCore::finished(SlotId root) const {
  // seq_cst: in one order with the ring that follows the store, see IdleWorkers.
  if (root == kNoSlot) return stopping.load(std::memory_order_seq_cst);
  return JoinRecord::unpack(controls.get(root, offsetof(SlotControl, join))).kind == JoinKind::reserved;
}

void PoolCore::work(Worker& worker, SlotId root) {
  worker.root.store(root, std::memory_order_relaxed);  // before the worker sleeps
  while (!finished(root)) {
    answer_if_asked();
    fire_timers();
    worker.idle_ns = 0;
    const SlotId slot = find_work(worker, root);
    if (slot == kNoSlot) continue;
    resume(worker, slot);
    after_switch(worker);
  }
}

void PoolCore::start_root(Worker& worker, SlotId slot, void* argument, void (*function)(void*)) {
  slots.sanitizer.leaving_to_thread(slot);
  leave_runtime(Calls::caught);
  kasane_ult_fork(&worker, controls.local(slot), &worker.idle, argument, function);
  SanitizerSlots::arrived();
  after_switch(worker);
}

void PoolCore::resume(Worker& worker, SlotId slot) {
  SlotControl* const control = controls.local_or_null(slot);
  Word sp;
  Word flags;
  if (control != nullptr) {
    sp = control->sp;
    flags = control->flags;
    control->flags = flags | kSlotResumed;
  } else if (worker.waited_sp != 0) {
    sp = std::exchange(worker.waited_sp, 0);
    flags = 0;
  } else {
    sp = controls.get(slot, offsetof(SlotControl, sp));
    slots.prepare_foreign(sp);
    flags = controls.get(slot, offsetof(SlotControl, flags));
  }
  worker.control = control != nullptr ? control : worker.stand_in(slot);
  if (flags & kSlotExceptionState) [[unlikely]]
    restore_exceptions(worker);
  worker.set_stack(control != nullptr ? control->stack_end : slots.stack_end(slots.stack_at(sp)));
  slots.sanitizer.leaving_to_thread(slot);
  if (saved_context(sp).in_runtime == 0) [[likely]]
    leave_runtime(Calls::caught);
  kasane_ult_switch(&worker.idle.sp, sp);
  SanitizerSlots::arrived();
}

// ---- finding the next thread ----

SlotId PoolCore::find_work(Worker& worker, SlotId root) {
  if (worker.outside.any()) [[unlikely]]
    collect_outside(worker);
  if (worker.waits != nullptr) [[unlikely]]
    idle_workers.other_ranks().progress();
  for (const Source source : worker.picks.order(worker.waiting)) {
    const SlotId slot = take_from(source, worker);
    if (slot == kNoSlot) continue;
    worker.picks.picked(source, worker.waiting);
    return slot;
  }
  // Nothing can run meanwhile: the oldest waiting thread that polls goes on.
  if (worker.waits != nullptr) [[unlikely]]
    if (const SlotId slot = take_waiting(worker, false); slot != kNoSlot) return slot;
  return search(worker, root);
}

SlotId PoolCore::take_from(Source source, Worker& worker) {
  switch (source) {
    case Source::waiting: return worker.waits != nullptr ? take_waiting(worker, true) : kNoSlot;
    case Source::newest: return worker.queue.pop(controls);
    case Source::oldest: return worker.queue.take_oldest();
    case Source::ready: return take_ready(worker);
  }
  return kNoSlot;
}

void PoolCore::collect_outside(Worker& worker) {
  worker.outside.collect([&](WorkerWait& wait) { worker.wait_for_turn(wait); });
}

// The oldest of the threads that wait here (Pool::wait_here) whose wait is over; or, not only_ready, of those
// that poll.
SlotId PoolCore::take_waiting(Worker& worker, bool only_ready) {
  for (WorkerWait** at = &worker.waits; *at != nullptr; at = &(*at)->next) {
    WorkerWait* const wait = *at;
    if ((only_ready || !wait->polls) && !wait->ready(wait->argument)) continue;
    *at = wait->next;
    if (*at == nullptr) worker.waits_end = at;
    --worker.waiting;
    worker.waited_sp = wait->sp;
    return wait->slot;
  }
  return kNoSlot;
}

// Takes the whole list, newest first. The oldest runs now. The others go to the queue, so that the next
// oldest is popped next and thieves find the rest.
SlotId PoolCore::take_ready(Worker& worker) {
  // relaxed: a hint; take_all is the acquire.
  if (atomic(controls.own_word(Layout::ready_head())).load(std::memory_order_relaxed) == 0) return kNoSlot;
  SlotId slot = controls.take_all(Layout::ready_head());
  // relaxed: a number
  atomic(controls.own_word(Layout::ready_taken())).fetch_add(1, std::memory_order_relaxed);
  while (slot != kNoSlot) {
    const SlotId older = controls.next(slot);  // before the push: a thief may run it at once
    take_over(slot);
    if (older == kNoSlot) break;
    push(worker, slot);
    slot = older;
  }
  return slot;
}

// A thread that moved here without a theft is taken over before it goes into the queue: a thief that steals
// it from there asks this rank for what the thread wrote.
void PoolCore::take_over(SlotId slot) {
  if (config.ranks == 1) return;
  const Rank last{static_cast<std::uint32_t>(controls.get(slot, offsetof(SlotControl, rank)))};
  if (last != config.rank) [[unlikely]]
    config.other_ranks->take_over(slot, last);
}

SlotId PoolCore::steal_here(Worker& worker) {
  return worker.steal_order.round([&](std::uint32_t n) { return worker.pick(n); },
                                  [&](Worker* victim) {
                                    SlotId slot;
                                    const Steal outcome = victim->queue.steal(slot);
                                    if (outcome == Steal::empty) victim->lazy->want(LazyWorker::kHungry);
                                    if (outcome != Steal::taken) return kNoSlot;
                                    count(worker.counters->steals_local);
                                    const Traced traced(worker.counters, TraceKind::steal_here,
                                                        victim->index);
                                    return slot;
                                  });
}

SlotId PoolCore::look_around(Worker& worker) {
  if (const SlotId slot = take_ready(worker); slot != kNoSlot) return slot;
  if (const SlotId slot = steal_here(worker); slot != kNoSlot) return slot;
  return idle_workers.other_ranks().steal(worker.index);
}

void PoolCore::fire_due_timers() {
  Timer timer;
  while (timers.take_due(now_ns(), timer)) fire(*pool, timer);
}

std::int64_t PoolCore::may_sleep_ns(const Worker& worker) const noexcept {
  std::int64_t limit = worker.outside.any() ? worker.outside.limit_ns() : OutsideWaits::kForever;
  if (worker.waits != nullptr) limit = std::min(limit, kNapNs);
  if (const std::uint64_t at = timers.earliest(); at != Timers::kNever) {
    const std::uint64_t now = now_ns();
    const auto left = std::min<std::uint64_t>(at - std::min(at, now), OutsideWaits::kForever);
    limit = std::min(limit, static_cast<std::int64_t>(left));
  }
  return limit == OutsideWaits::kForever ? IdleWorkers::kForever : limit;
}

bool PoolCore::something_to_do(Worker& worker, SlotId root) {
  if (worker.outside.any() && worker.outside.ready()) return true;
  for (const WorkerWait* wait = worker.waits; wait != nullptr; wait = wait->next)
    if (wait->ready(wait->argument)) return true;
  if (finished(root) || atomic(controls.own_word(Layout::ready_head())).load(std::memory_order_acquire) != 0)
    return true;
  for (const auto& other : workers) {
    if (other->queue.stealable()) return true;
    other->lazy->want(LazyWorker::kHungry);
  }
  return idle_workers.other_ranks().work_elsewhere(worker.index);
}

SlotId PoolCore::search(Worker& worker, SlotId root) {
  Spent spent(*worker.counters, Account::idle, TraceKind::idle);
  std::uint64_t give_up = now_ns() + kSpinNs;
  SlotId slot = kNoSlot;
  const auto hungry = atomic(controls.own_word(Layout::hungry_workers()));
  hungry.fetch_add(1, std::memory_order_seq_cst);  // seq_cst, and below: see the end
  idle_workers.start_search();
  while (!finished(root)) {
    answer_if_asked();
    fire_timers();
    if (deferred_signals() != 0) [[unlikely]] {
      const OpenForSignals now;
    }
    if (worker.outside.any()) [[unlikely]]
      collect_outside(worker);
    if (worker.waits != nullptr) {
      idle_workers.other_ranks().progress();
      slot = take_waiting(worker, true);
    }
    if (slot == kNoSlot) slot = look_around(worker);
    if (slot != kNoSlot) break;
    if (now_ns() < give_up) {
      relax();
      continue;
    }
    if (worker.waits != nullptr && now_ns() < give_up + kPollNs) {
      ::sched_yield();
      continue;
    }
    slots.drain_returned();
    auto* const told = worker.waits != nullptr ? config.waits_asleep : nullptr;
    // seq_cst: before the last look
    if (told != nullptr) told->fetch_add(1, std::memory_order_seq_cst);
    idle_workers.sleep(worker.index, [&] {
      const std::int64_t limit = something_to_do(worker, root) ? 0 : may_sleep_ns(worker);
      if (limit != 0) count(worker.counters->sleeps);
      return limit;
    });
    if (told != nullptr) told->fetch_sub(1, std::memory_order_relaxed);  // relaxed: late, it costs a ring
    give_up = now_ns() + kSpinNs;
  }
  idle_workers.found();
  const std::uint64_t ns = spent.end();
  if (worker.counters->places != nullptr) worker.idle_ns = ns;
  // Who has made a thread ready here meanwhile counted on this worker.
  if (hungry.fetch_sub(1, std::memory_order_seq_cst) == 1 && slot != kNoSlot &&
      atomic(controls.own_word(Layout::ready_head())).load(std::memory_order_seq_cst) != 0)
    pushed();
  return slot;
}

}  // namespace kasane::ult
