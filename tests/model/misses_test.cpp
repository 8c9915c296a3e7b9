// SPDX-License-Identifier: Apache-2.0
// Threads of one worker whose accesses wait for pages while others of them run (docs/design/misses.md): they
// load blocks of another rank, claim blocks as a release or an acquire does, and end while others wait. The
// service thread claims blocks too, as a recall does, drops one, and evicts one: it takes the bit, and the
// bytes leave later. A miss ends in dsm/fetch_protocol.h's last step.
//
// Checked: no thread goes on without the bytes of what it loads, nobody takes a bit that another has, a miss
// is one thread's, a thread goes on on its worker; from every state there is a way to the end. A rule taken
// away is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "dsm/fetch_protocol.h"
#include "model/walk.h"

namespace kasane::model {
namespace {

enum class MissWithout : std::uint8_t {
  none,
  holds_nothing,  ///< the bit is the waiting thread's, which ends its miss when it runs again
  polling,        ///< who waits for a bit makes no progress, and the service thread computes
  retry,          ///< a thread that was woken goes on behind its access
  own_worker,     ///< another worker resumes a thread that waits
  one_room,       ///< the room of a miss is free as soon as its bytes arrive, and again when it ends
  evicts_free,    ///< what is evicted may be a block whose miss is under way
};

struct Leavers {
  MissWithout without = MissWithout::none;

  static constexpr unsigned kThreads = 2, kBlocks = 2, kRooms = 2, kOps = 4;
  enum Op : std::uint8_t { end, load0, load1, claim0, claim1 };
  static constexpr Op kProgram[kThreads][kOps] = {{load0, claim1, load1, end}, {load1, claim0, load0, end}};
  // Claims a block, the other one, drops the first, begins to evict the second, ends that.
  static constexpr std::uint8_t kServiceSteps = 5;

  enum Mode : std::uint8_t { ready, runs, waits };
  enum Bit : std::uint8_t { free, of_miss, of_thread, of_eviction };
  enum Room : std::uint8_t { unused, reads, arrived };
  struct Thread {
    std::uint8_t mode, at, block, elsewhere;
  };
  struct Miss {
    std::uint8_t room, block, dropped, posted_for;
  };
  struct State {
    std::array<Thread, kThreads> thread;
    std::array<std::uint8_t, kBlocks> bit, shown;
    std::array<Miss, kRooms> miss;
    std::array<std::uint8_t, kRooms> room_free;  ///< how often it is in the pool, less one
    std::uint8_t service, wrong, unused[4];
  };

  State initial() const {
    State s{};
    s.room_free.fill(1);
    return s;
  }
  const char* violation(const State& s) const {
    switch (s.wrong) {
      case 1: return "a thread goes on without the bytes that it loads";
      case 2: return "a bit is taken that another has";
      case 3: return "a thread goes on on another worker";
      case 4: return "two misses have one room";
      default: return nullptr;
    }
  }
  bool finished(const State& s) const {
    for (unsigned t = 0; t < kThreads; ++t)
      if (kProgram[t][s.thread[t].at] != end) return false;
    return s.service == kServiceSteps;
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "actor " + std::to_string(x.actor) + ", step " + std::to_string(x.kind) + " of " +
           std::to_string(x.detail);
  }
  std::string show(const State& s) const {
    std::string text;
    for (unsigned t = 0; t < kThreads; ++t)
      text += "thread " + std::to_string(s.thread[t].mode) + " at " + std::to_string(s.thread[t].at) + "; ";
    for (unsigned b = 0; b < kBlocks; ++b)
      text += "block bit " + std::to_string(s.bit[b]) + " shown " + std::to_string(s.shown[b]) + "; ";
    return text + "service " + std::to_string(s.service);
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    const int running = running_on_worker(s);
    for (std::uint8_t t = 0; t < kThreads; ++t) {
      if (s.thread[t].mode == runs) run(s, t, emit);
      if (running < 0) pick(s, t, emit);
    }
    network(s, emit);
    // Between threads the worker makes progress, and so does whoever waits for a bit.
    const bool computes = running >= 0 && !waits_in_place(s, static_cast<unsigned>(running));
    const bool polls = !computes && (running < 0 || without != MissWithout::polling);
    if (polls || without != MissWithout::polling) progress(s, emit);
    serve(s, emit);
  }

 private:
  static int running_on_worker(const State& s) {
    for (unsigned t = 0; t < kThreads; ++t)
      if (s.thread[t].mode == runs) return static_cast<int>(t);
    return -1;
  }
  static unsigned block_of(Op op) { return op == load1 || op == claim1 ? 1 : 0; }
  bool waits_in_place(const State& s, unsigned t) const {
    const Op op = kProgram[t][s.thread[t].at];
    return (op == claim0 || op == claim1) && s.bit[block_of(op)] != free;
  }

