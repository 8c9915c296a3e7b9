// SPDX-License-Identifier: Apache-2.0
// The ranks of a host that ask each other for room (docs/design/budget.md, "Asks and rings"):
// mem::BasicRoom and mem::BasicBudget as they ship, every access to their words a step (accesses.h), driven
// by pagers that do what dsm::Pager does in a turn, and by threads that wait, fill and empty. The pagers'
// wake-ups, and what may be evicted, belong to the walk.
//
// Checked in each state: there is never more than the total. Where all threads have ended and all pagers
// sleep: no rank asks but for its debt, and for that no rank has room; no rank has a debt that it could pay;
// everything is accounted for. From each state there is a way to such a one: a thread that waits gets its
// room.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "mem/room.h"
#include "model/accesses.h"
#include "model/walk.h"

namespace kasane::model {
namespace {

using mem::BudgetUse;
using mem::Need;
using Room = mem::BasicRoom<WalkedAtomics>;

enum class Without : std::uint8_t {
  none,
  ring_of_who_owes,    ///< a thread that could not be charged does not ring its pager
  ring_of_who_took,    ///< … that was charged with blocks from the host
  ring_of_who_paid,    ///< … that paid the last of a debt, or gave
  ring_of_who_waited,  ///< … that was admitted
  forgetting,          ///< what was put off and never came again is needed for ever
  telling_others,      ///< the pager wakes no other pager
  bell_before_look,    ///< it reads its wake-up count only when it goes to sleep
  relief_before_want,  ///< it takes what is wanted before it takes which threads were relieved
  end_of_ask,          ///< an ask stays
};

enum class Do : std::uint8_t {
  fill,     ///< frames that may leave
  hold,     ///< … that may not: tables, pins
  release,  ///< so many of these
  wait,     ///< until so many may be filled
  perhaps,  ///< likewise; then perhaps not the next: the page came otherwise
  put_off,  ///< likewise; or it never waits again, and does not the next
};
struct Act {
  Do what;
  std::uint8_t blocks;
};
struct Script {
  std::uint8_t rank;
  std::vector<Act> acts;  // four at most
};
struct Program {
  const char* name;
  std::uint8_t ranks, total, low, batch;
  std::vector<Script> threads;  // four at most
  /// a pager that has something unsettled looks again after a while; else the wake-ups must do
  bool naps = false;
  Grain grain = Grain::write;
};

/// The structures under test; their words are where the walk says.
struct Host {
  explicit Host(const Program& p) {
    Accesses::words().clear();
    host = new (memory.data()) Room::Host(p.total, p.ranks);
    for (std::uint32_t r = 0; r < p.ranks; ++r)
      rooms.push_back(std::make_unique<Room>(*host, r, p.low, p.batch));
    std::vector<bool> own(Accesses::words().size());
    for (unsigned r = 0; r < p.ranks; ++r) {
      for (unsigned use = 0; use < mem::kBudgetUses; ++use) own[room(p, r) + kUsed + use] = true;
      own[room(p, r) + kLimitless] = own[room(p, r) + kIdle] = true;  // as they are at first
    }
    own[kIdleRanks] = true;
    Accesses::set_own(std::move(own));
  }
  // In the order of their declaration.
  // the latter two of rank 0; each further rank: + 2
  static constexpr unsigned kAsking = 0, kIdleRanks = 1, kFree = 2, kHeld = 3, kAsked = 4;
  // of room()
  static constexpr unsigned kCredit = 0, kIdle = 1, kUsed = 2, kOwed = kUsed + mem::kBudgetUses,
                            kWanted = kOwed + 1, kLimitless = kOwed + 2, kRoomWords = kOwed + 5;
  static constexpr unsigned kMostWords = 3 + 3 * (2 + kRoomWords);
  static unsigned room(const Program& p, unsigned rank) { return 3 + 2 * p.ranks + rank * kRoomWords; }

  alignas(64) std::array<std::byte, Room::Host::bytes(3)> memory{};
  Room::Host* host;
  std::vector<std::unique_ptr<Room>> rooms;
};

struct Rooms {
  Rooms(const Program& program, Without lacks) : p(program), without(lacks) {
    Lack lack;
    if (lacks == Without::end_of_ask) lack = {Host::kAsking};
    Accesses::set_lack(lack);
    Accesses::save(first_.words);
  }

