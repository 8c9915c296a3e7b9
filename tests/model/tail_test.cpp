// SPDX-License-Identifier: Apache-2.0
// The tail of a kasane::vector (kasane/containers/tail.hpp, the shipping tables): threads that append one or
// two elements while rounds are added, of which one may find no memory, a thread that reads the prefix, and
// an exclusive call that removes the last element.
//
// Checked: no element is given twice, or where there is no memory; what is ready has been written; no thread
// has a ticket while the exclusive call is alone; afterwards there is no hole, and the tail is the number of
// elements; from every state there is a way to the end. A rule taken away is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <kasane/containers/tail.hpp>
#include <string>

#include "model/walk.h"

namespace kasane::model {
namespace {

namespace tail = detail::tail;
using tail::Push, tail::Ticket;

enum class TailWithout : std::uint8_t {
  none,
  values_first,  ///< elements are ready before they are written
  whole,         ///< a ticket is good if its first element fits
  first,         ///< every ticket that does not fit adds rounds
  restore,       ///< no memory: the tail stays as the fetch-add made it
  new_ticket,    ///< a thread that has waited keeps its ticket
  complete,      ///< an exclusive call takes the tail though elements are not ready
  proof,         ///< it takes the tail whatever that has become
};

struct Tails {
  TailWithout without = TailWithout::none;
  std::array<std::uint8_t, 4> elements{};  ///< of each thread's append; then: there is an exclusive call

  static constexpr std::uint64_t kFirst = 1;
  static constexpr unsigned kMost = 7;
  struct Actor {
    std::uint64_t ticket;
    Push step;
    std::uint8_t written, unused[6];
  };
  struct State {
    std::uint64_t word, seen;  ///< seen: by the exclusive call
    std::array<Actor, 3> actor;
    std::array<std::uint8_t, 8> value, ready;
    std::uint8_t rounds;  ///< for which there is memory
    std::uint8_t failed, wrong, appended, read, looked, unused;
    tail::Exclusive exclusive;
  };

  State initial() const { return {}; }
  const char* violation(const State& s) const {
    if (s.wrong == 1) return "two threads have one element";
    if (s.wrong == 2) return "an element is written where there is no memory";
    if (s.wrong == 3) return "an element is ready that was not written";
    if (s.wrong == 4) return "an exclusive call is not alone";
    if (!finished(s)) return nullptr;
    for (unsigned i = 0; i < s.value.size(); ++i)
      if ((s.ready[i] != 0) != (i < s.appended)) return "there is a hole";
    return tail::index(s.word) != s.appended ? "the tail is not the number of elements" : nullptr;
  }
  bool finished(const State& s) const {
    for (const Actor& a : s.actor)
      if (a.step != Push::done && a.step != Push::refused) return false;
    return elements[3] == 0 || s.exclusive == tail::Exclusive::done ||
           s.exclusive == tail::Exclusive::refused;
  }
  bool circles() const { return true; }
  std::string name(const Step& x) const {
    return "thread " + std::to_string(x.actor) + ", step " + std::to_string(x.kind) +
           (x.detail != 0 ? ", no memory" : "");
  }
  std::string show(const State& s) const {
    std::string text = "rounds " + std::to_string(tail::rounds(s.word)) + " index " +
                       std::to_string(tail::index(s.word)) + " ready";
    for (const std::uint8_t r : s.ready) text += " " + std::to_string(r);
    return text;
  }

  [[nodiscard]] Ticket judge(std::uint64_t word, std::uint64_t n) const {
    if (without == TailWithout::whole) n = 1;
    const Ticket t = tail::judge(word, n, kFirst);
    return t == Ticket::again && without == TailWithout::first ? Ticket::grow : t;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < 3; ++a) step(s, a, emit);
    if (elements[3] != 0) alone(s, emit);
    // The reader takes the next element of the prefix.
    if (s.read < s.ready.size() && s.ready[s.read] != 0) {
      State n = s;
      if (n.value[n.read++] == 0) n.wrong = 3;
      emit(n, Step{99, 3, 0});
    }
  }

  [[nodiscard]] static bool has_a_ticket(const State& s) {
    for (const Actor& a : s.actor)
      if (a.step == Push::values || a.step == Push::ready || a.step == Push::grow) return true;
    return false;
  }
  /// Elements in a row from the first on that are ready, of those below the tail.
  [[nodiscard]] static std::uint64_t readable(const State& s) {
    std::uint64_t n = 0;
    while (n < s.ready.size() && n < tail::index(s.word) && s.ready[n] != 0) ++n;
    return n;
  }