  /// The worker's next thread.
  template <class Emit>
  void pick(const State& s, std::uint8_t t, Emit&& emit) const {
    const Thread& x = s.thread[t];
    const bool own = without == MissWithout::holds_nothing && s.bit[x.block] == of_thread;
    bool may = x.mode == ready && kProgram[t][x.at] != end;
    if (x.mode == waits) may = own ? read_for(s, t) : s.bit[x.block] == free;
    if (!may) return;
    State n = s;
    n.thread[t].mode = runs;
    if (x.mode == waits) {
      if (own) end_miss(n, t);
      if (without == MissWithout::retry) {
        if (n.shown[x.block] == 0) n.wrong = 1;
        ++n.thread[t].at;
      }
      if (without == MissWithout::own_worker) n.wrong = 3;
    }
    emit(n, Step{0, t, x.block});
  }
  bool read_for(const State& s, unsigned t) const {
    for (const Miss& m : s.miss)
      if (m.room == arrived && m.posted_for == t) return true;
    return false;
  }
  void end_miss(State& n, unsigned t) const {
    for (unsigned i = 0; i < kRooms; ++i)
      if (n.miss[i].room == arrived && n.miss[i].posted_for == t) complete(n, i);
  }

  /// A step of the running thread.
  template <class Emit>
  void run(const State& s, std::uint8_t t, Emit&& emit) const {
    State n = s;
    Thread& x = n.thread[t];
    const Op op = kProgram[t][x.at];
    const unsigned b = block_of(op);
    if (op == end) {
      x.mode = ready;
    } else if (op == claim0 || op == claim1) {
      if (s.bit[b] != free) return;  // it waits in place, and polls
      ++x.at;
    } else if (s.shown[b] != 0) {
      ++x.at;
    } else if (s.bit[b] != free) {
      leave(x, b);
    } else {
      begin_miss(n, t, b);
    }
    emit(n, Step{1, t, static_cast<std::uint8_t>(b)});
  }
  static void leave(Thread& x, unsigned b) {
    x.mode = waits;
    x.block = static_cast<std::uint8_t>(b);
  }
  void begin_miss(State& n, std::uint8_t t, unsigned b) const {
    unsigned i = 0;
    while (i < kRooms && n.room_free[i] == 0) ++i;
    if (i == kRooms) {  // in place: fetched while the worker waits
      n.shown[b] = 1;
      return;
    }
    --n.room_free[i];
    if (n.miss[i].room != unused) n.wrong = 4;
    if (n.bit[b] != free) n.wrong = 2;
    n.bit[b] = without == MissWithout::holds_nothing ? of_thread : of_miss;
    n.miss[i] = {reads, static_cast<std::uint8_t>(b), 0, t};
    leave(n.thread[t], b);
  }

  template <class Emit>
  void network(const State& s, Emit&& emit) const {
    for (std::uint8_t i = 0; i < kRooms; ++i) {
      if (s.miss[i].room != reads) continue;
      State n = s;
      n.miss[i].room = arrived;
      if (without == MissWithout::one_room) ++n.room_free[i];
      emit(n, Step{2, 9, i});
    }
  }
  template <class Emit>
  void progress(const State& s, Emit&& emit) const {
    if (without == MissWithout::holds_nothing) return;
    for (std::uint8_t i = 0; i < kRooms; ++i) {
      if (s.miss[i].room != arrived) continue;
      State n = s;
      complete(n, i);
      emit(n, Step{3, 9, i});
    }
  }
  void complete(State& n, unsigned i) const {
    using namespace dsm;
    Miss& m = n.miss[i];
    const FetchStep step = next(FetchState::check, m.dropped != 0 ? FetchEvent::dropped : FetchEvent::stood);
    if (step.state == FetchState::fetched) n.shown[m.block] = 1;
    n.bit[m.block] = free;
    if (without != MissWithout::one_room || n.room_free[i] == 0) ++n.room_free[i];
    m = {};
  }

  /// The service thread: two claims, an acquire that drops block 0, for which a miss under way is void, and
  /// an eviction of block 1.
  template <class Emit>
  void serve(const State& s, Emit&& emit) const {
    if (s.service == kServiceSteps) return;
    State n = s;
    ++n.service;
    const unsigned b = s.service == 1 || s.service >= 3 ? 1 : 0;
    if (s.service == 4) {
      if (n.bit[b] != of_eviction) n.wrong = 2;
      n.bit[b] = free;
      n.shown[b] = 0;
    } else if (s.service == 2 && s.bit[0] != free) {
      for (Miss& m : n.miss) m.dropped |= m.room != unused && m.dropped == 0;
      if (n.miss[0].dropped == s.miss[0].dropped && n.miss[1].dropped == s.miss[1].dropped) return;
      n.service = 2;
    } else if (s.bit[b] != free && !(s.service == 3 && without == MissWithout::evicts_free)) {
      return;
    } else if (s.service == 2) {
      n.shown[0] = 0;
    } else if (s.service == 3) {
      n.bit[b] = of_eviction;
    }
    emit(n, Step{4, 8, s.service});
  }
};

TEST(Misses, EndAndLoseNothing) { expect_sound(Leavers{}); }
TEST(Misses, EachRuleIsNeeded) {
  using enum MissWithout;
  expect_needed<Leavers>({holds_nothing, polling, retry, own_worker, one_room, evicts_free});
}

}  // namespace
}  // namespace kasane::model
