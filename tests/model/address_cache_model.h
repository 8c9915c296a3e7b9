// SPDX-License-Identifier: Apache-2.0
// Coherent address caches as a System for the explorer: workers of several ranks get and put the two cells of
// one page through their ranks' entries while others move the page. Every decision comes from the shipping
// functions gas::next(AddressEntry, …), gas::filled, gas::begin_move, gas::end_move, gas::begin_evict,
// gas::end_evict, gas::end_page_in, gas::page_in_from, gas::hands_over, gas::readable, gas::keepable,
// gas::stood and gas::RankCode. This file adds the machine around them: the directory words, messages,
// frames, and puts under way, in the order in which address_cache.cpp, direct_access.cpp and mover.cpp take
// the steps, each step on its own.
//
// A step is what others can observe half-done: one look at or change of an entry or a directory word, one
// recall handled, one cell read, one put landing, the end of its use. Recalls arrive in any order. What V has
// of a page belongs to the other model (coherence_model.h).
//
// Oracle: each cell has one writer, which puts 1, 2, 3, …. A get must return at least what had landed when it
// began (so single-writer cells are linearizable), and nothing that was not put.
//
// What other actors cannot see is no step of its own, if that makes the check no weaker: a get begins with
// its first look, when most has landed; a put is issued, lands and is complete at once.
//
// A page's owner may evict it: its bytes go to a disk, cell by cell, and its frame is punched, cell by cell.
// An actor that meets a page on SSD asks the owner to page it in; the owner's service does so, and answers
// with word 0 as it has left it, which the actor takes for what it has found. A put of both cells that meets
// the page on SSD hands them over: the owner's service makes them the page's instead of those on the disk,
// cell by cell, while the page is busy.
//
// Abstractions: the owner's answer to a yield belongs to the other model; here a move may be scripted to be
// refused. A waiting worker is disabled until what it waits for has changed. Numbers of recalls (stamp) and
// versions do not wrap. A frame that the page has left stays as it is, unless it was evicted from there.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "gas/address_cache_protocol.h"
#include "gas/rank_code.h"
#include "gas/relocation.h"
#include "model/explorer.h"

namespace kasane::model::addresses {

/// Which rule the walk leaves out. The shipping code knows nothing of this.
enum class Mutation : std::uint8_t {
  none,
  answered_early,       ///< the owner answers when the page is marked, not when it has come
  answer_kept_blindly,  ///< the owner's answer fills an entry that was recalled meanwhile
  no_wait_for_uses,     ///< a recall that meets uses is answered at once
  no_wait_for_answers,  ///< the mover sends recalls and goes on
  no_stamp,             ///< word 0 is believed whatever the stamp of word 2 says
  stamp_with_mark,      ///< the stamp is raised when the page is marked busy, before the holders are taken
  stamp_at_end,         ///< … when the move ends
  no_register,          ///< the bit is not set at all
  /// a recall that meets no entry does not count: a location read before it becomes valid after it
  recall_while_filling,
  /// a put begins through an entry that is leaving (safe: the mover waits for it too, but perhaps for ever)
  put_through_leaving,
  swap_before_busy,        ///< the mover takes the holders before it marks the page busy
  ask_before_busy,         ///< it asks those that it saw before the mark, and does not ask them again
  ask_only_the_seen,       ///< it asks only the holders that it saw together with the mark
  fill_while_busy,         ///< word 0 is taken for valid though the page moves
  put_while_busy,          ///< a put that meets busy goes on uncounted, as a read does
  own_entry_forgotten,     ///< the mover does not recall its own rank's entry
  own_entry_not_awaited,   ///< … does not wait for the uses of it
  ask_other_bits,          ///< of the holders that it takes it asks those whose bits it had not all seen
  group_forgotten,         ///< one rank of the holder bit's ranks is asked, not all
  filler_not_counted,      ///< the put that filled the entry is not a use of it
  use_ends_early,          ///< the use ends before the put has completed
  no_second_look,          ///< a read does not look whether its page was still there when the bytes came
  second_look_by_state,    ///< … only at the state of its entry, not at its stamp
  version_not_bumped,      ///< an eviction leaves the version as it was
  tier_after_punch,        ///< word 0 says ssd only when the frame is punched
  evict_without_recall,    ///< holders are not asked to forget a page that is evicted
  evict_undrained,         ///< the evictor's own puts are not awaited
  fill_from_ssd,           ///< the location of a page on SSD is kept
  put_leaves_untouched,    ///< a put to an untouched page does not say that it is touched
  merge_leaves_untouched,  ///< a copy that is kept is merged with the bytes of an untouched page
  untouched_is_kept,       ///< the location of an untouched page is kept
  touch_without_look,      ///< a rank that faults takes the page without data, though another was faster
  move_from_ssd,           ///< a mover takes a page on SSD from the owner's frame
  last_use_keeps_silent,   ///< the thread that ends the last use sends no answer
  takes_without_look,      ///< the manager takes the holders of a page that moves already, too
  watched_not_awaited,     ///< a mover that has taken a location back directly does not wait for the uses
  handed_unread,           ///< the owner of a page that is put as a whole makes it readable before the put
  handed_unmarked,         ///< … does not mark it while it takes the bytes
  handed_in_part,          ///< a put of one cell hands over both
  handed_for_granted,      ///< a put does not look whether the owner has taken its bytes
};

enum class Do : std::uint8_t {
  get,
  near_get,
  put,
  put_all,
  merge,
  own,
  own_refused,
  evict,
  touch,
  assign,
  end
};

struct Instr {
  Do what = Do::end;
  std::uint8_t cell = 0;  ///< assign: the rank that is named
  std::uint8_t value = 0;
};
inline Instr get() { return {Do::get}; }            ///< both cells, one after the other
inline Instr near_get() { return {Do::near_get}; }  ///< by word 0 alone, where the directory is mapped
inline Instr touch() { return {Do::touch}; }        ///< a fault on a page that was allocated untouched
inline Instr evict() { return {Do::evict}; }        ///< if the page is here
inline Instr put(int cell, int value) {
  return {Do::put, static_cast<std::uint8_t>(cell), static_cast<std::uint8_t>(value)};
}
inline Instr put_all(int value) {
  return {Do::put_all, 0, static_cast<std::uint8_t>(value)};
}  ///< both cells
/// A copy of the page that is kept is merged with its bytes, then changed; a put sends what differs. It is
/// begun and ended even if nothing does.
inline Instr merge(int cell, int value) {
  return {Do::merge, static_cast<std::uint8_t>(cell), static_cast<std::uint8_t>(value)};
}
inline Instr own() { return {Do::own}; }
inline Instr own_refused() { return {Do::own_refused}; }  ///< the owner answers retry or pinned
/// the page has no owner yet
inline Instr assign(int rank) { return {Do::assign, static_cast<std::uint8_t>(rank)}; }

struct Script {
  std::uint8_t rank = 0;
  std::vector<Instr> code;
};

struct Program {
  std::vector<Script> workers;
  bool allocated = true;  ///< with rank 0 as its owner
  bool untouched = false;
  bool spilled = false;  ///< on SSD, where both cells are 1
  bool left = false;     ///< untouched: the first cell of rank 0's frame is 1, as it was before it was freed
  bool budget = false;   ///< a page that is touched for its owner begins on SSD, with what its file has
  gas::RankCode code{8, 8};                     ///< how holders are named …
  std::array<std::uint8_t, 3> number{0, 1, 2};  ///< … each by the number it would have in a larger job
  /// the manager marks the page and takes its holders in one step, for any rank that asks it
  bool by_message = false;
  /// ranks whose entries every mover can change directly, a bit each; its own rank's it always can
  std::uint8_t reach = 0;
  Mutation without = Mutation::none;
};

/// R ranks, W workers in all.
template <std::uint8_t R, std::uint8_t W>
class Addresses {
  using Event = gas::AddressEvent;
  using Action = gas::AddressAction;
  static constexpr std::uint8_t kCells = 2, kHandedStep = 8, kDiffers = 1, kSame = 2;

