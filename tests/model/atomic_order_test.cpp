// SPDX-License-Identifier: Apache-2.0
// The order of the program's atomics between ranks (gas/users_word.h; docs/design/atomics.md), in every order
// of every step. Threads of two or three ranks store to plain data of their rank, then write one atomic;
// others read it, and must see the data of all whose writes they have seen. A rank sees another's data as of
// its last acquire, and an acquire brings what was released before. Words, asks and accesses of the atomic
// are steps of their own.
#include "gas/users_word.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

using gas::UsersAction;
using gas::UsersEvent;
using gas::UsersWord;

enum class Without : std::uint8_t {
  none,
  leaving,         ///< the word says shared at once, and the first rank is asked afterwards
  version,         ///< a `released` of an earlier period ends a later one
  looking_after,   ///< an acquiring read looks at the word before it reads
  looking_before,  ///< a releasing write looks at the word after it has written
  release,         ///< where the word says shared, a write does not release
  notices,         ///< a rank that is alone takes no notices after a read
  asking,          ///< a rank that finds the word leaving does not ask
};

constexpr std::uint8_t kThreads = 3;

struct Order {
  Without without = Without::none;
  std::array<std::uint8_t, kThreads> rank{0, 1, 2};
  std::array<const char*, kThreads> script{"", "", ""};  ///< of each thread: r reads, w writes, x exchanges
  bool settles = true;

  using Clock = std::array<std::uint8_t, 3>;  ///< of each rank: how often it stored to its data

  enum : std::uint8_t {
    kBegin,
    kLook,
    kAsk,
    kTell,
    kSettle,
    kRelease,
    kAccess,
    kLookAgain,
    kAskAgain,
    kTellAgain,
    kAcquire
  };
  static constexpr std::uint8_t kReads = 1, kWrites = 2;
  struct Thread {
    std::uint8_t at, begun, kind, word_kind, word_rank, word_version;  // of the word that it saw last
    Clock knows;                                                       // what it must see
  };
  struct State {
    std::array<Thread, kThreads> thread;
    std::uint8_t kind, rank, version;  // the users word
    Clock written, released, value;    // of each rank; what the atomic's value orders
    std::array<Clock, 3> visible;      // at each rank: of each rank
  };

  State initial() const { return {}; }
  const char* violation(const State&) const { return nullptr; }
  bool finished(const State& s) const {
    for (std::uint8_t t = 0; t < kThreads; ++t)
      if (s.thread[t].at != kBegin || script[t][s.thread[t].begun] != 0) return false;
    return true;
  }
  std::string name(const Step& x) const {
    static constexpr const char* kAt[] = {"begins",     "looks",       "asks",     "tells",
                                          "settles",    "releases",    "accesses", "looks again",
                                          "asks again", "tells again", "acquires"};
    static constexpr const char* kKind[] = {"", "read", "write", "exchange"};
    return "thread " + std::to_string(x.actor) + " " + kAt[x.detail] + " (" + kKind[x.kind] + ")";
  }
  std::string show(const State& s) const {
    return "word " + std::to_string(s.kind) + " of " + std::to_string(s.rank) + " version " +
           std::to_string(s.version);
  }

