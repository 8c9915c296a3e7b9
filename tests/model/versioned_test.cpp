// SPDX-License-Identifier: Apache-2.0 The lock word of kasane::deque and kasane::list
// (kasane/containers/versioned.hpp, the shipping tables): threads that count up two fields which belong
// together. A far one reads word and fields in any order, a near one the word first; one thread may give up.
//
// Checked: a change begins from the fields as the last one left them, so none is lost; from every state there
// is a way to the end. A rule taken away is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <kasane/containers/versioned.hpp>
#include <string>

#include "model/explorer.h"
#include "model/rules_needed.h"

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
};

struct Headers {
  HeaderWithout without = HeaderWithout::none;
  std::array<bool, 3> far{};

  enum Stage : std::uint8_t { kRead1, kRead2, kRead3, kJudge, kLock, kFirst, kSecond, kPublish, kOver };
  struct Actor {
    std::uint64_t word, fields[2];
    std::uint8_t stage, got, unused[6];
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
      const auto go = [&](const State& n) { emit(n, Step{s.actor[a].stage, a, 0}); };
      if (s.actor[a].stage < kJudge)
        read(s, a, go);
      else
        change(s, a, go);
    }
  }

  /// One of word and fields that it does not have yet; a near thread in their order.
  template <class Go>
  void read(const State& s, std::uint8_t a, const Go& go) const {
    for (unsigned k = 0; k < 3; ++k) {
      const unsigned part = !far[a] && without == HeaderWithout::word_first ? 2 - k : k;
      if ((s.actor[a].got >> part & 1) != 0) continue;
      State n = s;
      Actor& x = n.actor[a];
      (part == 0 ? x.word : x.fields[part - 1]) = part == 0 ? n.word : n.fields[part - 1];
      x.got |= static_cast<std::uint8_t>(1u << part);
      ++x.stage;
      go(n);
      if (!far[a]) return;
    }
  }
  [[nodiscard]] bool good(const Actor& x, std::uint8_t a) const {
    if (far[a] && without != HeaderWithout::checksum) return versioned::good(x.word, sum(x.fields));
    return without == HeaderWithout::lock || !versioned::locked(x.word);
  }

  template <class Go>
  void change(const State& s, std::uint8_t a, const Go& go) const {
    using versioned::next;
    State n = s;
    Actor& x = n.actor[a];
    switch (x.stage) {
      case kJudge:
        if (next(versioned::Step::read, good(x, a)) == versioned::Step::lock)
          x.stage = kLock;
        else
          x = {};
        return go(n);
      case kLock: {
        bool ok = n.word == x.word || without == HeaderWithout::lock;
        if (without == HeaderWithout::proof) ok = !versioned::locked(n.word);
        if (!ok) {
          x = {};
          return go(n);
        }
        if (without == HeaderWithout::proof) x.word = n.word;
        if (without != HeaderWithout::lock) n.word |= versioned::kLocked;
        n.wrong = x.fields[0] != n.fields[0] || x.fields[1] != n.fields[1];
        x.stage = kFirst;
        go(n);
        if (n.gave_up == 0) {  // its change cannot be made
          n.gave_up = 1;
          n.word = x.word;
          x = {};
          x.stage = kOver;
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
        ++n.changes;
        x = {};
        x.stage = kOver;
        return go(n);
      default: return;
    }
  }
};

constexpr std::array<bool, 3> kFar[] = {{true, true, true}, {true, false, true}, {false, false, true}};

TEST(Versioned, ProvesWhatWasRead) {
  for (const auto& far : kFar) expect_sound(Headers{.far = far});
}

TEST(Versioned, EachRuleIsNeeded) {
  expect_needed({HeaderWithout::checksum, HeaderWithout::word_first, HeaderWithout::proof,
                 HeaderWithout::lock, HeaderWithout::version},
                kFar, [](HeaderWithout w, const auto& far) { return Headers{w, far}; });
}

}  // namespace
}  // namespace kasane::model
