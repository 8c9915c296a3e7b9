// SPDX-License-Identifier: Apache-2.0
// Coherence between ranks as a System for the explorer: workers of several ranks run small scripts on V.
// Every decision comes from the shipping functions dsm::next() (a block on a rank) and
// gas::begin_move/end_move (a page's entry). This file adds the machine around them: protection, frames,
// twins, puts under way, and the order in which src/dsm and mover.cpp perform the steps, each step on its
// own.
//
// How a put and a move exclude each other is proven by address_cache_model.h. Here is what it guarantees: a
// put begins in one step while its page does not move, or moves but its location was not recalled yet, and
// the mover waits for the puts that have begun.
//
// A step is what another thread can observe half-done: one look at a word, one compare-swap, one byte copied
// where others may store meanwhile, one put landing, its completion. A read is directory / each byte /
// publish.
//
// Memory tiers: a rank may have a *pager* (gas/tiers.cpp, dsm/pager.cpp), a script that never ends, and a
// budget in blocks. While there is no room for another page the pager evicts pages, to the rank's disk or, of
// other ranks', for good, as often as it likes; and it pages in what other ranks ask for. A worker that
// faults, or takes a page, first waits for room; while waiting it may send its rank's changes. An own page on
// SSD is paged in as a whole for other ranks, and block by block for its own rank; what is saved is evicted
// without a write.
//
// Oracle: a ghost memory that stores update at once. Scripts are data-race-free, so a load must return the
// ghost's value.
//
// Abstractions (docs/design/proof.md): a block has two one-byte cells; a worker keeps its rank (a thread that
// moves is a script that goes on elsewhere after an edge); a request to another rank's service thread is
// carried out by the requester's own steps there (more interleavings than one service thread has); Rounds'
// numbers are kept as "did a round begin since I asked"; waiting is being disabled.
#pragma once

#include <algorithm>
#include <array>
#include <ranges>
#include <string>
#include <vector>

#include "dsm/fence_protocol.h"
#include "dsm/fetch_protocol.h"
#include "dsm/held_protocol.h"
#include "dsm/protocol.h"
#include "gas/rank_code.h"
#include "gas/reader_state.h"
#include "gas/relocation.h"
#include "model/coherence_program.h"
#include "model/explorer.h"

namespace kasane::model {

inline constexpr Byte kArrived = 0x80, kAllCells = (1 << kCells) - 1;

// clang-format off: kinds of steps and how they are printed, as many a line as fit
#define KASANE_MODEL_STEPS(X) \
  X(kLoad, "loads") X(kLoadFault, "faults (load): claims") X(kStore, "stores") \
  X(kStoreFault, "faults (store): claims") X(kSee, "sees the fact") X(kSet, "fixes the fact") \
  X(kAsk, "asks for a round") X(kLead, "leads a round") X(kLook, "round: looks at block") \
  X(kRoundClaim, "round: claims block") X(kLater, "round: block is busy, later") X(kRoundEnd, "round ends") \
  X(kLock, "takes the lock") X(kUnlock, "gives the lock") X(kAction, "action") \
  X(kGiveUp, "gives up the claim") X(kClean, "marks clean block") X(kFinish, "finishes block") \
  X(kEvent, "claims for an event") X(kNothing, "nothing to do") X(kOwnClaim, "own: claims block") \
  X(kOwnLook, "own: looks at the entry") X(kOwnBusy, "own: marks the entry busy") \
  X(kOwnWait, "own: entry is busy, gives blocks back") \
  X(kRecall, "own: nobody holds its location any more") X(kDrained, "own: puts under way have landed") \
  X(kYield, "own: asks the owner to yield") X(kRefused, "own: the owner refused or must retry") \
  X(kPosted, "own: has posted the entry") X(kHandBack, "hand back: entry") X(kTell, "tells: begins") \
  X(kTakePage, "tells: takes page") X(kTellLook, "tells: looks at block") \
  X(kForget, "forgets what its spill file has of page") X(kTakeReaders, "tells: reads who has page") \
  X(kTellRank, "tells rank") X(kTakeNotices, "acquire: takes notices") \
  X(kLeave, "acquire: leaves the readers of page") X(kHear, "acquire: hears which blocks of page") \
  X(kKeep, "acquire: has heard, and stays a reader of page") X(kTellParts, "tells which blocks: rank") \
  X(kNotOurs, "tells: nothing of it is its own any more, page") X(kPut, "puts directly") \
  X(kGet, "gets directly") X(kRoom, "has room") X(kSends, "sends changes, since there is no room: block") \
  X(kAskOwner, "asks for the page: its owner is rank") X(kAnswered, "was answered: page") \
  X(kInClaim, "brings in: claims block") X(kInMark, "brings in: marks the entry busy") \
  X(kInNot, "brings in: entry is busy, or the page not on this rank's SSD") \
  X(kInRead, "brings in: reads page") X(kInEnd, "brings in: ends") X(kMark, "pager: marks the entry busy") \
  X(kGoClaim, "pager: claims block") X(kStays, "pager: the page stays") \
  X(kDeclare, "pager: declares page") X(kGoRecall, "pager: nobody knows where it is any more, page") \
  X(kGoDrained, "pager: puts have landed, page") X(kWrite, "pager: writes page") \
  X(kPunch, "pager: punches page") X(kGone, "pager: ends") X(kRest, "pager: lays to rest block")
// clang-format on

/// R ranks, W workers in all, B blocks.
template <Byte R, Byte W, Byte B>
class Coherence {
  using Block = dsm::BlockState;
  using Event = dsm::BlockEvent;
  using Action = dsm::Action;
  using enum Mutation;
  static constexpr Byte kFlags = 8, kLocks = 1;
  enum Kind : Byte { kRelease, kAcquire };

  struct Flying {  // The puts of one block: no other thread puts it while the busy bit is held.
    Byte mask, to;
    Byte value[kCells];
  };
  struct Actor {
    Byte pc, stage;    // instruction; how far in it
    Byte at;           // the rank where it works just now (a request is carried out at the rank asked)
    Byte round;        // 0 ask | 1 waits for a round | 2 leads one | 3 served
    Byte joined;       // waiting: did a round begin since it asked?
    Byte todo, later;  // blocks that the round has not seen; those it found busy
    Byte held;         // blocks in hand: of a page, or of a round, of which some are …
    Byte unsent, opens, kept;  // … to be put, stay writable, have become its rank's own,
    Byte back;                 // … are given back, until their page is in DRAM. Asking: the block
    Byte dropping;             // own: 1: the owner refused; 2: its answer has brought the page
    Byte telling;              // a release's round: how far it is with the pages that it looks at
    Byte pages, now;           // those left; the one it is at
    Byte blocks, open;         // … of which these blocks were not looked at yet; may its bytes have changed?
    Byte sure, watch;          // was it noted as changed? Are its blocks to be protected?
    Byte told;                 // ranks that get notices next
    Byte loaded;               // add: what the load returned
    // fetching: 1: an acquire began meanwhile; 2: its rank has left the page's readers; 4: the page did not
    // stand
    Byte stale;
    Byte room;          // 1: it was admitted; 2: it sends its rank's changes; 4: its pin was admitted
    Byte waking, whom;  // how far it is with a page on SSD; which rank owns that, or did
    Byte acting;        // carries out actions on block
    Byte block, event, action, sub, cell, owner, value, found_own;
  };

 public:
  struct State {
    // word: BlockState::word() with pins in bits 6 and 7; of an owned block the twin's bit says that it is
    // saved
    Byte word[R][B], prot[R][B];
    Byte memory[R][B][kCells], twin[R][B][kCells];
    Flying flying[R][B];
    Byte owner[B], busy[B], puts[B];  // a page's entry; puts under way
    Byte recalled[B];                 // it moves or is on SSD, and its location has no holders any more
    Byte tier[B], readers[B];         // where its owner has it; its readers
    Byte disk[R][B][kCells];          // the spill files
    Byte nothing;                     // blocks on SSD of which nothing is there: never written, or forgotten
    Byte frames[R], twins[R];         // blocks of M and T that count, where there is a limit
    Byte asked[R];                    // pages that its pager is to bring in
    Byte marked[R], stale[R];         // pages that its next release examines; pages of which it has notices
    Byte parts[R];                    // blocks of which it has notices
    Byte changed[R];                  // blocks that it has put to since it looked at their pages
    Byte ours[R];                     // pages to which its threads may have stored without a fault
    // pages of which it knows itself a reader; pages whose owners it has asked to look since its last notice
    Byte stays[R], asks[R];
    // a release has taken marks, an acquire notices, and is at work on them
    Byte telling[R], dropping[R];
    Byte direct[W];  // a direct put under way
    // it is settled here, and its entry is being written (rank + 1), or was written, which its rank does not
    // know yet
    Byte naming[B];
    Byte cached[R], dirty[R];  // the sets of blocks that rounds walk
    Byte leading[R][2];
    Byte flag[kFlags], held[kLocks], last[kLocks];
    Byte ghost[B][kCells], freed[B];
    Actor actor[W];
  };

  explicit Coherence(Program program) : program_(std::move(program)) {}

  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    for (Byte b = 0; b < B; ++b) {
      const Byte o = program_.owner[page(b)];
      s.owner[page(b)] = o;
      if (program_.fresh) {
        s.tier[page(b)] = Byte(gas::Tier::ssd);
        s.recalled[page(b)] = 1;
        set_bits(s.nothing, 1u << b);
      }
      if (program_.fresh || !program_.known[page(b)]) continue;
      put_word(s, o, b, Block{false, true, program_.watched ? mem::Access::read : mem::Access::write});
      note_ours(s, o, page(b));
      s.prot[o][b] = program_.watched ? 1 : 2;
      fill(s, o, b);
    }
    for (Byte a = 0; a < W; ++a) s.actor[a].at = program_.workers[a].rank;
    return s;
  }

  void successors(const State& s, auto&& emit) const {
    for (Byte a = 0; a < W; ++a) step(s, a, emit);
    for (Byte p = 0; p < B; ++p) {  // entries arrive by themselves
      if (s.naming[p] == 0) continue;
      State n = s;
      const auto me = Byte((s.naming[p] & ~kArrived) - 1);
      if ((s.naming[p] & kArrived) == 0) {
        put_entry(n, p, gas::end_move(entry(s, p), Rank{me}));
        set_bits(n.naming[p], kArrived);
      } else {  // the completion
        if (!without(r5_arrival_unseen) && !without(r5_arrival_marked_early)) mark(n, me, p);
        n.naming[p] = 0;
      }
      emit(n, Step{kNamed, s.naming[p], p});
    }
    for (Byte r = 0; r < R; ++r)  // puts land without help, each byte separately
      for (Byte b = 0; b < B; ++b)
        for (Byte c = 0; c < kCells; ++c)
          if (s.flying[r][b].mask & (1 << c)) {
            State n = s;
            Flying& f = n.flying[r][b];
            n.memory[f.to][b][c] = f.value[c];
            clear_bits(f.mask, 1 << c);
            if (f.mask == 0) {
              f = Flying{};
              if (without(r3_no_completion) || without(r4_unlock_early)) --n.puts[page(b)];
            } else
              f.value[c] = 0;
            emit(n, Step{kLand, r, Byte(b * kCells + c)});
          }
    for (Byte a = 0; a < W; ++a)
      if (s.direct[a]) {
        State n = s;
        const Instr& i = instr(s, a);
        n.memory[s.actor[a].owner][i.block][i.cell] = i.value;
        n.direct[a] = 0;
        emit(n, Step{kLand, program_.workers[a].rank, Byte(i.block * kCells + i.cell)});
      }
  }

  /// A mutant is judged by what programs see (a wrong value, a deadlock), not by the protocol's own
  /// invariants.
  const char* violation(const State& s) const {
    for (Byte b = 0; b < B && without(Mutation::none); ++b) {
      int owners = 0;
      for (Byte r = 0; r < R; ++r) {
        const Block w = word(s, r, b);
        if (!w.check()) return "a block word breaks check()";
        if (!w.busy && s.prot[r][b] != Byte(w.access))
          return "V allows something else than the block word says";
        owners += w.owned;
        if (w.owned && !w.busy && gas::Tier{s.tier[page(b)]} == gas::Tier::ssd)
          return "blocks of a page on SSD are in use";
        if (w.saved && !w.busy && gas::Tier{s.tier[page(b)]} != gas::Tier::partial)
          return "blocks are saved of a page that others put to";
        for (Byte c = 0; c < kCells; ++c) {
          if (w.saved && !w.busy && !(s.freed[b] & 1 << c) && s.memory[r][b][c] != s.disk[r][b][c])
            return "a block is saved with other bytes";
        }
        if (w.owned && !w.busy && !s.busy[page(b)] && s.owner[page(b)] != r)
          return "a rank thinks that it owns a page which is another's";
      }
      if (owners > 1) return "two owners";
    }
    for (Byte r = 0; r < R && (without(Mutation::none) || without(drop_counted_twice)); ++r) {
      if (limit(r) != 0 && used(s, r) > limit(r) + slack(r))
        return "the budget is exceeded by more than threads can have in hand";
      for (Byte b = 0; b < B && limit(r) != 0; ++b) {
        const Block w = word(s, r, b);
        if (!w.busy && ((w.access != mem::Access::none && !(s.frames[r] & 1 << b)) ||
                        (w.twin && !(s.twins[r] & 1 << b))))
          return "a frame that V shows is not counted";
      }
    }
    return all_done(s) ? lost(s) : nullptr;
  }

  bool finished(const State& s) const { return all_done(s); }
  bool circles() const {
    return std::any_of(program_.workers.begin(), program_.workers.end(),
                       [](const Script& w) { return keeps(w); });
  }

