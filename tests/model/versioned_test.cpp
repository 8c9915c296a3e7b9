// SPDX-License-Identifier: Apache-2.0
// The lock word of kasane::deque and kasane::list (kasane/containers/versioned.hpp, the shipping tables):
// threads that count up two fields which belong together. A far one reads word and fields in any order, a
// near one the word first; one thread may give up; one may make an exclusive call.
//
// Checked: a change begins from the fields as the last one left them, so none is lost; what is refused has
// met an exclusive call, or is one that has met another call; from every state there is a way to the end. A
// rule taken away is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <kasane/containers/versioned.hpp>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

namespace versioned = detail::versioned;

enum class HeaderWithout : std::uint8_t {
  none,
  checksum,    ///< a far read is good whatever its checksum
  word_first,  ///< a near read takes the fields first
  proof,       ///< the lock is taken whatever the version is
  lock,        ///< nobody is held off
  version,     ///< the word after a change is the one before
  alone,       ///< an exclusive call takes the lock whatever the word is
  ended,       ///< the word after an exclusive call says that there is one
};

enum class As : std::uint8_t { near, far, exclusive };

struct Headers {
  HeaderWithout without = HeaderWithout::none;
  std::array<As, 3> as{};

  enum Stage : std::uint8_t { kRead1, kRead2, kRead3, kJudge, kLock, kFirst, kSecond, kPublish, kOver };
  struct Actor {
    std::uint64_t word, fields[2];
    std::uint8_t stage, got, begun, met, unused[4];  ///< met: 1: another call; 2: an exclusive one
  };
  struct State {
    std::uint64_t word, fields[2];
    std::array<Actor, 3> actor;
    std::uint8_t gave_up, wrong, changes, unused[5];
  };

