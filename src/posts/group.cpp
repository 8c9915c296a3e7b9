// SPDX-License-Identifier: Apache-2.0
#include "posts/group.h"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/exception_word.h"
#include "base/raw_call.h"
#include "runtime/rank/runtime.h"

namespace kasane::posts {
namespace {

/// Of this rank's desk, or of words that all ranks change by direct atomics: of its own ones.
template <class T>
std::atomic_ref<T> at(T& word) noexcept {
  return std::atomic_ref<T>(word);
}

// Pointers that change under the desk's lock, and are looked at without it: acquire, release, for a receiver
// that looks again after it has marked the bell.
Block* seen(Block*& b) noexcept { return at(b).load(std::memory_order_acquire); }
void set(Block*& b, Block* value) noexcept { at(b).store(value, std::memory_order_release); }

std::uint64_t add(std::uint64_t& word, std::uint64_t n) {
  return kasane::fetch_add(global_ptr<std::uint64_t>(&word), n);
}

/// For words that the owner changes as soon as it sees them: one store over every transport.
template <class T>
void exchange(T& word, T value) {
  kasane::swap(global_ptr<T>(&word), value);
}

void put_word(std::uint64_t& word, std::uint64_t value) {
  kasane::put(global_ptr<std::uint64_t>(&word), value);
}

/// Less among many ranks: the slots of a rank take 8 MiB, up to 256 ranks.
std::size_t block_bytes(std::uint32_t ranks) noexcept {
  const std::uint64_t most = std::max<std::uint64_t>(16 << 10, (4 << 20) / ranks);
  return std::min(runtime::Runtime::current()->options().post_buffer_bytes, most) & ~std::uint64_t{7};
}

}  // namespace

/// Of the calling thread's own desk.
class Group::Locked {
 public:
  explicit Locked(Desk& d) noexcept : word_(d.lock) { lock(); }
  ~Locked() {
    if (held_) unlock();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  void lock() noexcept {
    // acquire, release: the desk as the last holder left it
    for (int turn = 0; word_.exchange(1, std::memory_order_acquire) != 0; ++turn)
      if (turn >= 64) raw_call(SYS_sched_yield);
    held_ = true;
  }
  void unlock() noexcept {
    held_ = false;
    word_.store(0, std::memory_order_release);
  }

 private:
  std::atomic_ref<std::uint32_t> word_;
  bool held_ = false;
};

void Group::Queue::push(Block* b) noexcept {
  b->next = nullptr;
  if (first == nullptr)
    set(first, b);
  else
    last->next = b;
  last = b;
  at(count).fetch_add(1, std::memory_order_relaxed);  // others look at it without the lock
}

Block* Group::Queue::pop() noexcept {
  Block* const b = first;
  if (b == nullptr) return nullptr;
  set(first, b->next);
  at(count).fetch_sub(1, std::memory_order_relaxed);
  return b;
}

// ---- the group --------------------------------------------------------------------------------------------

Group* Group::create() {
  const std::uint32_t n = kasane_ranks(), receivers = std::min(kasane_workers(), kMostReceivers);
  auto* const g = static_cast<Group*>(
      kasane::allocate_zeroed(sizeof(Group) + n * (sizeof(std::byte*) + receivers * sizeof(kasane_thread_t)),
                              4096, placement::local.fixed()));
  g->ranks_ = n;
  g->receivers_ = receivers;
  g->block_bytes_ = block_bytes(n);
  g->slots_at_ = (sizeof(Desk) + n * (sizeof(Out) + sizeof(In)) + 63) & ~std::size_t{63};
  try {
    for (std::uint32_t r = 0; r < n; ++r) {
      g->desks_[r] = static_cast<std::byte*>(
          kasane::allocate_zeroed(g->slots_at_ + n * kSlots * g->block_bytes_, 64, placement::on(r).fixed()));
      kasane::put(global_ptr<std::uint32_t>(&g->desk(r).rank), r);
    }
    g->start();
  } catch (...) {
    destroy(g);
    throw;
  }
  return g;
}

void Group::start() {
  for (std::uint32_t i = 0; i < ranks_ * receivers_; ++i) {
    const std::uint32_t rank = i / receivers_;
    add(alive_, 1);
    try {
      kasane::thread receiver(kasane::at{rank}, [this, rank] { receive(rank); });
      kasane::put(global_ptr<kasane_thread_t>(receivers() + i), receiver.get_id().value());
      receiver.detach();
    } catch (...) {
      add(alive_, ~std::uint64_t{0});
      throw;
    }
  }
}

void Group::destroy(Group* g) {
  put_word(g->closing_, 1);
  for (std::uint32_t r = 0; r < g->ranks_ && g->desks_[r] != nullptr; ++r) {
    add(g->desk(r).bell, 2);
    detail::check(kasane_atomic_notify_all(&g->desk(r).bell));
  }
  for (std::uint64_t alive; (alive = add(g->alive_, 0)) != 0;)
    detail::check(kasane_atomic_wait(8, &g->alive_, alive));
  for (std::uint32_t r = 0; r < g->ranks_; ++r) kasane_free(g->desks_[r]);
  kasane_free(g);
}

void Group::grant(Desk& d) {
  add(credit_, kGrant);
  const Locked locked(d);
  d.share = next(d.share, Event::granted, kGrant).next;
}

void Group::give_back(std::uint64_t amount) {
  if (add(credit_, std::uint64_t{0} - amount) == amount) detail::check(kasane_atomic_notify_all(&credit_));
}

void Group::ring(Desk& d) {
  if ((add(d.bell, 2) & 1) == 0) return;
  kasane::fetch_and(global_ptr<std::uint64_t>(&d.bell), ~std::uint64_t{1});
  detail::check(kasane_atomic_notify_one(&d.bell));
}

// ---- posting ----------------------------------------------------------------------------------------------

/// False: the lock was given back meanwhile. No call under it lets other threads of the worker run.
bool Group::open_block(Desk& d, Locked& lock, Out& o, std::uint64_t& now_ns) {
  const Step step = next(d.share, Event::begin);
  if (step.action == Action::grant || d.unused == nullptr || now_ns == 0) {
    lock.unlock();
    if (now_ns == 0) {
      now_ns = kasane_clock_ns();
    } else if (step.action == Action::grant) {
      grant(d);
    } else {
      void* const memory = std::malloc(kBlockHeader + block_bytes_);
      if (memory == nullptr) throw out_of_memory("kasane::post_group::post: no memory for a buffer");
      recycle(d, ::new (memory) Block);
    }
    lock.lock();
    return false;
  }
  d.share = step.next;
  Block* const b = std::exchange(d.unused, d.unused->next);
  b->bytes = sizeof b->credit;
  b->opened_ns = now_ns;
  set(o.open, b);
  return true;
}

void Group::close(Out& o) noexcept {
  o.full.push(o.open);
  set(o.open, nullptr);
}

void Group::recycle(Desk& d, Block* b) {
  const Locked locked(d);
  b->next = d.unused;
  d.unused = b;
}

void Group::free_blocks(Desk& d) {
  const Locked locked(d);
  while (d.unused != nullptr) std::free(std::exchange(d.unused, d.unused->next));
}

void Group::post(std::uint32_t to, Function function, const void* argument, std::size_t bytes) {
  Desk& d = desk(kasane_rank());
  const Record record{function, (bytes + 7) & ~std::size_t{7}};
  alignas(8) std::byte copy[kMostBytes];
  if (bytes != 0) std::memcpy(copy, argument, bytes);  // it may fault: not under the lock
  bool opened = false, full = false;
  std::uint64_t now_ns = 0;  // read where a block is opened
  {
    Locked lock(d);
    Out& o = out(d, to);
    do {
      if (o.open != nullptr && o.open->bytes + sizeof record + record.bytes > block_bytes_) close(o);
      if (o.open == nullptr) opened |= open_block(d, lock, o, now_ns);
    } while (o.open == nullptr || o.open->bytes + sizeof record + record.bytes > block_bytes_);
    std::byte* const p = o.open->mail() + o.open->bytes;
    std::memcpy(p, &record, sizeof record);
    std::memcpy(p + sizeof record, copy, bytes);
    o.open->bytes += sizeof record + record.bytes;
    full = o.full.first != nullptr;
  }
  if (full) {
    while (send_one(d, to)) {
    }
    if (backlog(d, to) > kHeldBlocks && !in_a_post()) hold_back(d, to);
  }
  if (opened) ring(d);
}

bool Group::send_one(Desk& d, std::uint32_t to) {
  Block* block = nullptr;
  std::uint32_t k = 0;
  for (bool granted = false;;) {
    Locked lock(d);
    Out& o = out(d, to);
    if (o.full.first == nullptr) {
      if (!granted) return false;
      const Step step = next(d.share, Event::unneeded);
      d.share = step.next;
      lock.unlock();
      if (step.amount != 0) give_back(step.amount);
      lock.lock();
      return false;
    }
    // acquire: it was put when the slot had been read
    for (k = 0; to != d.rank && k < kSlots && at(o.used[k]).load(std::memory_order_acquire) != 0;) ++k;
    if (k == kSlots) return false;
    const Step step = next(d.share, Event::leave);
    if (step.action == Action::grant) {
      lock.unlock();
      grant(d);
      granted = true;
      lock.lock();
      continue;
    }
    d.share = step.next;
    block = o.full.pop();
    block->credit = step.amount;
    if (to == d.rank)
      d.own.push(block);
    else
      at(o.used[k]).store(1, std::memory_order_relaxed);
    break;
  }
  if (to == d.rank) return ring(d), true;
  Desk& there = desk(to);
  detail::check(kasane_put(slot(there, d.rank, k), block->mail(), block->bytes));
  exchange(in(there, d.rank).ready[k], block->bytes);
  ring(there);
  recycle(d, block);
  return true;
}

bool Group::in_a_post() const {
  const kasane_thread_t self = kasane_thread_self();
  std::array<kasane_thread_t, 64> some;
  const std::size_t all = std::size_t{ranks_} * receivers_;
  for (std::size_t first = 0; first < all; first += some.size()) {
    const std::size_t n = std::min(all - first, some.size());
    kasane::get(some.data(), global_ptr<kasane_thread_t>(receivers() + first), n);
    if (std::find(some.begin(), some.begin() + n, self) != some.begin() + n) return true;
  }
  return false;
}

void Group::hold_back(Desk& d, std::uint32_t to) {
  for (const std::uint64_t until = kasane_clock_ns() + kHoldNs; kasane_clock_ns() < until;) {
    kasane_thread_yield();
    if (kasane_rank() != d.rank) return;  // it was stolen
    while (send_one(d, to)) {
    }
    if (backlog(d, to) <= kHeldBlocks) return;
    raw_call(SYS_sched_yield);  // the other rank may need this core
  }
}

/// Sends what is full, and what was opened before. True if something left.
bool Group::flush(Desk& d, std::uint64_t opened_before) {
  bool sent = false;
  for (std::uint32_t to = 0; to < ranks_; ++to) {
    Out& o = out(d, to);
    if (seen(o.open) == nullptr && seen(o.full.first) == nullptr) continue;
    {
      const Locked locked(d);
      if (o.open != nullptr && o.open->opened_ns <= opened_before) close(o);
    }
    while (send_one(d, to)) sent = true;
  }
  return sent;
}

bool Group::filling(Desk& d) const noexcept {
  for (std::uint32_t to = 0; to < ranks_; ++to)
    if (seen(out(d, to).open) != nullptr) return true;
  return false;
}

// ---- waiting ----------------------------------------------------------------------------------------------

std::exception_ptr Group::wait() {
  flush(desk(kasane_rank()), ~std::uint64_t{0});
  for (std::uint64_t credit; (credit = add(credit_, 0)) != 0;)
    detail::check(kasane_atomic_wait(8, &credit_, credit));
  std::exception_ptr exception =
      exception_of(kasane::swap(global_ptr<std::uint64_t>(&exception_), std::uint64_t{0}));
  if (exception) kasane_acquire_all();
  return exception;
}

void Group::fail(std::exception_ptr exception) noexcept {
  kasane_release_all();  // the exception itself, before its credit goes back
  const std::uint64_t word = word_of(std::move(exception));
  if (kasane::compare_swap(global_ptr<std::uint64_t>(&exception_), std::uint64_t{0}, word) != 0)
    exception_of(word);  // an earlier one is kept
}

// ---- receiving --------------------------------------------------------------------------------------------

void Group::receive(std::uint32_t rank) {
  for (;;) {
    this_thread::move_to(rank);
    Desk& d = desk(rank);
    Taken taken;
    if (take(d, taken)) {
      if (receivers_ > 1) {  // while this one runs, others may sleep on, and what comes is theirs
        kasane::fetch_or(global_ptr<std::uint64_t>(&d.bell), std::uint64_t{1});
        if (arrived(d)) ring(d);
      }
      run(rank, taken);
      continue;
    }
    const std::uint64_t now = kasane_clock_ns();
    if (flush(d, now - kPatienceNs)) continue;
    if (filling(d)) {  // soon it is full, or old
      kasane_thread_yield();
      continue;
    }
    if (kasane::get(global_ptr<std::uint64_t>(&closing_)) != 0) break;
    const std::uint64_t seen = kasane::fetch_or(global_ptr<std::uint64_t>(&d.bell), 1) | 1;
    if (arrived(d) || filling(d) || kasane::get(global_ptr<std::uint64_t>(&closing_)) != 0) continue;
    detail::check(kasane_atomic_wait(8, &d.bell, seen));
  }
  free_blocks(desk(rank));
  if (add(alive_, ~std::uint64_t{0}) == 1) detail::check(kasane_atomic_notify_all(&alive_));
}

/// Whether take() may find something, or flush() could not send and now can.
bool Group::arrived(Desk& d) const noexcept {
  if (seen(d.own.first) != nullptr) return true;
  for (std::uint32_t from = 0; from < ranks_; ++from) {
    for (std::uint32_t k = 0; k < kSlots; ++k) {
      // acquire: what was put before
      if (at(in(d, from).ready[k]).load(std::memory_order_acquire) != 0 &&
          at(in(d, from).taken[k]).load(std::memory_order_acquire) == 0)
        return true;
      if (seen(out(d, from).full.first) != nullptr &&
          at(out(d, from).used[k]).load(std::memory_order_acquire) == 0)
        return true;
    }
  }
  return false;
}

bool Group::take(Desk& d, Taken& t) {
  {
    const Locked locked(d);
    if (Block* const own = d.own.pop(); own != nullptr) {
      t = {d.rank, 0, own, own->mail(), own->bytes};
      d.share = next(d.share, Event::arrive, own->credit).next;
      return true;
    }
  }
  for (std::uint32_t from = 0; from < ranks_; ++from) {
    In& i = in(d, from);
    for (std::uint32_t k = 0; k < kSlots; ++k) {
      if (at(i.ready[k]).load(std::memory_order_acquire) == 0 ||
          at(i.taken[k]).exchange(1, std::memory_order_acquire) != 0)
        continue;
      // acquire: again, since another receiver may have read it in between
      const std::uint64_t bytes = at(i.ready[k]).load(std::memory_order_acquire);
      if (bytes == 0) {
        at(i.taken[k]).store(0, std::memory_order_release);
        continue;
      }
      t = {from, k, nullptr, slot(d, from, k), bytes};
      std::uint64_t credit;
      std::memcpy(&credit, t.mail, sizeof credit);
      const Locked locked(d);
      d.share = next(d.share, Event::arrive, credit).next;
      return true;
    }
  }
  return false;
}

void Group::run(std::uint32_t rank, const Taken& t) {
  alignas(16) std::byte argument[kMostBytes];
  for (std::size_t done = sizeof(std::uint64_t); done < t.bytes;) {
    Record record;
    std::memcpy(&record, t.mail + done, sizeof record);
    std::memcpy(argument, t.mail + done + sizeof record, record.bytes);
    done += sizeof record + record.bytes;
    try {
      record.function(argument);
    } catch (...) {
      fail(std::current_exception());
    }
    this_thread::move_to(rank);  // it may have waited
  }
  finish(desk(rank), t);
}

void Group::finish(Desk& d, const Taken& t) {
  if (t.own != nullptr) {
    recycle(d, t.own);
  } else {
    In& i = in(d, t.from);
    at(i.ready[t.slot]).store(0, std::memory_order_relaxed);
    at(i.taken[t.slot]).store(0, std::memory_order_release);  // release: it was read
    Desk& there = desk(t.from);
    exchange(out(there, d.rank).used[t.slot], std::uint32_t{0});
    ring(there);
  }
  Step step;
  {
    const Locked locked(d);
    step = next(d.share, Event::ran);
    d.share = step.next;
  }
  if (step.action == Action::give_back) give_back(step.amount);
}

}  // namespace kasane::posts