  std::string name(const Step& step) const {
    const auto text = [](unsigned n) { return std::to_string(n); };
    if (step.kind == kLand)
      return "put of rank " + text(step.actor) + " lands: block " + text(step.detail / kCells) + " cell " +
             text(step.detail % kCells);
    if (step.kind == kNamed)
      return "the entry of page " + text(step.detail) +
             (step.actor & kArrived ? " is known to name rank " : " names rank ") +
             text((step.actor & ~kArrived) - 1);
    static constexpr const char* kWords[] = {
#define KASANE_MODEL_WORDS(kind, words) words,
        KASANE_MODEL_STEPS(KASANE_MODEL_WORDS)
#undef KASANE_MODEL_WORDS
    };
    static constexpr const char* kActions[] = {
        "end",          "fetch",         "find",      "make_twin",     "allow_read", "allow_write",
        "protect_read", "protect_none",  "diff_put",  "diff_put_live", "put_all",    "put_all_live",
        "refresh",      "merge_arrival", "read_back", "restore_bytes", "mark_page"};
    const std::string who =
        "worker " + text(step.actor) + " (rank " + text(program_.workers[step.actor].rank) + ") ";
    if (step.kind == kAction) return who + kActions[step.detail >> 3] + " ." + text(step.detail & 7);
    return who + kWords[step.kind] + " " + text(step.detail);
  }

  std::string show(const State& s) const {
    std::string t;
    const auto say = [&](const char* what, unsigned n) { t += what + std::to_string(n); };
    const auto cells = [&](const char* what, const Byte* c) { say(what, c[0]), say(",", c[1]); };
    const auto if_so = [&](bool yes, const char* what) { t += yes ? what : ""; };
    for (Byte b = 0; b < B; ++b) {
      const Byte p = page(b);
      say("block ", b), say(": entry owner ", s.owner[p]), if_so(s.busy[p], " busy");
      if_so(s.tier[p], " on SSD"), say(" readers ", s.readers[p]), say(" puts ", s.puts[p]);
      cells(" ghost ", s.ghost[b]);
      for (Byte r = 0; r < R; ++r) {
        const Block w = word(s, r, b);
        say(" | rank ", r), if_so(w.owned, " owned"), if_so(w.busy, " busy"), if_so(w.whole, " whole");
        say(" view ", unsigned(w.access)), say(" pins ", w.pins), cells(" M ", s.memory[r][b]);
        if (w.twin) cells(" twin ", s.twin[r][b]);
        if_so(s.marked[r] & 1 << p, " marked"), if_so(s.stale[r] & 1 << p, " told");
        if_so(s.parts[r] & 1 << b, " of it"), if_so(s.ours[r] & 1 << p, " ours");
        if_so(s.stays[r] & 1 << p, " stays"), if_so(s.asks[r] & 1 << p, " asked");
      }
      t += "; ";
    }
    for (Byte a = 0; a < W; ++a)
      say("worker ", a), say(" at instruction ", s.actor[a].pc), say(".", s.actor[a].stage), t += "  ";
    return t;
  }

 private:
  enum StepKind : std::uint16_t {
#define KASANE_MODEL_KIND(kind, words) kind,
    KASANE_MODEL_STEPS(KASANE_MODEL_KIND)
#undef KASANE_MODEL_KIND
        kLand = 0x100,
    kNamed = 0x200,
  };

  static Event event_of(const Actor& x) noexcept { return static_cast<Event>(x.event); }
  static Step acts(Byte a, Action action, unsigned sub = 0) noexcept {
    return {kAction, a, Byte(static_cast<unsigned>(action) << 3 | (sub & 7))};
  }
  [[nodiscard]] bool without(Mutation m) const noexcept { return program_.without == m; }
  [[nodiscard]] Byte page(Byte b) const noexcept { return Byte(b / program_.blocks_per_page); }
  [[nodiscard]] Byte first(Byte p) const noexcept { return Byte(p * program_.blocks_per_page); }
  [[nodiscard]] Byte last(Byte p) const noexcept { return Byte(first(p) + program_.blocks_per_page - 1); }
  [[nodiscard]] auto of_page(Byte p) const noexcept {
    return std::views::iota(first(p), Byte(first(p) + program_.blocks_per_page));
  }

  static Block word(const State& s, Byte r, Byte b) noexcept {
    const std::uint32_t w = s.word[r][b];
    Block block = Block::of((w & 0x3F) | (w >> 6) << 8);
    if (block.owned && block.twin) block.twin = false, block.saved = true;
    return block;
  }
  /// As it was before its bit was claimed.
  static Block before_claim(const State& s, Byte r, Byte b) noexcept {
    Block block = word(s, r, b);
    block.busy = false;
    return block;
  }
  static void give_back(State& n, Byte r, Byte b) noexcept { put_word(n, r, b, before_claim(n, r, b)); }
  static void put_word(State& s, Byte r, Byte b, Block block) noexcept {
    const std::uint32_t w = block.word() | (block.saved ? 16u : 0u);
    s.word[r][b] = Byte((w & 0x3F) | (w >> 8) << 6);
  }
  [[nodiscard]] gas::Location entry(const State& s, Byte p) const noexcept {
    return {true,
            Rank{s.owner[p]},
            gas::Tier(s.tier[p]),
            s.busy[p] != 0,
            0,
            false,
            program_.fixed && !without(fixed_moves)};
  }
  void put_entry(State& s, Byte p, gas::Location l) const noexcept {
    if (s.owner[p] != raw(l.owner)) has_not_stood(s, p);
    s.owner[p] = Byte(raw(l.owner));
    s.busy[p] = l.busy;
    s.tier[p] = Byte(l.tier);
    if (l.tier == gas::Tier::dram) s.recalled[p] = 0;
  }
  /// The entry becomes what it was before it was marked.
  gas::Location unmark(State& n, Byte p, gas::Tier tier) const noexcept {
    gas::Location before = gas::in_tier(entry(n, p), tier);
    before.busy = false;
    put_entry(n, p, before);
    return before;
  }
  /// A worker between its two looks at the page will see it.
  void has_not_stood(State& n, Byte p) const noexcept {
    for (Byte a = 0; a < W; ++a) {
      Actor& other = n.actor[a];
      const Instr& i = instr(n, a);
      if ((i.what == Do::get && other.stage != 0 && page(i.block) == p) ||
          (other.acting && page(other.block) == p &&
           (other.sub == kJoins || other.sub == kMarksThere || other.sub == kReads) &&
           (fetching(n, other) || refreshing(n, other))))
        set_bits(other.stale, 4);
    }
  }
  [[nodiscard]] const Instr& instr(const State& s, Byte a) const noexcept {
    static constexpr Instr kEndInstr{};
    const auto& code = program_.workers[a].code;
    return s.actor[a].pc < code.size() ? code[s.actor[a].pc] : kEndInstr;
  }

  bool all_done(const State& s) const {
    for (Byte a = 0; a < W; ++a)
      if (keeps(program_.workers[a]) ? s.actor[a].stage != 0 || s.actor[a].waking != 0 || s.actor[a].acting
                                     : s.actor[a].pc < program_.workers[a].code.size())
        return false;
    for (const auto& of_rank : s.flying)
      for (const Flying& f : of_rank)
        if (f.mask != 0) return false;
    return std::all_of(s.naming, s.naming + B, [](Byte n) { return n == 0; });
  }
  [[nodiscard]] Byte bit_of_page(Byte b) const noexcept { return Byte(1 << page(b)); }
  [[nodiscard]] Byte blocks_of(Byte p) const noexcept {
    Byte blocks = 0;
    for (Byte b = first(p); b <= last(p) && b < B; ++b) set_bits(blocks, 1u << b);
    return blocks;
  }
  void note_ours(State& n, Byte r, Byte p) const noexcept {
    if (!without(ours_unnoted)) set_bits(n.ours[r], 1u << p);
  }
  /// Sharing::mark.
  void mark(State& n, Byte r, Byte p) const noexcept {
    note_ours(n, r, p);
    set_bits(n.marked[r], 1u << p);
  }
  static void set_bits(Byte& to, unsigned bits) noexcept { to = Byte(to | bits); }
  static void clear(Byte (&cells)[kCells]) noexcept { std::fill_n(cells, kCells, 0); }
  static void copy(const Byte (&from)[kCells], Byte (&to)[kCells]) noexcept { std::copy_n(from, kCells, to); }
  static void clear_bits(Byte& from, unsigned bits) noexcept { from = Byte(from & ~bits); }
  /// Nothing to release, nothing to drop: one word each (gas/marked_pages.h).
  [[nodiscard]] bool nothing_to_release(const State& s, Byte r) const {
    return s.dirty[r] == 0 && s.marked[r] == 0 && (!naming(s, r) || without(r8_naming_not_counted)) &&
           (!s.telling[r] || without(r5_release_passes_telling));
  }
  /// PageMarks::may_hold.
  [[nodiscard]] bool nothing_told_of(const State& s, Byte r, Byte b) const noexcept {
    return (s.stale[r] & bit_of_page(b)) == 0 && !s.dropping[r];
  }
  [[nodiscard]] bool nothing_to_drop(const State& s, Byte r) const {
    return s.stale[r] == 0 && (!s.dropping[r] || without(r5_acquire_passes_dropping));
  }

  /// Has rank r changed the byte since it last sent it?
  static bool changed(const State& s, Byte r, Byte b, Byte c) {
    const Block w = word(s, r, b);
    return w.whole || (w.twin && s.memory[r][b][c] != s.twin[r][b][c]);
  }
  /// At the end: the owner's bytes, with what ranks have not released yet, are the ghost's.
  const char* lost(const State& s) const {
    for (Byte b = 0; b < B; ++b) {
      if (s.busy[page(b)] || s.puts[page(b)] != 0) return "an entry stays busy, or puts stay counted";
      for (Byte c = 0; c < kCells; ++c) {
        const Byte o = s.owner[page(b)];
        const auto tier = gas::Tier(s.tier[page(b)]);
        const bool here = tier == gas::Tier::dram || (tier == gas::Tier::partial && word(s, o, b).owned);
        Byte value = here ? s.memory[o][b][c] : s.disk[o][b][c];
        for (Byte r = 0; r < R; ++r)
          if (changed(s, r, b, c)) value = s.memory[r][b][c];
        if (!(s.freed[b] & (1 << c)) && value != s.ghost[b][c]) return "a write is lost at the end";
      }
    }
    return nullptr;
  }

  void next_instr(State& n, Byte a) const {
    Actor& x = n.actor[a];
    const auto pc = Byte(x.pc + 1);
    x = Actor{};
    x.pc = pc;
    x.at = program_.workers[a].rank;
  }

  // clang-format off: stages, as many a line as fit
  enum OwnStage : Byte { kClaiming, kLooking, kUnmarking, kTaking, kYielding, kRecalling, kDraining,
      kCopying, kNaming, kSettling, kGivingUp };
  enum Waking : Byte { kAwake, kAsking, kAsked, kInWaiting, kInClaiming, kInMarking, kInReading, kInNaming,
      kInSettling, kInUnmarking, kInGivingUp };
  enum PagerStage : Byte { kIdle, kGoing, kOpening, kDeclaring, kForgetting,
      kAwaitingPuts, kWriting, kPunching, kEnding, kUnmarkingIt };
  // clang-format on

  // ---- one block: claim, actions, finish

  enum FoundOwn : Byte { kOwn = 1, kOnSsd };
  /// The claimed block's step, from its word without the busy bit.
  [[nodiscard]] dsm::BlockStep claimed_step(const State& s, const Actor& x) const {
    Block before = word(s, x.at, x.block);
    if (x.found_own == kOnSsd) {
      dsm::BlockStep step = dsm::found_on_ssd(before, event_of(x));
      if (without(part_stored_saved)) step.after.saved = true;
      return step;
    }
    if (x.found_own) {
      dsm::BlockStep step = dsm::next(before, Event::found_own);
      if (without(r5_first_meeting_unseen)) step.actions = {Action::allow_write};
      const auto event = event_of(x);
      // as carry_out_fault() does
      step.after.pins += event == Event::pin_read || event == Event::pin_write || event == Event::pin_whole;
      return step;
    }
    before.busy = false;
    return mutated(dsm::next(before, event_of(x)), before, event_of(x));
  }

  [[nodiscard]] dsm::BlockStep mutated(const dsm::BlockStep& step, const Block& before, Event event) const {
    return model::mutated(program_.without, step, before, event);
  }

  dsm::Verdict try_claim(State& n, Byte a, Byte b, Event event) const {
    Actor& x = n.actor[a];
    const Block before = word(n, x.at, b);
    const dsm::BlockStep step = mutated(dsm::next(before, event), before, event);
    if (step.verdict != dsm::Verdict::proceed) return step.verdict;
    Block claimed = before;
    claimed.busy = true;
    put_word(n, x.at, b, claimed);
    x.acting = 1;
    x.block = b;
    x.event = Byte(event);
    x.action = x.sub = x.cell = x.owner = x.value = x.found_own = 0;
    return step.verdict;
  }

