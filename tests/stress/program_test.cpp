// SPDX-License-Identifier: Apache-2.0
// The generator's promises: programs are data-race-free (vector clocks under random schedules), every read
// has the value the program says under each of these schedules, nothing deadlocks; and a racy program is
// noticed.
#include "stress/program.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace kasane::stress {
namespace {

using Clock = std::vector<std::uint32_t>;

bool before(const Clock& a, const Clock& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] > b[i]) return false;
  return true;
}
void merge(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

/// Runs a program one operation at a time, in a random order, on bytes that remember which thread accessed
/// them.
class Interpreter {
 public:
  Interpreter(const Program& p, std::uint64_t seed) : p_(p), random_(seed) {
    const std::size_t n = p.threads.size();
    threads_.resize(n);
    for (auto& t : threads_) t.clock.assign(n, 0);
    barriers_.resize(p.barriers.size());
    for (auto& b : barriers_) b.clock.assign(n, 0);
    for (auto& l : locks_) l.clock.assign(n, 0);
    threads_[0].state = kRunning;
  }
  /// Empty, or what is wrong.
  std::string run() {
    for (;;) {
      std::vector<std::uint32_t> able;
      bool all_done = true;
      for (std::uint32_t t = 0; t < threads_.size(); ++t) {
        if (threads_[t].state == kRunning && enabled(t)) able.push_back(t);
        all_done = all_done && threads_[t].state == kDone;
      }
      if (all_done) return "";
      if (able.empty()) return "deadlock";
      step(able[random_() % able.size()]);
      if (!wrong_.empty()) return wrong_;
    }
  }

 private:
  enum State { kUnborn, kRunning, kArrived, kDone };
  struct ThreadState {
    State state = kUnborn;
    std::uint32_t pc = 0;
    Clock clock;
    std::uint32_t child[kMaxChildren];
  };
  struct Byte {
    std::uint8_t value = 0;
    bool written = false;
    Clock write;
    std::map<std::uint32_t, Clock> reads;
  };
  struct Barrier {
    std::vector<std::uint32_t> waiting;
    Clock clock;
  };
  struct Lock {
    Clock clock;
    std::uint64_t sum = 0;
  };

  const Op& op(std::uint32_t t) const { return p_.ops[p_.threads[t].first_op + threads_[t].pc]; }
  bool enabled(std::uint32_t t) const {
    if (threads_[t].pc == p_.threads[t].ops) return true;
    const Op& o = op(t);
    return o.kind != OpKind::join || threads_[threads_[t].child[o.slot]].state == kDone;
  }
  void fail(std::uint32_t t, const std::string& what) {
    wrong_ = "seed " + std::to_string(p_.seed) + " thread " + std::to_string(t) + " operation " +
             std::to_string(threads_[t].pc) + ": " + what;
  }
  void step(std::uint32_t t) {
    ThreadState& me = threads_[t];
    if (me.pc == p_.threads[t].ops) {
      me.state = kDone;
      return;
    }
    const Op& o = op(t);
    ++me.clock[t];
    switch (o.kind) {
      case OpKind::write:
      case OpKind::read: access(t, o); break;
      case OpKind::fork:
        me.child[o.slot] = o.target;
        if (threads_[o.target].state != kUnborn) fail(t, "forked twice");
        threads_[o.target].state = kRunning;
        merge(threads_[o.target].clock, me.clock);
        break;
      case OpKind::join: merge(me.clock, threads_[me.child[o.slot]].clock); break;
      case OpKind::add:
        merge(me.clock, locks_[o.target].clock);
        locks_[o.target].sum += o.value;
        locks_[o.target].clock = me.clock;
        break;
      case OpKind::check:
        if (locks_[o.target].sum != o.value) fail(t, "a counter is wrong");
        break;
      case OpKind::barrier: {
        Barrier& b = barriers_[o.target];
        merge(b.clock, me.clock);
        b.waiting.push_back(t);
        me.state = kArrived;
        if (b.waiting.size() < p_.barriers[o.target].members) return;
        for (std::uint32_t w : b.waiting) {
          threads_[w].state = kRunning;
          merge(threads_[w].clock, b.clock);
          ++threads_[w].pc;
        }
        b.waiting.clear();
        return;
      }
      case OpKind::allocate:
        if (!live_.insert(o.target).second) fail(t, "allocated twice");
        break;
      case OpKind::release:
        if (live_.erase(o.target) == 0) fail(t, "freed twice");
        break;
      default: break;
    }
    ++me.pc;
  }
  void access(std::uint32_t t, const Op& o) {
    const Object& object = p_.objects[o.target];
    if (o.offset + o.width > object.bytes) return fail(t, "outside of its object");
    if (object.thread == kHeap ? !live_.contains(o.target) : threads_[object.thread].state == kDone)
      return fail(t, "object is gone");
    std::uint64_t value = 0;
    for (std::uint32_t i = 0; i < o.width; ++i) {
      Byte& b = bytes_[{o.target, o.offset + i}];
      if (b.written && !before(b.write, threads_[t].clock)) return fail(t, "a race with a write");
      if (o.kind == OpKind::read) {
        if (!b.written) return fail(t, "read before any write");
        b.reads[t] = threads_[t].clock;
        value |= std::uint64_t{b.value} << (8 * i);
      } else {
        for (const auto& [reader, clock] : b.reads)
          if (!before(clock, threads_[t].clock)) return fail(t, "a race with a read");
        b.written = true;
        b.write = threads_[t].clock;
        b.reads.clear();
        b.value = static_cast<std::uint8_t>(o.value >> (8 * i));
      }
    }
    if (o.kind == OpKind::read && value != o.value)
      fail(t, "reads " + std::to_string(value) + ", not " + std::to_string(o.value));
  }

  const Program& p_;
  std::mt19937_64 random_;
  std::vector<ThreadState> threads_;
  std::vector<Barrier> barriers_;
  Lock locks_[kLocks];
  std::map<std::pair<std::uint32_t, std::uint64_t>, Byte> bytes_;
  std::set<std::uint32_t> live_;
  std::string wrong_;
};

TEST(Generator, EqualSeedsGiveEqualPrograms) {
  EXPECT_EQ(to_string(generate(7)), to_string(generate(7)));
  EXPECT_NE(to_string(generate(7)), to_string(generate(8)));
}

TEST(Generator, ProgramsAreRaceFreeAndReadsHaveOneValue) {
  std::uint64_t reads = 0, threads = 0, frees = 0, barriers = 0, stack_reads = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Program p = generate(seed);
    for (std::uint64_t schedule = 0; schedule < 3; ++schedule)
      ASSERT_EQ(Interpreter(p, seed * 31 + schedule).run(), "");
    threads += p.threads.size();
    for (const Op& o : p.ops) {
      reads += o.kind == OpKind::read;
      stack_reads += o.kind == OpKind::read && p.objects[o.target].thread != kHeap;
      frees += o.kind == OpKind::release;
      barriers += o.kind == OpKind::barrier;
    }
  }
  EXPECT_GT(threads, 400u * 8);  // the programs do something
  EXPECT_GT(reads, 400u * 50);
  EXPECT_GT(stack_reads, 1000u);
  EXPECT_GT(frees, 200u);
  EXPECT_GT(barriers, 1000u);
}

