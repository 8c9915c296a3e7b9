// SPDX-License-Identifier: Apache-2.0
#include "sched/scheduler.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "base/assert.h"
#include "base/call_selector.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/trace.h"
#include "comm/batch.h"
#include "comm/blocking.h"
#include "gas/regions.h"
#include "ult/controls.h"
#include "ult/os_thread.h"

namespace kasane::sched {
namespace {

constexpr std::uint32_t kWordBits = 64;

/// SplitMix64 after G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators".
std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Scheduler::Scheduler(comm::Transport& transport, ult::Words& words, ult::Edges& edges, ult::StackMover& mover,
                     const ult::Config& config, std::span<const Distance> from_here, std::uint64_t seed)
    : transport_(transport),
      words_(words),
      edges_(edges),
      mover_(mover),
      config_(config),
      layout_(config.workers, config.slots_per_rank),
      idle_bits_(config.ranks),
      naps_(!idle_bits_.all()),
      nap_lengths_{kFirstNapNs, transport.facts().poll_every_ns == 0 ? kLongestNapNs : kLongestUnrungNapNs},
      seen_(config.ranks),
      victims_(from_here, config.rank) {
  KASANE_CHECK_OP(raw(config.rank), <, config.ranks);
  KASANE_CHECK_OP(from_here.size(), ==, config.ranks);
  for (std::uint32_t w = 0; w < config.workers; ++w) {
    workers_.push_back({scramble(seed ^ scramble(std::uint64_t{raw(config.rank)} << 32 | w))});
  }
  transport.set_handler(gas::kWakeHandler, &Scheduler::on_wake, this);
  for (std::uint32_t r = 0; r < config.ranks; ++r) {
    if (Rank{r} == config.rank) continue;
    if (transport.mapped(Rank{r}, gas::kThreads) == nullptr) naps_ = true;
  }
}

// ---- stealing ----

SlotId Scheduler::steal(std::uint32_t worker) {
  // relaxed: a hint that a round failed just now.
  if (victims_.empty() || now_ns() < next_round_ns_.load(std::memory_order_relaxed)) return kNoSlot;
  // acquire/release: what the previous thief did to victims_ and backoff_ns_. Only tried: no worker waits for
  // a thief.
  if (thief_.exchange(true, std::memory_order_acquire)) return kNoSlot;
  const SlotId slot = steal_anywhere(worker);
  back_off(slot != kNoSlot);
  thief_.store(false, std::memory_order_release);
  if (slot != kNoSlot) wake_idle_rank();
  return slot;
}

SlotId Scheduler::steal_anywhere(std::uint32_t worker) {
  SlotId slot = kNoSlot;
  victims_.round([&](std::uint32_t n) { return pick(worker, n); },
                 [&](Rank victim, Distance distance) {
                   // a thread of this rank was woken: it comes before others' work
                   if (words_.load(config_.rank, ult::Layout::ready_head()) != 0) return true;
                   slot = steal_from_rank(worker, victim);
                   if (slot == kNoSlot) return false;
                   if (distance == Distance::numa_node) count_for(worker, &Counters::steals_numa);
                   if (distance == Distance::host) count_for(worker, &Counters::steals_host);
                   return true;
                 });
  return slot;
}

SlotId Scheduler::steal_from_rank(std::uint32_t worker, Rank victim) {
  const std::uint32_t first = pick(worker, config_.workers);
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    const SlotId slot = steal_from(worker, victim, (first + i) % config_.workers);
    if (slot != kNoSlot) return slot;
  }
  if (waiting_at(victim) == Waiting::now) bring_ready(worker, victim);
  return kNoSlot;
}

// ---- other ranks' ready lists -----------------------------------------------------------------------------

bool Scheduler::all_work_at(Rank r) {
  return transport_.mapped(r, gas::kThreads) != nullptr && words_.load(r, ult::Layout::hungry_workers()) == 0;
}

// The newest of the list speaks for all: threads that are moving there are that rank's alone. Where it takes
// its list again and again, its threads only let each other run.
Scheduler::Waiting Scheduler::waiting_at(Rank victim) {
  constexpr auto relaxed = std::memory_order_relaxed;
  if (transport_.mapped(victim, gas::kThreads) == nullptr) return Waiting::none;
  Seen& seen = seen_[raw(victim)];
  const SlotId newest = ult::slot_of_link(words_.load(victim, ult::Layout::ready_head()));
  if (newest == kNoSlot || !all_work_at(victim) || rank_of(newest) != victim) {
    seen.since_ns.store(0, relaxed);
    return Waiting::none;
  }
  const std::uint64_t now = now_ns(), taken = words_.load(victim, ult::Layout::ready_taken());
  const std::uint64_t since = seen.since_ns.load(relaxed);
  if (since != 0 && seen.taken.load(relaxed) == taken)
    return now - since < kLeftAloneNs ? Waiting::soon : Waiting::now;
  seen.taken.store(taken, relaxed);
  seen.since_ns.store(now, relaxed);
  return since == 0 ? Waiting::soon : Waiting::none;
}

// The whole list; from this rank's own its workers take the threads over, as those that moved here. In
// between they are in no list.
void Scheduler::bring_ready(std::uint32_t worker, Rank victim) {
  const std::uint64_t head = ult::Layout::ready_head();
  ult::Word newest = words_.load(victim, head);
  for (ult::Word found; newest != 0; newest = found) {
    found = words_.compare_swap(victim, head, newest, 0);
    if (found == newest) break;
  }
  const ult::Controls controls(layout_, config_.rank, transport_.mapped(config_.rank, gas::kThreads),
                               &words_);
  bool moving = false;
  for (SlotId slot = ult::slot_of_link(newest), older; slot != kNoSlot; slot = older) {
    older = controls.next(slot);  // before the push
    const Rank to = rank_of(slot) == victim ? config_.rank : victim;
    moving |= to == victim;
    if (to != victim) count_for(worker, &Counters::steals_remote);
    controls.push(to, head, slot);
  }
  if (moving) ring(victim);  // the victim's workers may have fallen asleep meanwhile
}

Rank Scheduler::rank_of(SlotId slot) {
  return Rank{static_cast<std::uint32_t>(
      words_.load(layout_.birth_rank(slot), layout_.word(slot, offsetof(ult::SlotControl, rank))))};
}

SlotId Scheduler::steal_from(std::uint32_t worker, Rank victim, std::uint32_t deque) {
  Spent spent(config_.counters[worker], Account::steal, TraceKind::steal_rank, raw(victim));
  Theft theft;
  const Steal outcome = carry_out(theft, victim, deque);
  if (outcome == Steal::taken) {
    count_for(worker, &Counters::steals_remote);
    return theft.slot();
  }
  if (outcome == Steal::empty) want_of(victim, deque);
  spent.cancel();
  return kNoSlot;
}

Steal Scheduler::carry_out(Theft& theft, Rank victim, std::uint32_t deque) {
  TheftStep s = theft.next();
  while (s.kind != TheftStep::Kind::done) {
    std::uint64_t result2 = 0;
    const std::uint64_t result = perform(s, victim, deque, result2);
    s = theft.next(result, result2);
  }
  return s.outcome;
}

// A hint that may be lost or come late (ult/lazy.h). A load first where it is cheap: the line stays the
// worker's as long as it is told already.
void Scheduler::want_of(Rank victim, std::uint32_t worker, ult::Word who) {
  const std::uint64_t wanted = layout_.lazy(worker);
  if (transport_.mapped(victim, gas::kThreads) != nullptr && words_.load(victim, wanted) != 0) return;
  words_.store(victim, wanted, who);
}

void Scheduler::take_over(SlotId slot, Rank last) {
  const Spent spent(config_.counters[ult::Pool::worker()], Account::steal);
  Theft theft = Theft::arrival(slot);
  (void)carry_out(theft, last, 0);  // of an arrival no deque is looked at
}

// Words are sequentially consistent and each is complete when it returns, so the deque's reads keep the order
// that the theft asks for.
std::uint64_t Scheduler::perform(const TheftStep& s, Rank victim, std::uint32_t deque,
                                 std::uint64_t& result2) {
  const auto control = [&](std::size_t field) { return layout_.word(s.slot, field); };
  switch (s.kind) {
    case TheftStep::Kind::look: {
      const Look seen = look(victim, deque);
      result2 = seen.bottom;
      return seen.top;
    }
    case TheftStep::Kind::bottom: return words_.load(victim, bottom_of(deque));
    case TheftStep::Kind::entry:
      return words_.load(victim,
                         layout_.deque(deque) + Deque<>::slot_offset(s.index, layout_.deque_entries()));
    case TheftStep::Kind::claim: return words_.compare_swap(victim, top_of(deque), s.index, s.index + 1);
    case TheftStep::Kind::sp:
      return words_.load(layout_.birth_rank(s.slot), control(offsetof(ult::SlotControl, sp)));
    case TheftStep::Kind::ask_release: edges_.ask_release(victim); return 0;
    case TheftStep::Kind::adopt: {
      const StackId stack = config_.stack_at(s.value);
      mover_.adopt(stack, s.value, config_.stack_end(stack), victim);
      return 0;
    }
    case TheftStep::Kind::acquire: edges_.acquire(Account::steal); return 0;
    case TheftStep::Kind::set_rank:
      words_.store(layout_.birth_rank(s.slot), control(offsetof(ult::SlotControl, rank)), raw(config_.rank));
      return 0;
    case TheftStep::Kind::arrived:
    case TheftStep::Kind::done: break;
  }
  return 0;
}

Scheduler::Look Scheduler::look(Rank victim, std::uint32_t deque) {
  const std::uint64_t top = top_of(deque), bottom = bottom_of(deque);
  if (transport_.mapped(victim, gas::kThreads) != nullptr)
    return {words_.load(victim, top), words_.load(victim, bottom)};
  // One read for both: an idle rank asks again and again, and a round trip each counts. Its words may be from
  // different moments, which a look allows.
  DequeEnds ends;
  comm::PollWaiter waiter(transport_);
  comm::Blocking(transport_, waiter).read({victim, gas::kThreads, top}, ends.words, sizeof ends);
  return ends.look();
}

void Scheduler::back_off(bool succeeded) {
  if (succeeded) {
    backoff_ns_ = kFirstBackoffNs;
    next_round_ns_.store(0, std::memory_order_relaxed);  // relaxed: a hint, as in steal()
    return;
  }
  next_round_ns_.store(now_ns() + static_cast<std::uint64_t>(backoff_ns_), std::memory_order_relaxed);
  backoff_ns_ = std::min(backoff_ns_ * 2, kLongestBackoffNs);
}

// The last look before a sleep: no back-off, no guard; every deque of every rank that is mapped here, since
// one that is skipped may hold the only item. Of others, and where a push does not tell all, the next few in
// turn: there wake-ups may be late anyway, and the sleeper looks again after each nap.
bool Scheduler::work_elsewhere(std::uint32_t) {
  if (words_.load(config_.rank, ult::Layout::ready_head()) != 0) return true;
  // First those that this rank has told of itself: it is they who ring it. In all others evenly spaced ones.
  const std::uint32_t others = config_.ranks - 1, told = idle_bits_.count(),
                      looks = std::max(told, std::min(others, kMostLooks)),
                      known = std::min<std::uint32_t>(others, Victims::kAll);
  // relaxed: any number will do
  const std::uint32_t turn = look_turn_.load(std::memory_order_relaxed) / config_.workers;
  for (std::uint32_t i = 0; i < looks; ++i) {
    const std::uint32_t apart = 1 + (std::uint64_t{(turn + i) % known} * others + known - 1) / known;
    const Rank r =
        i < told ? idle_bits_.at(config_.rank, i) : Rank{(raw(config_.rank) + apart) % config_.ranks};
    if (transport_.mapped(r, gas::kThreads) == nullptr) continue;
    for (std::uint32_t d = 0; d < config_.workers; ++d) {
      const Look seen = look(r, d);
      if (has_work(seen.top, seen.bottom)) return true;
      want_of(r, d);
    }
    if (waiting_at(r) != Waiting::none) return true;
  }
  return work_far_away();
}

bool Scheduler::work_far_away() {
  const std::uint32_t deques = (config_.ranks - 1) * config_.workers, most = std::min(deques, kMostLooks);
  // relaxed: any number will do
  const std::uint32_t turn = look_turn_.fetch_add(most, std::memory_order_relaxed);
  const auto deque_of = [&](std::uint32_t i) {
    if (!idle_bits_.all() && i < idle_bits_.count())
      return std::pair{idle_bits_.at(config_.rank, i), (turn + i) % config_.workers};
    const std::uint32_t at = (turn + i) % deques;
    return std::pair{Rank{(raw(config_.rank) + 1 + at / config_.workers) % config_.ranks},
                     at % config_.workers};
  };
  DequeEnds ends[kMostLooks] = {};
  comm::PollWaiter waiter(transport_);
  comm::Blocking io(transport_, waiter);
  comm::Batch batch(io);
  const auto is_far = [&](Rank r) { return transport_.mapped(r, gas::kThreads) == nullptr; };
  for (std::uint32_t i = 0; i < most; ++i)
    if (const auto [r, d] = deque_of(i); is_far(r))
      batch.read({r, gas::kThreads, top_of(d)}, ends[i].words, sizeof ends[i]);
  batch.await();
  for (const DequeEnds& e : ends)
    if (has_work(e.look().top, e.look().bottom)) return true;
  for (std::uint32_t i = 0; i < most; ++i)
    if (const auto [r, d] = deque_of(i); is_far(r))
      batch.atomic(comm::AtomicOp::swap, {r, gas::kThreads, layout_.lazy(d)}, ult::LazyWorker::kHungry, 0,
                   nullptr);
  return false;
}

std::uint64_t Scheduler::top_of(std::uint32_t deque) const noexcept {
  return layout_.deque(deque) + Deque<>::kTopOffset;
}
std::uint64_t Scheduler::bottom_of(std::uint32_t deque) const noexcept {
  return layout_.deque(deque) + Deque<>::kBottomOffset;
}

// ---- idling ----

void Scheduler::announce_idle(std::uint32_t) {
  // seq_cst: before set_idle_bits() in one order with forget_idle's decrement and load, see there.
  announced_.fetch_add(1, std::memory_order_seq_cst);
  set_idle_bits();
}

// The last announced worker clears the bits, so that pushes do not spend a wake-up on a rank that works.
// Another worker may announce itself between our decrement and our clearing, and its bits might be lost. So
// this worker looks again afterwards and sets the bits for it. (A worker counts itself before it sets bits:
// if none is counted here, its bits are set after our clearing.)
void Scheduler::forget_idle(std::uint32_t) {
  // seq_cst, both: in one order with the addition in announce_idle(), as said above
  if (announced_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  clear_idle_bits();
  if (announced_.load(std::memory_order_seq_cst) != 0) set_idle_bits();
}

void Scheduler::set_idle_bits() { change_idle_bits(true); }
void Scheduler::clear_idle_bits() { change_idle_bits(false); }

// All at once. seq_cst, as the words are; complete when this returns.
void Scheduler::change_idle_bits(bool idle) {
  comm::PollWaiter waiter(transport_);
  comm::Blocking io(transport_, waiter);
  comm::Batch batch(io);
  for (std::uint32_t b = 0; b < idle_bits_.count(); ++b) {
    const Rank at = idle_bits_.at(config_.rank, b);
    const std::uint64_t bit = std::uint64_t{1} << b, word = ult::Layout::idle_ranks();
    if (words_.region(at) == nullptr)
      batch.atomic(idle ? comm::AtomicOp::fetch_or : comm::AtomicOp::fetch_and, {at, gas::kThreads, word},
                   idle ? bit : ~bit, 0, nullptr);
    else if (idle)
      words_.fetch_or(at, word, bit);
    else
      words_.fetch_and(at, word, ~bit);
  }
}

void Scheduler::wake_idle_rank() {
  std::uint64_t idle_ranks = words_.load(config_.rank, ult::Layout::idle_ranks()) & ~ult::kRequestPending;
  // In turn: relaxed, any number will do.
  const std::uint32_t turn =
      idle_ranks != 0 ? wake_turn_.fetch_add(1, std::memory_order_relaxed) % kWordBits : 0;
  while (idle_ranks != 0) {
    const auto bit =
        (static_cast<std::uint32_t>(std::countr_zero(std::rotr(idle_ranks, static_cast<int>(turn)))) + turn) %
        kWordBits;
    const std::uint64_t mask = std::uint64_t{1} << bit;
    idle_ranks = words_.fetch_and(config_.rank, ult::Layout::idle_ranks(), ~mask) & ~ult::kRequestPending;
    if (idle_ranks & mask) return ring(idle_bits_.who(config_.rank, bit));  // else another worker has rung it
  }
}

// The bit first, then the messages: a requester sends, and then sets the bit.
void Scheduler::answer() {
  words_.fetch_and(config_.rank, ult::Layout::idle_ranks(), ~ult::kRequestPending);
  edges_.answer();
}

// On another host no fork would see it before an answer to the message itself.
void Scheduler::nudge(Rank to) {
  words_.fetch_or(to, ult::Layout::idle_ranks(), ult::kRequestPending);
  for (std::uint32_t w = 0; w < config_.workers; ++w) want_of(to, w, ult::LazyWorker::kAsked);
}

void Scheduler::ring(Rank rank) { transport_.wake(rank, comm::Doorbell::work); }

void Scheduler::wake_os_thread(Rank rank, SlotId slot) {
  comm::PollWaiter waiter(transport_);
  comm::Blocking(transport_, waiter).send(rank, gas::kWakeHandler, comm::as_payload(slot));
}
void Scheduler::on_wake(void* self, const comm::Message& m) noexcept {
  auto& here = *static_cast<Scheduler*>(self);
  const auto slot = gas::value_of<SlotId>(m);
  KASANE_CHECK(here.layout_.birth_rank(slot) == here.config_.rank,
               "a rank is to wake an OS thread of another");
  ult::wake_os_thread(here.config_.region, here.layout_, slot);
}

std::uint32_t Scheduler::activity() { return transport_.activity(comm::Doorbell::work); }

void Scheduler::sleep(std::uint32_t seen, std::int64_t timeout_ns) {
  if (naps_) return watch(seen, timeout_ns);
  const OpenForSignals waits;  // the doorbell of work is a Bell, and sleeping there holds nothing
  transport_.sleep(comm::Doorbell::work, seen, timeout_ns);
}

// The role matters only for cost: two watchers, or none for a nap, would be correct, too. Relaxed: it orders
// nothing else.
void Scheduler::watch(std::uint32_t seen, std::int64_t timeout_ns) {
  const std::uint64_t start = now_ns();
  NapWait watch;
  bool yes = false;
  for (NapWait::Step s = watch.begin(); s.kind != NapWait::Kind::done; s = watch.next(yes, nap_lengths_)) {
    switch (s.kind) {
      case NapWait::Kind::take_role: yes = !watched_.exchange(true, std::memory_order_relaxed); break;
      case NapWait::Kind::sleep: {
        // a timer of this rank
        const auto until_due = [&] {
          return timeout_ns < 0 ? s.nap_ns : timeout_ns - static_cast<std::int64_t>(now_ns() - start);
        };
        if (const std::int64_t left = until_due(); left > 0) {
          const OpenForSignals waits;
          transport_.sleep(comm::Doorbell::work, seen, std::min(s.nap_ns, left));
        }
        yes = until_due() <= 0 || activity() != seen;
        break;
      }
      case NapWait::Kind::look: yes = work_elsewhere(0); break;
      case NapWait::Kind::give_role: watched_.store(false, std::memory_order_relaxed); break;
      case NapWait::Kind::done: break;
    }
  }
}

std::uint32_t Scheduler::pick(std::uint32_t worker, std::uint32_t n) noexcept {
  std::uint64_t& state = workers_[worker].random;
  state += 0x9E3779B97F4A7C15u;
  return static_cast<std::uint32_t>(scramble(state) >> 32) % n;
}

void Scheduler::count_for(std::uint32_t worker, std::atomic<std::uint64_t> Counters::* counter,
                          std::uint64_t n) noexcept {
  count(config_.counters[worker].*counter, n);
}

}  // namespace kasane::sched