  /// Held::claim of one more block of the page, as the way says. x.todo: how many it has looked at.
  dsm::Claiming claim_next(State& n, Actor& x, Byte p, dsm::Way way, Event event) const {
    const auto b = Byte(first(p) + x.todo);
    const Block w = word(n, x.at, b);
    const dsm::Verdict verdict = mutated(dsm::next(w, event), w, event).verdict;
    const dsm::Claiming claiming = dsm::next(way, verdict);
    if (claiming == dsm::Claiming::next) ++x.todo;
    if (claiming == dsm::Claiming::give_back) give_back_held(n, x);
    if (verdict == dsm::Verdict::proceed) hold(n, x, b);
    return claiming;
  }
  static void hold(State& n, Actor& x, Byte b) noexcept {
    Block w = word(n, x.at, b);
    w.busy = true;
    put_word(n, x.at, b, w);
    set_bits(x.held, 1u << b);
  }
  /// Has it looked at all of the page? Then it needs the number no more.
  [[nodiscard]] bool all_seen(Actor& x) const noexcept {
    if (x.todo != program_.blocks_per_page) return false;
    x.todo = 0;
    return true;
  }
  static Byte take_lowest(Byte& of) noexcept {
    const auto b = Byte(__builtin_ctz(of));
    clear_bits(of, 1u << b);
    return b;
  }
  void give_back_held(State& n, Actor& x) const {
    x.todo = 0;
    while (x.held != 0) {
      const Byte b = take_lowest(x.held);
      if (!without(held_kept)) give_back(n, x.at, b);
    }
  }

  /// Blocks::finish: the sets, then the word. False: not the word yet.
  bool finish(State& n, Byte r, Byte b, const Block& after, bool open) const {
    const bool clean = !after.dirty() || (open && without(open_counts_clean));
    if (word(n, r, b).dirty() && clean && (n.dirty[r] & 1 << b))
      return clear_bits(n.dirty[r], 1u << b), false;
    if (after.access == mem::Access::none || after.owned) clear_bits(n.cached[r], 1u << b);
    put_word(n, r, b, after);
    // bytes that are not read again: equal states look equal
    if (after.owned && !after.saved) clear(n.disk[r][b]);
    if (!after.twin) clear(n.twin[r][b]);
    return true;
  }

  /// Held::open of what is held: V, block by block; then act(), true if it was a step; then the words, which
  /// become after(block). over(): what follows the last one. x.sub: its state.
  struct Nothing {
    bool operator()() const noexcept { return false; }
  };
  template <class Act = Nothing>
  void open_next(State& n, Byte a, auto&& emit, const auto& after, const auto& over,
                 const Act& act = {}) const {
    Actor& x = n.actor[a];
    for (;; x.sub = Byte(dsm::next(static_cast<dsm::HeldState>(x.sub)))) {
      switch (static_cast<dsm::HeldState>(x.sub)) {
        case dsm::HeldState::show:
          for (Byte b = 0; b < B; ++b) {
            Byte& prot = n.prot[x.at][b];
            if (!(x.held & 1 << b) || prot == Byte(after(b).access)) continue;
            const bool more = prot < Byte(after(b).access);
            prot = Byte(after(b).access);
            return emit(n, acts(a, more ? Action::allow_write : Action::protect_none));
          }
          break;
        case dsm::HeldState::shown:
          if (act()) return;
          break;
        case dsm::HeldState::finish:
        case dsm::HeldState::free: {
          const auto b = Byte(__builtin_ctz(x.held));
          const bool late = without(held_finished_first) && !word(n, x.at, b).busy;
          const Block becomes = late ? word(n, x.at, b) : after(b);
          if (!late && !finish(n, x.at, b, becomes, (x.opens & 1 << b) != 0))
            return emit(n, Step{kClean, a, b});
          if (late) n.prot[x.at][b] = Byte(becomes.access);
          const bool shows_late = without(held_finished_first) && n.prot[x.at][b] > Byte(becomes.access);
          if (!shows_late) clear_bits(x.held, 1u << b);
          if (x.held == 0) x.sub = 0, over();
          return emit(n, Step{kFinish, a, b});
        }
      }
    }
  }

  void end_acting(State& n, Byte a) const {
    Actor& x = n.actor[a];
    x.acting = x.block = x.event = x.action = x.found_own = 0;
    finish_event(n, a);
  }
  static void next_action(Actor& x) {
    ++x.action;
    x.sub = x.cell = x.owner = x.value = 0;
  }

  void act(const State& s, Byte a, auto&& emit) const {
    State n = s;
    Actor& x = n.actor[a];
    const dsm::BlockStep step = claimed_step(s, x);
    const Action action = x.action < step.actions.size() ? step.actions[x.action] : Action::end;
    const auto done = [&] { emit(n, acts(a, action, s.actor[a].sub)); };
    const auto put_over = [&](dsm::PutState end) {
      if (end == dsm::PutState::put) return next_action(x);
      if (end == dsm::PutState::later) return set_bits(x.back, 1u << x.block);
      x.found_own = kOwn;
      x.action = x.sub = 0;
    };
    Byte& prot = n.prot[x.at][x.block];
    if (x.back != 0) {  // Fence::open_changed, then finish
      const auto access = Byte(before_claim(s, x.at, x.block).access);
      if (prot == access)
        give_back_and_ask(n, a);
      else
        prot = access;
      return done();
    }
    const bool blanks = event_of(x) == Event::blank;
    // word 0: while the bit is held the page stays where it is
    if (blanks && x.action == 0 && x.value == 0) {
      if (gas::owned_on_ssd(entry(s, page(x.block)), Rank{x.at})) {
        x.value = 1;
        return emit(n, Step{kEvent, a, x.block});
      }
      give_back(n, x.at, x.block);
      next_of_event(n, a);
      return emit(n, Step{kGiveUp, a, s.actor[a].block});
    }
    switch (action) {
      case Action::end:
        if (!finish(n, x.at, x.block, step.after, false)) return emit(n, Step{kClean, a, x.block});
        if (blanks) {  // forgotten on SSD; what M holds must not be read
          clear(n.disk[x.at][x.block]), clear(n.memory[x.at][x.block]);
          set_bits(n.nothing, 1u << x.block);
        }
        end_acting(n, a);
        return emit(n, Step{kFinish, a, s.actor[a].block});
      case Action::allow_read:
        fill(n, x.at, x.block);
        prot = 1;
        break;
      case Action::allow_write:
        fill(n, x.at, x.block);
        if (step.after.whole && !(n.dirty[x.at] & 1 << x.block)) {  // mark_dirty: before any store can land
          set_bits(n.dirty[x.at], 1u << x.block);
          return done();
        }
        prot = 2;
        break;
      case Action::protect_read:
      case Action::protect_none: prot = action == Action::protect_read ? 1 : 0; break;
      case Action::mark_page:
        if (!mark_next(n, x, x.sub)) return done();
        break;
      case Action::make_twin:
        if (without(tier_holds_and_waits) && !has_room(n, x.at)) return;
        fill(n, x.at, x.block);
        fill_twin(n, x.at, x.block);
        copy(n.memory[x.at][x.block], n.twin[x.at][x.block]);
        set_bits(n.dirty[x.at], 1u << x.block);  // mark_dirty: before any store can land
        break;
      case Action::restore_bytes:
        for (Byte c = 0; c < kCells; ++c) {
          if ((instr(s, a).cell & 1 << c) == 0) continue;
          Byte &mine = n.memory[x.at][x.block][c], &base = n.twin[x.at][x.block][c];
          (without(r7_freed_bytes_stay) ? base = mine : mine = base);
        }
        break;
      case Action::fetch:
      case Action::find: return fetch(n, a, action == Action::find, done);
      case Action::refresh: return refresh(n, a, done);
      case Action::merge_arrival: break;  // only own_page() has it
      case Action::read_back:
        fill(n, x.at, x.block);
        copy(s.disk[x.at][x.block], n.memory[x.at][x.block]);
        break;
      case Action::diff_put:
      case Action::put_all: return put_changes(n, a, x.sub, false, action == Action::put_all, done, put_over);
      case Action::diff_put_live:
      case Action::put_all_live:
        return put_changes(n, a, x.sub, true, action == Action::put_all_live, done, put_over);
    }
    next_action(x);
    done();
  }

  /// x.sub of a worker that fetches or refreshes: where its FetchState machine is, or what it does beside.
  static constexpr Byte at(dsm::FetchState state) noexcept { return Byte(1 + Byte(state)); }
  static constexpr Byte kBegins = 0, kLocates = at(dsm::FetchState::locate),
                        kJoins = at(dsm::FetchState::join), kReads = at(dsm::FetchState::read),
                        kFetched = at(dsm::FetchState::fetched), kElsewhere = at(dsm::FetchState::elsewhere),
                        kMarksThere = kElsewhere + 1, kTakesPart = kMarksThere + 1,
                        kListsLate = kTakesPart + 1;

  /// Fetches::fetch: adds the block to the cached ones; then the machine. find: without the bytes.
  void fetch(State& n, Byte a, bool find, const auto& done) const {
    Actor& x = n.actor[a];
    const Byte p = page(x.block);
    const auto to = [&](Byte sub) { x.sub = sub, done(); };
    switch (x.sub) {
      case kBegins:
        if (!without(cached_after_read)) set_bits(n.cached[x.at], 1u << x.block);
        return to(kLocates);
      case kLocates: return locate(n, x, done);
      case kJoins: return find && without(whole_unjoined) ? to(kReads) : join(n, x, done);
      case kMarksThere: return mark_at_owner(n, x, done);
      case kTakesPart: {  // partial already, or from SSD by a compare-swap
        const bool partial = x.value == Byte(gas::Tier::partial);
        if (!partial && !gas::owned_on_ssd(entry(n, p), Rank{x.at}) && !without(part_in_busy)) {
          x.value = 0;
          return to(kElsewhere);
        }
        if (!partial && !without(part_not_noted)) put_entry(n, p, gas::in_part(entry(n, p)));
        clear_bits(n.cached[x.at], 1u << x.block);
        x.found_own = kOnSsd;
        x.action = x.owner = x.value = x.stale = 0;
        return to(kBegins);
      }
      case kElsewhere:  // gives up the claim before it waits (rule 8)
        give_back(n, x.at, x.block);
        clear_bits(n.cached[x.at], 1u << x.block);
        x.acting = x.block = x.event = x.action = x.owner = x.stale = 0;
        clear_bits(x.room, 3);
        return to(kBegins);
      case kReads:
        if (find) {
          x.cell = kCells;
        } else if (x.cell < kCells) {
          n.memory[x.at][x.block][x.cell] = n.memory[x.owner][x.block][x.cell];
          ++x.cell;
        }
        if (x.cell < kCells) return done();
        check(n, x);
        if (x.sub != kFetched) return done();
        if (without(cached_after_read)) return to(kListsLate);
        break;
      default: set_bits(n.cached[x.at], 1u << x.block);  // kListsLate
    }
    next_action(x);
    done();
  }

  void locate(State& n, Actor& x, const auto& done) const {
    using dsm::Fetched;
    const Byte p = page(x.block);
    const bool acquires = event_of(x) == Event::acquire;
    if (acquires) {  // its rank goes on holding what is kept
      if (!(x.waking == kAwake && comes_home(n, x)) && !wakes(n, actor_of(n, x), done)) return;
      if (n.owner[p] == x.at) return next_action(x), done();  // no notice is needed
    }
    if (without(tier_holds_and_waits) && !has_room(n, x.at)) return;
    x.stale = 0;
    x.owner = n.owner[p];
    gas::Location where = entry(n, p);
    if (without(where.owner == Rank{x.at} ? tier_own_asleep : tier_read_asleep) && !where.busy)
      where.tier = gas::Tier::dram;
    const Fetched found = dsm::fetch_source(where, Rank{x.at});
    const auto becomes = [&](dsm::FetchEvent event) {
      x.sub = at(next(dsm::FetchState::locate, event).state);
    };
    becomes(dsm::FetchEvent::found);
    // through its rank's entry it is found all the same
    if (found != Fetched::yes && x.owner != x.at && !n.recalled[p]) {
      const State before = n;
      done();
      if (acquires) return;
      n = before;
    }
    if (found == Fetched::own || (found == Fetched::on_ssd && without(part_unarmed_page))) {
      x.found_own = kOwn;
      x.action = x.sub = x.owner = 0;
    } else if (found == Fetched::on_ssd) {
      x.sub = kTakesPart;
      x.value = n.tier[p];
    } else if (found == Fetched::leaving && x.owner == x.at && without(r8_use_while_leaving)) {
      x.sub = kReads;
      x.cell = kCells;
    } else if (found != Fetched::yes) {
      becomes(dsm::FetchEvent::not_found);
      x.waking = found == Fetched::on_ssd_elsewhere ? kAsking : kAwake;
      x.whom = found == Fetched::on_ssd_elsewhere ? Byte(x.owner + 1) : 0;
    }
    done();
  }
  static Byte actor_of(const State& n, const Actor& x) noexcept { return Byte(&x - n.actor); }

  void join(State& n, Actor& x, const auto& done) const {
    clear_bits(x.stale, 2);
    const gas::ReaderState before = stay(n, x.at, page(x.block));
    if (before.joined && !before.complete()) return mark_at_owner(n, x, done);
    if (!before.complete() && !without(r6_no_join) && !without(r6_join_after_data))
      set_bits(n.readers[page(x.block)], bits_of(x.at));
    // complete: nor must the owner look. It was asked to, or has sent a notice since, or its stores fault
    x.sub = before.complete() ? joined() : kMarksThere;
    done();
  }
  void mark_at_owner(State& n, Actor& x, const auto& done) const {
    if (!without(r6_no_owner_mark) && !without(r6_owner_mark_after_data))
      set_bits(n.marked[x.owner], bit_of_page(x.block));
    x.sub = joined();
    done();
  }
  static Byte joined() noexcept { return at(next(dsm::FetchState::join, dsm::FetchEvent::done).state); }