  struct Thread {
    std::uint8_t act, at;
    Log log;
  };
  struct Pager {
    std::uint8_t at, need, wanted, relieved, left, forgotten, rung;
    std::uint8_t frames, held;  // of the rank: may leave, or not
    Log log;
  };
  struct State {
    std::int8_t words[Host::kMostWords];
    Thread threads[4];
    Pager pagers[3];
  };
  // Places of a thread: calls, and rings after them …
  enum : std::uint8_t { kCall, kRing, kWant, kRingWanted, kRelieve, kRingRelieved };
  // … and of a pager.
  enum : std::uint8_t {
    kSee,
    kTakeFirst,
    kTakeThen,
    kBalance,
    kTell,
    kShort,
    kMore,
    kEvict,
    kRingOwn,
    kBalanceAgain,
    kTellAgain,
    kTurned,
    kAsleep
  };

  State initial() const { return first_; }
  [[nodiscard]] bool circles() const { return true; }
  [[nodiscard]] int word(const State& s, unsigned rank, unsigned which) const {
    return s.words[Host::room(p, rank) + which];
  }
  [[nodiscard]] static int held(const State& s, unsigned rank) { return s.words[Host::kHeld + 2 * rank]; }
  [[nodiscard]] static int asked(const State& s, unsigned rank) { return s.words[Host::kAsked + 2 * rank]; }
  [[nodiscard]] int used(const State& s, unsigned rank) const {
    int sum = 0;
    for (unsigned use = 0; use < mem::kBudgetUses; ++use) sum += word(s, rank, Host::kUsed + use);
    return sum;
  }

  [[nodiscard]] bool unsettled(const State& s, unsigned rank) const {
    Log log{};
    bool is = false;
    Accesses::load(s.words);
    Accesses::step(log, Grain::call, [&] { is = host->rooms[rank]->unsettled(); });
    return is;
  }
  /// Would it help to look again?
  [[nodiscard]] bool payable(const State& s, unsigned rank) const {
    for (unsigned r = 0; r < p.ranks; ++r)
      if (s.pagers[r].frames != 0 && (r == rank || held(s, r) > p.total / p.ranks)) return true;
    // the former: the request is to end
    return word(s, rank, Host::kOwed) == 0 || (s.words[Host::kFree] != 0 && s.words[Host::kAsking] == 0);
  }
  bool finished(const State& s) const {
    for (std::size_t t = 0; t < p.threads.size(); ++t)
      if (s.threads[t].act < p.threads[t].acts.size()) return false;
    for (unsigned r = 0; r < p.ranks; ++r)
      if (s.pagers[r].at != kAsleep || s.pagers[r].rung || (p.naps && unsettled(s, r) && payable(s, r)))
        return false;
    return true;
  }
  const char* violation(const State& s) const {
    int sum = s.words[Host::kFree], asking = 0;
    for (unsigned r = 0; r < p.ranks; ++r) sum += held(s, r);
    if (s.words[Host::kFree] < 0 || sum > p.total) return "more than the total";
    for (unsigned r = 0; r < p.ranks; ++r)
      if (used(s, r) + word(s, r, Host::kCredit) > held(s, r)) return "used, and not held";
    if (!finished(s)) return nullptr;
    const int share = p.total / p.ranks;
    if (sum != p.total) return "less than the total";
    for (unsigned r = 0; r < p.ranks; ++r) {
      const int owed = word(s, r, Host::kOwed), credit = word(s, r, Host::kCredit);
      const bool below = held(s, r) + owed <= share;
      asking += asked(s, r) != 0;
      if (used(s, r) + owed != s.pagers[r].frames + s.pagers[r].held) return "filled, and not charged";
      if (asked(s, r) != 0 && owed == 0) return "an ask that nobody needs";
      if (owed == 0) continue;
      if (credit != 0) return "owed, with credit";
      if (below && asked(s, r) == 0) return "owed, and not asked for";
      if (s.words[Host::kFree] != 0 && (below || p.naps)) return "owed, with free blocks";
      for (unsigned other = 0; other < p.ranks; ++other)
        if (below && held(s, other) > share && word(s, other, Host::kCredit) != 0)
          return "owed, and another rank has credit";
    }
    return asking == s.words[Host::kAsking] ? nullptr : "asking is not the number of those who ask";
  }