  static std::uint32_t sum(const std::uint64_t* fields) { return versioned::sum_of(fields, 2); }
  State initial() const {
    State s = {};
    s.word = versioned::changed(0, sum(s.fields));
    return s;
  }
  const char* violation(const State& s) const {
    if (s.wrong == 2) return "a call is refused that has met none that it must not meet";
    if (s.wrong != 0) return "a change begins from fields that do not belong together, or are old";
    if (!finished(s)) return nullptr;
    if (versioned::locked(s.word)) return "the lock stays";
    return s.fields[0] != s.changes || s.fields[1] != s.changes ? "a change is lost" : nullptr;
  }
  bool finished(const State& s) const {
    for (const Actor& a : s.actor)
      if (a.stage != kOver) return false;
    return true;
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "thread " + std::to_string(x.actor) + ", stage " + std::to_string(x.kind);
  }
  std::string show(const State& s) const {
    return "word " + std::to_string(s.word >> 32) + " fields " + std::to_string(s.fields[0]) + " " +
           std::to_string(s.fields[1]);
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < 3; ++a) {
      const auto go = [&](State n) {
        meet(s, n, a);
        emit(n, Step{s.actor[a].stage, a, 0});
      };
      if (s.actor[a].stage < kJudge)
        read(s, a, go);
      else
        change(s, a, go);
    }
  }
  /// Calls that are under way at once.
  void meet(const State& s, State& n, std::uint8_t a) const {
    const auto bit = [this](std::uint8_t x) { return as[x] == As::exclusive ? 2 : 1; };
    for (std::uint8_t b = 0; b < 3; ++b) {
      if (b == a || s.actor[b].begun == 0 || s.actor[b].stage == kOver) continue;
      n.actor[b].met = static_cast<std::uint8_t>(n.actor[b].met | bit(a));
      if (n.actor[a].stage != kOver) n.actor[a].met = static_cast<std::uint8_t>(n.actor[a].met | bit(b));
    }
    if (n.actor[a].stage != kOver) n.actor[a].begun = 1;
  }
  [[nodiscard]] bool alone(std::uint8_t a) const { return as[a] == As::exclusive; }

  /// One of word and fields that it does not have yet; a near thread in their order.
  template <class Go>
  void read(const State& s, std::uint8_t a, const Go& go) const {
    const bool near = as[a] == As::near;
    for (unsigned k = 0; k < 3; ++k) {
      const unsigned part = near && without == HeaderWithout::word_first ? 2 - k : k;
      if ((s.actor[a].got >> part & 1) != 0) continue;
      State n = s;
      Actor& x = n.actor[a];
      (part == 0 ? x.word : x.fields[part - 1]) = part == 0 ? n.word : n.fields[part - 1];
      x.got |= static_cast<std::uint8_t>(1u << part);
      ++x.stage;
      go(n);
      if (near) return;
    }
  }
  [[nodiscard]] versioned::Look judge(const Actor& x, std::uint8_t a) const {
    if (without == HeaderWithout::lock && as[a] == As::near) return versioned::Look::good;
    if (as[a] != As::near && without != HeaderWithout::checksum)
      return versioned::judge(x.word, sum(x.fields));
    return versioned::judge(x.word, true);
  }
  /// After a step that leads to another one than the next stage.
  static void go_on(State& n, std::uint8_t a, versioned::Step step) {
    Actor& x = n.actor[a];
    const std::uint8_t met = x.met;
    if (step == versioned::Step::refused && (met & 2) == 0) n.wrong = 2;
    x = {};
    if (step == versioned::Step::read)
      x.begun = 1, x.met = met;
    else
      x.stage = kOver;
  }
  [[nodiscard]] bool takes(const State& n, const Actor& x, std::uint8_t a) const {
    if (without == HeaderWithout::lock || (without == HeaderWithout::alone && alone(a))) return true;
    return without == HeaderWithout::proof ? !versioned::locked(n.word) : n.word == x.word;
  }

  template <class Go>
  void change(const State& s, std::uint8_t a, const Go& go) const {
    using versioned::next;
    State n = s;
    Actor& x = n.actor[a];
    switch (x.stage) {
      case kJudge: {
        const versioned::Step step = next(judge(x, a), alone(a));
        if (step == versioned::Step::lock)
          x.stage = kLock;
        else
          refuse(n, a, step);
        return go(n);
      }
      case kLock: {
        const bool ok = takes(n, x, a);
        if (!ok) {
          refuse(n, a, next(versioned::Step::lock, ok, alone(a)));
          return go(n);
        }
        if (without == HeaderWithout::proof) x.word = n.word;
        if (without != HeaderWithout::lock) n.word = versioned::taken(n.word, alone(a));
        if (x.fields[0] != n.fields[0] || x.fields[1] != n.fields[1]) n.wrong = 1;
        x.stage = kFirst;
        go(n);
        if (n.gave_up == 0) {  // its change cannot be made
          n.gave_up = 1;
          n.word = x.word;
          go_on(n, a, versioned::Step::done);
          go(n);
        }
        return;
      }
      case kFirst:
      case kSecond: {
        const unsigned i = x.stage - kFirst;
        n.fields[i] = ++x.fields[i];
        ++x.stage;
        return go(n);
      }
      case kPublish:
        n.word = without == HeaderWithout::version ? x.word : versioned::changed(x.word, sum(x.fields));
        if (without == HeaderWithout::ended && alone(a)) n.word |= versioned::kExclusive;
        ++n.changes;
        go_on(n, a, versioned::Step::done);
        return go(n);
      default: return;
    }
  }
  /// An exclusive call may be refused by any other one.
  void refuse(State& n, std::uint8_t a, versioned::Step step) const {
    if (alone(a)) n.actor[a].met = n.actor[a].met != 0 ? 2 : 0;
    go_on(n, a, step);
  }
};

constexpr As kNear = As::near, kFar = As::far, kExclusive = As::exclusive;
constexpr std::array<As, 3> kThreads[] = {{kFar, kFar, kFar},
                                          {kFar, kNear, kFar},
                                          {kNear, kNear, kFar},
                                          {kFar, kNear, kExclusive},
                                          {kNear, kExclusive, kExclusive}};

TEST(Versioned, ProvesWhatWasRead) {
  for (const auto& as : kThreads) expect_sound(Headers{.as = as});
}

TEST(Versioned, EachRuleIsNeeded) {
  expect_needed({HeaderWithout::checksum, HeaderWithout::word_first, HeaderWithout::proof,
                 HeaderWithout::lock, HeaderWithout::version, HeaderWithout::alone, HeaderWithout::ended},
                kThreads, [](HeaderWithout w, const auto& as) { return explore(Headers{w, as}); });
}

}  // namespace
}  // namespace kasane::model