  /// The bytes have been read. Did the page stand, and did no acquire begin to drop? Its rank knows itself
  /// among the readers, unless it has left.
  void check(State& n, Actor& x) const {
    using enum dsm::FetchEvent;
    const Byte p = page(x.block);
    if (without(r6_join_after_data)) set_bits(n.readers[p], bits_of(x.at));
    if (without(r6_owner_mark_after_data)) set_bits(n.marked[x.owner], 1u << p);
    const dsm::FetchStep step =
        next(next(dsm::FetchState::read, done).state, (x.stale & 4) && !without(r6_not_stood)    ? moved
                                                      : (x.stale & 1) && !without(r2_no_recheck) ? dropped
                                                                                                 : stood);
    if ((step.is_reader || without(r6_stay_without_standing)) &&
        (!(x.stale & 2) || without(r6_stay_noted_blindly)))
      set_stay(n, x.at, p, stay(n, x.at, p).after_joining());
    x.sub = at(step.state);
    x.stale = x.cell = 0;
  }
  [[nodiscard]] const gas::RankCode& readers() const noexcept { return program_.readers; }
  [[nodiscard]] Rank number(Byte r) const noexcept { return Rank{program_.number[r]}; }
  [[nodiscard]] std::uint64_t bits_of(Byte r) const noexcept { return readers().of(number(r)); }
  static gas::ReaderState stay(const State& s, Byte r, Byte p) noexcept {
    return {(s.stays[r] & 1 << p) != 0, (s.asks[r] & 1 << p) != 0, 0};
  }
  static void set_stay(State& n, Byte r, Byte p, gas::ReaderState stay) noexcept {
    (stay.joined ? set_bits : clear_bits)(n.stays[r], 1u << p);
    (stay.asked ? set_bits : clear_bits)(n.asks[r], 1u << p);
  }

  /// A fault gave its claim up since the page is leaving: it looks again when that is over.
  bool leaving(const State& s, const Actor& x, Byte b) const {
    const Byte p = page(b);
    const bool through_entry = s.owner[p] != x.at && !s.recalled[p];
    return !through_entry && dsm::fetch_source(entry(s, p), Rank{x.at}) == dsm::Fetched::leaving &&
           !without(r8_use_while_leaving);
  }

  [[nodiscard]] bool comes_home(const State& s, const Actor& x) const {
    return s.owner[page(x.block)] == x.at && !without(tier_put_own_asleep);
  }

  Action action_of(const State& s, const Actor& x) const {
    const dsm::BlockStep step = claimed_step(s, x);
    return !x.found_own && x.action < step.actions.size() ? step.actions[x.action] : Action::end;
  }
  bool fetching(const State& s, const Actor& x) const {
    const Action action = action_of(s, x);
    return action == Action::fetch || action == Action::find;
  }
  bool refreshing(const State& s, const Actor& x) const { return action_of(s, x) == Action::refresh; }

  /// The merge of rule 4 from the owner's copy into a pinned block: where it differs from the twin it goes
  /// into M and the twin. First the owner's bytes come into a buffer (x.value: one byte's value a nibble);
  /// stores may happen before they are merged.
  void refresh(State& n, Byte a, const auto& done) const {
    Actor& x = n.actor[a];
    switch (x.sub) {
      case kBegins:
        if (!(x.waking == kAwake && comes_home(n, x)) && !wakes(n, a, done)) return;
        x.owner = n.owner[page(x.block)];
        clear_bits(x.stale, 4);
        x.sub = at(next(dsm::FetchState::locate, dsm::FetchEvent::found).state);
        if (x.owner == x.at) next_action(x);
        return done();
      case kJoins: return join(n, x, done);
      case kMarksThere: return mark_at_owner(n, x, done);
      case kReads:
        x.value = Byte(x.value | n.memory[x.owner][x.block][x.cell] << 4 * x.cell);
        if (++x.cell < kCells) return done();
        check(n, x);
        if (x.sub == kLocates) x.sub = kBegins, x.value = 0;
        return done();
      default: {
        const bool twin = word(n, x.at, x.block).dirty();  // what was whole has one by now
        Byte& mine = n.memory[x.at][x.block][x.cell];
        Byte& reference = twin ? n.twin[x.at][x.block][x.cell] : mine;
        const auto theirs = Byte(x.value >> 4 * x.cell & 15);
        if (theirs != reference || without(r4_plain_refresh)) {
          mine = theirs;
          if (twin && !without(r4_twin_left)) reference = theirs;
        }
        if (++x.cell == kCells) next_action(x);
        return done();
      }
    }
  }

  /// Sharing::mark: noted as ours, then marked. False: not marked yet.
  bool mark_next(State& n, const Actor& x, Byte& step) const {
    const bool notes = (step == 0) != without(ours_noted_late);
    notes ? note_ours(n, x.at, page(x.block)) : set_bits(n.marked[x.at], bit_of_page(x.block));
    return step++ != 0;
  }

  /// Fence::go_on, of x.block alone; `at`: its PutState. over(PutState): it has ended. live: stores may
  /// happen meanwhile. all: whatever the twin says. x.value: the bytes found changed; their values wait in
  /// `flying`, mask 0.
  void put_changes(State& n, Byte a, Byte& at, bool live, bool all, const auto& done,
                   const auto& over) const {
    using dsm::PutEvent, dsm::PutState;
    Actor& x = n.actor[a];
    const Byte p = page(x.block), bit = Byte(1 << x.block);
    Flying& f = n.flying[x.at][x.block];
    Byte* mine = n.memory[x.at][x.block];
    Byte* twin = n.twin[x.at][x.block];
    const auto goes = [&](PutState state) {
      at = Byte(state);
      if (state >= PutState::put) over(state);
      done();
    };
    const auto after = [&](PutEvent event) { goes(next(static_cast<PutState>(at), event)); };
    switch (static_cast<PutState>(at)) {
      case PutState::begin:
        // only where completion is not awaited: one put of a block at a time all the same
        if (f.mask != 0) return;
        if (x.waking == kAwake && asleep(n, p) && comes_home(n, x) && !without(tier_put_asleep)) {
          x.owner = n.tier[p];
          return after(PutEvent::on_ssd);
        }
        if (x.waking != kAwake || (asleep(n, p) && !without(tier_put_asleep)))
          return asks_holding(n, x) ? ask_holding(n, a, done) : after(PutEvent::absent);
        // until the page has moved
        if (n.recalled[p] && !asleep(n, p) && !without(r8_put_ignores_busy)) return;
        ++n.puts[p];
        x.owner = n.owner[p];
        return after(PutEvent::begun);
      case PutState::send: {
        const bool own = x.owner == x.at;  // our M is the master copy: the bytes are where they belong
        if (own && (x.opens & bit)) {      // Fence::close: it is released as any other
          n.prot[x.at][x.block] = 1;
          clear_bits(x.opens, bit);
          live = false;
        }
        if (own && !live) return after(PutEvent::nothing);
        const Byte until = live ? Byte(x.cell + 1) : kCells;  // protected: no store meanwhile
        for (; x.cell < until; ++x.cell) {
          const bool later = x.value & 1 << kCells;  // the second load
          if (!later && !all && mine[x.cell] == twin[x.cell] && !without(r3_gaps)) continue;
          if (!later) f.value[x.cell] = mine[x.cell];
          set_bits(x.value, 1u << x.cell);
          if (live && !all && without(r3_two_loads) && !later) return set_bits(x.value, 1 << kCells), done();
          if (live && !(all && without(whole_twin_left)))
            twin[x.cell] = later ? mine[x.cell] : f.value[x.cell];
          clear_bits(x.value, 1 << kCells);
        }
        if (x.cell < kCells) return done();
        x.cell = 0;
        if (live && all) fill_twin(n, x.at, x.block);
        f.to = x.owner;
        f.mask = own && !without(put_over_own) ? Byte{0} : x.value;
        if (f.mask == 0) f = Flying{};
        // the use ends when they have landed
        if (f.mask != 0 && (without(r3_no_completion) || without(r4_unlock_early))) {
          set_bits(n.changed[x.at], bit);
          set_bits(n.marked[x.at], 1u << p);
          return goes(PutState::put);
        }
        return after(PutEvent::sent);
      }
      case PutState::await: {  // every byte has landed
        if (f.mask != 0 && !(without(put_counted_twice) && f.mask != x.value)) return;
        const bool changed = x.value != 0 && !without(r5_put_untold);
        x.value = 0;
        return after(changed ? PutEvent::done : PutEvent::nothing);
      }
      case PutState::note:  // Sharing::changed
        if (x.cell == 0) return set_bits(n.changed[x.at], bit), x.cell = 1, done();
        set_bits(n.marked[x.at], 1u << p);
        x.cell = 0;
        return after(PutEvent::done);
      case PutState::end: --n.puts[p]; return after(PutEvent::done);
      case PutState::keep: {  // by a compare-swap, unless it was partial
        const bool ours = x.owner == Byte(gas::Tier::partial) || gas::owned_on_ssd(entry(n, p), Rank{x.at});
        x.owner = 0;
        if (!ours) return after(PutEvent::moved);
        put_entry(n, p, gas::in_part(entry(n, p)));
        return after(PutEvent::done);
      }
      case PutState::put:
      case PutState::kept:
      case PutState::later: return;
    }
  }

  // ---- instructions

  void step(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    if (x.acting) return act(s, a, emit);
    if (x.waking != kAwake && !runs(x)) return wake(s, a, emit);
    const Instr& i = instr(s, a);
    switch (i.what) {
      case Do::load: return access(s, a, false, emit);
      case Do::store:
      case Do::add: return access(s, a, true, emit);
      case Do::set:
        return simple(s, a, kSet, emit, [&](State& n) {
          n.flag[i.block] = Byte(x.at + 1);
          return true;
        });
      case Do::poke:
        return simple(s, a, kStore, emit, [&](State& n) {
          n.memory[x.at][i.block][i.cell] = n.ghost[i.block][i.cell] = i.value;
          clear_bits(n.freed[i.block], 1u << i.cell);
          return true;
        });
      case Do::see: return simple(s, a, kSee, emit, [&](State& n) { return n.flag[i.block] != 0; });
      case Do::cross: return cross_edge(s, a, s.flag[i.block], emit);
      case Do::lock: return take_lock(s, a, emit);
      case Do::unlock:
        return simple(s, a, kUnlock, emit, [&](State& n) {
          n.held[i.block] = 0;
          const bool early = without(lock_marked_early) && s.leading[x.at][kRelease];
          n.last[i.block] = Byte((x.at + 1) | (i.value == kMarked && early ? kReleasing : i.value));
          return true;
        });
      case Do::own: return own_page(s, a, i.block, emit);
      case Do::hand_back: return hand_page_back(s, a, emit);
      case Do::reclaim:
        return circles() ? arm_owned(s, a, emit) : block_event(s, a, Event::arrive_blank, emit);
      case Do::pin_write:
        return block_event(s, a, without(whole_edge) ? Event::pin_whole : Event::pin_write, emit);
      case Do::pin_whole: return block_event(s, a, Event::pin_whole, emit);
      case Do::pin_read: return block_event(s, a, Event::pin_read, emit);
      case Do::unpin: return block_event(s, a, Event::unpin, emit);
      // Coherence::discard: the changes, then the copy if this rank may have a notice of it
      case Do::discard:
        if (x.stage == 0)
          return block_event(s, a, i.cell == kAllCells ? Event::discard_block : Event::discard, emit);
        if (nothing_told_of(s, x.at, i.block) || without(r7_told_copy_stays))
          return pass(s, a, kNothing, emit);
        return block_event(s, a, Event::acquire, emit);
      case Do::take:
        if (without(r7_no_drop)) return pass(s, a, kNothing, emit);
        return block_event(s, a, Event::acquire, emit);
      case Do::send: return block_event(s, a, Event::release, emit);
      case Do::blank: return blank_block(s, a, emit);
      case Do::forget:
        return simple(s, a, kForget, emit, [&](State& n) {
          for (const Byte b : of_page(i.block)) clear(n.disk[x.at][b]), n.freed[b] = kAllCells;
          if (n.tier[i.block] != 0) set_bits(n.nothing, blocks_of(i.block));
          return true;
        });
      case Do::assign:
        return simple(s, a, kHandBack, emit, [&](State& n) {
          if (n.busy[i.block]) return false;
          if (n.tier[i.block] != 0 && !without(forgotten_untold)) replaced(n, x.at, i.block);
          return true;
        });
      case Do::release:
        if (without(lock_unreleased)) return pass(s, a, kNothing, emit);
        return fence(s, a, kRelease, emit);
      case Do::acquire: return fence(s, a, kAcquire, emit);
      case Do::put: return put_directly(s, a, emit);
      case Do::get: return get_directly(s, a, emit);
      case Do::keep: return keep_budget(s, a, emit);
      case Do::end: return;
    }
  }

  void pass(const State& s, Byte a, std::uint16_t kind, auto&& emit) const {
    simple(s, a, kind, emit, [](State&) { return true; });
  }
  void simple(const State& s, Byte a, std::uint16_t kind, auto&& emit, const auto& f) const {
    State n = s;
    if (!f(n)) return;
    next_instr(n, a);
    emit(n, Step{kind, a, instr(s, a).block});
  }