  std::string name(const Step& x) const {
    static constexpr const char* kAt[] = {
        "sees its bell", "takes",          "takes the other",   "balances",
        "tells",         "is short?",      "is short of more?", "evicts",
        "rings itself",  "balances again", "tells again",       "has turned",
        "wakes"};
    if (x.actor >= 4)
      return "pager " + std::to_string(x.actor - 4) + " " + kAt[x.detail] + (x.kind ? " …" : "");
    static constexpr const char* kDo[] = {"call", "ring", "want", "ring", "relieve", "ring", "end the ask"};
    return "thread " + std::to_string(x.actor) + " " + kDo[x.detail] + (x.kind ? " …" : "");
  }
  std::string show(const State& s) const {
    std::string text = std::string(p.name) + ": free " + std::to_string(s.words[Host::kFree]) + " asking " +
                       std::to_string(s.words[Host::kAsking]);
    for (unsigned r = 0; r < p.ranks; ++r)
      text += "; rank " + std::to_string(r) + " held " + std::to_string(held(s, r)) + " asked " +
              std::to_string(asked(s, r)) + " credit " + std::to_string(word(s, r, Host::kCredit)) +
              " owed " + std::to_string(word(s, r, Host::kOwed)) + " need " +
              std::to_string(s.pagers[r].need) + " frames " + std::to_string(s.pagers[r].frames) + " + " +
              std::to_string(s.pagers[r].held) + " at " + std::to_string(s.pagers[r].at);
    for (std::size_t t = 0; t < p.threads.size(); ++t)
      text += "; thread " + std::to_string(t) + " at act " + std::to_string(s.threads[t].act);
    return text;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t t = 0; t < p.threads.size(); ++t) step_thread(s, t, emit);
    for (std::uint8_t r = 0; r < p.ranks; ++r) step_pager(s, r, emit);
  }

 private:
  const Program& p;
  const Without without;
  const std::unique_ptr<Host> host = std::make_unique<Host>(p);
  State first_{};

  [[nodiscard]] bool lacks(Without rule) const { return without == rule; }

  /// A call's next access in n. then(what it returned): when it has ended.
  template <class Call, class Then, class Emit>
  void call(State& n, Log& log, Step label, Emit& emit, const Call& call, const Then& then,
            bool whole = false) const {
    Accesses::load(n.words);
    std::uint64_t returned = 0;
    const bool ended = Accesses::step(log, whole ? Grain::call : p.grain,
                                      [&] { returned = static_cast<std::uint64_t>(call()); });
    Accesses::save(n.words);
    if (ended) return then(returned);
    label.kind = 1;
    emit(n, label);
  }

