// SPDX-License-Identifier: Apache-2.0
#include "scale/cluster.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/time_spent.h"
#include "ult/join_record.h"
#include "ult/sync/barrier_record.h"
#include "ult/sync/mutex_record.h"

namespace kasane::scale {
namespace {

using ult::atomic, ult::SlotControl, ult::SyncStep, ult::Word;

constexpr std::uint64_t kForkNs = 50, kExitNs = 30;  // bench core says so of real ones
constexpr std::uint64_t kSpinNs = 20'000, kLookNs = 500;
constexpr std::size_t kLiveBytes = 512;              ///< of a suspended stack
constexpr std::uint32_t kFan = 4, kOneBarrier = 16;  // of a team's meeting

std::uint64_t space_for(const ClusterOptions& o) {
  const std::uint64_t stacks = std::uint64_t{o.ranks} * Cluster::kSlots * Cluster::kStackBytes;
  const std::uint64_t unit = std::max<std::uint64_t>(o.page_bytes, 2 << 20);
  return (stacks + unit - 1) / unit * unit + (o.heap_bytes + unit - 1) / unit * unit + unit;
}
std::uint64_t heap_for(const ClusterOptions& o) {
  const std::uint64_t stacks = std::uint64_t{o.ranks} * Cluster::kSlots * Cluster::kStackBytes;
  const std::uint64_t unit = std::max<std::uint64_t>(o.page_bytes, 2 << 20);
  return (stacks + unit - 1) / unit * unit;
}
mem::Pages pages_for(const ClusterOptions& o) {
  const std::array segments{mem::Pages::Segment{0, Cluster::kStackBytes},
                            mem::Pages::Segment{heap_for(o), o.page_bytes}};
  return mem::Pages::create(space_for(o), segments).value();
}
comm::sim::SimOptions simulated(const ClusterOptions& o) {
  comm::sim::SimOptions s;
  s.timing = o.timing;
  s.ring_capacity = 4096;
  s.operation_capacity = 256;
  s.reply_slots = 64;
  s.step_limit = ~std::uint64_t{0};
  s.stack_bytes = 128 * 1024;
  return s;
}

}  // namespace

/// What lies on a real thread's stack.
struct Member::Task {
  enum class At : std::uint8_t { begins, forks, joins };
  Node node;
  At at = At::begins;
  std::uint32_t phase = 0;
  bool moved = false;  ///< its stack was handed back by another rank
  SlotId parent = kNoSlot;
  std::uint32_t place = 0;  ///< which child
  std::vector<Node> children;
  std::vector<SlotId> started;
};

// ---- a rank -----------------------------------------------------------------------------------------------

Member::Member(Cluster& cluster, Rank rank)
    : sim(cluster.world, rank, cluster.ranks(), cluster.pages_,
          {.space_bytes = cluster.space_bytes_,
           .heap_offset = cluster.heap_offset_,
           .fault_ns = cluster.options_.timing.fault_ns}),
      context(sim.transport, cluster.world.waiter(), counters),
      service_context(sim.transport, cluster.world.waiter(), service_counters),
      cluster_(cluster),
      me_(rank),
      layout_(1, Cluster::kSlots),
      region_(sim.attach(gas::kThreads, layout_.bytes(), sim.threads_memory)),
      words_(sim.transport),
      controls_(layout_, rank, region_, &words_),
      deque_(Deque<>::create(region_ + layout_.deque(0), layout_.deque_entries())),
      random_(cluster.options_.seed * 1'000'003 + raw(rank)) {
  config_.rank = rank;
  config_.ranks = cluster.ranks();
  config_.slots_per_rank = config_.stacks_per_rank = Cluster::kSlots;
  config_.stack_bytes = Cluster::kStackBytes;
  config_.stacks = reinterpret_cast<std::byte*>(Cluster::kStacksAt);
  config_.region = region_;
  config_.counters = &counters;
  config_.words = &words_;
  const std::uint32_t per_host = cluster.options_.timing.ranks_per_host;
  std::vector<sched::Distance> far(cluster.ranks());
  for (std::uint32_t r = 0; r < cluster.ranks(); ++r)
    far[r] = r / per_host == raw(rank) / per_host ? sched::Distance::host : sched::Distance::elsewhere;
  scheduler_.emplace(sim.transport, words_, *this, *this, config_, far, cluster.options_.seed);
  sim.transport.set_peer_lost(
      [](void* c, Rank, std::string_view) noexcept {
        auto& all = *static_cast<Cluster*>(c);
        if (!all.dead_) all.elapsed_ns_ = all.world.now_ns() - all.began_ns_;
        all.dead_ = true;
        all.world.stop();
      },
      &cluster);
  collectives = std::make_unique<comm::Collectives>(sim.transport, cluster.world.waiter());
}

std::uint32_t Member::ranks() const noexcept { return cluster_.ranks(); }

void Member::compute(std::uint64_t ns) {
  if (cluster_.options_.slow == me_) ns *= 2;
  compute_ns_ += ns;
  cluster_.world.compute(ns);
}
void Member::read(std::uint64_t offset, std::size_t bytes) {
  buffer_.resize(std::max(buffer_.size(), bytes));
  sim.read(context, offset, buffer_.data(), bytes);
}
void Member::write(std::uint64_t offset, std::size_t bytes) {
  buffer_.resize(std::max(buffer_.size(), bytes));
  // other bytes than before, or there is nothing to send
  std::memset(buffer_.data(), ++fill_, bytes);
  sim.write(context, offset, buffer_.data(), bytes);
}

// ---- edges and stacks, as runtime/rank/fences.h and stacks.h have them ----

std::uint32_t Member::cross(Rank source, Account account, ult::ReleaseMark mark) {
  const std::uint32_t releases = sim.coherence->fences.ask_release(context, source, account, mark);
  sim.coherence->fences.acquire_noticed(context, account);
  count(counters.crossings);
  return releases;
}
void Member::ask_release(Rank source) {
  sim.coherence->fences.ask_release(context, source, Account::steal);
  count(counters.crossings);
}
void Member::release(Account account) { sim.coherence->fences.release_all(context, account); }
void Member::acquire(Account account) { sim.coherence->fences.acquire_noticed(context, account); }

void Member::adopt(StackId stack, std::uintptr_t live_lo, std::uintptr_t live_hi, Rank) {
  const gas::ByteRange live{live_lo - Cluster::kStacksAt, live_hi - Cluster::kStacksAt};
  const PageId page = cluster_.pages_.page_of(std::uint64_t{raw(stack)} * Cluster::kStackBytes);
  KASANE_CHECK(sim.mover->bring(context.io, page, live).has_value(), "a stack is not pinned");
}
void Member::surrender(StackId stack) {
  const PageId page = cluster_.pages_.page_of(std::uint64_t{raw(stack)} * Cluster::kStackBytes);
  KASANE_CHECK(sim.mover->hand_back(context.io, page, layout_.birth_rank(SlotId{raw(stack)})),
               "the rank that ran a thread owns its stack");
}
void Member::reclaim(StackId stack) {
  sim.coherence->moves.arm_owned(context.io, std::uint64_t{raw(stack)} * Cluster::kStackBytes,
                                 Cluster::kStackBytes);
}

/// The service thread: what messages ask for and handlers put off.
void Member::serve() {
  for (;;) {
    const std::uint32_t seen = sim.transport.activity(comm::Doorbell::messages);
    while (sim.transport.progress()) {
    }
    if (sim.coherence->fences.serve(service_context)) continue;
    sim.transport.sleep(comm::Doorbell::messages, seen, -1);
  }
}

// ---- threads ----

SlotId Member::allocate() {
  if (free_.empty()) {  // threads of this rank that were joined elsewhere
    for (SlotId s = controls_.take_all(ult::Layout::returned_head()); s != kNoSlot;) {
      const SlotId next = controls_.next(s);
      free_.push_back(s);
      s = next;
    }
  }
  if (!free_.empty()) {
    const SlotId slot = free_.back();
    free_.pop_back();
    if (std::exchange(cluster_.tasks_[raw(slot)]->moved, false)) reclaim(StackId{raw(slot)});
    return slot;
  }
  if (never_used_ == Cluster::kSlots) return kNoSlot;
  const SlotId slot = layout_.slot_at(me_, never_used_++);
  const std::uint64_t at = std::uint64_t{raw(slot)} * Cluster::kStackBytes;
  KASANE_CHECK(sim.mover->assign(context.io, cluster_.pages_.page_of(at), me_).has_value());
  sim.coherence->moves.arm_owned(context.io, at, Cluster::kStackBytes);
  if (cluster_.tasks_[raw(slot)] == nullptr) cluster_.tasks_[raw(slot)] = std::make_unique<Task>();
  return slot;
}

void Member::free(SlotId slot) {
  if (controls_.is_local(slot)) return free_.push_back(slot);
  controls_.push(layout_.birth_rank(slot), ult::Layout::returned_head(), slot);
}

void Member::push(SlotId slot) {
  controls_.put(slot, offsetof(SlotControl, sp), config_.stack_end(StackId{raw(slot)}) - kLiveBytes);
  KASANE_CHECK(deque_->push(raw(slot)), "a deque is full");
  if ((atomic(controls_.own_word(ult::Layout::idle_ranks())).load() & ~ult::kRequestPending) != 0)
    scheduler_->wake_idle_rank();
}

void Member::make_ready(SlotId slot, Rank rank) {
  controls_.push(rank, ult::Layout::ready_head(), slot);
  scheduler_->ring(rank);
}

SlotId Member::take_ready() {
  if (atomic(controls_.own_word(ult::Layout::ready_head())).load() == 0) return kNoSlot;
  SlotId slot = controls_.take_all(ult::Layout::ready_head());
  while (slot != kNoSlot) {
    const SlotId older = controls_.next(slot);
    if (older == kNoSlot) break;
    push(slot);
    slot = older;
  }
  return slot;
}

SlotId Member::look_around() {
  if (const SlotId slot = take_ready(); slot != kNoSlot) return slot;
  return scheduler_->steal(0);
}

bool Member::something_to_do() {
  return atomic(controls_.own_word(ult::Layout::ready_head())).load() != 0 || scheduler_->work_elsewhere(0);
}

/// As ult's PoolCore::search() and IdleWorkers::sleep(), for one worker.
SlotId Member::search(bool (*stop)(void*), void* argument) {
  const Spent spent(counters, Account::idle);
  idle_since_ns_ = cluster_.world.now_ns();
  const auto hungry = atomic(controls_.own_word(ult::Layout::hungry_workers()));
  hungry.fetch_add(1);
  SlotId slot = kNoSlot;
  for (std::uint64_t give_up = now_ns() + kSpinNs; !stop(argument);) {
    slot = look_around();
    if (slot != kNoSlot) break;
    if (now_ns() < give_up) {
      cluster_.world.poll_until(
          [&] { return stop(argument) || atomic(controls_.own_word(ult::Layout::ready_head())).load() != 0; },
          kLookNs);
      continue;
    }
    const std::uint32_t seen = scheduler_->activity();
    scheduler_->announce_idle(0);
    if (!stop(argument) && !something_to_do()) {
      count(counters.sleeps);
      scheduler_->sleep(seen, -1);
    }
    scheduler_->forget_idle(0);
    give_up = now_ns() + kSpinNs;
  }
  hungry.fetch_sub(1);
  idle_since_ns_ = 0;
  return slot;
}

SlotId Member::next_thread(bool (*stop)(void*), void* argument) {
  std::uint64_t value = 0;
  if (deque_->pop(value)) return SlotId{static_cast<std::uint32_t>(value)};
  return search(stop, argument);
}

// ---- sync records: the machines that ship, performed as ult's SyncRecords does ----

Word Member::perform(SyncName name, const SyncStep& s) {
  const auto at = [&](ult::SyncField f) {
    using enum ult::SyncField;
    const std::size_t field = f == word   ? offsetof(ult::SyncRecord, word)
                              : f == fifo ? offsetof(ult::SyncRecord, fifo)
                              : f == last ? offsetof(ult::SyncRecord, last)
                                          : offsetof(ult::SyncRecord, data);
    return layout_.sync_record(name.index) + field;
  };
  const bool link = s.field == ult::SyncField::next;
  const std::uint64_t next = layout_.word(s.slot, offsetof(SlotControl, next));
  switch (s.kind) {
    case SyncStep::Kind::load:
      return link ? words_.load(layout_.birth_rank(s.slot), next) : words_.load(name.rank, at(s.field));
    case SyncStep::Kind::store:
      if (link)
        words_.store(layout_.birth_rank(s.slot), next, s.value);
      else
        words_.store(name.rank, at(s.field), s.value);
      return 0;
    case SyncStep::Kind::compare_swap:
      return words_.compare_swap(name.rank, at(s.field), s.expected, s.value);
    case SyncStep::Kind::wake: {
      const Word rank =
          words_.load(layout_.birth_rank(s.slot), layout_.word(s.slot, offsetof(SlotControl, rank)));
      make_ready(s.slot, Rank{static_cast<std::uint32_t>(rank)});
      return 0;
    }
    case SyncStep::Kind::settle:
    case SyncStep::Kind::requeue:
    case SyncStep::Kind::done: break;
  }
  return 0;
}

template <class Machine>
Word Member::run(SyncName name, Machine machine) {
  SyncStep s = machine.next(0);
  while (s.kind != SyncStep::Kind::done) s = machine.next(perform(name, s));
  return s.value;
}

void Member::new_barrier(std::uint32_t index, std::uint32_t n) {
  auto& record = *reinterpret_cast<ult::SyncRecord*>(region_ + layout_.sync_record(index));
  record.data[0] = n;
  record.word = ult::BarrierWord{n, 0, kNoSlot}.pack();
}
void Member::new_mutex(std::uint32_t index) {
  *reinterpret_cast<ult::SyncRecord*>(region_ + layout_.sync_record(index)) = {};
}

void Member::wait_for_own_slot(Account) {
  const SlotId slot = next_thread([](void*) { return false; }, nullptr);
  KASANE_CHECK(slot == own_, "a member was given another's thread");
}

void Member::wait(SyncName barrier) {
  release(Account::fence_barriers);
  auto outcome = ult::BarrierCall::action_of(run(barrier, ult::BarrierCall::arrive_and_wait(own_, false)));
  if (outcome == ult::BarrierAction::declined) {
    outcome = ult::BarrierCall::action_of(run(barrier, ult::BarrierCall::arrive_and_wait(own_, true)));
    if (outcome == ult::BarrierAction::wait) wait_for_own_slot(Account::wait_barriers);
  }
  acquire(Account::fence_barriers);
}

void Member::arrive(SyncName barrier) {
  release(Account::fence_barriers);
  run(barrier, ult::BarrierCall::arrive(1));
}

// kasane/team.hpp, TeamMeeting: the records of a node lie at its first rank.
void Member::meet() {
  if (ranks() <= kOneBarrier) return wait({Rank{0}, 0});
  climb(1, 0);
}
void Member::climb(std::uint32_t apart, std::uint32_t level) {
  if (apart >= ranks()) return;
  const std::uint32_t first = raw(me_) - raw(me_) % (apart * kFan);
  const SyncName up{Rank{first}, 1 + 2 * level}, down{Rank{first}, 2 + 2 * level};
  if (raw(me_) != first) {
    arrive(up);
    return wait(down);
  }
  wait(up);
  climb(apart * kFan, level + 1);
  arrive(down);
}

void Member::lock(SyncName mutex) {
  const std::uint64_t begin = cluster_.world.now_ns();
  {
    const Spent spent(counters, Account::wait_locks);
    const auto outcome = static_cast<ult::MutexAction>(run(mutex, ult::MutexLock(own_, false)));
    if (outcome == ult::MutexAction::wait) wait_for_own_slot(Account::wait_locks);
  }
  LockLoad& load = cluster_.locks_[{raw(mutex.rank), mutex.index}];
  load.name = mutex;
  ++load.taken;
  load.wait_ns += cluster_.world.now_ns() - begin;
  const Word last =
      words_.load(mutex.rank, layout_.sync_record(mutex.index) + offsetof(ult::SyncRecord, last));
  if (last != 0 && !ult::had_it_last(last, me_))
    cross(ult::rank_of(last), Account::fence_locks, ult::mark_of(last));
}

void Member::unlock(SyncName mutex) {
  const Spent spent(counters, Account::wait_locks);
  const auto mark = static_cast<ult::ReleaseMark>(sim.coherence->fences.releases_begun().load());
  run(mutex, ult::MutexUnlock(own_, me_, mark));
}

// ---- direct access: the page's owner is looked up by the address cache's directory ----

void Member::get(std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t begin = cluster_.world.now_ns();
  buffer_.resize(std::max(buffer_.size(), bytes));
  const gas::Location where = sim.directory->lookup(context.io, cluster_.pages_.page_of(offset));
  context.io.read({where.owner, gas::kFrames, offset}, buffer_.data(), bytes);
  transfer_ns_ += cluster_.world.now_ns() - begin;
}
void Member::put(std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t begin = cluster_.world.now_ns();
  buffer_.resize(std::max(buffer_.size(), bytes));
  const gas::Location where = sim.directory->lookup(context.io, cluster_.pages_.page_of(offset));
  context.io.write({where.owner, gas::kFrames, offset}, buffer_.data(), bytes);
  transfer_ns_ += cluster_.world.now_ns() - begin;
}
void Member::add(std::uint64_t offset) {
  const std::uint64_t begin = cluster_.world.now_ns();
  const gas::Location where = sim.directory->lookup(context.io, cluster_.pages_.page_of(offset));
  context.io.fetch_add({where.owner, gas::kFrames, offset}, 1);
  transfer_ns_ += cluster_.world.now_ns() - begin;
}
void Member::own(std::uint64_t offset) {
  const PageId page = cluster_.pages_.page_of(offset);
  const gas::ByteRange all{cluster_.pages_.offset_of(page), cluster_.pages_.end_of(page)};
  KASANE_CHECK(sim.mover->bring(context.io, page, all).has_value(), "a page of a script is pinned");
}
void Member::allreduce(std::size_t doubles) {
  const std::uint64_t begin = cluster_.world.now_ns();
  std::vector<double> values(doubles);
  collectives->allreduce<double>(comm::Reduce::sum, values);
  transfer_ns_ += cluster_.world.now_ns() - begin;
}

// ---- fork and join ----

std::uint64_t Member::frame_of(SlotId slot) const noexcept {
  return (std::uint64_t{raw(slot)} + 1) * Cluster::kStackBytes - kLiveBytes;
}

/// Runs the thread until it ends, forks or waits. Returns the thread that its worker runs next, if it has
/// one.
SlotId Member::step(const ForkJoin& program, SlotId slot) {
  Task& task = *cluster_.tasks_[raw(slot)];
  switch (task.at) {
    case Task::At::begins: {
      if (task.phase == 0) program.touch(*this, task.node);
      task.children.clear();
      const std::uint64_t ns = program.children(task.node, task.phase++, task.children);
      cluster_.tree_ns_ += ns;
      compute(ns + kForkNs * task.children.size());
      task.at = Task::At::forks;
      return slot;
    }
    case Task::At::forks: {
      if (task.started.size() == task.children.size()) {
        task.at = Task::At::joins;
        return slot;
      }
      const SlotId child = allocate();
      KASANE_CHECK(child != kNoSlot, "a rank has no thread left: kSlots");
      Task& other = *cluster_.tasks_[raw(child)];
      other.node = task.children[task.started.size()];
      other.at = Task::At::begins;
      other.phase = 0;
      other.parent = slot;
      other.place = static_cast<std::uint32_t>(task.started.size());
      task.started.push_back(child);
      controls_.put(child, offsetof(SlotControl, join), ult::JoinRecord{ult::JoinKind::running}.pack());
      controls_.put(child, offsetof(SlotControl, rank), raw(me_));
      push(slot);
      return child;
    }
    case Task::At::joins: break;
  }
  while (!task.started.empty()) {
    const SlotId child = task.started.back();
    Word word = controls_.get(child, offsetof(SlotControl, join));
    for (;;) {
      const ult::JoinRecord record = ult::JoinRecord::unpack(word);
      const ult::JoinStep s = next(record, {ult::JoinEvent::Kind::join, me_, slot});
      KASANE_CHECK(s.action != ult::JoinAction::refuse, "a child was joined twice");
      if (s.action == ult::JoinAction::suspend)
        controls_.put(slot, offsetof(SlotControl, sp), config_.stack_end(StackId{raw(slot)}) - kLiveBytes);
      if (!controls_.compare_swap(child, offsetof(SlotControl, join), word, s.next.pack())) continue;
      if (s.action == ult::JoinAction::suspend) return kNoSlot;
      if (record.rank != me_) cross(record.rank, Account::fence_joins, ult::kNoMark);
      break;
    }
    read(frame_of(slot) + 8 * (task.started.size() - 1), 8);  // what the child has returned
    task.started.pop_back();
    free(child);
  }
  if (task.phase < program.phases(task.node)) {
    task.at = Task::At::begins;
    return slot;
  }
  compute(kExitNs);
  if (task.parent != kNoSlot) write(frame_of(task.parent) + 8 * task.place, 8);
  if (layout_.birth_rank(slot) != me_) {
    surrender(StackId{raw(slot)});
    task.moved = true;
  }
  // The end: the joiner may free it from here on.
  Word word = controls_.get(slot, offsetof(SlotControl, join));
  for (;;) {
    const ult::JoinRecord record = ult::JoinRecord::unpack(word);
    const ult::JoinStep s = next(record, {ult::JoinEvent::Kind::exit, me_});
    if (!controls_.compare_swap(slot, offsetof(SlotControl, join), word, s.next.pack())) continue;
    if (s.action == ult::JoinAction::wake) make_ready(record.slot, record.rank);
    if (task.parent == kNoSlot) {
      cluster_.end();
      scheduler_->ring(Rank{0});  // whose worker waits for it
    }
    return kNoSlot;
  }
}

void Member::work(const ForkJoin& program) {
  const auto stop = [](void* cluster) { return static_cast<Cluster*>(cluster)->over_; };
  while (!cluster_.over_) {
    SlotId slot = next_thread(stop, &cluster_);
    while (slot != kNoSlot) slot = step(program, slot);
  }
}

void Member::run_root(const ForkJoin& program, const Node& node) {
  const SlotId root = allocate();
  Task& task = *cluster_.tasks_[raw(root)];
  task.node = node;
  task.at = Task::At::begins;
  task.parent = kNoSlot;
  controls_.put(root, offsetof(SlotControl, join), ult::JoinRecord{ult::JoinKind::running}.pack());
  controls_.put(root, offsetof(SlotControl, rank), raw(me_));
  for (SlotId slot = root; slot != kNoSlot;) slot = step(program, slot);
  work(program);
}

Parts Member::parts() const noexcept {
  const auto ns = [this](Account a) {
    return counter_of(const_cast<Counters&>(counters), a).load(std::memory_order_relaxed);
  };
  Parts p;
  p.compute = compute_ns_;
  p.misses = ns(Account::load_faults) + ns(Account::store_faults) + ns(Account::views);
  p.transfers = transfer_ns_;
  p.fences = ns(Account::fence_joins) + ns(Account::fence_locks) + ns(Account::fence_barriers) +
             ns(Account::fence_atomics) + ns(Account::fence_others) + ns(Account::fence_asked);
  p.steals = ns(Account::steal);
  p.locks = ns(Account::wait_locks);
  p.idle = ns(Account::idle) + ns(Account::wait_barriers) + ns(Account::wait_joins);
  if (idle_since_ns_ != 0)
    p.idle += cluster_.began_ns_ + cluster_.elapsed_ns_ - idle_since_ns_;  // at the end
  return p;
}

// ---- the cluster ------------------------------------------------------------------------------------------

Cluster::Cluster(const ClusterOptions& options)
    : world(options.ranks, options.seed, simulated(options)),
      options_(options),
      heap_offset_(heap_for(options)),
      space_bytes_(space_for(options)),
      pages_(pages_for(options)),
      tasks_(std::size_t{options.ranks} * kSlots) {
  for (std::uint32_t r = 0; r < options.ranks; ++r)
    members_.push_back(std::make_unique<Member>(*this, Rank{r}));
}
Cluster::~Cluster() = default;

void Cluster::begin() {
  before_.clear();
  locks_.clear();
  for (std::uint32_t r = 0; r < ranks(); ++r) before_.push_back(world.traffic(Rank{r}));
  began_ns_ = world.now_ns();
  chain_before_ = world.chain();
  if (options_.dies != kNoRank) world.kill(options_.dies, began_ns_ + options_.dies_ns);
  for (std::uint32_t r = 0; r < ranks(); ++r) world.serve(Rank{r}, [this, r] { members_[r]->serve(); });
}
void Cluster::end() {
  over_ = true;
  elapsed_ns_ = world.now_ns() - began_ns_;
  chain_ = world.chain() - chain_before_;
}

comm::sim::Traffic Cluster::traffic(std::uint32_t rank) const noexcept {
  comm::sim::Traffic t = const_cast<comm::sim::World&>(world).traffic(Rank{rank});
  t.messages_in -= before_[rank].messages_in, t.messages_out -= before_[rank].messages_out;
  t.bytes_in -= before_[rank].bytes_in, t.bytes_out -= before_[rank].bytes_out;
  for (std::size_t i = 0; i < t.operations_in.size(); ++i)
    t.operations_in[i] -= before_[rank].operations_in[i];
  return t;
}

LockLoad Cluster::most_waited_for() const {
  LockLoad most;
  for (const auto& [name, load] : locks_)
    if (most.taken == 0 || load.wait_ns > most.wait_ns) most = load;
  return most;
}

Result<void> Cluster::run_team(const std::function<void(Member&)>& body) {
  begin();
  members_[0]->new_barrier(0, ranks());
  for (std::uint32_t r = 0; r < ranks(); r += kFan) {
    for (std::uint32_t apart = 1, level = 0; apart < ranks() && r % (apart * kFan) == 0;
         apart *= kFan, ++level)
      for (const std::uint32_t which : {1u, 2u})
        members_[r]->new_barrier(which + 2 * level, std::min(kFan, (ranks() - r + apart - 1) / apart));
  }
  for (std::uint32_t r = 0; r < ranks(); ++r) {
    world.spawn(Rank{r}, [this, r, &body] {
      Member& me = *members_[r];
      me.own_ = me.layout_.slot_at(me.me_, kSlots - 1);
      me.controls_.put(me.own_, offsetof(SlotControl, rank), r);
      body(me);
      elapsed_ns_ = std::max(elapsed_ns_, world.now_ns() - began_ns_);
      chain_ = std::max(chain_, world.chain());
    });
  }
  return world.run();
}

Result<std::uint64_t> Cluster::play_tree(const ForkJoin& program, const Node& root) {
  begin();
  for (std::uint32_t r = 1; r < ranks(); ++r)
    world.serve(Rank{r}, [this, r, &program] {
      members_[r]->work(program);
      for (;;) world.poll_until([] { return false; }, 1'000'000'000);
    });
  world.spawn(Rank{0}, [this, &program, &root] { members_[0]->run_root(program, root); });
  KASANE_TRY(world.run());
  return tree_ns_;
}

}  // namespace kasane::scale