  void access(const State& s, Byte a, bool writes, auto&& emit) const {
    const Instr& i = instr(s, a);
    const Actor& x = s.actor[a];
    const bool loads = !writes || (i.what == Do::add && x.stage == 0);
    const Byte allowed = s.prot[x.at][i.block];
    State n = s;
    Byte& byte = n.memory[x.at][i.block][i.cell];
    if (allowed >= (loads ? 1 : 2)) {
      if (loads) {
        if (byte != s.ghost[i.block][i.cell])
          return emit(n, Step{kLoad, a, i.block}, "a load returned a stale or lost value");
        if (i.what == Do::add) {
          n.actor[a].stage = 1;
          n.actor[a].loaded = byte;
        } else {
          next_instr(n, a);
        }
        return emit(n, Step{kLoad, a, i.block});
      }
      byte = i.what == Do::add ? Byte(x.loaded + 1) : i.value;
      n.ghost[i.block][i.cell] = byte;
      clear_bits(n.freed[i.block], 1u << i.cell);
      next_instr(n, a);
      return emit(n, Step{kStore, a, i.block});
    }
    if (leaving(s, x, i.block)) return;
    if (!without(tier_holds_and_waits) && !admitted(s, a, emit)) return;
    if (try_claim(n, a, i.block, loads ? Event::load : Event::store) != dsm::Verdict::proceed)
      return;  // busy: come back
    emit(n, Step{loads ? kLoadFault : kStoreFault, a, i.block});
  }

  void take_lock(const State& s, Byte a, auto&& emit) const {
    const Instr& i = instr(s, a);
    if (s.actor[a].stage == 0) {
      if (s.held[i.block]) return;
      State n = s;
      n.held[i.block] = Byte(a + 1);
      n.actor[a].stage = 1;
      return emit(n, Step{kLock, a, i.block});
    }
    const Byte last = s.last[i.block] & ~(kHasReleased | kMarked | kReleasing);
    const Byte released = without(lock_mark_unended) ? kHasReleased | kReleasing : kHasReleased;
    if ((s.last[i.block] & released) == 0 || last - 1 == program_.workers[a].rank || s.actor[a].stage != 1)
      return cross_edge(s, a, last, emit);
    State n = s;
    n.actor[a].stage = 3;  // it acquires
    emit(n, Step{kSee, a, last});
  }

  /// The edge of docs/design/sched.md: the fact was seen; its source releases, then this rank acquires.
  /// source: rank + 1; 0: nothing has happened yet.
  void cross_edge(const State& s, Byte a, Byte source, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Byte me = program_.workers[a].rank;
    State n = s;
    Actor& y = n.actor[a];
    if (x.stage <= 1) {
      if (source == 0 && instr(s, a).what == Do::cross) return;  // the fact is not there yet
      if (source == 0 || source - 1 == me) {
        next_instr(n, a);
      } else {
        y.at = without(r1_no_source_release) ? me : Byte(source - 1);
        y.stage = without(r1_no_source_release) ? 3 : 2;
      }
      return emit(n, Step{kSee, a, source});
    }
    if (x.round == 3) {
      if (x.stage == 2 && !without(r1_no_acquire)) {
        y.stage = 3;
        y.round = 0;
        y.at = me;
      } else {
        next_instr(n, a);
      }
      return emit(n, Step{kSee, a, source});
    }
    join_round(s, a, x.stage == 2 ? kRelease : kAcquire, emit);
  }

  void fence(const State& s, Byte a, Kind kind, auto&& emit) const {
    if (s.actor[a].round != 3) return join_round(s, a, kind, emit);
    pass(s, a, kRoundEnd, emit);
  }

  /// dsm/rounds.h, with "did a round begin since I asked?" in the place of its numbers.
  void join_round(const State& s, Byte a, Kind kind, auto&& emit) const {
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    if (x.round == 2) return sweep(s, a, kind, emit);
    if (x.round == 0) {
      // the shortcuts of release_all (at another rank ask_release's) and acquire_all
      if (kind == kRelease ? nothing_to_release(s, x.at) : nothing_to_drop(s, x.at)) {
        y.round = 3;
        return emit(n, Step{kNothing, a, kind});
      }
      y.round = 1;
      y.joined = s.leading[x.at][kind] &&
                 (kind == kRelease ? without(r3_join_running_round) : without(r2_join_running_round));
      y.event = kind;  // its end serves this one, too
      return emit(n, Step{kAsk, a, kind});
    }
    if (s.leading[x.at][kind]) return;
    n.leading[x.at][kind] = 1;
    for (Actor& other : n.actor)
      if (&other != &y && other.round == 1 && other.at == x.at && other.event == kind) other.joined = 1;
    y.round = 2;
    y.joined = y.event = 0;
    if (kind == kRelease) {
      age_marks(n, x.at, kMarked, kReleasing);
      y.todo = Byte((1 << B) - 1);
      if (without(r5_tell_before_completion)) begin_telling(n, y);
    } else {
      n.dropping[x.at] = 1;
      y.pages = 1;  // the notices are not taken yet
    }
    emit(n, Step{kLead, a, kind});
  }

  /// A release of the rank begins, or ends: dsm/rounds.h, whose numbers tell which marks came before.
  static void age_marks(State& n, Byte rank, Byte from, Byte to) {
    for (Byte& last : n.last) {
      if ((last & from) != 0 && (last & ~(kHasReleased | kMarked | kReleasing)) == rank + 1)
        last = Byte((last & ~from) | to);
    }
  }

  static void begin_telling(State& n, Actor& y) {
    n.telling[y.at] = 1;
    y.telling = 1;
    y.pages = Byte((1 << B) - 1);
  }

  bool naming(const State& s, Byte rank) const {
    return std::any_of(s.naming, s.naming + B, [&](Byte n) { return (n & ~kArrived) == rank + 1; });
  }

  void sweep(const State& s, Byte a, Kind kind, auto&& emit) const {
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    const bool flushing = kind == kRelease;
    if (!flushing && x.pages) {  // an acquire takes the notices
      y.pages = 0;
      y.told = s.stale[x.at];
      n.stale[x.at] = 0;
      if (y.told != 0)  // another number of acquires
        for (Actor& other : n.actor)
          if (other.at == x.at && other.acting && other.sub >= 2 && fetching(s, other)) other.stale = 1;
      return emit(n, Step{kTakeNotices, a, s.stale[x.at]});
    }
    if (!flushing && x.told != 0 && (!x.open || (x.todo == 0 && x.later == 0))) return hear(s, a, emit);
    if (x.telling != 0 && x.telling != 9) return tell(s, a, emit);
    if (runs(x)) return run(n, a, flushing, emit);
    if (x.todo == 0 && x.later == 0) {
      if (flushing && x.telling == 0 && naming(s, x.at) && !without(r8_release_before_named)) return;
      if (without(r4_unlock_early))  // the round awaits completion, only the blocks do not
        for (const Flying& f : s.flying[x.at])
          if (f.mask != 0) return;
      if (flushing && x.telling == 0) {
        begin_telling(n, y);
        return emit(n, Step{kTell, a, 0});
      }
      y.telling = 0;
      if (flushing) age_marks(n, x.at, kReleasing, kHasReleased);
      if (!flushing) n.dropping[x.at] = 0;
      n.leading[x.at][kind] = 0;
      for (Actor& other : n.actor)
        if (other.round == 1 && other.joined && other.at == x.at && other.event == kind) {
          other.round = 3;
          other.joined = other.event = 0;
        }
      y.round = 3;
      return emit(n, Step{kRoundEnd, a, kind});
    }
    const bool again = x.todo == 0;
    const Byte set = again ? x.later : x.todo;
    const auto b = Byte(__builtin_ctz(set));
    Byte& from = again ? y.later : y.todo;
    const bool member = ((flushing ? s.dirty : s.cached)[x.at] & (1 << b)) != 0;
    if (member && may_stay_open(s, x.at, b)) {
      State other = n;
      Actor& z = other.actor[a];
      add(other, a, b, flushing ? Event::release_open : Event::acquire_open);
      Byte& set_of_other = again ? z.later : z.todo;
      clear_bits(set_of_other, 1 << b);
      emit(other, Step{kRoundClaim, a, b});
    }
    const dsm::Verdict verdict =
        member ? add(n, a, b, flushing ? Event::release : Event::acquire) : dsm::Verdict::done;
    if (dsm::next(again ? dsm::Way::all : dsm::Way::each, verdict) == dsm::Claiming::wait) return;
    if (verdict == dsm::Verdict::wait && (flushing || !without(r2_no_wait))) set_bits(y.later, 1 << b);
    clear_bits(from, 1 << b);
    emit(n, Step{verdict == dsm::Verdict::proceed ? kRoundClaim
                 : verdict == dsm::Verdict::wait  ? kLater
                                                  : kLook,
                 a, b});
  }

  /// Fence::add: takes the block in hand with others, or its step at once.
  dsm::Verdict add(State& n, Byte a, Byte b, Event event) const {
    Actor& x = n.actor[a];
    const Block w = word(n, x.at, b);
    const dsm::BlockStep step = dsm::next(w, event);
    const bool open = event == Event::release_open && step.after.access == mem::Access::write;
    if (step.verdict != dsm::Verdict::proceed || dsm::acts_alone(w, step, open))
      return try_claim(n, a, b, event);
    if (w.dirty()) set_bits(x.unsent, 1u << b);
    if (open) set_bits(x.opens, 1u << b);
    hold(n, x, b);
    return step.verdict;
  }
  /// A round has taken all in hand that it could, and goes on with that.
  static bool runs(const Actor& x) noexcept { return x.round == 2 && x.todo == 0 && x.held != 0; }
  /// Fence::run, block by block. x.action: the put's state.
  void run(State& n, Byte a, bool flushing, auto&& emit) const {
    Actor& x = n.actor[a];
    if (x.sub == 0 && flushing && (without(r3_no_protect) || without(held_finished_first)))
      x.sub = Byte(dsm::HeldState::shown);
    const auto after = [&](Byte b) {
      const Block before = before_claim(n, x.at, b);
      if (x.back & 1 << b) return before;
      const Event event = x.kept & 1 << b    ? Event::found_own
                          : x.opens & 1 << b ? Event::release_open
                          : flushing         ? Event::release
                                             : Event::acquire;
      return dsm::next(before, event).after;
    };
    const auto put = [&] {
      if (x.unsent == 0) return false;
      const auto b = Byte(__builtin_ctz(x.unsent));
      const auto done = [&] { emit(n, acts(a, Action::diff_put, x.action)); };
      const auto next_put = [&] {
        clear_bits(x.unsent, 1u << b);
        x.action = x.block = x.cell = x.owner = x.value = 0;
      };
      x.block = b;
      if (x.kept & 1 << b) {  // Fence::open_changed
        if (x.cell < 2 && !without(r5_first_meeting_unseen)) return mark_next(n, x, x.cell), done(), true;
        n.prot[x.at][b] = 2;
        return next_put(), done(), true;
      }
      if (x.back & 1 << b) {  // Fence::open_changed, too
        n.prot[x.at][b] = Byte(before_claim(n, x.at, b).access);
        return next_put(), done(), true;
      }
      const bool live = (x.opens & 1 << b) != 0 && !without(open_unsent_twin),
                 all = word(n, x.at, b).whole && !without(whole_diffed);
      put_changes(n, a, x.action, live, all, done, [&](dsm::PutState end) {
        if (end == dsm::PutState::put) return next_put();
        set_bits(end == dsm::PutState::later ? x.back : x.kept, 1u << b);
        x.cell = x.value = 0;
      });
      return true;
    };
    const auto over = [&] {
      x.opens = x.kept = 0;
      if (x.back == 0) return;
      set_bits(x.later, x.back);
      ask_for(n, x, Byte(__builtin_ctz(x.back)));
    };
    open_next(n, a, emit, after, over, put);
  }

  /// That is a guess of the shipped code, so both are tried.
  [[nodiscard]] bool may_stay_open(const State& s, Byte r, Byte b) const noexcept {
    const Block w = word(s, r, b);
    return program_.open && !w.busy && w.twin && w.pins == 0;
  }

  /// Sharing::take_notices for a page: which blocks; does the rank stay a reader, as it has copies of others?
  /// That is a guess, so both are tried. If not, its bit is taken back, and all blocks are dropped. That is
  /// recorded; then the blocks are examined. x.sure: how far; x.blocks: blocks of the notice; x.open: only
  /// where a rule is left out: it examines the blocks first.
  void hear(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    enum : Byte { kTakes, kTakesLate, kLeaves, kNotesLeaving, kLast };
    const auto p = Byte(__builtin_ctz(x.told));
    const Byte all = blocks_of(p);
    const auto note = [&](bool keeps) {
      const bool still = without(keeps ? parts_asked_still : r6_stay_not_ended);
      if (!still) set_stay(n, x.at, p, stay(s, x.at, p).after_notice(keeps));
      for (Actor& other : n.actor)
        if (other.at == x.at && other.acting && page(other.block) == p && !still) set_bits(other.stale, 2);
    };
    const auto end_page = [&](Byte drops) {
      clear_bits(y.told, 1u << p);
      if (!x.open) set_bits(y.todo, drops);
      y.open = y.sure = y.blocks = 0;
    };
    switch (x.sure) {
      case kTakes:
        if (without(parts_asked_ended_early)) {
          note(true);
          y.sure = kTakesLate;
          return emit(n, Step{kKeep, a, p});
        }
        [[fallthrough]];
      case kTakesLate: {
        y.blocks = s.parts[x.at] & all;
        clear_bits(n.parts[x.at], all);
        if (y.blocks == 0) {  // taken already, with another notice
          end_page(0);
          return emit(n, Step{kHear, a, p});
        }
        for (const bool keeps : {true, false}) {
          State either = n;
          Actor& z = either.actor[a];
          z.sure = keeps ? kLast : without(r6_stay_ended_early) ? kNotesLeaving : kLeaves;
          if (without(keeps ? parts_asked_ended_late : r5_leave_after_drop)) {
            z.open = 1;
            set_bits(z.todo, keeps ? y.blocks : all);
          }
          emit(either, Step{kHear, a, p});
        }
        return;
      }
      case kLeaves:
        n.readers[p] = Byte(without(readers_leave_others) ? s.readers[p] & ~bits_of(x.at)
                                                          : readers().without(s.readers[p], number(x.at)));
        y.sure = kNotesLeaving;
        if (without(r6_stay_ended_early)) end_page(all);
        return emit(n, Step{kLeave, a, p});
      case kNotesLeaving:
        note(false);
        y.sure = kLeaves;
        if (!without(r6_stay_ended_early)) end_page(without(parts_left_kept) ? x.blocks : all);
        return emit(n, Step{kLeave, a, p});
      default:
        if (!without(parts_asked_ended_early)) note(true);
        end_page(without(parts_told_kept) ? Byte{0} : x.blocks);
        return emit(n, Step{kKeep, a, p});
    }
  }