  template <class Emit>
  void step_thread(const State& s, std::uint8_t t, Emit&& emit) const {
    const Script& script = p.threads[t];
    if (s.threads[t].act == script.acts.size()) return;
    const Act act = script.acts[s.threads[t].act];
    State n = s;
    Thread& me = n.threads[t];
    Pager& pager = n.pagers[script.rank];
    Room& room = *host->rooms[script.rank];
    const Step label{0, t, me.at};
    const auto go = [&](std::uint8_t at) {
      me.at = at;
      emit(n, label);
    };
    const auto next_act = [&](unsigned acts) {
      me.act = static_cast<std::uint8_t>(std::min<std::size_t>(me.act + acts, script.acts.size()));
      go(kCall);
    };
    switch (me.at) {
      case kCall: break;
      case kRing: pager.rung = 1; return next_act(1);
      case kWant:
        return call(
            n, me.log, label, emit, [&] { return room.want(act.blocks); },
            [&](std::uint64_t ring) { go(ring ? kRingWanted : kCall); });
      case kRingWanted: pager.rung = 1; return go(kCall);
      case kRelieve:
        return call(
            n, me.log, label, emit, [&] { return room.note_relieved(), 0; },
            [&](std::uint64_t) { go(kRingRelieved); });
      case kRingRelieved:
        pager.rung |= !lacks(Without::ring_of_who_waited);
        if (act.what != Do::wait) {
          State other = n;
          std::swap(n, other);
          next_act(2);
          std::swap(n, other);
        }
        return next_act(1);
    }
    switch (act.what) {
      case Do::fill:
      case Do::hold:
        return call(
            n, me.log, label, emit, [&] { return room.charge(BudgetUse::owned, act.blocks); },
            [&](std::uint64_t ring) {
              (act.what == Do::fill ? pager.frames : pager.held) += act.blocks;
              const bool owes = word(n, script.rank, Host::kOwed) != 0;
              if (lacks(owes ? Without::ring_of_who_owes : Without::ring_of_who_took)) ring = 0;
              ring ? go(kRing) : next_act(1);
            });
      case Do::release:
        return call(
            n, me.log, label, emit, [&] { return room.pay(BudgetUse::owned, act.blocks); },
            [&](std::uint64_t ring) {
              pager.held -= act.blocks;
              ring && !lacks(Without::ring_of_who_paid) ? go(kRing) : next_act(1);
            });
      default:
        return call(
            n, me.log, label, emit, [&] { return room.admitted(act.blocks); },
            [&](std::uint64_t admitted) {
              if (admitted) return go(kRelieve);
              if (act.what == Do::put_off) {
                State other = n;
                std::swap(n, other);
                next_act(2);
                std::swap(n, other);
              }
              go(kWant);
            },
            true);
    }
  }