  /// The exclusive call.
  template <class Emit>
  void alone(const State& s, Emit&& emit) const {
    using tail::Exclusive;
    State n = s;
    switch (s.exclusive) {
      case Exclusive::look: {
        if (s.looked == 0) {
          n.seen = s.word;
          n.looked = 1;
          break;
        }
        const bool ok = tail::complete(s.seen, readable(s), kFirst) || without == TailWithout::complete;
        n.exclusive = tail::next(s.exclusive, ok);
        break;
      }
      case Exclusive::take: {
        const bool ok = s.word == s.seen || without == TailWithout::proof;
        if (ok) n.word = s.seen | tail::kExclusive;
        n.exclusive = tail::next(s.exclusive, ok);
        if (ok && has_a_ticket(s)) n.wrong = 4;
        break;
      }
      case Exclusive::alone: {
        std::uint64_t size = tail::index(s.seen);
        if (has_a_ticket(s)) n.wrong = 4;
        if (size != 0 && n.wrong == 0) {
          --size;
          n.value[size] = n.ready[size] = 0;
          --n.appended;
        }
        n.word = tail::word(tail::rounds(s.seen), size);
        n.exclusive = tail::next(s.exclusive, true);
        break;
      }
      case Exclusive::done:
      case Exclusive::refused: return;
    }
    emit(n, Step{static_cast<std::uint16_t>(s.exclusive), 9, 0});
  }

  template <class Emit>
  void step(const State& s, std::uint8_t a, Emit&& emit) const {
    State n = s;
    Actor& x = n.actor[a];
    const std::uint64_t count = elements[a];
    const auto go = [&](const State& to, std::uint8_t detail = 0) {
      emit(to, Step{static_cast<std::uint16_t>(s.actor[a].step), a, detail});
    };
    switch (x.step) {
      case Push::take:
        x.ticket = n.word;
        n.word += count;
        x.step = after(tail::next(judge(x.ticket, count)));
        return go(n);
      case Push::wait: {
        const bool ok = tail::settled(n.word, kFirst);
        if (!ok) return;  // looks again
        x.step = tail::next(Push::wait, ok);
        if (without == TailWithout::new_ticket) {
          x.ticket = tail::word(tail::rounds(n.word), tail::index(x.ticket));
          x.step = after(tail::next(judge(x.ticket, count)));
        }
        return go(n);
      }
      case Push::grow: return grow(n, a, go);
      case Push::values:
      case Push::ready: return write(n, a, go);
      case Push::done:
      case Push::refused: return;
    }
  }
  [[nodiscard]] Push after(Push step) const {
    return step == Push::values && without == TailWithout::values_first ? Push::ready : step;
  }

  template <class Go>
  void grow(State n, std::uint8_t a, const Go& go) const {
    Actor& x = n.actor[a];
    const std::uint64_t count = elements[a];
    if (n.failed == 0) {
      State refused = n;
      refused.failed = 1;
      if (without != TailWithout::restore)
        refused.word = tail::grown(x.ticket, count, tail::rounds(x.ticket));
      refused.actor[a].step = tail::next(Push::grow, false);
      go(refused, 1);
    }
    unsigned rounds = tail::rounds(x.ticket);
    while (tail::capacity(rounds, kFirst) < tail::index(x.ticket) + count) ++rounds;
    if (tail::capacity(n.rounds, kFirst) < tail::capacity(rounds, kFirst)) {  // memory first
      ++n.rounds;
      return go(n);
    }
    n.word = tail::grown(x.ticket, count, rounds);
    x.step = after(tail::next(Push::grow, true));
    go(n);
  }

  template <class Go>
  void write(State n, std::uint8_t a, const Go& go) const {
    Actor& x = n.actor[a];
    const std::uint64_t i = tail::index(x.ticket) + x.written;
    if (i >= kMost || i >= tail::capacity(n.rounds, kFirst)) {
      n.wrong = 2;
      return go(n);
    }
    auto& bytes = x.step == Push::values ? n.value : n.ready;
    if (bytes[i] != 0) n.wrong = 1;
    bytes[i] = 1;
    if (++x.written == elements[a]) {
      x.written = 0;
      const bool early = without == TailWithout::values_first;
      const Push last = early ? Push::values : Push::ready;
      if (x.step == last) {
        n.appended = static_cast<std::uint8_t>(n.appended + elements[a]);
        x = {0, Push::done, 0, {}};
      } else {
        x.step = early ? Push::values : tail::next(x.step, true);
      }
    }
    go(n);
  }
};

constexpr std::array<std::uint8_t, 4> kAppends[] = {
    {1, 1, 1, 0}, {1, 2, 1, 0}, {2, 2, 1, 0}, {1, 1, 1, 1}, {2, 1, 1, 1}};

TEST(Tail, GivesEachElementOnce) {
  for (const auto& elements : kAppends) expect_sound(Tails{.elements = elements});
}

TEST(Tail, EachRuleIsNeeded) {
  expect_needed({TailWithout::values_first, TailWithout::whole, TailWithout::first, TailWithout::restore,
                 TailWithout::new_ticket, TailWithout::complete, TailWithout::proof},
                kAppends, [](TailWithout w, const auto& elements) { return explore(Tails{w, elements}); });
}

TEST(Tail, AnExclusiveCallIsNoticed) {
  EXPECT_EQ(tail::judge(tail::word(3, 1) | tail::kExclusive, 1, 8), Ticket::busy);
  EXPECT_EQ(tail::next(Ticket::busy), Push::refused);
}

}  // namespace
}  // namespace kasane::model