  /// Sharing::send_notices and Coherence::inspect, page by page: what was put to; its readers; if it is own,
  /// each block's word, and its protection; its readers again; each gets the parts, then the page. x.sure:
  /// blocks that were put to; x.open: those that may have been stored to, and whether one is own.
  void tell(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    const auto bit = Byte(1 << x.now);
    enum : Byte { kNextPage = 1, kFirstLook, kBlocks, kReaders, kLateWatch, kParts, kNotices, kDone = 9 };
    enum : Byte { kWatches = 1, kAgain = 2 };  // x.watch
    constexpr Byte kOurs = 0x80;               // x.open
    const Byte all = blocks_of(x.now);
    const auto end_page = [&] {
      if (without(r5_note_cleared_late)) clear_bits(n.changed[x.at], all);
      y.telling = kNextPage;
      y.now = y.blocks = y.open = y.sure = y.watch = y.told = 0;
    };
    const auto read_readers = [&](Byte p) {
      y.told = 0;
      for (Byte r = 0; r < R; ++r) {
        const bool told = r != x.at && readers().names(s.readers[p], number(r));
        if (told && !(without(readers_forgotten) && y.told != 0)) set_bits(y.told, 1u << r);
      }
      if (without(r5_readers_taken)) n.readers[p] &= Byte(bits_of(x.at));
    };
    const bool notice_first = without(parts_after_notice);
    const auto begin_notices = [&] {
      y.blocks = 0;  // ranks that got the parts
      y.telling = notice_first ? kNotices : kParts;
      if (y.told == 0) end_page();
    };
    const Byte put = without(parts_put_unsaid) && (s.ours[x.at] & bit) ? Byte{0} : x.sure;
    switch (x.telling) {
      case kNextPage: {
        if (x.pages == 0) {
          n.telling[x.at] = 0;
          y.telling = kDone;
          return emit(n, Step{kTell, a, 1});
        }
        const auto p = Byte(__builtin_ctz(x.pages));
        clear_bits(y.pages, 1u << p);
        if (!(s.marked[x.at] & 1 << p)) return emit(n, Step{kTakePage, a, p});
        clear_bits(n.marked[x.at], 1u << p);
        y.now = p;
        y.sure = s.changed[x.at] & blocks_of(p);
        if (!without(r5_note_cleared_late)) clear_bits(n.changed[x.at], blocks_of(p));
        y.telling = kFirstLook;
        return emit(n, Step{kTakePage, a, p});
      }
      case kFirstLook:
        read_readers(x.now);
        if (without(r5_adopt_blindly)) clear_bits(n.stale[x.at], bit);
        if (without(r5_tell_late)) n.telling[x.at] = 0;
        if (y.told == 0 || (!(s.ours[x.at] & bit) && put == 0)) {
          end_page();
          return emit(n, Step{kTakeReaders, a, x.now});
        }
        if (!(s.ours[x.at] & bit)) {
          begin_notices();
          return emit(n, Step{kTakeReaders, a, x.now});
        }
        y.blocks = all;
        y.telling = kBlocks;
        emit(n, Step{kTakeReaders, a, x.now});
        if (x.sure) return;
        y.watch = kWatches;  // whether a page is watched is a guess of what pays: both are tried
        return emit(n, Step{kTakeReaders, a, x.now});
      case kBlocks:
      case kLateWatch: {
        if (x.blocks == 0) {
          if (x.telling == kLateWatch) {
            begin_notices();
            // not own any more. What has become so until then is seen by another look
          } else if (!(x.watch & kAgain) && !(x.open & kOurs)) {
            clear_bits(n.ours[x.at], bit);
            set_bits(y.watch, kAgain);
            if (!without(ours_forgotten)) y.blocks = all;
            return emit(n, Step{kNotOurs, a, x.now});
          } else {
            if ((x.watch & kAgain) && (x.open & kOurs)) note_ours(n, x.at, x.now);
            clear_bits(y.open, kOurs);
            if ((y.open | put) == 0) {
              end_page();
            } else if (x.watch & kWatches) {
              y.telling = kReaders;
            } else {
              begin_notices();
            }
          }
          return emit(n, Step{kTellLook, a, B});
        }
        const auto b = Byte(__builtin_ctz(x.blocks));
        clear_bits(y.blocks, 1u << b);
        Block seen = word(s, x.at, b);
        if (dsm::may_be_ours(seen)) set_bits(y.open, kOurs);
        if (without(tier_rest_watched) && seen.owned && seen.access == mem::Access::none)
          seen.access = mem::Access::read, seen.saved = false;
        if (without(part_saved_watched) && seen.saved) seen = {false, true, mem::Access::read};
        const bool absent = !seen.owned && !seen.busy;
        if (absent && without(tier_gone_untold)) return emit(n, Step{kTellLook, a, b});
        if (absent && without(part_absent_passed) && gas::Tier(s.tier[x.now]) == gas::Tier::partial)
          return emit(n, Step{kTellLook, a, b});
        const bool unsaid = without(parts_open_unsaid) && (x.open & all) != 0;
        if (dsm::may_have_changed(seen) && !unsaid) set_bits(y.open, 1u << b);
        const bool late = without(r5_watch_after_telling) && x.telling == kBlocks;
        // busy or pinned: it stays open
        if (x.watch == kWatches && !late) static_cast<void>(try_claim(n, a, b, Event::watch));
        return emit(n, Step{kTellLook, a, b});
      }
      case kReaders:  // again: readers that came before V was protected
        read_readers(x.now);
        if (without(r5_watch_after_telling)) {
          y.blocks = all;
          y.telling = kLateWatch;
        } else {
          begin_notices();
        }
        return emit(n, Step{kTakeReaders, a, x.now});
      default: {  // kParts: all get the parts; kNotices: then all get the page
        const auto r = Byte(__builtin_ctz(x.told));
        clear_bits(y.told, 1u << r);
        if (x.telling == kParts) {
          set_bits(n.parts[r], x.open | put);
        } else {
          set_bits(n.stale[r], bit);
        }
        set_bits(y.blocks, 1u << r);
        if (y.told == 0) {
          if ((x.telling == kParts) == notice_first) {
            end_page();
          } else {
            y.told = y.blocks;
            y.blocks = 0;
            y.telling = notice_first ? kParts : kNotices;
          }
        }
        return emit(n, Step{x.telling == kParts ? kTellParts : kTellRank, a, r});
      }
    }
  }

  /// A direct put (gas::DirectAccess): its own rank's copy is outdated from its completion on; its next
  /// release sends notices.
  void put_directly(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Instr& i = instr(s, a);
    const Byte p = page(i.block), me = program_.workers[a].rank;
    State n = s;
    Actor& y = n.actor[a];
    switch (x.stage) {
      case 0:
        if (asleep(s, p) && !without(tier_put_asleep)) {
          y.waking = kAsking;
          y.whom = Byte(s.owner[p] + 1);
          return emit(n, Step{kPut, a, 6});
        }
        if (s.recalled[p] && !asleep(s, p)) return;
        ++n.puts[p];
        y.owner = s.owner[p];
        n.direct[a] = 1;
        n.ghost[i.block][i.cell] = i.value;
        clear_bits(n.freed[i.block], 1u << i.cell);
        break;
      case 1:
        if (s.direct[a]) return;
        if (!without(r5_direct_keeps_copy)) set_bits(n.parts[me], 1u << i.block);
        break;
      case 2: set_bits(n.stale[me], without(r5_direct_keeps_copy) ? 0u : 1u << p); break;
      case 3: set_bits(n.changed[me], without(r5_direct_untold) ? 0u : 1u << i.block); break;
      case 4: set_bits(n.marked[me], without(r5_direct_untold) ? 0u : 1u << p); break;
      default:
        --n.puts[p];
        next_instr(n, a);
        return emit(n, Step{kPut, a, 5});
    }
    ++y.stage;
    emit(n, Step{kPut, a, x.stage});
  }

  /// A direct get (gas::DirectAccess): the owner's frame is found, read, and looked at again.
  void get_directly(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Instr& i = instr(s, a);
    const Byte p = page(i.block);
    State n = s;
    Actor& y = n.actor[a];
    switch (x.stage) {
      case 0:
        if (s.tier[p] != 0 && s.recalled[p] && !without(tier_read_asleep)) {
          if (!asleep(s, p)) return;
          y.waking = kAsking;
          y.whom = Byte(s.owner[p] + 1);
          return emit(n, Step{kGet, a, 3});
        }
        y.owner = s.owner[p];
        break;
      case 1: y.loaded = s.memory[x.owner][i.block][i.cell]; break;
      default:
        if ((x.stale & 4) && !without(tier_get_not_stood)) {
          y.stage = y.stale = y.owner = y.loaded = 0;
          return emit(n, Step{kGet, a, 4});
        }
        next_instr(n, a);
        return emit(n, Step{kGet, a, 2},
                    x.loaded != s.ghost[i.block][i.cell] ? "a get returned a stale or lost value" : nullptr);
    }
    ++y.stage;
    emit(n, Step{kGet, a, x.stage});
  }

  /// An instruction that is one event of one block.
  void block_event(const State& s, Byte a, Event event, auto&& emit) const {
    const Byte b = instr(s, a).block;
    State n = s;
    // only where a mutant moved a pinned page
    if (event == Event::unpin && word(s, s.actor[a].at, b).pins == 0) return pass(s, a, kNothing, emit);
    const bool pins = event == Event::pin_write || event == Event::pin_read || event == Event::pin_whole;
    if (pins && leaving(s, s.actor[a], b)) return;
    if (pins && !(s.actor[a].room & 4)) {  // once, however often it is tried
      if (!admitted(s, a, emit)) return;
      n.actor[a].room = 4;
    }
    const dsm::Verdict verdict = try_claim(n, a, b, event);
    if (verdict == dsm::Verdict::wait) return;
    if (verdict == dsm::Verdict::done) next_of_event(n, a);
    emit(n, Step{verdict == dsm::Verdict::done ? kNothing : kEvent, a, b});
  }

  /// Sharing::changed of all of the page, by rank r.
  void replaced(State& n, Byte r, Byte p) const {
    set_bits(n.changed[r], blocks_of(p));
    set_bits(n.marked[r], 1u << p);
  }

  /// Waits for nothing: a thread that holds the block is about to use it.
  void blank_block(const State& s, Byte a, auto&& emit) const {
    const Byte b = instr(s, a).block;
    State n = s;
    if (s.actor[a].stage != 0) {
      replaced(n, s.actor[a].at, page(b));
      next_of_event(n, a);
      return emit(n, Step{kEvent, a, b});
    }
    const bool claimed = try_claim(n, a, b, Event::blank) == dsm::Verdict::proceed;
    if (!claimed) next_of_event(n, a);
    emit(n, Step{claimed ? kEvent : kNothing, a, b});
  }

  /// The event has been dealt with. After the first step of a discard the bytes belong to no worker.
  void next_of_event(State& n, Byte a) const {
    const Instr& i = instr(n, a);
    if (i.what == Do::blank) set_bits(n.freed[i.block], kAllCells);
    if (i.what != Do::discard || n.actor[a].stage != 0) return next_instr(n, a);
    set_bits(n.freed[i.block], i.cell);
    n.actor[a].stage = 1;
  }

  /// What follows when a claimed block is finished. Faults and rounds simply go on.
  void finish_event(State& n, Byte a) const {
    const Instr& i = instr(n, a);
    Actor& x = n.actor[a];
    const bool sent = (x.room & 2) != 0;
    clear_bits(x.room, 3);
    if (sent) {
      x.sub = x.cell = x.owner = 0;
      return;
    }
    switch (i.what) {
      case Do::discard:
      case Do::pin_write:
      case Do::pin_read:
      case Do::pin_whole:
      case Do::unpin:
      case Do::take:
      case Do::send:
      case Do::reclaim: return next_of_event(n, a);
      case Do::blank: return without(blank_untold) ? next_of_event(n, a) : void(x.stage = 1);
      default: x.sub = x.cell = x.owner = 0; return;
    }
  }

  // ---- relocation, as gas/mover.cpp