  struct Entry {
    std::uint8_t state, owner, uses, stamp;  // owner + 1
  };
  struct Actor {
    std::uint8_t pc, stage;
    std::uint8_t owner;          // to read from or to put to; of a move: the old one. + 1
    std::uint8_t version;        // of a move: of word 0 as it was read
    std::uint8_t stamp;          // of the entry as the fill began
    std::uint8_t cell, counted;  // of a get; of a put
    std::uint8_t floor[kCells];  // of a get
    std::uint8_t read[kCells];
    std::uint8_t merged;                              // of a merge: kDiffers or kSame, when it has read
    std::uint8_t by_entry, seen_state, seen_version;  // of a get: how it found the page
    std::uint8_t heard;                               // of a fill: which of its two answers are here
    std::uint8_t bit_stamp;                           //            of word 2 when the bit was set
    std::uint8_t busy, tier, untouched;               //            word 0, whose owner and version are above
    std::uint8_t by_answer;  //            this is the answer of the owner that was asked
    // of a move: the holders that it saw together with the mark; whether it has looked
    std::uint8_t peeked, seen;
    std::uint8_t holders, awaited;  // ranks to be asked; ranks that have not answered
  };

 public:
  struct State {
    std::uint8_t owner, busy, version, tier, untouched, holders, stamp;  // words 0 and 2; owner + 1
    std::uint8_t disk[kCells];
    // an actor asks the owner to page the page in; how far the owner is with it
    std::uint8_t wanted, service;
    // the actor whose bytes are handed over, or were just now answered, + 1; the answer: 1 taken, 2 not
    std::uint8_t handed, taken;
    Entry entry[R];
    std::uint8_t recall[R];  // under way to the rank: mover's worker + 1
    std::uint8_t kept[R];    // the worker that is answered when the uses are over, + 1
    std::uint8_t frame[R][kCells];
    std::uint8_t copied;  // the mover has read a byte of the old frame
    std::uint8_t complete[kCells];
    Actor actor[W];
  };

