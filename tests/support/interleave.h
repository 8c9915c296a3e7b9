// SPDX-License-Identifier: Apache-2.0
// A deterministic scheduler for small programs of lock-free code: the structure under test is built from
// InterleavedAtomics (see base/atomics.h), every operation of which is a point where another thread may go
// on.
//
//   explore(Reduction::none, [](Schedule& s) {       // called once for every interleaving
//     MpscRing<int, 2, InterleavedAtomics> ring;     // fresh state
//     s.thread([&] { (void)ring.try_push(1); });
//     s.thread([&] { int x; (void)ring.try_pop(x); });
//     s.run();                                       // this interleaving, to the end
//     EXPECT_…                                       // what must hold in every one
//   });
//
// explore() walks all interleavings depth first by running the program again from the start with another
// schedule. Reduction::commuting skips interleavings that differ only in the order of neighbouring operations
// that commute (other words, or two loads): sleep sets, after Patrice Godefroid, "Partial-Order Methods for
// the Verification of Concurrent Systems". It reaches every final state, but not every real-time order, and
// counts only atomics as accesses. explore_random() draws schedules from seeds instead; a failure prints what
// replays it.
//
// Limits: sequential consistency only (weaker orders are argued in the code and tried by the stress tests
// under the thread sanitizer); a program must end under every schedule. Threads are coroutines of one OS
// thread.
#pragma once

#include <gtest/gtest.h>
#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"

namespace kasane::test {

/// The next operation of a thread.
struct Access {
  const void* word = nullptr;
  bool writes = false;
  [[nodiscard]] bool commutes_with(const Access& other) const noexcept {
    return word != other.word || (!writes && !other.writes);
  }
};

/// One run of a program under one schedule.
class Schedule {
 public:
  /// choose(enabled threads as bits, next access of each) says which thread goes on.
  using Chooser = std::function<unsigned(std::uint32_t enabled, const std::vector<Access>& next)>;
  explicit Schedule(Chooser choose) : choose_(std::move(choose)) {}
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  void thread(std::function<void()> body) {
    auto t = std::make_unique<Coroutine>();
    t->body = std::move(body);
    threads_.push_back(std::move(t));
  }

  /// Runs all threads to their end.
  void run() {
    current() = this;
    next_.resize(threads_.size());
    for (unsigned i = 0; i < threads_.size(); ++i) start(i);
    while (enabled_ != 0) {
      const unsigned chosen = choose_(enabled_, next_);
      trace_ += static_cast<char>('0' + chosen);
      if (std::uint64_t* begin = std::exchange(threads_[chosen]->begin, nullptr)) *begin = clock();
      ++clock_;
      resume(chosen);
    }
    current() = nullptr;
  }

  /// A clock for histories: grows with every operation and every reading.
  [[nodiscard]] std::uint64_t clock() noexcept { return ++clock_; }
  /// begin becomes the clock's reading just before the calling thread's next operation (outside of run():
  /// now). Tighter than reading it, since a thread runs ahead to its next operation before it waits its turn.
  void begins_at(std::uint64_t& begin) {
    if (current() == this)
      threads_[running_]->begin = &begin;
    else
      begin = clock();
  }
  /// Who executed each operation, such as "0010121".
  [[nodiscard]] const std::string& trace() const noexcept { return trace_; }

  /// Called by the atomics before each operation. Outside of run() it does nothing.
  static void point(const void* word, bool writes) {
    if (Schedule* s = current()) s->yield({word, writes});
  }

 private:
  static constexpr std::size_t kStackBytes = 64 * 1024;
  struct Coroutine {
    std::function<void()> body;
    std::unique_ptr<std::byte[]> stack = take_stack();
    ucontext_t context{};
    std::uint64_t* begin = nullptr;  // to be stamped before the next operation
    ~Coroutine() { spare_stacks().push_back(std::move(stack)); }
  };

  // Stacks are used again: a walk makes many thousands of them.
  static std::vector<std::unique_ptr<std::byte[]>>& spare_stacks() {
    static std::vector<std::unique_ptr<std::byte[]>> spare;
    return spare;
  }
  static std::unique_ptr<std::byte[]> take_stack() {
    auto& spare = spare_stacks();
    if (spare.empty()) return std::make_unique<std::byte[]>(kStackBytes);
    auto stack = std::move(spare.back());
    spare.pop_back();
    return stack;
  }
  static Schedule*& current() {
    static Schedule* running = nullptr;
    return running;
  }

  // Runs the thread up to its first operation.
  void start(unsigned index) {
    Coroutine& t = *threads_[index];
    getcontext(&t.context);
    t.context.uc_stack = {t.stack.get(), 0, kStackBytes};
    t.context.uc_link = &scheduler_;
    makecontext(&t.context, reinterpret_cast<void (*)()>(&Schedule::enter), 0);
    enabled_ |= 1u << index;
    resume(index);
  }
  static void enter() {
    Schedule* s = current();
    s->threads_[s->running_]->body();
    s->enabled_ &= ~(1u << s->running_);
  }
  void resume(unsigned index) {
    running_ = index;
    swapcontext(&scheduler_, &threads_[index]->context);
  }
  void yield(Access next) {
    next_[running_] = next;
    swapcontext(&threads_[running_]->context, &scheduler_);
  }