  /// x.sure: its bytes do not matter; x.open: its tier before the mark.
  void own_page(const State& s, Byte a, Byte p, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Byte me = program_.workers[a].rank;
    const auto rank = Rank{me};
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](OwnStage stage, std::uint16_t kind) {
      y.stage = stage;
      y.cell = y.sub = y.value = 0;
      emit(n, Step{kind, a, p});
    };
    switch (x.stage) {
      case kClaiming:
        if (x.todo == 0 && !admitted(s, a, emit)) return;
        switch (claim_next(n, y, p, dsm::Way::all, Event::arrive)) {
          case dsm::Claiming::wait: return;
          case dsm::Claiming::next: return to(all_seen(y) ? kLooking : kClaiming, kOwnClaim);
          case dsm::Claiming::give_back:
            next_instr(n, a);
            return emit(n, Step{kNothing, a, p});  // ours already
        }
        return;
      case kLooking: {
        gas::MoveStep move = gas::begin_move(entry(s, p), rank);  // one fetch-or
        if (move.verdict == gas::MoveVerdict::wait) return to(kGivingUp, kOwnWait);
        put_entry(n, p, move.claimed);
        y.owner = s.owner[p];
        y.open = s.tier[p];
        if (move.verdict == gas::MoveVerdict::on_ssd && without(tier_move_asleep)) {
          n.tier[p] = 0;
          move = gas::begin_move(gas::end_page_in(entry(n, p)), rank);
        }
        if (move.verdict == gas::MoveVerdict::claim && program_.brings && !without(r8_landing_undrained))
          return to(kRecalling, kOwnBusy);
        const bool taken = move.verdict == gas::MoveVerdict::on_ssd ||
                           (move.verdict == gas::MoveVerdict::in_part && without(part_taken));
        if (x.sure && taken) return to(kTaking, kOwnBusy);
        return to(move.verdict == gas::MoveVerdict::claim ? kYielding : kUnmarking, kOwnBusy);
      }
      case kTaking:  // its bytes do not matter
        put_entry(n, p, gas::end_take(entry(s, p), rank));
        return to(kSettling, kOwnLook);
      case kUnmarking: {  // there already, or on SSD: the entry becomes what it was
        const gas::Location before = unmark(n, p, gas::Tier(x.open));
        y.open = 0;
        if (gas::begin_move(before, rank).verdict == gas::MoveVerdict::fixed) {  // refused: EBUSY
          give_back_held(n, y);
          next_instr(n, a);
          return emit(n, Step{kOwnLook, a, p});
        }
        if (before.tier == gas::Tier::dram) return to(kSettling, kOwnLook);
        // the rank that is asked when its blocks are unclaimed
        y.whom = Byte(x.owner + 1);
        return to(kGivingUp, kOwnLook);
      }
      // The owner is asked to yield and holders are asked to forget at the same time. A put that begins or
      // lands between the two is one that could have done so before the first.
      case kYielding: y.later = first(p); return yield_all(n, a, p, to);
      case kRecalling: n.recalled[p] = 1; return to(kDraining, kRecall);
      case kDraining:
        if (s.puts[p] != 0 && !without(r8_no_drain)) return;
        if (program_.brings && !without(r8_landing_undrained)) return to(kYielding, kDrained);
        if (x.dropping == 1) {
          put_entry(n, p, gas::end_move(entry(n, p), Rank{x.owner}));
          y.dropping = 0;
          return to(kGivingUp, kRefused);
        }
        y.later = first(p);
        return to(kCopying, kDrained);
      case kCopying: return arrive(n, a, p, to, emit);
      case kNaming: n.naming[p] = Byte(me + 1); return to(kSettling, kPosted);
      case kSettling: return settle(n, a, p, emit, [&] { next_instr(n, a); });
      default: {  // kGivingUp
        if (x.held != 0) return give_back(n, me, take_lowest(y.held)), emit(n, Step{kGiveUp, a, p});
        if (s.busy[p] && x.whom == 0) return;  // pause until it stopped moving
        y.owner = 0;
        y.later = 0;
        y.room = 0;
        if (x.whom != 0) y.waking = kAsking;
        return to(kClaiming, kGiveUp);
      }
    }
  }

  /// Moves::yield: all of the rank's blocks of the page are invisible. Else why not.
  dsm::Verdict yield(State& n, Byte r, Byte p) const {
    const auto step = [&](Byte b) {
      const Block w = word(n, r, b);
      return mutated(dsm::next(w, Event::yield), w, Event::yield);
    };
    for (const Byte b : of_page(p)) {
      const dsm::Verdict verdict = step(b).verdict;
      if (dsm::next(dsm::Way::try_own, verdict) == dsm::Claiming::give_back) return verdict;
    }
    for (const Byte b : of_page(p)) {
      const dsm::BlockStep taken = step(b);
      if (taken.verdict == dsm::Verdict::done) continue;
      if (taken.actions[0] == Action::protect_none) n.prot[r][b] = 0;
      put_word(n, r, b, taken.after);
    }
    return dsm::Verdict::proceed;
  }
  /// The owner's handler: all blocks free → all protected; never blocks. One step: handler against handler
  /// cannot run on one page, and against workers the claims are taken before the first protection.
  void yield_all(State& n, Byte a, Byte p, const auto& to) const {
    Actor& x = n.actor[a];
    const Byte o = x.owner;
    const bool refused = yield(n, o, p) != dsm::Verdict::proceed;
    const bool all_forgot = program_.brings && !without(r8_landing_undrained);
    if (refused && all_forgot) {
      put_entry(n, p, gas::end_move(entry(n, p), Rank{o}));
      return to(kGivingUp, kRefused);
    }
    if (refused) {
      x.dropping = 1;
      return to(kRecalling, kRefused);
    }
    if (program_.brings) land(n, a, p);
    to(all_forgot ? kCopying : kRecalling, kYield);
  }

  /// Coherence::arrival_frame: the frame as the yield leaves it, where all of it is simply copied; else it is
  /// read afterwards.
  void land(State& n, Byte a, Byte p) const {
    Actor& x = n.actor[a];
    const Byte me = program_.workers[a].rank;
    for (const Byte b : of_page(p)) {
      if (word(n, me, b).dirty() && !without(r8_landing_on_changes)) return;
    }
    for (const Byte b : of_page(p)) {
      copy(n.memory[x.owner][b], n.memory[me][b]);
    }
    x.dropping = 2;
  }

  /// Moves::merge: the bytes of each block of the page, which we hold.
  void arrive(State& n, Byte a, Byte p, const auto& to, auto&& emit) const {
    Actor& x = n.actor[a];
    const Byte me = program_.workers[a].rank, b = x.later, from = x.owner;
    if (x.cell < kCells && !x.sure && x.dropping != 2) {
      Byte& mine = n.memory[me][b][x.cell];
      const Step label = acts(a, Action::merge_arrival, x.sub);
      if (x.sub == 0) {  // read into a buffer; stores of other workers here may land before it is merged
        x.value = n.memory[from][b][x.cell];
        x.sub = 1;
        return emit(n, label);
      }
      const Block before = word(n, me, b);
      const bool taken =
          before.whole ? without(whole_arrival) : !before.twin || x.value != n.twin[me][b][x.cell];
      if (taken || without(r4_plain_arrival)) mine = x.value;
      x.value = x.sub = 0;
      ++x.cell;
      return emit(n, label);
    }
    x.cell = 0;
    if (b == last(p)) {
      x.dropping = 0;
      return to(kNaming, kOwnLook);
    }
    ++x.later;
    emit(n, Step{kOwnLook, a, b});
  }

  /// Moves::settle. x.value: the page is marked.
  void settle(State& n, Byte a, Byte p, auto&& emit, const auto& over) const {
    Actor& x = n.actor[a];
    const Byte me = program_.workers[a].rank;
    // once, before any block can be stored to; and again when the entry is known to name this rank
    if (x.value == 0) {
      if (!without(r5_arrival_unseen)) mark(n, me, p);
      for (const Byte each : of_page(p)) fill(n, me, each);
      clear_bits(n.nothing, blocks_of(p));
      x.value = 1;
      return emit(n, acts(a, Action::mark_page));
    }
    open_next(
        n, a, emit, [&](Byte b) { return dsm::next(before_claim(n, me, b), Event::page_in).after; }, over);
  }

  /// Mover::hand_back: this rank recalls the location, yields to itself, then names `to` without data.
  void hand_page_back(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Byte p = instr(s, a).block, me = program_.workers[a].rank;
    const Rank to{instr(s, a).cell};
    State n = s;
    Actor& y = n.actor[a];
    enum : Byte { kMarkIt, kForgotten, kDrain, kYieldSelf, kName };
    switch (x.stage) {
      case kMarkIt: {
        const gas::MoveStep move = gas::begin_move(entry(s, p), to);
        if (move.verdict == gas::MoveVerdict::wait) return;  // it moves already
        put_entry(n, p, move.claimed);
        // on SSD its location has no holders, and no block is own
        y.stage = move.verdict == gas::MoveVerdict::on_ssd ? kName : kForgotten;
        // no data goes with it
        for (const Byte b : of_page(p)) n.freed[b] = kAllCells;
        return emit(n, Step{kHandBack, a, p});
      }
      case kForgotten: n.recalled[p] = 1; break;
      case kDrain:
        if (s.puts[p] != 0) return;
        break;
      case kYieldSelf:
        if (const dsm::Verdict verdict = yield(n, me, p); verdict == dsm::Verdict::wait)
          return;
        else if (verdict == dsm::Verdict::refuse)
          return emit(n, Step{kRefused, a, p}, "a page handed back is pinned");
        break;
      // kName. Where frames are counted it begins on SSD: the new owner does not know of it
      // (AddressCache::initial_tier)
      default:
        put_entry(n, p,
                  gas::in_tier(gas::end_move(entry(s, p), to),
                               limit(Byte(raw(to))) != 0 ? gas::Tier::ssd : gas::Tier::dram));
        if (n.tier[p] != 0) set_bits(n.nothing, blocks_of(p));
        if (!without(r7_replaced_untold)) replaced(n, me, p);
        next_instr(n, a);
        return emit(n, Step{kHandBack, a, p});
    }
    ++y.stage;
    emit(n, Step{kHandBack, a, p});
  }

  /// Coherence::arm_owned of one page whose memory is allocated anew.
  void arm_owned(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Byte p = page(instr(s, a).block), me = program_.workers[a].rank;
    if (x.sure) return own_page(s, a, p, emit);
    State n = s;
    Actor& y = n.actor[a];
    enum : Byte { kClaimAll, kLookWhere, kMarkPage, kArm };
    switch (x.stage) {
      case kClaimAll: {
        const auto b = Byte(first(p) + x.todo);
        const bool unheld = without(tier_armed_unheld) &&
                            dsm::next(word(s, me, b), Event::arrive_blank).actions[0] == Action::end;
        if (unheld)
          ++y.todo;
        else if (claim_next(n, y, p, dsm::Way::all, Event::arrive_blank) == dsm::Claiming::wait)
          return;
        if (all_seen(y)) y.stage = kLookWhere;
        return emit(n, Step{kOwnClaim, a, b});
      }
      case kLookWhere:
        if (dsm::fetch_source(entry(s, p), Rank{me}) == dsm::Fetched::own || without(tier_armed_unlooked)) {
          y.stage = kMarkPage;
          return emit(n, Step{kOwnLook, a, p});
        }
        // nothing need be read
        if (dsm::fetch_source(entry(s, p), Rank{me}) == dsm::Fetched::on_ssd && has_room(s, me)) {
          put_entry(n, p, gas::in_tier(entry(s, p), gas::Tier::dram));
          y.stage = kMarkPage;
          return emit(n, Step{kOwnLook, a, p});
        }
        give_back_held(n, y);
        y.stage = 0;
        y.sure = 1;
        return emit(n, Step{kOwnBusy, a, p});
      case kMarkPage:
        mark(n, me, p);
        clear_bits(n.nothing, blocks_of(p));
        y.cell = has_room(s, me);  // else its blocks come to rest: faults fill them
        for (const Byte b : of_page(p)) {
          if (y.cell) fill(n, me, b);
          if (y.cell && !(x.held & 1 << b)) n.prot[me][b] = 2;  // only where they are not held
        }
        y.stage = kArm;
        return emit(n, acts(a, Action::mark_page));
      default:
        if (x.held == 0) return pass(s, a, kNothing, emit);
        return open_next(
            n, a, emit,
            [&](Byte b) {
              const Block after = dsm::next(before_claim(n, me, b), Event::arrive_blank).after;
              return x.cell || after.pins != 0 ? after : dsm::next(after, Event::retire).after;
            },
            [&] { next_instr(n, a); });
    }
  }

  // ---- memory larger than DRAM, as gas/tiers.cpp, dsm/eviction.cpp and dsm/pager.cpp

  static bool keeps(const Script& w) { return !w.code.empty() && w.code[0].what == Do::keep; }
  [[nodiscard]] Byte limit(Byte r) const noexcept { return program_.room[r]; }
  static unsigned used(const State& s, Byte r) noexcept {
    return static_cast<unsigned>(__builtin_popcount(s.frames[r]) + __builtin_popcount(s.twins[r]));
  }
  /// What the threads of the rank may have in hand: a frame and a twin of a page each.
  [[nodiscard]] unsigned slack(Byte r) const {
    return 2u * program_.blocks_per_page *
           static_cast<unsigned>(std::count_if(program_.workers.begin(), program_.workers.end(),
                                               [&](const Script& w) { return w.rank == r; }));
  }
  /// For another page.
  [[nodiscard]] bool has_room(const State& s, Byte r) const noexcept {
    return limit(r) == 0 || used(s, r) + program_.blocks_per_page <= limit(r);
  }
  void fill(State& n, Byte r, Byte b) const noexcept {
    if (limit(r) != 0) set_bits(n.frames[r], 1u << b);
  }
  void fill_twin(State& n, Byte r, Byte b) const noexcept {
    if (limit(r) != 0) set_bits(n.twins[r], 1u << b);
  }
  /// On SSD, and neither on its way there nor back.
  static bool asleep(const State& s, Byte p) noexcept { return s.tier[p] != 0 && !s.busy[p]; }
  [[nodiscard]] bool workers_done(const State& s) const {
    for (Byte a = 0; a < W; ++a)
      if (!keeps(program_.workers[a]) && s.actor[a].pc < program_.workers[a].code.size()) return false;
    return true;
  }

  /// Coherence::admit: may it go on to claim blocks? Else it waits, or sends its rank's changes, so that
  /// their blocks can go.
  bool admitted(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    if (limit(x.at) == 0 || (x.room & 1)) return true;
    if (has_room(s, x.at)) {
      State n = s;
      set_bits(n.actor[a].room, 1);
      emit(n, Step{kRoom, a, 0});
      return false;
    }
    for (Byte b = 0; b < B && !without(tier_keeps_changes); ++b) {
      State n = s;
      if (!(s.dirty[x.at] & 1 << b) || try_claim(n, a, b, Event::release) != dsm::Verdict::proceed) continue;
      set_bits(n.actor[a].room, 2);
      emit(n, Step{kSends, a, b});
    }
    return false;
  }

  [[nodiscard]] bool has_pager(Byte r) const {
    return std::any_of(program_.workers.begin(), program_.workers.end(),
                       [&](const Script& w) { return w.rank == r && keeps(w); });
  }
  /// Asks the page's owner for it, and waits. The owner's pager answers when it has paged the page in, or has
  /// found that it cannot.
  bool ask(State& n, Actor& x, Byte p) const {
    const auto owner = Byte(x.whom - 1);
    if (x.waking == kAsking) {
      if (has_pager(owner)) set_bits(n.asked[owner], 1u << p);
      x.waking = kAsked;
      return true;
    }
    if (n.asked[owner] & 1 << p) return false;
    x.waking = x.whom = x.back = 0;
    return true;
  }
  /// Fetches::page_in, by a worker that holds nothing.
  void ask_for(State& n, Actor& x, Byte b) const {
    const Byte p = page(b);
    const bool elsewhere = asleep(n, p) && n.owner[p] != x.at;
    x.back = elsewhere ? Byte(1 << b) : Byte{0};
    x.waking = elsewhere ? kAsking : kAwake;
    x.whom = elsewhere ? Byte(n.owner[p] + 1) : Byte{0};
  }
  /// Another rank has the block's page on SSD: its step is tried again when that has paged it in. Of a round
  /// that holds other blocks, it is asked when it tries again.
  void give_back_and_ask(State& n, Byte a) const {
    Actor& x = n.actor[a];
    const Byte b = x.block;
    give_back(n, x.at, b);
    x.acting = x.block = x.event = x.action = x.found_own = 0;
    x.sub = x.cell = x.owner = x.value = 0;
    clear_bits(x.room, 3);
    if (x.round == 2) set_bits(x.later, 1u << b);
    if (x.held == 0) ask_for(n, x, b);
  }
  /// Only where a rule is left out.
  [[nodiscard]] bool asks_holding(const State& s, const Actor& x) const {
    return without(tier_asked_holding) || (s.owner[page(x.block)] == x.at && without(tier_put_own_asleep));
  }
  /// May its owner's frame be read? Else the block is given back, or the page's move is waited for.
  bool wakes(State& n, Byte a, const auto& done) const {
    const Actor& x = n.actor[a];
    const Byte p = page(x.block);
    if (x.waking == kAwake && (n.tier[p] == 0 || !n.recalled[p] || without(tier_read_asleep))) return true;
    if (x.waking == kAwake && !asleep(n, p)) return false;
    if (asks_holding(n, x)) return ask_holding(n, a, done), false;
    give_back_and_ask(n, a);
    done();
    return false;
  }
  /// By a worker that holds the block: only where a rule is left out.
  void ask_holding(State& n, Byte a, const auto& done) const {
    Actor& x = n.actor[a];
    if (x.waking == kAwake) {
      x.waking = kAsking;
      x.whom = Byte(n.owner[page(x.block)] + 1);
      return done();
    }
    if (ask(n, x, page(x.block))) done();
  }

  [[nodiscard]] Byte page_of(const State& s, Byte a) const {
    const Instr& i = instr(s, a);
    if (s.actor[a].back != 0) return page(Byte(__builtin_ctz(s.actor[a].back)));
    if (i.what == Do::keep) return s.actor[a].now;
    return i.what == Do::own || i.what == Do::hand_back ? i.block : page(i.block);
  }
  void wake(const State& s, Byte a, auto&& emit) const {
    State n = s;
    Actor& y = n.actor[a];
    const Byte p = page_of(s, a);
    if (y.waking >= kInWaiting) return bring_in(s, a, p, emit);
    const Byte whom = y.whom;
    if (y.waking == kAsking && y.whom - 1 == y.at) {
      y.waking = kInWaiting;
      y.whom = 0;
    } else if (!ask(n, y, p)) {
      return;
    }
    emit(n, Step{s.actor[a].waking == kAsking ? kAskOwner : kAnswered, a, Byte(whom - 1)});
  }

  /// Tiers::page_in, by a worker that faults on a page of its own rank, or by the pager for other ranks.
  void bring_in(const State& s, Byte a, Byte p, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Byte me = x.at;
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](Waking stage, std::uint16_t kind) {
      y.waking = stage;
      y.sub = 0;
      emit(n, Step{kind, a, p});
    };
    const auto over = [&] {
      const Do what = instr(s, a).what;
      y.waking = y.whom = y.sub = y.value = 0;
      clear_bits(y.room, 3);
      if ((what == Do::own || what == Do::reclaim) && !without(tier_waits_again)) y.room = 1;
      if (what != Do::keep) return;
      clear_bits(n.asked[me], 1u << p);
      y.now = 0;
    };
    switch (x.waking) {
      case kInWaiting:
        if (!admitted(s, a, emit)) return;
        return to(kInClaiming, kRoom);
      case kInClaiming:
        if (without(tier_in_unclaimed)) {
          y.held = blocks_of(p);
          return to(kInMarking, kInClaim);
        }
        if (claim_next(n, y, p, dsm::Way::all, Event::page_in) == dsm::Claiming::wait) return;
        return to(all_seen(y) ? kInMarking : kInClaiming, kInClaim);
      case kInMarking: {
        const gas::Location before = entry(s, p);
        if (before.busy) return to(kInGivingUp, kInNot);
        const bool comes = gas::pages_in(before, Rank{me});
        if (!without(tier_in_unmarked)) put_entry(n, p, gas::begin_move(before, Rank{me}).claimed);
        return to(comes                       ? without(tier_dram_early) ? kInNaming : kInReading
                  : without(tier_in_unmarked) ? kInGivingUp
                                              : kInUnmarking,
                  kInMark);
      }
      case kInReading:
        for (const Byte b : of_page(p)) {
          Block before = before_claim(s, me, b);
          if (dsm::next(before, Event::page_in).actions[0] == Action::read_back || without(part_overwritten))
            copy(s.disk[me][b], n.memory[me][b]);
          clear(n.disk[me][b]);
        }
        return to(without(tier_dram_early) ? kInSettling : kInNaming, kInRead);
      case kInNaming:
        put_entry(n, p, gas::end_page_in(entry(s, p)));
        return to(without(tier_dram_early) ? kInReading : kInSettling, kInEnd);
      case kInSettling: {
        if (x.value != 0 || !unused(s, me, p)) return settle(n, a, p, emit, over);
        for (const Byte b : of_page(p)) fill(n, me, b);  // Coherence::settle_unused
        clear_bits(n.nothing, blocks_of(p));
        give_back_held(n, y);
        over();
        return emit(n, Step{kGiveUp, a, p});
      }
      case kInUnmarking: unmark(n, p, entry(s, p).tier); return to(kInGivingUp, kInNot);
      default: {  // kInGivingUp
        give_back(n, me, take_lowest(y.held));
        if (y.held == 0) over();
        return emit(n, Step{kGiveUp, a, p});
      }
    }
  }

  /// Of a claimed page that was on SSD: was nothing of it there, nor anything here? Then it stays unknown to
  /// its owner's block table.
  [[nodiscard]] bool unused(const State& s, Byte r, Byte p) const {
    for (const Byte b : of_page(p)) {
      Block w = before_claim(s, r, b);
      if (!(s.nothing & 1 << b) || w != Block{}) return false;
    }
    return true;
  }

  /// Pager::run, a page at a time. x.now: the page; x.told: its tier before; x.open: what becomes of it;
  /// x.later: blocks that are written.
  void keep_budget(const State& s, Byte a, auto&& emit) const {
    const Actor& x = s.actor[a];
    const Byte me = x.at, p = x.now;
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](PagerStage stage, std::uint16_t kind) {
      y.stage = stage;
      emit(n, Step{kind, a, p});
    };
    const auto idle_now = [&] {
      y = Actor{};
      y.at = me;
    };
    const auto idle = [&](std::uint16_t kind) { idle_now(), emit(n, Step{kind, a, p}); };
    const bool drops = static_cast<gas::EvictionKind>(x.open) == gas::EvictionKind::drop,
               in_part = static_cast<gas::EvictionKind>(x.open) == gas::EvictionKind::spill_part;
    const auto punch = [&] {
      for (const Byte b : of_page(p)) {
        clear(n.memory[me][b]);
        clear_bits(n.frames[me], 1u << b);
        clear_bits(n.twins[me], 1u << b);
      }
    };
    switch (x.stage) {
      case kIdle: return look_for_work(s, a, emit);
      case kGoing: {
        const auto b = Byte(first(p) + x.todo);
        const Block w = word(s, me, b);
        if (in_part && !w.owned && without(part_unheld))
          ++y.todo;
        else if (claim_next(n, y, p, dsm::Way::try_all, Event::evict) == dsm::Claiming::give_back)
          return to(kUnmarkingIt, kStays);
        else if (!in_part || (w.owned && !w.saved))
          set_bits(y.later, 1u << b);
        y.sub = Byte(without(tier_unprotected) ? dsm::HeldState::shown : dsm::HeldState::show);
        return to(all_seen(y) ? kOpening : kGoing, kGoClaim);
      }
      case kOpening:
        return open_next(
            n, a, emit, [](Byte) { return Block{}; },
            [&] {
              if (drops && without(tier_drop_unmarked)) return idle_now();
              y.stage = drops ? kUnmarkingIt : in_part ? kWriting : kDeclaring;
            },
            [&] {
              if (!drops || x.value == 2) return false;
              if (without(tier_drop_unmarked) && x.value == 0) {
                unmark(n, p, gas::Tier(x.told));
                y.value = 1;
              } else {
                punch();
                y.value = 2;
              }
              emit(n, Step{kPunch, a, p});
              return true;
            });
      case kDeclaring:
        put_entry(n, p, gas::begin_evict(entry(s, p)));
        return to(without(tier_unrecalled)        ? kAwaitingPuts
                  : without(recalled_after_write) ? kWriting
                                                  : kForgetting,
                  kDeclare);
      case kForgetting:
        n.recalled[p] = 1;
        has_not_stood(n, p);
        return to(kAwaitingPuts, kGoRecall);
      case kAwaitingPuts:
        if (s.puts[p] != 0 && !without(tier_undrained)) return;
        return to(without(recalled_after_write) ? kPunching : kWriting, kGoDrained);
      case kWriting:
        for (const Byte b : of_page(p)) {
          const bool writes = (x.later & 1 << b) != 0 && !(in_part && without(part_unwritten));
          if (writes || (in_part && without(part_all_written))) {
            copy(s.memory[me][b], n.disk[me][b]);
            clear_bits(n.nothing, 1u << b);
          }
        }
        y.later = 0;
        return to(without(recalled_after_write) && !in_part ? kForgetting : kPunching, kWrite);
      case kPunching: punch(); return to(kEnding, kPunch);
      case kEnding:
        if (in_part) {
          unmark(n, p, gas::Tier::ssd);
        } else {
          put_entry(n, p, gas::end_evict(entry(s, p)));
        }
        return idle(kGone);
      default: {  // kUnmarkingIt
        unmark(n, p, gas::Tier(x.told));
        if (without(drop_counted_twice) && drops) clear_bits(n.frames[me], blocks_of(p));
        return idle(kGone);
      }
    }
  }

  /// What other ranks ask for; and, while there is no room for another page, a page to evict, or to retire.
  void look_for_work(const State& s, Byte a, auto&& emit) const {
    const Byte me = s.actor[a].at;
    for (Byte p = 0; p < B; ++p) {
      if (!(s.asked[me] & 1 << p)) continue;
      State n = s;
      n.actor[a].now = p;
      n.actor[a].waking = kInClaiming;
      emit(n, Step{kAnswered, a, p});
    }
    if (has_room(s, me) || workers_done(s)) return;
    for (Byte p = 0; first(p) < B; ++p) {
      const gas::Location before = entry(s, p);
      const gas::EvictionKind way = gas::eviction_kind(before, Rank{me});
      bool here = false;
      for (const Byte b : of_page(p)) here |= ((s.frames[me] | s.twins[me]) & 1 << b) != 0;
      if (!here || way == gas::EvictionKind::wait) continue;
      State n = s;
      put_entry(n, p, gas::begin_move(before, Rank{me}).claimed);
      n.actor[a].now = p;
      n.actor[a].open = Byte(way);
      n.actor[a].told = s.tier[p];
      n.actor[a].stage = kGoing;
      emit(n, Step{kMark, a, p});
    }
    for (Byte b = 0; b < B && instr(s, a).cell != 0; ++b) {
      State n = s;
      // What shows nothing may lie between blocks that do, and is held while V changes.
      if (try_claim(n, a, b, Event::retire) == dsm::Verdict::proceed ||
          try_claim(n, a, b, Event::pass) == dsm::Verdict::proceed)
        emit(n, Step{kRest, a, b});
    }
  }

  Program program_;
};

}  // namespace kasane::model