  explicit Addresses(Program program) : program_(std::move(program)) {}

  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    s.owner = program_.allocated ? 1 : 0;
    s.untouched = program_.untouched;
    s.frame[0][0] = program_.left;
    if (program_.spilled) {
      put_word0(s, gas::in_tier(word0(s), gas::Tier::ssd));
      std::fill_n(s.disk, kCells, 1);
      std::fill_n(s.complete, kCells, 1);
    }
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < W; ++a) step(s, a, emit);
    for (std::uint8_t r = 0; r < R; ++r)
      if (s.recall[r] != 0) on_recall(s, r, emit);
    if (s.wanted || (s.handed != 0 && s.taken == 0)) bring_in(s, emit);
  }

  /// A mutant is judged by what gets see, by lost puts and by deadlock, not by the protocol's own invariants.
  const char* violation(const State& s) const {
    for (std::uint8_t r = 0; r < R && without(Mutation::none); ++r) {
      const gas::AddressEntry e = entry(s, r);
      if (!e.check()) return "an entry breaks check()";
      if (e.owner == kNoRank || s.busy) continue;
      if (raw(e.owner) + 1 != s.owner) return "an entry names a rank that is not the owner";
      if (!names(s.holders, r)) return "an entry whose rank is no holder";
    }
    if (without(Mutation::none) && !s.busy && s.stamp != s.version)
      return "the stamp of a page that does not move is not its version";
    if (!finished(s)) return nullptr;
    if (s.busy) return s.service != 0 ? nullptr : "the page stays busy";
    for (std::uint8_t r = 0; r < R; ++r)
      if (s.entry[r].uses != 0) return "a use stays counted";
    for (std::uint8_t c = 0; c < kCells; ++c)
      if (s.owner != 0 && (s.tier != 0 ? s.disk[c] : s.frame[s.owner - 1][c]) != s.complete[c])
        return "a put is lost at the end";
    return nullptr;
  }

  bool finished(const State& s) const {
    for (std::uint8_t a = 0; a < W; ++a)
      if (s.actor[a].pc < program_.workers[a].code.size()) return false;
    return true;
  }

  std::string name(const Step& step) const {
    static constexpr const char* kWords[] = {"looks at its rank's entry",
                                             "sets its rank's bit",
                                             "reads word 0",
                                             "fills the entry",
                                             "finds the entry recalled or filled",
                                             "finds the page moving",
                                             "reads cell",
                                             "'s put lands",
                                             "ends its use",
                                             "ends its use and answers",
                                             "move: looks at the holders",
                                             "move: nothing to do",
                                             "finds that its page stood",
                                             "begins again",
                                             "asks the owner to bring the page in",
                                             "touches the page",
                                             "evict: word 0 says so",
                                             "evict: writes cell",
                                             "evict: punches cell",
                                             "evict: has ended",
                                             "move: marks the page busy",
                                             "move: asks those that it saw",
                                             "move: takes the holders",
                                             "move: recalls its own rank's entry",
                                             "move: all have answered",
                                             "move: copies cell",
                                             "move: names the owner",
                                             "move: the owner refused",
                                             "assigns the page",
                                             "hands the page's bytes over to the owner",
                                             "hears whether they were taken"};
    if (step.kind == kService1)
      return "rank " + std::to_string(step.actor) + " brings the page in: step " +
             std::to_string(step.detail);
    if (step.kind == kRecall)
      return "rank " + std::to_string(step.actor) +
             " handles a recall: " + (step.detail != 0 ? "kept" : "answered");
    return "worker " + std::to_string(step.actor) + " (rank " +
           std::to_string(program_.workers[step.actor].rank) + ") " + kWords[step.kind] + " " +
           std::to_string(step.detail);
  }

  std::string show(const State& s) const {
    std::string t = "word 0: owner " + std::to_string(s.owner - 1) + (s.busy ? " busy" : "") +
                    (s.tier ? " on SSD" : "") + " version " + std::to_string(s.version) + ", holders " +
                    std::to_string(s.holders) + " stamp " + std::to_string(s.stamp) + ", complete " +
                    std::to_string(s.complete[0]) + "," + std::to_string(s.complete[1]);
    for (std::uint8_t r = 0; r < R; ++r) {
      static constexpr const char* kStates[] = {"none", "valid", "leaving", "watched"};
      const Entry& e = s.entry[r];
      t += " | rank " + std::to_string(r) + " " + kStates[e.state] + " owner " + std::to_string(e.owner - 1) +
           " uses " + std::to_string(e.uses) + (s.recall[r] ? " recall under way" : "") + " frame " +
           std::to_string(s.frame[r][0]) + "," + std::to_string(s.frame[r][1]);
    }
    for (std::uint8_t a = 0; a < W; ++a)
      t += " | worker " + std::to_string(a) + " at " + std::to_string(s.actor[a].pc) + "." +
           std::to_string(s.actor[a].stage);
    return t;
  }

 private:
  enum StepKind : std::uint16_t {
    kLook,
    kRegister,
    kRead0,
    kFill,
    kRecalled,
    kMoving,
    kReadCell,
    kLand,
    kEnd,
    kEndAnswer,
    kPeek,
    kMoveNothing,
    kStood,
    kAgain,
    kAskOwner,
    kTouch,
    kLeaving,
    kWrite,
    kPunch,
    kEvicted,
    kMark,
    kAsk,
    kTake,
    kOwnEntry,
    kAnswered,
    kCopy,
    kName,
    kRefused,
    kAssign,
    kHandOver,
    kTaken,
    kRecall = 0x100,
    kService1 = 0x200,
  };
  enum Stage : std::uint8_t {
    kStart,
    kLooking,      // at the entry
    kRegistering,  // fill: the bit and word 0
    kFilling,      //       the entry
    kPaused,       // a put that met a moving page
    kTouching,     // a put, to an untouched page
    kLookingNear,  // a near get
    kReadingCells,
    kLookingAgain,
    kAsked,    // the owner, to bring the page in
    kHanding,  // a put of the whole page: to the owner
    kPutting,  // under way, until it has completed
    kEnding,
    kMarking,    // a move: busy, after word 2 was looked at
    kPeeking,    //         the other way round
    kUnmarking,  //         it was here already
    kAsking,     // the holders that word 2 named
    kTaking,     //         word 2
    kRecallingOwn,
    kAwaiting,
    kCopying,
    kNaming,
    kDeclaring,  // an eviction: busy and on SSD
    kWriting,
    kPunching,
    kUnwanted,  // a move of a page on SSD: the mark goes away, then the owner is asked
    kAsking2,
  };
  enum Heard : std::uint8_t { kBit = 1, kWord0 = 2, kBoth = 3 };

  [[nodiscard]] bool without(Mutation m) const noexcept { return program_.without == m; }
  [[nodiscard]] const Instr& instr(const State& s, std::uint8_t a) const noexcept {
    static constexpr Instr kEndInstr{};
    const auto& code = program_.workers[a].code;
    return s.actor[a].pc < code.size() ? code[s.actor[a].pc] : kEndInstr;
  }
  [[nodiscard]] std::uint8_t bit(std::uint8_t r) const noexcept {
    return static_cast<std::uint8_t>(program_.code.of(Rank{program_.number[r]}));
  }
  [[nodiscard]] bool names(std::uint8_t holders, std::uint8_t r) const noexcept {
    return program_.code.names(holders, Rank{program_.number[r]});
  }
  static gas::AddressEntry entry(const State& s, std::uint8_t r) noexcept {
    const Entry& e = s.entry[r];
    return {static_cast<gas::AddressState>(e.state), e.owner != 0 ? Rank{e.owner - 1u} : kNoRank, e.uses,
            e.stamp};
  }
  static void put_entry(State& s, std::uint8_t r, const gas::AddressEntry& e) noexcept {
    s.entry[r] = {static_cast<std::uint8_t>(e.state),
                  static_cast<std::uint8_t>(e.owner != kNoRank ? raw(e.owner) + 1 : 0),
                  static_cast<std::uint8_t>(e.uses), static_cast<std::uint8_t>(e.stamp)};
  }
  /// of: State or Actor
  template <class Of>
  static gas::Location location(const Of& of, std::uint8_t version) noexcept {
    return {of.owner != 0,
            of.owner != 0 ? Rank{of.owner - 1u} : kNoRank,
            static_cast<gas::Tier>(of.tier),
            of.busy != 0,
            version,
            of.untouched != 0};
  }
  static gas::Location word0(const State& s) noexcept { return location(s, s.version); }
  static void put_word0(State& s, const gas::Location& l) noexcept {
    s.owner = static_cast<std::uint8_t>(raw(l.owner) + 1);
    s.busy = l.busy;
    s.tier = static_cast<std::uint8_t>(l.tier);
    s.untouched = l.untouched;
    s.version = static_cast<std::uint8_t>(l.version);
  }
  static void next_instr(State& n, std::uint8_t a) noexcept {
    const auto pc = static_cast<std::uint8_t>(n.actor[a].pc + 1);
    n.actor[a] = Actor{};
    n.actor[a].pc = pc;
  }

  template <class Emit>
  void step(const State& s, std::uint8_t a, Emit&& emit) const {
    switch (instr(s, a).what) {
      case Do::get:
      case Do::near_get: return access(s, a, Event::read, emit);
      case Do::put:
      case Do::put_all: return access(s, a, Event::put, emit);
      case Do::merge: return access(s, a, s.actor[a].merged != 0 ? Event::put : Event::read, emit);
      case Do::touch: return touch(s, a, emit);
      case Do::evict:
      case Do::own:
      case Do::own_refused: return move(s, a, emit);
      case Do::assign: {
        if (s.owner != 0) return;
        State n = s;
        put_word0(n, {true, Rank{instr(s, a).cell}, gas::Tier::dram, false, s.version});
        next_instr(n, a);
        return emit(n, Step{kAssign, a, instr(s, a).cell});
      }
      case Do::end: return;
    }
  }

  // ---- get and put, as gas/address_cache.cpp and gas/direct_access.cpp
  // -------------------------------------

  template <class Emit>
  void access(const State& s, std::uint8_t a, Event event, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const Instr& i = instr(s, a);
    const std::uint8_t me = program_.workers[a].rank;
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](Stage stage, std::uint16_t kind, std::uint8_t detail = 0) {
      y.stage = stage;
      emit(n, Step{kind, a, detail});
    };
    const Stage going = event == Event::read ? kReadingCells : kPutting;
    const bool whole = i.what == Do::put_all || (i.what == Do::put && without(Mutation::handed_in_part));
    switch (x.stage) {
      case kStart:  // no step of its own: the later a get begins, the more it must see
        if (event == Event::read) std::copy_n(s.complete, kCells, y.floor);
        y.stage = i.what == Do::near_get ? kLookingNear : kLooking;
        return access(n, a, event, emit);
      case kLookingNear:
        if (!gas::readable(word0(s))) {
          y.heard = 0;
          return to(kAsked, kMoving);
        }
        found_by_word0(s, y);
        return to(kReadingCells, kRead0, y.owner);
      case kLooking: {
        const gas::AddressEntry e = entry(s, me);
        gas::AddressStep step = gas::next(e, event);
        if (without(Mutation::put_through_leaving) && step.action == Action::wait) {
          step = {Action::go, e};
          ++step.after.uses;
        }
        if (step.action == Action::wait) return;
        if (step.action == Action::fill) {
          y.stamp = static_cast<std::uint8_t>(e.stamp);
          return to(kRegistering, kLook);
        }
        put_entry(n, me, step.after);
        y.owner = static_cast<std::uint8_t>(raw(step.after.owner) + 1);
        y.counted = event == Event::put;
        if (event == Event::read) found_by_entry(e, y);
        return to(going, kLook, y.owner);
      }
      case kRegistering: {  // two operations at once, in either order
        const auto hear = [&](Heard what, std::uint16_t kind, std::uint8_t detail) {
          y.heard = static_cast<std::uint8_t>(x.heard | what);
          to(y.heard == kBoth ? believe(y, i, event, whole) : kRegistering, kind, detail);
          n = s;
        };
        if ((x.heard & kBit) == 0) {
          if (!without(Mutation::no_register)) n.holders = static_cast<std::uint8_t>(n.holders | bit(me));
          y.bit_stamp = s.stamp;
          hear(kBit, kRegister, n.holders);
        }
        if ((x.heard & kWord0) == 0) {
          found_by_word0(s, y);
          y.busy = s.busy;
          y.tier = s.tier;
          y.untouched = s.untouched;
          hear(kWord0, kRead0, s.owner);
        }
        return;
      }
      case kTouching: {  // a compare-swap
        gas::Location seen = word0(s);
        const bool same = seen.untouched && !seen.busy && s.version == x.seen_version && s.owner == x.owner;
        if (same)
          put_word0(n,
                    program_.budget ? gas::in_tier(gas::touched(seen), gas::Tier::ssd) : gas::touched(seen));
        start_again(y);
        return to(kLooking, kTouch, same);
      }
      case kPaused:
        if (s.busy || s.owner == 0) return;
        y.owner = 0;
        y.stamp = 0;
        return to(kLooking, kLook);
      case kFilling: {
        const gas::AddressEntry before{gas::AddressState::none, kNoRank, 0, x.stamp};
        const bool blindly = without(Mutation::answer_kept_blindly) && x.by_answer;
        if (entry(s, me) != before && !blindly) {
          y.stamp = 0;
          y.by_answer = 0;
          if (event == Event::read) return to(kReadingCells, kRecalled);
          y.owner = 0;
          return to(kLooking, kRecalled);
        }
        const gas::AddressEntry full = gas::filled(
            before, Rank{x.owner - 1u}, without(Mutation::filler_not_counted) ? Event::read : event);
        put_entry(n, me, full);
        y.by_answer = 0;
        if (event == Event::read) found_by_entry(full, y);
        if (event == Event::put) y.stamp = 0;
        y.counted = event == Event::put && !without(Mutation::filler_not_counted);
        return to(going, kFill, y.owner);
      }
      case kReadingCells: {
        const std::uint8_t value = s.frame[x.owner - 1][x.cell];
        y.read[x.cell] = value;
        ++y.cell;
        return to(y.cell == kCells ? kLookingAgain : kReadingCells, kReadCell, x.cell);
      }
      case kLookingAgain: {
        const gas::AddressEntry before{static_cast<gas::AddressState>(x.seen_state), kNoRank, 0, x.stamp},
            now = entry(s, me);
        const gas::Location then{true, kNoRank, gas::Tier::dram, false, x.seen_version};
        const bool by_state = without(Mutation::second_look_by_state) && now.state == before.state;
        const bool good = without(Mutation::no_second_look) ||
                          (x.by_entry ? by_state || gas::stood(before, now) : gas::stood(then, word0(s)));
        if (!good) {
          start_again(y);
          return to(i.what == Do::near_get ? kLookingNear : kLooking, kAgain);
        }
        if (i.what == Do::merge) {
          start_again(y);
          y.merged = x.read[i.cell] != i.value ? kDiffers : kSame;
          return to(kLooking, kStood);
        }
        for (std::uint8_t c = 0; c < kCells; ++c) {
          if (x.read[c] < x.floor[c]) return emit(n, Step{kStood, a, c}, "a get returned an old value");
          if (x.read[c] > s.complete[c])
            return emit(n, Step{kStood, a, c}, "a get returned a value that nobody has put");
        }
        next_instr(n, a);
        return emit(n, Step{kStood, a, 0});
      }
      case kHanding:
        if (y.seen_version == 0) {
          if (s.handed != 0) return;  // one at a time
          n.handed = static_cast<std::uint8_t>(a + 1);
          y.seen_version = 1;
          return to(kHanding, kHandOver);
        }
        if (s.taken == 0) return;
        n.handed = n.taken = 0;
        if (s.taken == 1 || without(Mutation::handed_for_granted)) {
          if (without(Mutation::handed_for_granted)) note_complete(n, i);
          next_instr(n, a);
          return emit(n, Step{kTaken, a, s.taken});
        }
        start_again(y);
        return to(kLooking, kAgain);
      case kAsked:  // the message is there at once; its answer comes when the page is in
        if (x.heard == 0) {
          n.wanted = 1;
          y.heard = 1;
          return to(kAsked, kAskOwner);
        }
        if (x.heard != kBoth) return;
        if (i.what == Do::near_get) {
          const bool in = gas::readable(answer_of(y));
          y.heard = y.busy = y.tier = y.untouched = 0;
          if (!in) start_again(y);
          return to(in ? kReadingCells : kLookingNear, kAgain);
        }
        y.by_answer = 1;
        return to(believe(y, i, event, whole), kAgain);
      // issue, landing and completion are one step: gets must see what has landed, which is more than what is
      // complete
      case kPutting:
        if (without(Mutation::use_ends_early) && x.counted) {
          end_use(n, a);
          return to(kPutting, kEnd);
        }
        return land(n, a, emit);
      default: {  // kEnding
        const bool answered = x.counted && end_use(n, a);
        next_instr(n, a);
        return emit(n, Step{static_cast<std::uint16_t>(answered ? kEndAnswer : kEnd), a, 0});
      }
    }
  }

  /// Both answers are here; decides what to do with them. From here on the page is known by word 0, unless
  /// the entry is filled.
  Stage believe(Actor& y, const Instr& i, Event event, bool whole) const {
    gas::Location where = answer_of(y);
    const std::uint8_t bit_stamp = y.bit_stamp;
    const std::uint64_t holders = gas::unheld(bit_stamp);
    const bool read = event == Event::read;
    y.heard = y.bit_stamp = y.busy = y.tier = y.untouched = 0;
    if (!where.allocated) return kPaused;  // the caller gets an error; here it asks again
    if (without(Mutation::fill_from_ssd)) where.tier = gas::Tier::dram;
    if (!gas::readable(where)) {
      y.seen_version = y.by_answer = 0;  // it has not asked yet
      if (gas::hands_over(where, whole)) return kHanding;
      y.bit_stamp = bit_stamp;  // it stays registered
      return kAsked;
    }
    if (where.busy && !read && without(Mutation::put_while_busy)) return kPutting;
    if (without(Mutation::fill_while_busy)) where.busy = false;
    if (without(Mutation::untouched_is_kept) || (!read && without(Mutation::put_leaves_untouched)))
      where.untouched = false;
    if (without(Mutation::no_stamp) ? gas::keepable(where) : gas::registered(where, holders)) return kFilling;
    y.by_answer = 0;
    const bool as_a_put =
        i.what == Do::merge && where.untouched && !without(Mutation::merge_leaves_untouched);
    if (read && !as_a_put) return kReadingCells;
    if (where.busy) return kPaused;
    if (where.untouched) return kTouching;
    start_again(y);
    return kLooking;
  }
  /// Word 0, as the actor was told.
  static gas::Location answer_of(const Actor& y) noexcept { return location(y, y.seen_version); }
  /// The owner's service tells all that have asked for the page.
  static void answer_askers(State& n, const gas::Location& where) {
    n.wanted = 0;
    for (Actor& y : n.actor) {
      if (y.stage != kAsked || y.heard != 1) continue;
      y.owner = static_cast<std::uint8_t>(where.owner == kNoRank ? 0 : raw(where.owner) + 1);
      y.tier = static_cast<std::uint8_t>(where.tier);
      y.busy = where.busy;
      y.untouched = where.untouched;
      y.by_entry = 0;
      y.seen_version = static_cast<std::uint8_t>(where.version);
      y.heard = kBoth;
    }
  }
  static void found_by_word0(const State& s, Actor& y) {
    y.owner = s.owner;
    y.by_entry = 0;
    y.seen_version = s.version;
  }
  static void found_by_entry(const gas::AddressEntry& e, Actor& y) {
    y.by_entry = 1;
    y.seen_state = static_cast<std::uint8_t>(e.state);
    y.stamp = static_cast<std::uint8_t>(e.stamp);
  }
  /// As at the beginning of the access; its floor stays.
  static void start_again(Actor& y) {
    Actor fresh{};
    fresh.pc = y.pc;
    fresh.merged = y.merged;
    std::copy_n(y.floor, kCells, fresh.floor);
    y = fresh;
  }

  /// The owner's service: pages in a page that is on SSD. One look at word 0 and the mark are one fetch-or.
  template <class Emit>
  void bring_in(const State& s, Emit&& emit) const {
    State n = s;
    const auto at = static_cast<std::uint8_t>(s.owner - 1);
    const bool handed = s.service == 0 ? s.handed != 0 && s.taken == 0 : s.service > kHandedStep;
    const auto step = static_cast<std::uint8_t>(s.service % kHandedStep);
    const Step label{kService1, at, s.service};
    if (s.service == 0) {
      if (s.busy) return;
      switch (gas::page_in_from(word0(s), Rank{at}, handed)) {
        case gas::PageInFrom::nothing:
          answer_askers(n, word0(s));
          if (handed) n.taken = 2;
          return emit(n, label);
        case gas::PageInFrom::put:
          if (without(Mutation::handed_unread)) return end_handed_unread(n, label, emit);
          break;
        case gas::PageInFrom::ssd: break;
      }
      if (without(Mutation::answered_early)) answer_askers(n, gas::end_page_in(word0(s)));
      n.busy = handed && without(Mutation::handed_unmarked) ? 0 : 1;
      if (n.busy == 0) n.tier = 0;
      n.service = static_cast<std::uint8_t>(handed ? kHandedStep + 1 : 1);
      return emit(n, label);
    }
    const Instr* put = handed ? &instr(s, static_cast<std::uint8_t>(s.handed - 1)) : nullptr;
    if (step <= kCells) {
      n.frame[at][step - 1] = put != nullptr ? put->value : s.disk[step - 1];
      ++n.service;
      return emit(n, label);
    }
    if (n.busy != 0) put_word0(n, gas::end_page_in(word0(s)));
    std::fill_n(n.disk, kCells, 0);
    n.service = 0;
    answer_askers(n, word0(n));
    if (put != nullptr) {
      note_complete(n, *put);
      n.taken = 1;
    }
    emit(n, label);
  }
  /// A mutant: the page comes in with whatever is in its frame, and the put follows as to any page in DRAM.
  template <class Emit>
  void end_handed_unread(State& n, const Step& label, Emit&& emit) const {
    n.tier = 0;
    std::fill_n(n.disk, kCells, 0);
    answer_askers(n, word0(n));
    n.taken = 2;
    emit(n, label);
  }
  static void note_complete(State& n, const Instr& i) {
    n.complete[i.cell] = i.value;
    if (i.what == Do::put_all) std::fill_n(n.complete, kCells, i.value);
  }

  /// True if it was the last one that a mover waits for.
  bool end_use(State& n, std::uint8_t a) const {
    const std::uint8_t me = program_.workers[a].rank;
    if (!n.actor[a].counted) return false;
    n.actor[a].counted = 0;
    if (n.entry[me].uses == 0) return false;  // only where a mutant has thrown the uses away
    const gas::AddressStep step = gas::next(entry(n, me), Event::end);
    put_entry(n, me, step.after);
    if (step.action != Action::answer_kept) return false;
    if (!without(Mutation::last_use_keeps_silent)) answer(n, n.kept[me], me);
    n.kept[me] = 0;
    return true;
  }
  static void answer(State& n, std::uint8_t whom, std::uint8_t from) {
    if (whom == 0) return;
    Actor& mover = n.actor[whom - 1];
    mover.awaited = static_cast<std::uint8_t>(mover.awaited & ~(1u << from));
  }

  template <class Emit>
  void land(State& n, std::uint8_t a, Emit&& emit) const {
    const Instr& i = instr(n, a);
    const auto at = static_cast<std::uint8_t>(n.actor[a].owner - 1);
    const char* why = at + 1 != n.owner ? "a put lands where the page is not"
                      : n.copied        ? "a put lands in a frame that the mover has read"
                                        : nullptr;
    if (n.actor[a].merged != kSame) n.frame[at][i.cell] = i.value;
    if (i.what == Do::put_all) std::fill_n(n.frame[at], kCells, i.value);
    note_complete(n, i);
    n.actor[a].stage = kEnding;
    emit(n, Step{kLand, a, i.cell}, why);
  }

  // ---- a move, as gas/mover.cpp
  // ----------------------------------------------------------------------------

  [[nodiscard]] bool reached(std::uint8_t r) const noexcept { return (program_.reach & (1u << r)) != 0; }

  /// By the rank's handler, for `whom`; or by the mover itself.
  void recall_entry(State& n, std::uint8_t r, std::uint8_t whom, Event event) const {
    const gas::AddressEntry e = entry(n, r);
    gas::AddressStep step = gas::next(e, event);
    if (without(Mutation::recall_while_filling) && e.state == gas::AddressState::none) step.after = e;
    if (step.action == Action::keep) n.kept[r] = whom;
    put_entry(n, r, step.after);
    if (step.action == Action::answer || event == Event::watch || without(Mutation::no_wait_for_uses))
      answer(n, whom, r);
  }

  template <class Emit>
  void on_recall(const State& s, std::uint8_t r, Emit&& emit) const {
    State n = s;
    n.recall[r] = 0;
    recall_entry(n, r, s.recall[r], reached(r) ? Event::watch : Event::recall);
    emit(n, Step{kRecall, r, n.kept[r]});
  }

  template <class Emit>
  void move(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t me = program_.workers[a].rank;
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](Stage stage, std::uint16_t kind, std::uint8_t detail = 0) {
      y.stage = stage;
      emit(n, Step{kind, a, detail});
    };
    const bool evicts = instr(s, a).what == Do::evict;
    gas::Location claimed{true,
                          x.owner != 0 ? Rank{x.owner - 1u} : kNoRank,
                          gas::Tier::dram,
                          true,
                          x.version,
                          s.untouched != 0};
    switch (x.stage) {
      case kStart:  // two operations at once: the mark, and a look at the holders
        if (without(Mutation::swap_before_busy)) return take(n, a, to);
        if (!by_message(s, a)) peek(s, a, emit);
        return mark(s, a, emit);
      case kMarking: return mark(s, a, emit);
      case kPeeking: return peek(s, a, emit);
      case kUnmarking: {
        claimed.busy = false;
        if (x.owner == me + 1) claimed = gas::touched(claimed);
        put_word0(n, claimed);
        next_instr(n, a);
        return emit(n, Step{kMoveNothing, a, 0});
      }
      case kAsking:
        ask(n, a, x.peeked);
        return to(without(Mutation::ask_before_busy) ? kMarking : kTaking, kAsk, x.peeked);
      case kTaking: return take(n, a, to);
      case kUnwanted:
        n.busy = 0;
        if (evicts) next_instr(n, a);  // it is there already
        y.stage = evicts ? 0 : static_cast<std::uint8_t>(kAsking2);
        return emit(n, Step{kMoveNothing, a, 1});
      case kAsking2:
        if (y.seen == 0 || y.seen == 1) {
          n.wanted = 1;
          y.seen = 2;
          return emit(n, Step{kAskOwner, a, 0});
        }
        if (s.wanted) return;
        y = Actor{};
        y.pc = x.pc;
        return emit(n, Step{kAgain, a, 0});
      case kDeclaring:
        if (!without(Mutation::tier_after_punch)) put_word0(n, gas::begin_evict(claimed));
        return to(without(Mutation::evict_without_recall) ? kWriting : x.seen ? kAsking : kPeeking, kLeaving);
      case kWriting:
        n.disk[x.cell] = s.frame[me][x.cell];
        n.copied = 1;
        y.cell = static_cast<std::uint8_t>((x.cell + 1) % kCells);
        return to(y.cell == 0 ? kPunching : kWriting, kWrite, x.cell);
      case kPunching:
        if (x.cell == kCells) {
          put_word0(n, gas::end_evict(gas::begin_evict(claimed)));
          if (without(Mutation::version_not_bumped)) n.version = s.version;
          n.copied = 0;
          next_instr(n, a);
          return emit(n, Step{kEvicted, a, me});
        }
        n.frame[me][x.cell] = 0;
        ++y.cell;
        return to(kPunching, kPunch, x.cell);
      case kRecallingOwn:
        if (!without(Mutation::own_entry_forgotten)) recall_entry(n, me, 0, Event::watch);
        return to(kAwaiting, kOwnEntry);
      case kAwaiting: {
        const auto watched = [&](std::uint8_t r) {
          return s.entry[r].state == static_cast<std::uint8_t>(gas::AddressState::watched);
        };
        const bool own = watched(me) && !without(Mutation::own_entry_not_awaited) &&
                         !without(Mutation::evict_undrained) && !without(Mutation::own_entry_forgotten);
        if ((x.awaited != 0 && !without(Mutation::no_wait_for_answers)) || own) return;
        for (std::uint8_t r = 0; r < R; ++r)
          if (r != me && watched(r) && !without(Mutation::watched_not_awaited)) return;
        if (evicts) return to(kWriting, kAnswered);
        if (instr(s, a).what == Do::own_refused) {
          put_word0(n, gas::end_move(claimed, claimed.owner));
          next_instr(n, a);
          return emit(n, Step{kRefused, a, 0});
        }
        return to(kCopying, kAnswered);
      }
      case kCopying:
        n.copied = 1;
        n.frame[me][x.cell] = s.frame[x.owner - 1][x.cell];
        ++y.cell;
        return to(y.cell == kCells ? kNaming : kCopying, kCopy, x.cell);
      default:  // kNaming
        put_word0(n, gas::end_move(claimed, Rank{me}));
        if (without(Mutation::stamp_at_end)) n.stamp = n.version;
        n.copied = 0;
        next_instr(n, a);
        return emit(n, Step{kName, a, me});
    }
  }

  /// A fault, as Mover::touch: the mark, then the entry.
  template <class Emit>
  void touch(const State& s, std::uint8_t a, Emit&& emit) const {
    const Rank me{program_.workers[a].rank};
    State n = s;
    Actor& y = n.actor[a];
    if (y.stage == kStart) {
      const gas::MoveStep step = gas::begin_move(word0(s), me);
      if (step.verdict == gas::MoveVerdict::wait) return;  // give up, pause: the fault comes again
      put_word0(n, step.claimed);
      y.stage = kNaming;
      y.seen = s.untouched != 0 || without(Mutation::touch_without_look);
      return emit(n, Step{kMark, a, s.owner});
    }
    gas::Location l = word0(s);
    if (y.seen) {
      l = gas::end_touch(l, me);
    } else {
      l.busy = false;
    }
    put_word0(n, l);
    next_instr(n, a);
    emit(n, Step{kTouch, a, y.seen});
  }

  /// Sends recalls, which are under way from here on, in any order.
  void ask(State& n, std::uint8_t a, std::uint8_t holders, std::uint8_t asked = 0) const {
    const std::uint8_t me = program_.workers[a].rank;
    for (std::uint8_t r = 0; r < R; ++r) {
      if (!names(holders, r) || names(asked, r) || r == me) continue;
      const bool first_of_group = r == 0 || (bit(static_cast<std::uint8_t>(r - 1)) != bit(r));
      if (without(Mutation::group_forgotten) && !first_of_group) continue;
      n.recall[r] = static_cast<std::uint8_t>(a + 1);
      n.actor[a].awaited = static_cast<std::uint8_t>(n.actor[a].awaited | 1u << r);
    }
  }

  template <class Emit>
  void peek(const State& s, std::uint8_t a, Emit&& emit) const {
    State n = s;
    Actor& y = n.actor[a];
    y.peeked = s.holders;
    y.seen = 1;
    y.stage = without(Mutation::ask_before_busy) || y.stage == kPeeking ? kAsking : kMarking;
    emit(n, Step{kPeek, a, y.peeked});
  }

  template <class Emit>
  void mark(const State& s, std::uint8_t a, Emit&& emit) const {
    const gas::MoveStep step = gas::begin_move(word0(s), Rank{program_.workers[a].rank});
    State n = s;
    Actor& y = n.actor[a];
    if (step.verdict == gas::MoveVerdict::wait && by_message(s, a) && without(Mutation::takes_without_look) &&
        s.holders != 0) {
      n.holders = 0;
      return emit(n, Step{kTake, a, s.holders});
    }
    if (step.verdict == gas::MoveVerdict::wait || step.verdict == gas::MoveVerdict::not_allocated) return;
    put_word0(n, step.claimed);
    y.owner = s.owner;
    y.version = s.version;
    if (without(Mutation::stamp_with_mark) && step.verdict == gas::MoveVerdict::claim)
      n.stamp = static_cast<std::uint8_t>(s.version + 1);
    const bool asked = without(Mutation::swap_before_busy);
    const bool evicts = instr(s, a).what == Do::evict;
    if (step.verdict == gas::MoveVerdict::on_ssd && !without(Mutation::move_from_ssd)) {
      y.stage = kUnwanted;
    } else if (evicts && step.verdict == gas::MoveVerdict::already_there) {
      y.stage = kDeclaring;
      // nothing to do: the mark is cleared
    } else if (evicts || step.verdict == gas::MoveVerdict::already_there) {
      y.stage = kUnmarking;
    } else if (by_message(s, a)) {
      return take(n, a, [&](Stage stage, std::uint16_t, std::uint8_t) {
        y.stage = stage;
        emit(n, Step{kMark, a, s.owner});
      });
    } else if (asked) {
      y.stage = kRecallingOwn;
    } else if (without(Mutation::ask_before_busy)) {
      y.stage = kTaking;
    } else {
      y.stage = y.seen ? kAsking : kPeeking;
    }
    emit(n, Step{kMark, a, s.owner});
  }

  /// PageLock::lock_for: an evictor, which owns the page, locks it itself.
  [[nodiscard]] bool by_message(const State& s, std::uint8_t a) const {
    return program_.by_message && instr(s, a).what != Do::evict;
  }

  /// One swap; holders that were not asked yet are asked now.
  template <class To>
  void take(State& n, std::uint8_t a, const To& to) const {
    Actor& y = n.actor[a];
    y.holders = n.holders;
    n.holders = 0;
    if (!without(Mutation::stamp_at_end)) n.stamp = static_cast<std::uint8_t>(n.version + 1);
    if (!without(Mutation::ask_only_the_seen)) {
      if (without(Mutation::ask_other_bits))
        ask(n, a, static_cast<std::uint8_t>(y.holders & ~y.peeked));
      else
        ask(n, a, y.holders, y.peeked);
    }
    to(without(Mutation::swap_before_busy) ? kMarking : kRecallingOwn, kTake, y.holders);
  }

  Program program_;
};

}  // namespace kasane::model::addresses