  Chooser choose_;
  std::vector<std::unique_ptr<Coroutine>> threads_;
  std::vector<Access> next_;
  std::uint32_t enabled_ = 0;
  unsigned running_ = 0;
  ucontext_t scheduler_{};
  std::uint64_t clock_ = 0;
  std::string trace_;
};

/// The policy for base/atomics.h. Memory orders are ignored: every operation is sequentially consistent.
struct InterleavedAtomics {
  template <class T>
  class Atomic {
   public:
    constexpr Atomic() noexcept = default;
    constexpr explicit Atomic(T value) noexcept : value_(value) {}
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(std::memory_order) const {
      Schedule::point(this, false);
      return value_;
    }
    void store(T value, std::memory_order) {
      Schedule::point(this, true);
      value_ = value;
    }
    T exchange(T value, std::memory_order) {
      Schedule::point(this, true);
      return std::exchange(value_, value);
    }
    T fetch_add(T operand, std::memory_order) {
      Schedule::point(this, true);
      const T old = value_;
      value_ = static_cast<T>(old + operand);
      return old;
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) {
      Schedule::point(this, true);
      if (value_ == expected) {
        value_ = desired;
        return true;
      }
      expected = value_;
      return false;
    }

   private:
    T value_{};
  };
};

enum class Reduction { none, commuting };

/// The depth-first walk over schedules.
class Walk {
 public:
  explicit Walk(Reduction reduction) : reduction_(reduction) {}

  Schedule::Chooser begin_run() {
    depth_ = 0;
    pruned_ = false;
    return [this](std::uint32_t enabled, const std::vector<Access>& next) { return choose(enabled, next); };
  }

  /// Turns to the next schedule; false when there is none left.
  bool advance() {
    for (; !path_.empty(); path_.pop_back()) {
      Node& last = path_.back();
      last.asleep |= 1u << last.chosen;
      if (const std::uint32_t left = last.enabled & ~last.asleep) {
        last.chosen = lowest(left);
        return true;
      }
    }
    return false;
  }

 private:
  struct Node {
    std::uint32_t enabled;
    std::uint32_t asleep;  // explored here, or before with the same outcome
    unsigned chosen;
    std::vector<Access> next;
  };
  static unsigned lowest(std::uint32_t bits) { return static_cast<unsigned>(__builtin_ctz(bits)); }

  unsigned choose(std::uint32_t enabled, const std::vector<Access>& next) {
    if (pruned_) return lowest(enabled);
    if (depth_ == path_.size()) {
      const std::uint32_t asleep = depth_ == 0 ? 0 : still_asleep(path_[depth_ - 1]);
      if ((enabled & ~asleep) == 0) {
        pruned_ = true;  // every way on was walked elsewhere: finish this run anyhow
        return lowest(enabled);
      }
      path_.push_back({enabled, asleep, lowest(enabled & ~asleep), next});
    }
    return path_[depth_++].chosen;
  }

  // A thread stays asleep as long as what was executed since commutes with its next operation.
  [[nodiscard]] std::uint32_t still_asleep(const Node& parent) const {
    if (reduction_ == Reduction::none) return 0;
    std::uint32_t asleep = 0;
    for (std::uint32_t rest = parent.asleep; rest != 0; rest &= rest - 1)
      if (const unsigned u = lowest(rest); parent.next[u].commutes_with(parent.next[parent.chosen]))
        asleep |= 1u << u;
    return asleep;
  }

  Reduction reduction_;
  std::vector<Node> path_;
  std::size_t depth_ = 0;
  bool pruned_ = false;
};

/// Runs program(Schedule&) under every schedule, or until a test assertion failed. Returns how many runs it
/// took.
template <class Program>
std::uint64_t explore(Reduction reduction, const Program& program) {
  Walk walk(reduction);
  std::uint64_t runs = 0;
  do {
    Schedule schedule(walk.begin_run());
    program(schedule);
    ++runs;
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "in run " << runs << ", schedule " << schedule.trace();
      return runs;
    }
  } while (walk.advance());
  return runs;
}

/// Runs program(Schedule&) under schedules drawn from seeds [first, first + count), or until an assertion
/// failed.
template <class Program>
void explore_random(std::uint64_t first, std::uint64_t count, const Program& program) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Random random(seed);
    Schedule schedule([&](std::uint32_t enabled, const std::vector<Access>&) {
      std::uint32_t rest = enabled;
      for (std::uint64_t skip = random.below(static_cast<unsigned>(__builtin_popcount(enabled))); skip > 0;
           --skip)
        rest &= rest - 1;
      return static_cast<unsigned>(__builtin_ctz(rest));
    });
    program(schedule);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << ", schedule " << schedule.trace();
      return;
    }
  }
}

}  // namespace kasane::test