  static UsersWord word(const State& s) {
    return {static_cast<UsersWord::Kind>(s.kind), Rank{s.rank}, s.version};
  }
  void set(State& s, UsersWord w) const {
    s.kind = static_cast<std::uint8_t>(w.kind);
    s.rank = static_cast<std::uint8_t>(raw(w.rank));
    s.version = without == Without::version ? 0 : static_cast<std::uint8_t>(w.version);
  }
  /// Forgets what does not matter there.
  static void leave_for(Thread& t, std::uint8_t at) {
    const bool uses_word = at == kAsk || at == kTell || at == kSettle || at == kAskAgain || at == kTellAgain;
    if (!uses_word) t.word_kind = t.word_rank = t.word_version = 0;
    if (at == kBegin) t.kind = 0;
    t.at = at;
  }
  static void remember(Thread& t, const State& s) {
    t.word_kind = s.kind;
    t.word_rank = s.rank;
    t.word_version = s.version;
  }
  static bool is_as_remembered(const Thread& t, const State& s) {
    return t.word_kind == s.kind && t.word_rank == s.rank && t.word_version == s.version;
  }
  static void release(State& s, std::uint8_t r) { s.released[r] = s.written[r]; }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t t = 0; t < kThreads; ++t) step(s, t, emit);
  }

  template <class Emit>
  void step(const State& s, std::uint8_t i, Emit&& emit) const {
    State n = s;
    Thread& t = n.thread[i];
    const std::uint8_t r = rank[i];
    const Step named{t.kind, i, t.at};
    const auto go = [&](std::uint8_t at) {
      leave_for(t, at);
      emit(n, named);
    };
    const bool writes = (t.kind & kWrites) != 0, reads = (t.kind & kReads) != 0;
    switch (t.at) {
      case kBegin: {
        const char wanted = script[i][t.begun];
        if (wanted == 0) return;
        ++t.begun;
        t.kind = wanted == 'r' ? kReads : wanted == 'w' ? kWrites : kReads | kWrites;
        if (wanted != 'r') t.knows[r] = ++n.written[r];
        const bool early =
            wanted != 'r' ? without != Without::looking_before : without == Without::looking_after;
        return go(early ? kLook : kAccess);
      }
      case kLook: return look(n, i, writes ? UsersEvent::change : UsersEvent::read, false, emit);
      case kAsk: release(n, t.word_rank); return go(kTell);
      case kTell: tell(n, t, r); return go(kLook);
      case kSettle: {
        if (is_as_remembered(t, n)) set(n, next(word(n), UsersEvent::settle, Rank{r}).next);
        return go(kRelease);
      }
      case kRelease:
        if (without != Without::release) release(n, r);
        return go(without == Without::looking_before ? kBegin : kAccess);
      case kAccess: {
        if (reads) t.knows = latest(t.knows, n.value);
        if (writes) n.value = t.knows;
        if (!reads) return go(without == Without::looking_before ? kLookAgain : kBegin);
        return go(without == Without::looking_after ? kAcquire : kLookAgain);
      }
      case kLookAgain: return look(n, i, reads ? UsersEvent::read : UsersEvent::change, true, emit);
      case kAskAgain: release(n, t.word_rank); return go(kTellAgain);
      case kTellAgain: tell(n, t, r); return go(kLookAgain);
      default: {  // kAcquire
        for (std::uint8_t q = 0; q < 3; ++q)
          if (q != r) n.visible[r][q] = std::max(n.visible[r][q], n.released[q]);
        return done(n, i, named, emit);
      }
    }
  }

  static Clock latest(Clock a, const Clock& b) {
    for (std::size_t q = 0; q < a.size(); ++q) a[q] = std::max(a[q], b[q]);
    return a;
  }

  /// The thread has read, and acquired as far as it has to: what it must see is there.
  template <class Emit>
  void done(State& n, std::uint8_t i, const Step& named, Emit&& emit) const {
    Thread& t = n.thread[i];
    const std::uint8_t r = rank[i];
    leave_for(t, kBegin);
    const char* error = nullptr;
    for (std::uint8_t q = 0; q < 3; ++q)
      if (q != r && n.visible[r][q] < t.knows[q])
        error = "a read does not see what the write that it saw came after";
    emit(n, named, error);
  }

  void tell(State& n, Thread& t, std::uint8_t r) const {
    if (is_as_remembered(t, n)) set(n, next(word(n), UsersEvent::released, Rank{r}).next);
  }

  template <class Emit>
  void look(State& n, std::uint8_t i, UsersEvent event, bool again, Emit&& emit) const {
    Thread& t = n.thread[i];
    const Step named{t.kind, i, t.at};
    const UsersWord before = word(n);
    const gas::UsersStep step = next(before, event, Rank{rank[i]});
    const bool writes = event == UsersEvent::change;
    const auto go = [&](std::uint8_t at) {
      State m = n;
      leave_for(m.thread[i], at);
      emit(m, named);
    };
    const std::uint8_t last = writes ? (again ? kRelease : kAccess) : (again ? kAcquire : kAccess);
    set(n, step.next);
    remember(t, n);
    switch (step.action) {
      case UsersAction::ask:
        if (without == Without::leaving) set(n, {UsersWord::Kind::shared, Rank{rank[i]}, step.next.version});
        if (without == Without::asking && before == step.next)
          return go(writes ? std::uint8_t{kRelease} : last);
        return go(again ? kAskAgain : kAsk);
      case UsersAction::alone:
        if (!writes && without == Without::notices) {
          State m = n;
          return done(m, i, named, emit);
        }
        return go(last);
      case UsersAction::shared:
        if (!writes) return go(last);
        if (settles && step.next.rank == Rank{rank[i]}) go(kSettle);
        return go(kRelease);
    }
  }
};

TEST(AtomicOrder, AReadSeesWhatTheWriteCameAfter) {
  expect_sound(Order{.script = {"ww", "rw", "r"}});
  expect_sound(Order{.script = {"wx", "xr", "x"}});
  expect_sound(Order{.script = {"xx", "xx", ""}});
}
TEST(AtomicOrder, AlsoWithTwoThreadsOfARank) {
  expect_sound(Order{.rank = {0, 0, 1}, .script = {"xw", "wr", "xr"}});
}
TEST(AtomicOrder, AlsoWithMoreOperations) { expect_sound(Order{.script = {"wxw", "xr", "xr"}}); }

TEST(AtomicOrder, WithoutARuleAReadMissesWhatTheWriteCameAfter) {
  const auto refuted = [](Without without, std::array<const char*, kThreads> script) {
    expect_refuted(without, explore(Order{.without = without, .script = script}), Verdict::counterexample);
  };
  refuted(Without::version, {"www", "wr", "w"});
  refuted(Without::looking_after, {"ww", "r", ""});
  for (const Without w :
       {Without::leaving, Without::looking_before, Without::release, Without::notices, Without::asking})
    refuted(w, {"ww", "wr", "r"});
}

}  // namespace
}  // namespace kasane::model