TEST(Generator, StretchedProgramsAreTheSameOnMoreMemory) {
  constexpr std::uint64_t kBytes = std::uint64_t{100} << 20;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Program small = generate(seed);
    Program p = small;
    stretch(p, kBytes);
    ASSERT_EQ(Interpreter(p, seed).run(), "");
    ASSERT_EQ(p.ops.size(), small.ops.size());
    std::set<std::uint32_t> kept;
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
      const Op& o = p.ops[i];
      if (o.kind == OpKind::allocate) kept.insert(o.target);
      if (o.kind == OpKind::write || o.kind == OpKind::read) {
        const std::uint32_t distance = p.objects[o.target].distance;
        // so the bytes between pieces belong to no cell
        ASSERT_EQ(o.offset % (distance != 0 ? distance : kTogether), small.ops[i].offset % kTogether)
            << "seed " << seed;
        ASSERT_TRUE(distance == 0 || distance >= 2 * kTogether) << "seed " << seed;
      }
    }
    for (const Op& o : p.ops)
      if (o.kind == OpKind::release) kept.erase(o.target);
    std::uint64_t bytes = 0;
    for (const std::uint32_t object : kept) bytes += p.objects[object].bytes;
    EXPECT_LE(bytes, kBytes) << "seed " << seed;
    EXPECT_GE(bytes, kBytes / 10 * 8) << "seed " << seed;
  }
}

TEST(Generator, ARaceIsNoticed) {
  unsigned noticed = 0, tried = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Program p = generate(seed);
    for (std::size_t i = 0; i + 1 < p.threads[0].ops; ++i) {  // the root joins no thread until its end
      Op& o = p.ops[p.threads[0].first_op + i];
      if (o.kind != OpKind::join) continue;
      // something is done before a join instead of after it
      std::swap(o, p.ops[p.threads[0].first_op + i + 1]);
      ++tried;
      noticed += !Interpreter(p, seed).run().empty();
      break;
    }
  }
  EXPECT_GT(tried, 30u);
  EXPECT_GT(noticed, 0u);
}

}  // namespace
}  // namespace kasane::stress