  template <class Emit>
  void step_pager(const State& s, std::uint8_t rank, Emit&& emit) const {
    State n = s;
    Pager& me = n.pagers[rank];
    Room& room = *host->rooms[rank];
    const Step label{0, static_cast<std::uint8_t>(4 + rank), me.at};
    const auto go = [&](std::uint8_t at) {
      me.at = at;
      emit(n, label);
    };
    const auto balance = [&](std::uint8_t tell, std::uint8_t on) {
      call(
          n, me.log, label, emit, [&] { return room.balance(me.need); },
          [&](std::uint64_t others) { go(others ? tell : on); });
    };
    const auto tell = [&](std::uint8_t on) {
      for (unsigned r = 0; r < p.ranks; ++r)
        if (r != rank && !lacks(Without::telling_others)) n.pagers[r].rung = 1;
      go(on);
    };
    const auto take = [&](bool first, std::uint8_t on) {
      const bool relieved = first != lacks(Without::relief_before_want);
      call(
          n, me.log, label, emit,
          [&] { return relieved ? std::uint64_t{room.take_relieved()} : room.take_wanted(); },
          [&](std::uint64_t took) {
            (relieved ? me.relieved : me.wanted) = static_cast<std::uint8_t>(took);
            if (!first) {
              me.need =
                  static_cast<std::uint8_t>(Need{me.need}.next(me.wanted, me.relieved, me.forgotten).blocks);
              me.relieved = me.forgotten = 0;
            }
            go(on);
          });
    };
    switch (me.at) {
      case kSee:
        if (!lacks(Without::bell_before_look)) me.rung = 0;
        return go(kTakeFirst);
      case kTakeFirst: return take(true, kTakeThen);
      case kTakeThen: return take(false, kBalance);
      case kBalance: return balance(kTell, kShort);
      case kTell: return tell(kShort);
      case kShort:
        return call(
            n, me.log, label, emit, [&] { return room.short_of(std::max<std::uint64_t>(p.low, me.wanted)); },
            [&](std::uint64_t blocks) { go(blocks ? kMore : kTurned); }, true);
      case kMore:
        return call(
            n, me.log, label, emit,
            [&] { return room.short_of(std::max<std::uint64_t>(2 * p.low, me.wanted)); },
            [&](std::uint64_t blocks) { go(blocks && me.frames ? kEvict : kTurned); }, true);
      case kEvict:
        return call(
            n, me.log, label, emit, [&] { return room.pay(BudgetUse::owned, 1); },
            [&](std::uint64_t ring) {
              --me.frames;
              me.left = 1;
              go(ring ? kRingOwn : kBalanceAgain);
            });
      case kRingOwn: me.rung = 1; return go(kBalanceAgain);
      case kBalanceAgain: return balance(kTellAgain, kMore);
      case kTellAgain: return tell(kMore);
      case kTurned: {
        const bool left = std::exchange(me.left, 0);
        me.wanted = 0;
        if (!left && lacks(Without::bell_before_look)) me.rung = 0;
        return go(left ? kSee : kAsleep);
      }
      default:
        if (me.rung) return go(kSee);
        if (!p.naps || !unsettled(s, rank)) return;
        me.forgotten = !lacks(Without::forgetting);
        return go(kSee);
    }
  }
};

std::vector<Program> programs() {
  using enum Do;
  return {
      {"one rank uses everything, another one owes",
       2,
       2,
       0,
       1,
       {{0, {{fill, 2}}}, {1, {{hold, 1}}}},
       true,
       Grain::access},
      {"one takes while another one asks", 2, 2, 0, 1, {{0, {{fill, 1}, {fill, 1}}}, {1, {{hold, 1}}}}},
      {"who owes gives it up itself", 2, 2, 0, 1, {{0, {{hold, 2}}}, {1, {{hold, 1}, {release, 1}}}}},
      {"… and another one wants more than its share",
       2,
       7,
       0,
       1,
       {{0, {{hold, 4}, {wait, 1}, {hold, 1}}}, {1, {{hold, 3}, {release, 3}}}},
       false,
       Grain::call},
      {"one waits for what another one has",
       2,
       2,
       0,
       1,
       {{0, {{fill, 2}}}, {1, {{wait, 1}, {fill, 1}}}},
       false,
       Grain::call},
      {"… and perhaps does not need it",
       2,
       3,
       0,
       1,
       {{0, {{fill, 3}, {wait, 2}}}, {1, {{perhaps, 1}, {fill, 1}}}},
       false,
       Grain::call},
      {"… or is put off", 2, 2, 0, 1, {{0, {{fill, 2}}}, {1, {{put_off, 1}, {fill, 1}}}}, true, Grain::call},
      {"a thread owes while one waits",
       2,
       4,
       0,
       1,
       {{0, {{fill, 4}}}, {1, {{hold, 1}}}, {1, {{wait, 1}, {fill, 1}}}},
       false,
       Grain::call},
      {"three ranks",
       3,
       3,
       0,
       1,
       {{0, {{fill, 3}}}, {1, {{hold, 1}}}, {2, {{wait, 1}, {fill, 1}}}},
       false,
       Grain::call},
      {"who has all gives it up", 2, 4, 0, 1, {{0, {{hold, 4}, {release, 4}}}, {1, {{hold, 1}}}}},
      {"one takes more than it fills", 2, 2, 0, 2, {{0, {{fill, 1}}}, {1, {{hold, 1}}}}},
      {"one waits for what another one has, write by write",
       2,
       2,
       0,
       1,
       {{0, {{fill, 2}}}, {1, {{wait, 1}, {fill, 1}}}}},
  };
}

constexpr Bounds kBounds{.states = 4'000'000};

Outcome walk(const Program& p, Without without = Without::none) {
  return explore(Rooms(p, without), kBounds);
}

// Who waits gets room, and no ask stays.
INSTANTIATE_TEST_SUITE_P(Room, Walks, testing::ValuesIn(walks(programs())), by_name);

void expect_needed_here(std::initializer_list<Without> rules) {
  expect_needed(rules, programs(), [](Without without, const Program& p) { return walk(p, without); });
}
TEST(Room, EachRuleIsNeeded) {
  expect_needed_here({Without::ring_of_who_owes, Without::ring_of_who_paid, Without::ring_of_who_waited,
                      Without::forgetting, Without::telling_others, Without::bell_before_look,
                      Without::relief_before_want, Without::end_of_ask});
}
TEST(Room, TheRingOfWhoTookIsNeeded) { expect_needed_here({Without::ring_of_who_took}); }

}  // namespace
}  // namespace kasane::model
