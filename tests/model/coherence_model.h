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
#include <string>
#include <vector>

#include "dsm/protocol.h"
#include "gas/reader_state.h"
#include "gas/relocation.h"
#include "model/explorer.h"

namespace kasane::model {

/// Which rule the walk leaves out. The shipping code knows nothing of this.
enum class Mutation : std::uint8_t {
  none,
  r1_no_source_release,  ///< an edge acquires, but its source did not release
  r1_no_acquire,         ///< the source released, the destination goes on with its copies
  /// a fetch does not look whether an acquire came meanwhile (alone harmless: the acquire waits)
  r2_no_recheck,
  r2_no_wait,             ///< acquire passes over a block that is being fetched
  r2_join_running_round,  ///< an acquire is served by a round that began before it was asked for
  r3_no_protect,          ///< diff while stores may land, as if protected
  r3_no_completion,       ///< release does not wait until the puts have landed
  r3_gaps,                ///< puts unchanged bytes too
  r3_two_loads,           ///< a pinned block's byte is loaded once for the message and once for the twin
  r3_join_running_round,  ///< a release is served by a round that began before it was asked for
  r4_unlock_early,        ///< the busy bit is given back between diff and completion
  r4_plain_refresh,       ///< a fetch into a block with unreleased writes copies everything
  r4_twin_left,           ///< the merge does not go into the twin
  r4_plain_arrival,       ///< the arriving page overwrites unreleased writes
  r7_no_discard,          ///< freed bytes stay dirty
  r7_no_drop,             ///< memory last used elsewhere is taken without a drop
  r7_freed_bytes_stay,  ///< what a rank freed unreleased stays in its copy, though the owner has other bytes
  r7_told_copy_stays,   ///< … a copy that a direct put has passed stays, too
  /// ranks that have copies of a page that gets a new owner without its data get no notice
  r7_replaced_untold,
  r8_no_protect,          ///< the page is copied while the old owner still stores
  r8_no_drain,            ///< the mover does not wait for puts under way
  r8_landing_undrained,   ///< the page comes along with the owner's answer while puts to it may still land
  r8_landing_on_changes,  ///< … over bytes that the mover's rank has changed and not sent
  r8_put_ignores_busy,    ///< a put begins though the location was recalled
  /// an owner that faults on its page while it is leaving takes what M holds for a cached copy
  r8_use_while_leaving,
  r8_move_pinned,             ///< a pinned page moves
  r6_no_join,                 ///< a fetch does not join the readers
  r6_join_after_data,         ///< … says so when it has the bytes
  r6_no_owner_mark,           ///< … does not have the owner look at the page
  r6_owner_mark_after_data,   ///< … when it has the bytes
  r6_not_stood,               ///< a fetch does not look whether the page stood meanwhile
  r6_stay_not_ended,          ///< a rank that leaves the readers takes itself for one afterwards
  r6_stay_ended_early,        ///< … notes that it has left before it does
  r6_stay_noted_blindly,      ///< a rank that has joined records it even though it has left meanwhile
  r6_stay_without_standing,   ///< … though the page did not stand
  r5_tell_before_completion,  ///< notices are sent for a put that has not landed
  r5_tell_late,               ///< a release does not wait until the notices have arrived
  r5_release_passes_telling,  ///< … nor one that finds nothing left to take, though another is still telling
  /// an acquire that finds no notice does not wait for one that is still dropping
  r5_acquire_passes_dropping,
  /// a rank that has sent a notice of its own change takes its copy for valid, whatever notices it has
  r5_adopt_blindly,
  r5_put_untold,            ///< a diff is put, and the page is not noted
  r5_direct_untold,         ///< the same of a direct put
  r5_direct_keeps_copy,     ///< the copy of the rank that puts directly stays
  r5_own_store_unseen,      ///< a store to a watched block of ours is not noted
  r5_arrival_unseen,        ///< stores to a page that arrives do not fault, and no release examines it
  r5_arrival_marked_early,  ///< … it is looked at before the entry names us, and not afterwards
  r5_first_meeting_unseen,  ///< an owner that meets its page later does not look at it
  r5_watch_after_telling,   ///< readers are taken from the entry before V is protected
  /// a rank that sends notices takes the readers from the entry: others then find none, though these have no
  /// notice yet
  r5_readers_taken,
  r5_leave_after_drop,      ///< a rank that drops a page leaves its readers afterwards
  r5_note_cleared_late,     ///< what was noted is forgotten after the readers were taken
  r8_release_before_named,  ///< a release ends though an entry does not name its rank yet
  r8_naming_not_counted,    ///< … is not even begun where nothing else is to be sent
  whole_edge,               ///< a block that is only partly written is taken whole
  whole_diffed,             ///< of a whole block only what differs from an old twin is put
  whole_unjoined,           ///< a rank that takes a block whole does not join its readers
  whole_dropped,            ///< an acquire drops a whole block and does not put it
  whole_left,               ///< an acquire leaves a whole block as it is, but not its rank among the readers
  whole_arrival,            ///< so does an arrival
  whole_freed_later,        ///< freed bytes of a whole block are put later
  whole_sent_live,          ///< a whole block that was put while it was pinned counts as released
  whole_stays,              ///< … stays whole
  whole_twin_left,          ///< … has a twin of other bytes than those that were sent
  tier_unprotected,         ///< a page leaves DRAM while its owner still stores
  tier_unrecalled,          ///< … while others still know where it is
  tier_undrained,           ///< … while puts are under way
  tier_pinned,              ///< … though it is pinned
  tier_dirty,               ///< … or a copy does, though it has changes that were not sent
  tier_drop_unmarked,       ///< a copy goes when word 0 is not busy any more
  tier_dram_early,          ///< word 0 says that a page is in before its bytes are
  tier_in_unmarked,         ///< a page is brought in without setting busy
  tier_in_unclaimed,        ///< … without its blocks' bits
  tier_read_asleep,         ///< a fetch reads the frame of a page on SSD
  tier_own_asleep,          ///< a rank takes what its M holds for a page of its own that is on SSD
  tier_put_asleep,          ///< a put begins though the page is on SSD
  tier_get_not_stood,       ///< a direct get does not look whether the page stood meanwhile
  tier_move_asleep,         ///< a page moves from the frame that was punched
  /// own, writable blocks are not claimed when memory is allocated anew, but made writable with the others
  tier_armed_unheld,
  tier_armed_unlooked,   ///< memory that is allocated anew is used without a look where it is
  tier_gone_untold,      ///< a release that finds no block of a marked page here sends no notice
  tier_rest_watched,     ///< … that finds it at rest takes it for watched
  tier_rest_unseen,      ///< a store to a page at rest is not noted
  tier_holds_and_waits,  ///< a worker that faults waits for room with the block's bit
  tier_keeps_changes,    ///< a worker that waits for room sends nothing
  part_saved_stays,      ///< a store to a saved block leaves it saved
  part_stored_saved,     ///< so does one that brought the block in
  part_unwritten,        ///< nothing is written of a page that leaves while it is here in part
  part_all_written,      ///< all of it is, also what is not here
  part_taken,            ///< a page that is here in part is taken without its owner
  part_overwritten,      ///< paging in reads blocks that are here, too
  part_in_busy,          ///< a worker that reads a block makes the page partial though another has set busy
  part_not_noted,        ///< … does not make it so
  part_unarmed_page,     ///< … takes all of the page for its own
  part_saved_watched,    ///< a release that finds a block saved takes it for watched
  part_absent_passed,    ///< … passes over blocks that are on SSD
  part_unheld,           ///< a page leaves without the bits of blocks that are on SSD
  /// a worker that takes a page, and has paged it in from SSD, waits for its room once more
  tier_waits_again,
  blank_unprotected,  ///< V goes on allowing stores to a block whose bytes are undefined
  blank_pinned,       ///< a block that a view uses is given up, too
  blank_untold,       ///< ranks that have copies of a block that is given up get no notice
  forgotten_untold,   ///< … of a page that its owner's spill file has forgotten, and that is allocated anew
  /// a put to a page that its rank has come to own, on SSD, has it paged in while it holds the block's bit
  tier_put_own_asleep,
  parts_after_notice,  ///< the parts are written after the notice can be found
  parts_open_unsaid,   ///< … leaves out one that its threads can store to
  parts_put_unsaid,    ///< … leaves out what was put where the page was its own
  parts_told_kept,     ///< an acquire keeps blocks of which it has a notice
  parts_left_kept,     ///< a rank that leaves the readers drops no more than the notice names
  /// a rank that takes a notice, and stays a reader, has the owner examine the page no more
  parts_asked_still,
  parts_asked_ended_early,  ///< … takes the parts afterwards
  parts_asked_ended_late,   ///< … until it has dropped that
  ours_unnoted,             ///< a page whose stores do not fault is not recorded as own
  ours_noted_late,          ///< … when it is marked
  fixed_moves,              ///< a rank takes a page whose owner does not change
  open_unsent_twin,         ///< a block that stays open is put, and keeps the twin that it had
  open_counts_clean,        ///< … counts as sent from then on
  open_unrefreshed,         ///< … is passed over by an acquire
  lock_unreleased,          ///< a lock says that its holder has released, and it has not
  lock_marked_early,        ///< a lock's mark is one of before its holder's last store
  lock_mark_unended,        ///< a release that began after a lock's mark, and has not ended, is trusted
  ours_forgotten,  ///< a page of which no block was ours is not looked at once more when that is noted
};

inline constexpr std::uint8_t kArrived = 0x80;
/// Of State::last: the rank has released since it gave the lock up; it took a mark then; a release that began
/// after the mark is under way.
inline constexpr std::uint8_t kHasReleased = 0x80, kMarked = 0x40, kReleasing = 0x20;
inline constexpr std::uint8_t kCells = 2;

enum class Do : std::uint8_t {
  load,
  store,
  add,
  poke,
  set,
  see,
  cross,
  lock,
  unlock,
  own,
  pin_write,
  pin_read,
  pin_whole,
  unpin,
  discard,
  take,
  hand_back,
  reclaim,
  release,
  acquire,
  send,
  blank,
  forget,
  assign,
  put,
  get,
  keep,
  end
};

struct Instr {
  Do what = Do::end;
  std::uint8_t block = 0;  ///< or flag, lock, page
  std::uint8_t cell = 0;   ///< or a mask of cells (discard)
  std::uint8_t value = 0;
};

inline Instr load(int b, int c) {
  return {Do::load, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(c)};
}
inline Instr store(int b, int c, int v) {
  return {Do::store, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(c),
          static_cast<std::uint8_t>(v)};
}
inline Instr add(int b, int c) {
  return {Do::add, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(c)};
}  ///< load, then store one more
inline Instr poke(int b, int c, int v) {
  return {Do::poke, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(v)};
}  ///< a store that cannot fault (the kernel's, a stack switch's) into a pinned block
inline Instr set(int flag) {
  return {Do::set, static_cast<std::uint8_t>(flag)};
}  ///< fixes a fact; its rank is the source
inline Instr see(int flag) {
  return {Do::see, static_cast<std::uint8_t>(flag)};
}  ///< sees it without a fence (an allocator's fact)
inline Instr cross(int flag) {
  return {Do::cross, static_cast<std::uint8_t>(flag)};
}  ///< sees the fact and crosses its source
inline Instr lock(int l) { return {Do::lock, static_cast<std::uint8_t>(l)}; }
inline Instr unlock(int l) { return {Do::unlock, static_cast<std::uint8_t>(l)}; }
/// its holder's rank has released before, so the next holder asks for nothing
inline Instr unlock_released(int l) { return {Do::unlock, static_cast<std::uint8_t>(l), 0, kHasReleased}; }
/// With a mark, as ult::Mutex does: who takes it over looks whether its holder's rank has released since.
inline Instr unlock_marked(int l) { return {Do::unlock, static_cast<std::uint8_t>(l), 0, kMarked}; }
inline Instr own(int page) { return {Do::own, static_cast<std::uint8_t>(page)}; }
inline Instr pin_write(int b) { return {Do::pin_write, static_cast<std::uint8_t>(b)}; }
inline Instr pin_read(int b) { return {Do::pin_read, static_cast<std::uint8_t>(b)}; }
/// all cells are stored to before unpin()
inline Instr pin_whole(int b) { return {Do::pin_whole, static_cast<std::uint8_t>(b)}; }
inline Instr unpin(int b) { return {Do::unpin, static_cast<std::uint8_t>(b)}; }
inline Instr discard(int b, int cells) {
  return {Do::discard, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(cells)};
}
inline Instr take(int b) {
  return {Do::take, static_cast<std::uint8_t>(b)};
}  ///< memory last used elsewhere comes into use
inline Instr hand_back(int page, int to) {
  return {Do::hand_back, static_cast<std::uint8_t>(page), static_cast<std::uint8_t>(to)};
}
inline Instr reclaim(int page) { return {Do::reclaim, static_cast<std::uint8_t>(page)}; }
inline Instr release() { return {Do::release}; }
inline Instr acquire() { return {Do::acquire}; }
/// sends a block's changes before a release (clean())
inline Instr send(int b) { return {Do::send, static_cast<std::uint8_t>(b)}; }
/// the block's bytes are undefined until they are stored to (Coherence::blank())
inline Instr blank(int b) { return {Do::blank, static_cast<std::uint8_t>(b)}; }
/// The page is freed, and what its owner's spill file has of it forgotten (Heap::discard_run) …
inline Instr forget(int page) { return {Do::forget, static_cast<std::uint8_t>(page)}; }
/// … and allocated anew, for the same owner (Mover::assign).
inline Instr assign(int page) { return {Do::assign, static_cast<std::uint8_t>(page)}; }
inline Instr put(int b, int c, int v) {
  return {Do::put, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(v)};
}  ///< a direct put, complete when it returns
inline Instr get(int b, int c) {
  return {Do::get, static_cast<std::uint8_t>(b), static_cast<std::uint8_t>(c)};
}  ///< a direct get: the owner's byte, whatever copy this rank has

inline Instr keep() { return {Do::keep}; }                ///< the only instruction of a pager
inline Instr keep_resting() { return {Do::keep, 0, 1}; }  ///< … that retires pages, too

struct Script {
  std::uint8_t rank;
  std::vector<Instr> code;
};

struct Program {
  std::vector<Script> workers;
  std::array<std::uint8_t, 2> owner{0, 0};  ///< of each page at the start
  std::array<bool, 2> known{true, true};    ///< does the owner's block table say so already?
  bool watched = false;                     ///< are the owners' blocks protected at the start?
  bool fresh = false;  ///< do the pages begin on SSD, where nothing of them is? Then no owner knows its page
  std::uint8_t blocks_per_page = 1;
  /// owners are asked when all holders have forgotten the location, and their answers bring the page along
  bool brings = false;
  /// a release or an acquire may leave a changed block writable (BlockEvent::release_open)
  bool open = false;
  bool fixed = false;                  ///< the owners of all pages never change
  std::array<std::uint8_t, 3> room{};  ///< of each rank, in blocks of M and T; 0: no limit
  Mutation without = Mutation::none;
};

/// R ranks, W workers in all, B blocks.
template <std::uint8_t R, std::uint8_t W, std::uint8_t B>
class Coherence {
  using Block = dsm::BlockState;
  using Event = dsm::BlockEvent;
  using Action = dsm::Action;
  static constexpr std::uint8_t kFlags = 8, kLocks = 1;
  enum Kind : std::uint8_t { kRelease, kAcquire };

  struct Flying {  // The puts of one block: no other thread puts it while the busy bit is held.
    std::uint8_t mask, to;
    std::uint8_t value[kCells];
  };
  struct Actor {
    std::uint8_t pc, stage;  // instruction; how far in it
    std::uint8_t at;         // the rank where it works just now (a request is carried out at the rank asked)
    std::uint8_t round;      // 0 ask | 1 waits for a round | 2 leads one | 3 served
    std::uint8_t joined;     // waiting: did a round begin since it asked?
    std::uint8_t todo, later;   // blocks that the round has not seen; those it found busy
    std::uint8_t dropping;      // own: 1: the owner refused; 2: its answer has brought the page
    std::uint8_t telling;       // a release's round: how far it is with the pages that it looks at
    std::uint8_t pages, now;    // those left; the one it is at
    std::uint8_t blocks, open;  // … of which these blocks were not looked at yet; may its bytes have changed?
    std::uint8_t sure, watch;   // was it noted as changed? Are its blocks to be protected?
    std::uint8_t told;          // ranks that get notices next
    std::uint8_t loaded;        // add: what the load returned
    // fetching: 1: an acquire began meanwhile; 2: its rank has left the page's readers; 4: the page did not
    // stand
    std::uint8_t stale;
    std::uint8_t room;          // 1: it was admitted; 2: it sends its rank's changes; 4: its pin was admitted
    std::uint8_t waking, whom;  // how far it is with a page on SSD; which rank owns that, or did
    std::uint8_t acting;        // carries out actions on block
    std::uint8_t block, event, action, sub, cell, owner, value, found_own;
  };

 public:
  struct State {
    // word: BlockState::word() with pins in bits 6 and 7; of an owned block the twin's bit says that it is
    // saved
    std::uint8_t word[R][B], prot[R][B];
    std::uint8_t memory[R][B][kCells], twin[R][B][kCells];
    Flying flying[R][B];
    std::uint8_t owner[B], busy[B], puts[B];  // a page's entry; puts under way
    std::uint8_t recalled[B];          // it moves or is on SSD, and its location has no holders any more
    std::uint8_t tier[B], readers[B];  // where its owner has it; its readers
    std::uint8_t disk[R][B][kCells];   // the spill files
    std::uint8_t nothing;              // blocks on SSD of which nothing is there: never written, or forgotten
    std::uint8_t frames[R], twins[R];  // blocks of M and T that count, where there is a limit
    std::uint8_t asked[R];             // pages that its pager is to bring in
    std::uint8_t marked[R], stale[R];  // pages that its next release examines; pages of which it has notices
    std::uint8_t parts[R];             // blocks of which it has notices
    std::uint8_t changed[R];           // blocks that it has put to since it looked at their pages
    std::uint8_t ours[R];              // pages to which its threads may have stored without a fault
    // pages of which it knows itself a reader; pages whose owners it has asked to look since its last notice
    std::uint8_t stays[R], asks[R];
    // a release has taken marks, an acquire notices, and is at work on them
    std::uint8_t telling[R], dropping[R];
    std::uint8_t direct[W];  // a direct put under way
    // it is settled here, and its entry is being written (rank + 1), or was written, which its rank does not
    // know yet
    std::uint8_t naming[B];
    std::uint8_t cached[R], dirty[R];  // the sets of blocks that rounds walk
    std::uint8_t leading[R][2];
    std::uint8_t flag[kFlags], held[kLocks], last[kLocks];
    std::uint8_t ghost[B][kCells], freed[B];
    Actor actor[W];
  };

  explicit Coherence(Program program) : program_(std::move(program)) {}

  State initial() const {
    State s;
    std::memset(&s, 0, sizeof s);
    for (std::uint8_t b = 0; b < B; ++b) {
      const std::uint8_t o = program_.owner[page(b)];
      s.owner[page(b)] = o;
      if (program_.fresh) {
        s.tier[page(b)] = static_cast<std::uint8_t>(gas::Tier::ssd);
        s.recalled[page(b)] = 1;
        set_bits(s.nothing, 1u << b);
      }
      if (program_.fresh || !program_.known[page(b)]) continue;
      put_word(s, o, b, Block{false, true, program_.watched ? mem::Access::read : mem::Access::write});
      note_ours(s, o, page(b));
      s.prot[o][b] = program_.watched ? 1 : 2;
      fill(s, o, b);
    }
    for (std::uint8_t a = 0; a < W; ++a) s.actor[a].at = program_.workers[a].rank;
    return s;
  }

  template <class Emit>
  void successors(const State& s, Emit&& emit) const {
    for (std::uint8_t a = 0; a < W; ++a) step(s, a, emit);
    for (std::uint8_t p = 0; p < B; ++p) {  // entries arrive by themselves
      if (s.naming[p] == 0) continue;
      State n = s;
      const auto me = static_cast<std::uint8_t>((s.naming[p] & ~kArrived) - 1);
      if ((s.naming[p] & kArrived) == 0) {
        put_entry(n, p, gas::end_move(entry(s, p), Rank{me}));
        set_bits(n.naming[p], kArrived);
      } else {  // the completion
        if (!without(Mutation::r5_arrival_unseen) && !without(Mutation::r5_arrival_marked_early))
          mark(n, me, p);
        n.naming[p] = 0;
      }
      emit(n, Step{kNamed, s.naming[p], p});
    }
    for (std::uint8_t r = 0; r < R; ++r)  // puts land without help, each byte separately
      for (std::uint8_t b = 0; b < B; ++b)
        for (std::uint8_t c = 0; c < kCells; ++c)
          if (s.flying[r][b].mask & (1 << c)) {
            State n = s;
            Flying& f = n.flying[r][b];
            n.memory[f.to][b][c] = f.value[c];
            f.mask = static_cast<std::uint8_t>(f.mask & ~(1 << c));
            if (f.mask == 0) {
              f = Flying{};
              if (without(Mutation::r3_no_completion) || without(Mutation::r4_unlock_early))
                --n.puts[page(b)];
            } else
              f.value[c] = 0;
            emit(n, Step{kLand, r, static_cast<std::uint8_t>(b * kCells + c)});
          }
    for (std::uint8_t a = 0; a < W; ++a)
      if (s.direct[a]) {
        State n = s;
        const Instr& i = instr(s, a);
        n.memory[s.actor[a].owner][i.block][i.cell] = i.value;
        n.direct[a] = 0;
        emit(n, Step{kLand, program_.workers[a].rank, static_cast<std::uint8_t>(i.block * kCells + i.cell)});
      }
  }

  /// A mutant is judged by what programs see (a wrong value, a deadlock), not by the protocol's own
  /// invariants.
  const char* violation(const State& s) const {
    for (std::uint8_t b = 0; b < B && without(Mutation::none); ++b) {
      int owners = 0;
      for (std::uint8_t r = 0; r < R; ++r) {
        const Block w = word(s, r, b);
        if (!w.check()) return "a block word breaks check()";
        if (!w.busy && s.prot[r][b] != static_cast<std::uint8_t>(w.access))
          return "V allows something else than the block word says";
        owners += w.owned;
        if (w.owned && !w.busy && gas::Tier{s.tier[page(b)]} == gas::Tier::ssd)
          return "blocks of a page on SSD are in use";
        if (w.saved && !w.busy && gas::Tier{s.tier[page(b)]} != gas::Tier::partial)
          return "blocks are saved of a page that others put to";
        for (std::uint8_t c = 0; c < kCells; ++c) {
          if (w.saved && !w.busy && !(s.freed[b] & 1 << c) && s.memory[r][b][c] != s.disk[r][b][c])
            return "a block is saved with other bytes";
        }
        if (w.owned && !w.busy && !s.busy[page(b)] && s.owner[page(b)] != r)
          return "a rank thinks that it owns a page which is another's";
      }
      if (owners > 1) return "two owners";
    }
    for (std::uint8_t r = 0; r < R && without(Mutation::none); ++r)
      if (limit(r) != 0 && used(s, r) > limit(r) + slack(r))
        return "the budget is exceeded by more than threads can have in hand";
    return all_done(s) ? lost(s) : nullptr;
  }

  bool finished(const State& s) const { return all_done(s); }
  bool circles() const {
    return std::any_of(program_.workers.begin(), program_.workers.end(),
                       [](const Script& w) { return keeps(w); });
  }

  std::string name(const Step& step) const {
    if (step.kind == kLand)
      return "put of rank " + std::to_string(step.actor) + " lands: block " +
             std::to_string(step.detail / kCells) + " cell " + std::to_string(step.detail % kCells);
    if (step.kind == kNamed)
      return "the entry of page " + std::to_string(step.detail) +
             ((step.actor & kArrived) == 0 ? " names rank " : " is known to name rank ") +
             std::to_string((step.actor & ~kArrived) - 1);
    static constexpr const char* kWords[] = {"loads",
                                             "faults (load): claims",
                                             "stores",
                                             "faults (store): claims",
                                             "sees the fact",
                                             "fixes the fact",
                                             "asks for a round",
                                             "leads a round",
                                             "round: looks at block",
                                             "round: claims block",
                                             "round: block is busy, later",
                                             "round ends",
                                             "was served by another's round",
                                             "takes the lock",
                                             "gives the lock",
                                             "action",
                                             "gives up the claim",
                                             "marks clean block",
                                             "finishes block",
                                             "claims for an event",
                                             "nothing to do",
                                             "own: claims block",
                                             "own: looks at the entry",
                                             "own: marks the entry busy",
                                             "own: entry is busy, gives blocks back",
                                             "own: nobody holds its location any more",
                                             "own: puts under way have landed",
                                             "own: asks the owner to yield",
                                             "own: the owner refused or must retry",
                                             "own: has posted the entry",
                                             "hand back: entry",
                                             "tells: begins",
                                             "tells: takes page",
                                             "tells: looks at block",
                                             "forgets what its spill file has of page",
                                             "tells: reads who has page",
                                             "tells rank",
                                             "acquire: takes notices",
                                             "acquire: leaves the readers of page",
                                             "acquire: hears which blocks of page",
                                             "acquire: has heard, and stays a reader of page",
                                             "tells which blocks: rank",
                                             "tells: nothing of it is its own any more, page",
                                             "puts directly",
                                             "gets directly",
                                             "has room",
                                             "sends changes, since there is no room: block",
                                             "asks for the page: its owner is rank",
                                             "was answered: page",
                                             "brings in: claims block",
                                             "brings in: marks the entry busy",
                                             "brings in: entry is busy, or the page not on this rank's SSD",
                                             "brings in: reads page",
                                             "brings in: ends",
                                             "pager: marks the entry busy",
                                             "pager: claims block",
                                             "pager: the page stays",
                                             "pager: protects page",
                                             "pager: lets go of block",
                                             "pager: declares page",
                                             "pager: nobody knows where it is any more, page",
                                             "pager: puts have landed, page",
                                             "pager: writes page",
                                             "pager: punches page",
                                             "pager: ends",
                                             "pager: lays to rest block",
                                             "ends"};
    static constexpr const char* kActions[] = {
        "end",          "fetch",         "find",      "make_twin",     "allow_read", "allow_write",
        "protect_read", "protect_none",  "diff_put",  "diff_put_live", "put_all",    "put_all_live",
        "refresh",      "merge_arrival", "read_back", "restore_bytes", "mark_page"};
    const Script& w = program_.workers[step.actor];
    std::string text = "worker " + std::to_string(step.actor) + " (rank " + std::to_string(w.rank) + ") ";
    if ((step.kind & 0xFF) == kAction)
      return text + kActions[step.detail >> 3] + " ." + std::to_string(step.detail & 7);
    return text + kWords[step.kind & 0xFF] + " " + std::to_string(step.detail);
  }

  std::string show(const State& s) const {
    std::string t;
    for (std::uint8_t b = 0; b < B; ++b) {
      t += "block " + std::to_string(b) + ": entry owner " + std::to_string(s.owner[page(b)]) +
           (s.busy[page(b)] ? " busy" : "") + (s.tier[page(b)] ? " on SSD" : "") + " readers " +
           std::to_string(s.readers[page(b)]) + " puts " + std::to_string(s.puts[page(b)]) + " ghost " +
           std::to_string(s.ghost[b][0]) + "," + std::to_string(s.ghost[b][1]);
      for (std::uint8_t r = 0; r < R; ++r) {
        const Block w = word(s, r, b);
        t += " | rank " + std::to_string(r) + (w.owned ? " owned" : "") + (w.busy ? " busy" : "") + " view " +
             std::to_string(static_cast<int>(w.access)) + (w.whole ? " whole" : "") +
             (w.twin ? " twin " + std::to_string(s.twin[r][b][0]) + "," + std::to_string(s.twin[r][b][1])
                     : "") +
             (s.marked[r] & 1 << page(b) ? " marked" : "") + (s.stale[r] & 1 << page(b) ? " told" : "") +
             (s.parts[r] & 1 << b ? " of it" : "") + (s.ours[r] & 1 << page(b) ? " ours" : "") +
             (s.stays[r] & 1 << page(b) ? " stays" : "") + (s.asks[r] & 1 << page(b) ? " asked" : "") +
             " pins " + std::to_string(w.pins) + " M " + std::to_string(s.memory[r][b][0]) + "," +
             std::to_string(s.memory[r][b][1]);
      }
      t += "; ";
    }
    for (std::uint8_t a = 0; a < W; ++a)
      t += "worker " + std::to_string(a) + " at instruction " + std::to_string(s.actor[a].pc) + "." +
           std::to_string(s.actor[a].stage) + "  ";
    return t;
  }

 private:
  enum StepKind : std::uint16_t {
    kLoad,
    kLoadFault,
    kStore,
    kStoreFault,
    kSee,
    kSet,
    kAsk,
    kLead,
    kLook,
    kRoundClaim,
    kLater,
    kRoundEnd,
    kServed,
    kLock,
    kUnlock,
    kAction,
    kGiveUp,
    kClean,
    kFinish,
    kEvent,
    kNothing,
    kOwnClaim,
    kOwnLook,
    kOwnBusy,
    kOwnWait,
    kRecall,
    kDrained,
    kYield,
    kRefused,
    kPosted,
    kHandBack,
    kTell,
    kTakePage,
    kTellLook,
    kForget,
    kTakeReaders,
    kTellRank,
    kTakeNotices,
    kLeave,
    kHear,
    kKeep,
    kTellParts,
    kNotOurs,
    kPut,
    kGet,
    kRoom,
    kSends,
    kAskOwner,
    kAnswered,
    kInClaim,
    kInMark,
    kInNot,
    kInRead,
    kInEnd,
    kMark,
    kGoClaim,
    kStays,
    kGoProtect,
    kGoBlock,
    kDeclare,
    kGoRecall,
    kGoDrained,
    kWrite,
    kPunch,
    kGone,
    kRest,
    kEnd,
    kLand = 0x100,
    kNamed = 0x200,
  };

  [[nodiscard]] bool without(Mutation m) const noexcept { return program_.without == m; }
  [[nodiscard]] std::uint8_t page(std::uint8_t b) const noexcept {
    return static_cast<std::uint8_t>(b / program_.blocks_per_page);
  }
  [[nodiscard]] std::uint8_t first(std::uint8_t p) const noexcept {
    return static_cast<std::uint8_t>(p * program_.blocks_per_page);
  }
  [[nodiscard]] std::uint8_t last(std::uint8_t p) const noexcept {
    return static_cast<std::uint8_t>(first(p) + program_.blocks_per_page - 1);
  }

  static Block word(const State& s, std::uint8_t r, std::uint8_t b) noexcept {
    const std::uint32_t w = s.word[r][b];
    Block block = Block::of((w & 0x3F) | (w >> 6) << 8);
    if (block.owned && block.twin) block.twin = false, block.saved = true;
    return block;
  }
  static void put_word(State& s, std::uint8_t r, std::uint8_t b, Block block) noexcept {
    const std::uint32_t w = block.word() | (block.saved ? 16u : 0u);
    s.word[r][b] = static_cast<std::uint8_t>((w & 0x3F) | (w >> 8) << 6);
  }
  [[nodiscard]] gas::Location entry(const State& s, std::uint8_t p) const noexcept {
    return {true,
            Rank{s.owner[p]},
            static_cast<gas::Tier>(s.tier[p]),
            s.busy[p] != 0,
            0,
            false,
            program_.fixed && !without(Mutation::fixed_moves)};
  }
  void put_entry(State& s, std::uint8_t p, gas::Location l) const noexcept {
    if (s.owner[p] != raw(l.owner)) has_not_stood(s, p);
    s.owner[p] = static_cast<std::uint8_t>(raw(l.owner));
    s.busy[p] = l.busy;
    s.tier[p] = static_cast<std::uint8_t>(l.tier);
    if (l.tier == gas::Tier::dram) s.recalled[p] = 0;
  }
  /// A worker between its two looks at the page will see it.
  void has_not_stood(State& n, std::uint8_t p) const noexcept {
    for (std::uint8_t a = 0; a < W; ++a) {
      Actor& other = n.actor[a];
      const Instr& i = instr(n, a);
      if ((i.what == Do::get && other.stage != 0 && page(i.block) == p) ||
          (other.acting && page(other.block) == p &&
           (fetching(n, other) ? other.sub >= 2 && other.sub < 5
                               : refreshing(n, other) && other.sub >= 1 && other.sub <= 3)))
        set_bits(other.stale, 4);
    }
  }
  [[nodiscard]] const Instr& instr(const State& s, std::uint8_t a) const noexcept {
    static constexpr Instr kEndInstr{};
    const auto& code = program_.workers[a].code;
    return s.actor[a].pc < code.size() ? code[s.actor[a].pc] : kEndInstr;
  }

  bool all_done(const State& s) const {
    for (std::uint8_t a = 0; a < W; ++a)
      if (keeps(program_.workers[a]) ? s.actor[a].stage != 0 || s.actor[a].waking != 0 || s.actor[a].acting
                                     : s.actor[a].pc < program_.workers[a].code.size())
        return false;
    for (const auto& of_rank : s.flying)
      for (const Flying& f : of_rank)
        if (f.mask != 0) return false;
    return std::all_of(s.naming, s.naming + B, [](std::uint8_t n) { return n == 0; });
  }
  [[nodiscard]] std::uint8_t bit_of_page(std::uint8_t b) const noexcept {
    return static_cast<std::uint8_t>(1 << page(b));
  }
  [[nodiscard]] std::uint8_t blocks_of(std::uint8_t p) const noexcept {
    std::uint8_t blocks = 0;
    for (std::uint8_t b = first(p); b <= last(p) && b < B; ++b) set_bits(blocks, 1u << b);
    return blocks;
  }
  void note_ours(State& n, std::uint8_t r, std::uint8_t p) const noexcept {
    if (!without(Mutation::ours_unnoted)) set_bits(n.ours[r], 1u << p);
  }
  /// Sharing::mark.
  void mark(State& n, std::uint8_t r, std::uint8_t p) const noexcept {
    note_ours(n, r, p);
    set_bits(n.marked[r], 1u << p);
  }
  static void set_bits(std::uint8_t& to, unsigned bits) noexcept {
    to = static_cast<std::uint8_t>(to | bits);
  }
  static void clear_bits(std::uint8_t& from, unsigned bits) noexcept {
    from = static_cast<std::uint8_t>(from & ~bits);
  }
  /// Nothing to release, nothing to drop: one word each (gas/marked_pages.h).
  [[nodiscard]] bool nothing_to_release(const State& s, std::uint8_t r) const {
    return s.dirty[r] == 0 && s.marked[r] == 0 &&
           (!naming(s, r) || without(Mutation::r8_naming_not_counted)) &&
           (!s.telling[r] || without(Mutation::r5_release_passes_telling));
  }
  /// PageMarks::may_hold.
  [[nodiscard]] bool nothing_told_of(const State& s, std::uint8_t r, std::uint8_t b) const noexcept {
    return (s.stale[r] & bit_of_page(b)) == 0 && !s.dropping[r];
  }
  [[nodiscard]] bool nothing_to_drop(const State& s, std::uint8_t r) const {
    return s.stale[r] == 0 && (!s.dropping[r] || without(Mutation::r5_acquire_passes_dropping));
  }

  /// Has rank r changed the byte since it last sent it?
  static bool changed(const State& s, std::uint8_t r, std::uint8_t b, std::uint8_t c) {
    const Block w = word(s, r, b);
    return w.whole || (w.twin && s.memory[r][b][c] != s.twin[r][b][c]);
  }
  /// At the end: the owner's bytes, with what ranks have not released yet, are the ghost's.
  const char* lost(const State& s) const {
    for (std::uint8_t b = 0; b < B; ++b) {
      if (s.busy[page(b)] || s.puts[page(b)] != 0) return "an entry stays busy, or puts stay counted";
      for (std::uint8_t c = 0; c < kCells; ++c) {
        const std::uint8_t o = s.owner[page(b)];
        const auto tier = static_cast<gas::Tier>(s.tier[page(b)]);
        const bool here = tier == gas::Tier::dram || (tier == gas::Tier::partial && word(s, o, b).owned);
        std::uint8_t value = here ? s.memory[o][b][c] : s.disk[o][b][c];
        for (std::uint8_t r = 0; r < R; ++r)
          if (changed(s, r, b, c)) value = s.memory[r][b][c];
        if (!(s.freed[b] & (1 << c)) && value != s.ghost[b][c]) return "a write is lost at the end";
      }
    }
    return nullptr;
  }

  void next_instr(State& n, std::uint8_t a) const {
    Actor& x = n.actor[a];
    const auto pc = static_cast<std::uint8_t>(x.pc + 1);
    x = Actor{};
    x.pc = pc;
    x.at = program_.workers[a].rank;
  }

  // ---- one block: claim, actions, finish
  // -------------------------------------------------------------------

  /// The claimed block's step, from its word without the busy bit.
  [[nodiscard]] dsm::BlockStep claimed_step(const State& s, const Actor& x) const {
    Block before = word(s, x.at, x.block);
    if (x.found_own == kOnSsd) {
      dsm::BlockStep step = dsm::found_on_ssd(before, static_cast<Event>(x.event));
      if (without(Mutation::part_stored_saved)) step.after.saved = true;
      return step;
    }
    if (x.found_own) {
      dsm::BlockStep step = dsm::next(before, Event::found_own);
      if (without(Mutation::r5_first_meeting_unseen)) step.actions = {Action::allow_write};
      const auto event = static_cast<Event>(x.event);
      // as carry_out_fault() does
      step.after.pins += event == Event::pin_read || event == Event::pin_write || event == Event::pin_whole;
      return step;
    }
    before.busy = false;
    return mutated(dsm::next(before, static_cast<Event>(x.event)), before, static_cast<Event>(x.event));
  }

  /// next() with a rule taken out.
  [[nodiscard]] dsm::BlockStep mutated(dsm::BlockStep step, const Block& before, Event event) const {
    const auto drop = [&](Action gone) {
      std::array<Action, 4> kept{};
      std::size_t k = 0;
      for (Action act : step.actions)
        if (act != gone && act != Action::end) kept[k++] = act;
      step.actions = kept;
    };
    if (without(Mutation::r3_no_protect) && event == Event::release) drop(Action::protect_read);
    if (without(Mutation::open_unsent_twin) && event == Event::release_open && before.twin)
      step.actions = {Action::diff_put};
    if (without(Mutation::open_unrefreshed) && event == Event::acquire_open) drop(Action::refresh);
    if (without(Mutation::r7_no_discard) && event == Event::discard) drop(Action::restore_bytes);
    if (before.whole && !before.busy) {
      if (without(Mutation::whole_diffed) && event == Event::release && before.pins == 0)
        step.actions[1] = Action::diff_put;
      if (without(Mutation::whole_dropped) && event == Event::acquire)
        step.after = Block{}, step.actions = {Action::protect_none};
      if (without(Mutation::whole_left) && event == Event::acquire) drop(Action::find);
      if (without(Mutation::whole_freed_later) && event == Event::discard) step = {};
      if (without(Mutation::whole_sent_live) && event == Event::release && before.pins != 0)
        step.after.twin = false, step.after.access = mem::Access::read;
      if (without(Mutation::whole_stays) && step.actions[0] == Action::put_all_live)
        step.after.twin = false, step.after.whole = true;
    }
    if (without(Mutation::part_saved_stays) && before.saved && event == Event::store) step.after.saved = true;
    if (without(Mutation::r5_own_store_unseen) && before.access == mem::Access::read) drop(Action::mark_page);
    if (without(Mutation::tier_rest_unseen) && before.owned && before.access == mem::Access::none)
      drop(Action::mark_page);
    if (event == Event::evict && step.verdict == dsm::Verdict::refuse) {
      Block lighter = before;
      if (without(Mutation::tier_dirty)) lighter.twin = lighter.whole = false;
      if (without(Mutation::tier_pinned)) lighter.pins = 0;
      step = dsm::next(lighter, event);
    }
    if (without(Mutation::blank_unprotected) && event == Event::blank) drop(Action::protect_none);
    if (without(Mutation::blank_pinned) && event == Event::blank && before.pins != 0 && !before.busy) {
      Block free_of_pins = before;
      free_of_pins.pins = 0;
      step = dsm::next(free_of_pins, event);
      step.after.pins = before.pins;
      step.after.access = before.access;
      drop(Action::protect_none);
    }
    if (without(Mutation::r8_no_protect) && event == Event::yield) drop(Action::protect_none);
    if (without(Mutation::r8_move_pinned) && event == Event::yield && before.pins != 0 && before.owned &&
        !before.busy) {
      Block free_of_pins = before;
      free_of_pins.pins = 0;
      step = dsm::next(free_of_pins, event);
    }
    return step;
  }

  dsm::Verdict try_claim(State& n, std::uint8_t a, std::uint8_t b, Event event) const {
    Actor& x = n.actor[a];
    const Block before = word(n, x.at, b);
    const dsm::BlockStep step = mutated(dsm::next(before, event), before, event);
    if (step.verdict != dsm::Verdict::proceed) return step.verdict;
    Block claimed = before;
    claimed.busy = true;
    put_word(n, x.at, b, claimed);
    x.acting = 1;
    x.block = b;
    x.event = static_cast<std::uint8_t>(event);
    x.action = x.sub = x.cell = x.owner = x.value = x.found_own = 0;
    return step.verdict;
  }

  static void next_action(State& n, std::uint8_t a) {
    Actor& x = n.actor[a];
    ++x.action;
    x.sub = x.cell = x.owner = x.value = 0;
  }

  template <class Emit>
  void act(const State& s, std::uint8_t a, Emit&& emit) const {
    State n = s;
    Actor& x = n.actor[a];
    const dsm::BlockStep step = claimed_step(s, x);
    const Action action = x.action < step.actions.size() ? step.actions[x.action] : Action::end;
    const auto done = [&] {
      const Step label{kAction, a,
                       static_cast<std::uint8_t>(static_cast<unsigned>(action) << 3 | s.actor[a].sub)};
      emit(n, label);
    };
    std::uint8_t& prot = n.prot[x.at][x.block];
    const bool blanks = static_cast<Event>(x.event) == Event::blank;
    // word 0: while the bit is held the page stays where it is
    if (blanks && x.action == 0 && x.value == 0) {
      if (gas::owned_on_ssd(entry(s, page(x.block)), Rank{x.at})) {
        x.value = 1;
        return emit(n, Step{kEvent, a, x.block});
      }
      Block before = word(s, x.at, x.block);
      before.busy = false;
      put_word(n, x.at, x.block, before);
      next_of_event(n, a);
      return emit(n, Step{kGiveUp, a, s.actor[a].block});
    }
    switch (action) {
      case Action::end: {
        const auto bit = static_cast<std::uint8_t>(1 << x.block);
        // mark_clean, then the finish
        const bool sent = !step.after.dirty() || (without(Mutation::open_counts_clean) &&
                                                  static_cast<Event>(x.event) == Event::release_open);
        if (word(n, x.at, x.block).dirty() && sent && (n.dirty[x.at] & bit)) {
          n.dirty[x.at] = static_cast<std::uint8_t>(n.dirty[x.at] & ~bit);
          return emit(n, Step{kClean, a, x.block});
        }
        if (step.after.access == mem::Access::none || step.after.owned)
          n.cached[x.at] = static_cast<std::uint8_t>(n.cached[x.at] & ~bit);
        put_word(n, x.at, x.block, step.after);
        if (blanks) {  // forgotten on SSD; what M holds must not be read
          std::fill_n(n.disk[x.at][x.block], kCells, 0);
          std::fill_n(n.memory[x.at][x.block], kCells, 0);
          set_bits(n.nothing, 1u << x.block);
        }
        if (step.after.owned && !step.after.saved)  // likewise
          for (std::uint8_t& d : n.disk[x.at][x.block]) d = 0;
        if (!step.after.twin)  // bytes that are not read again: equal states look equal
          for (std::uint8_t& t : n.twin[x.at][x.block]) t = 0;
        x.acting = 0;
        x.block = x.event = x.action = x.found_own = 0;
        finish_event(n, a);
        return emit(n, Step{kFinish, a, s.actor[a].block});
      }
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
      case Action::protect_read: prot = 1; break;
      case Action::protect_none: prot = 0; break;
      case Action::mark_page: {  // noted as ours, then marked
        const bool notes = (x.sub == 0) != without(Mutation::ours_noted_late);
        notes ? note_ours(n, x.at, page(x.block)) : set_bits(n.marked[x.at], bit_of_page(x.block));
        if (x.sub == 0) {
          x.sub = 1;
          return done();
        }
        break;
      }
      case Action::make_twin:
        if (without(Mutation::tier_holds_and_waits) && !has_room(n, x.at)) return;
        fill(n, x.at, x.block);
        fill_twin(n, x.at, x.block);
        for (std::uint8_t c = 0; c < kCells; ++c) n.twin[x.at][x.block][c] = n.memory[x.at][x.block][c];
        n.dirty[x.at] =
            static_cast<std::uint8_t>(n.dirty[x.at] | 1 << x.block);  // mark_dirty: before any store can land
        break;
      case Action::restore_bytes:
        for (std::uint8_t c = 0; c < kCells; ++c) {
          if ((instr(s, a).cell & 1 << c) == 0) continue;
          std::uint8_t &mine = n.memory[x.at][x.block][c], &base = n.twin[x.at][x.block][c];
          (without(Mutation::r7_freed_bytes_stay) ? base = mine : mine = base);
        }
        break;
      case Action::fetch:
      case Action::find: return fetch(n, a, action == Action::find, done);
      case Action::refresh: return refresh(n, a, done);
      case Action::merge_arrival: break;  // only own_page() has it
      case Action::read_back:
        fill(n, x.at, x.block);
        std::copy_n(s.disk[x.at][x.block], kCells, n.memory[x.at][x.block]);
        break;
      case Action::diff_put:
      case Action::put_all: return diff_put(n, a, false, action == Action::put_all, done);
      case Action::diff_put_live:
      case Action::put_all_live: return diff_put(n, a, true, action == Action::put_all_live, done);
    }
    next_action(n, a);
    done();
  }

  /// Coherence::fetch: adds the block to the cached ones; looks up the entry; joins the readers; has the
  /// owner examine the page; reads the bytes one by one; did the page stand, did an acquire begin to drop?
  /// find: without the bytes.
  template <class Done>
  void fetch(State& n, std::uint8_t a, bool find, const Done& done) const {
    Actor& x = n.actor[a];
    const std::uint8_t p = page(x.block);
    switch (x.sub) {
      case 0:
        set_bits(n.cached[x.at], 1u << x.block);
        x.sub = 1;
        return done();
      case 1: {
        if (static_cast<Event>(x.event) == Event::acquire) {  // its rank goes on holding what is kept
          if (!(x.waking == kAwake && comes_home(n, x)) && !wakes(n, a, done)) return;
          if (n.owner[p] == x.at) {  // no notice is needed
            next_action(n, a);
            return done();
          }
        }
        if (without(Mutation::tier_holds_and_waits) && !has_room(n, x.at)) return;
        x.stale = 0;
        x.sub = 2;
        x.owner = n.owner[p];
        gas::Location where = entry(n, p);
        if (without(where.owner == Rank{x.at} ? Mutation::tier_own_asleep : Mutation::tier_read_asleep) &&
            !where.busy)
          where.tier = gas::Tier::dram;
        const dsm::Fetched found = dsm::fetch_source(where, Rank{x.at});
        // through its rank's entry it is found all the same
        if (found != dsm::Fetched::yes && x.owner != x.at && !n.recalled[p]) {
          const State before = n;
          done();
          if (static_cast<Event>(x.event) == Event::acquire) return;
          n = before;
        }
        if (found == dsm::Fetched::own ||
            (found == dsm::Fetched::on_ssd && without(Mutation::part_unarmed_page))) {
          x.found_own = kOwn;
          x.action = x.sub = x.owner = 0;
        } else if (found == dsm::Fetched::on_ssd) {
          x.sub = 6;
          x.value = n.tier[p];
        } else if (found == dsm::Fetched::leaving && x.owner == x.at &&
                   without(Mutation::r8_use_while_leaving)) {
          x.sub = 4;
          x.cell = kCells;
        } else if (found != dsm::Fetched::yes) {  // gives up the claim before waiting (rule 8)
          x.sub = 5;
          x.waking = found == dsm::Fetched::on_ssd_elsewhere ? kAsking : kAwake;
          x.whom = found == dsm::Fetched::on_ssd_elsewhere ? static_cast<std::uint8_t>(x.owner + 1) : 0;
        }
        return done();
      }
      case 2: return find && without(Mutation::whole_unjoined) ? (x.sub = 4, done()) : join(n, x, 3, done);
      case 3: return mark_at_owner(n, x, 4, done);
      case 6: {  // partial already, or from SSD by a compare-swap
        const bool ours = x.value == static_cast<std::uint8_t>(gas::Tier::partial) ||
                          gas::owned_on_ssd(entry(n, p), Rank{x.at}) || without(Mutation::part_in_busy);
        if (!ours) {
          x.sub = 5;
          x.value = 0;
          return done();
        }
        if (x.value != static_cast<std::uint8_t>(gas::Tier::partial) && !without(Mutation::part_not_noted))
          put_entry(n, p, gas::in_part(entry(n, p)));
        clear_bits(n.cached[x.at], 1u << x.block);
        x.found_own = kOnSsd;
        x.action = x.sub = x.owner = x.value = x.stale = 0;
        return done();
      }
      case 5: {
        Block w = word(n, x.at, x.block);
        w.busy = false;
        put_word(n, x.at, x.block, w);
        clear_bits(n.cached[x.at], 1u << x.block);
        x.acting = x.block = x.event = x.action = x.sub = x.owner = x.stale = 0;
        clear_bits(x.room, 3);
        return done();
      }
      default: {
        if (find) {
          x.cell = kCells;
        } else if (x.cell < kCells) {
          n.memory[x.at][x.block][x.cell] = n.memory[x.owner][x.block][x.cell];
          ++x.cell;
        }
        if (x.cell < kCells) return done();
        if (without(Mutation::r6_join_after_data)) set_bits(n.readers[p], 1u << x.at);
        if (without(Mutation::r6_owner_mark_after_data)) set_bits(n.marked[x.owner], 1u << p);
        x.cell = 0;
        x.sub = 1;
        const bool stood = stays(n, x);
        if (stood && (!(x.stale & 1) || without(Mutation::r2_no_recheck))) next_action(n, a);
        x.stale = 0;
        return done();
      }
    }
  }

  /// Did the page stand? Then its rank knows itself among the readers, unless it has left.
  bool stays(State& n, const Actor& x) const {
    const std::uint8_t p = page(x.block);
    const bool stood = !(x.stale & 4) || without(Mutation::r6_not_stood);
    if ((stood || without(Mutation::r6_stay_without_standing)) &&
        (!(x.stale & 2) || without(Mutation::r6_stay_noted_blindly)))
      set_stay(n, x.at, p, stay(n, x.at, p).after_joining());
    return stood;
  }
  static gas::ReaderState stay(const State& s, std::uint8_t r, std::uint8_t p) noexcept {
    return {(s.stays[r] & 1 << p) != 0, (s.asks[r] & 1 << p) != 0, 0};
  }
  static void set_stay(State& n, std::uint8_t r, std::uint8_t p, gas::ReaderState stay) noexcept {
    (stay.joined ? set_bits : clear_bits)(n.stays[r], 1u << p);
    (stay.asked ? set_bits : clear_bits)(n.asks[r], 1u << p);
  }
  template <class Done>
  void join(State& n, Actor& x, std::uint8_t then, const Done& done) const {
    clear_bits(x.stale, 2);
    const gas::ReaderState before = stay(n, x.at, page(x.block));
    // nor must the owner look: it was asked to, or has sent a notice since, or its stores fault
    if (before.complete()) {
      x.sub = static_cast<std::uint8_t>(then + 1);
      return done();
    }
    if (before.joined) return mark_at_owner(n, x, static_cast<std::uint8_t>(then + 1), done);
    if (!without(Mutation::r6_no_join) && !without(Mutation::r6_join_after_data))
      set_bits(n.readers[page(x.block)], 1u << x.at);
    x.sub = then;
    done();
  }
  template <class Done>
  void mark_at_owner(State& n, Actor& x, std::uint8_t then, const Done& done) const {
    if (!without(Mutation::r6_no_owner_mark) && !without(Mutation::r6_owner_mark_after_data))
      set_bits(n.marked[x.owner], bit_of_page(x.block));
    x.sub = then;
    done();
  }

  /// A fault gave its claim up since the page is leaving: it looks again when that is over.
  bool leaving(const State& s, const Actor& x, std::uint8_t b) const {
    const std::uint8_t p = page(b);
    const bool through_entry = s.owner[p] != x.at && !s.recalled[p];
    return !through_entry && dsm::fetch_source(entry(s, p), Rank{x.at}) == dsm::Fetched::leaving &&
           !without(Mutation::r8_use_while_leaving);
  }

  enum FoundOwn : std::uint8_t { kOwn = 1, kOnSsd };
  [[nodiscard]] bool comes_home(const State& s, const Actor& x) const {
    return s.owner[page(x.block)] == x.at && !without(Mutation::tier_put_own_asleep);
  }

  bool fetching(const State& s, const Actor& x) const {
    if (x.found_own) return false;
    const dsm::BlockStep step = claimed_step(s, x);
    return x.action < step.actions.size() &&
           (step.actions[x.action] == Action::fetch || step.actions[x.action] == Action::find);
  }

  bool refreshing(const State& s, const Actor& x) const {
    if (x.found_own) return false;
    const dsm::BlockStep step = claimed_step(s, x);
    return x.action < step.actions.size() && step.actions[x.action] == Action::refresh;
  }

  /// The merge of rule 4 from the owner's copy into a pinned block: where it differs from the twin it goes
  /// into M and the twin. First the owner's bytes come into a buffer (x.value: one byte's value a nibble);
  /// stores may happen before they are merged.
  template <class Done>
  void refresh(State& n, std::uint8_t a, const Done& done) const {
    Actor& x = n.actor[a];
    const std::uint8_t p = page(x.block);
    switch (x.sub) {
      case 0:
        if (!(x.waking == kAwake && comes_home(n, x)) && !wakes(n, a, done)) return;
        x.owner = n.owner[p];
        clear_bits(x.stale, 4);
        x.sub = 1;
        if (x.owner == x.at) next_action(n, a);
        return done();
      case 1: return join(n, x, 2, done);
      case 2: return mark_at_owner(n, x, 3, done);
      case 3:
        x.value = static_cast<std::uint8_t>(x.value | n.memory[x.owner][x.block][x.cell] << 4 * x.cell);
        if (++x.cell < kCells) return done();
        x.cell = 0;
        x.sub = stays(n, x) ? 4 : 0;
        if (x.sub == 0) x.value = 0;
        x.stale = 0;
        if (without(Mutation::r6_join_after_data)) set_bits(n.readers[p], 1u << x.at);
        if (without(Mutation::r6_owner_mark_after_data)) set_bits(n.marked[x.owner], 1u << p);
        return done();
      default: {
        const bool twin = word(n, x.at, x.block).dirty();  // what was whole has one by now
        std::uint8_t& mine = n.memory[x.at][x.block][x.cell];
        std::uint8_t& reference = twin ? n.twin[x.at][x.block][x.cell] : mine;
        const auto theirs = static_cast<std::uint8_t>(x.value >> 4 * x.cell & 15);
        if (theirs != reference || without(Mutation::r4_plain_refresh)) {
          mine = theirs;
          if (twin && !without(Mutation::r4_twin_left)) reference = theirs;
        }
        if (++x.cell == kCells) next_action(n, a);
        return done();
      }
    }
  }

  /// all: whatever the twin says.
  template <class Done>
  void diff_put(State& n, std::uint8_t a, bool live, bool all, const Done& done) const {
    Actor& x = n.actor[a];
    const std::uint8_t p = page(x.block);
    Flying& f = n.flying[x.at][x.block];
    std::uint8_t* mine = n.memory[x.at][x.block];
    std::uint8_t* twin = n.twin[x.at][x.block];
    enum : std::uint8_t { kDiff, kCount, kAwait, kNote, kUncount, kBetweenLoads, kUncountOwn, kHome };
    switch (x.sub) {
      case kDiff: {
        // only where completion is not awaited: one put of a block at a time all the same
        if (f.mask != 0) return;
        // x.value: the bytes found changed; their values wait in `flying`, mask 0
        if (live && !all && without(Mutation::r3_two_loads) && mine[x.cell] != twin[x.cell]) {
          x.value = static_cast<std::uint8_t>(x.value | 1 << x.cell);
          f.value[x.cell] = mine[x.cell];
          x.sub = kBetweenLoads;
          return done();
        }
        const std::uint8_t until =
            live ? static_cast<std::uint8_t>(x.cell + 1) : kCells;  // protected: no store meanwhile
        for (; x.cell < until; ++x.cell) {
          if (!all && mine[x.cell] == twin[x.cell] && !without(Mutation::r3_gaps)) continue;
          x.value = static_cast<std::uint8_t>(x.value | 1 << x.cell);
          f.value[x.cell] = mine[x.cell];
          if (live && !(all && without(Mutation::whole_twin_left))) twin[x.cell] = f.value[x.cell];
        }
        if (x.cell == kCells) {
          x.cell = 0;
          x.sub = kCount;
          if (live && all) fill_twin(n, x.at, x.block);
        }
        return done();
      }
      case kBetweenLoads:
        twin[x.cell] = mine[x.cell];
        x.sub = kDiff;
        if (++x.cell == kCells) {
          x.cell = 0;
          x.sub = kCount;
        }
        return done();
      case kCount: {
        if (x.waking == kAwake && asleep(n, p) && comes_home(n, x) && !without(Mutation::tier_put_asleep)) {
          x.owner = n.tier[p];
          x.sub = kHome;
          return done();
        }
        if (x.waking != kAwake || (asleep(n, p) && !without(Mutation::tier_put_asleep)))
          return ask_holding(n, a, done);
        // until the page has moved
        if (n.recalled[p] && !asleep(n, p) && !without(Mutation::r8_put_ignores_busy)) return;
        ++n.puts[p];
        if (n.owner[p] == x.at) {  // our M is the master copy: the bytes are where they belong
          f = Flying{};
          const bool open = static_cast<Event>(x.event) == Event::release_open && live;
          x.sub = live && x.value != 0 && !open ? kNote : kUncountOwn;
          x.value = 0;
          if (open) {  // it is protected, and released as any other
            n.prot[x.at][x.block] = 1;
            x.event = static_cast<std::uint8_t>(Event::release);
            x.action = 1;
          }
          return done();
        }
        f.to = n.owner[p];
        f.mask = x.value;
        for (std::uint8_t c = 0; c < kCells; ++c)
          if (!(f.mask & (1 << c))) f.value[c] = 0;
        x.value = 0;
        x.sub = f.mask == 0 ? kUncountOwn : kAwait;  // nothing has changed
        // uncounted when they have landed
        if ((without(Mutation::r3_no_completion) || without(Mutation::r4_unlock_early)) && f.mask != 0) {
          set_bits(n.changed[x.at], 1u << x.block);
          set_bits(n.marked[x.at], 1u << p);
          next_action(n, a);
        }
        return done();
      }
      case kAwait:  // the completion: an event of its own, after every byte has landed
        if (f.mask != 0) return;
        x.sub = without(Mutation::r5_put_untold) ? kUncount : kNote;
        return done();
      case kNote:
        set_bits(n.changed[x.at], 1u << x.block);
        x.sub = kUncount;
        return done();
      case kUncountOwn:
        --n.puts[p];
        next_action(n, a);
        return done();
      // nothing is put: the rank owns the block, in a page that is partial here. By a compare-swap, unless it
      // was
      case kHome: {
        const bool ours = x.owner == static_cast<std::uint8_t>(gas::Tier::partial) ||
                          gas::owned_on_ssd(entry(n, p), Rank{x.at});
        if (ours) {
          put_entry(n, p, gas::in_part(entry(n, p)));
          f = Flying{};
          x.found_own = kOwn;
          x.action = x.value = 0;
        }
        x.sub = ours ? std::uint8_t{0} : std::uint8_t{kCount};
        x.owner = 0;
        return done();
      }
      default:
        if (!without(Mutation::r5_put_untold)) set_bits(n.marked[x.at], 1u << p);
        --n.puts[p];
        next_action(n, a);
        return done();
    }
  }

  // ---- instructions
  // ----------------------------------------------------------------------------------------

  template <class Emit>
  void step(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    if (x.acting) return act(s, a, emit);
    if (x.waking != kAwake) return wake(s, a, emit);
    const Instr& i = instr(s, a);
    switch (i.what) {
      case Do::load: return access(s, a, false, emit);
      case Do::store:
      case Do::add: return access(s, a, true, emit);
      case Do::set:
        return simple(s, a, kSet, emit, [&](State& n) {
          n.flag[i.block] = static_cast<std::uint8_t>(x.at + 1);
          return true;
        });
      case Do::poke:
        return simple(s, a, kStore, emit, [&](State& n) {
          n.memory[x.at][i.block][i.cell] = n.ghost[i.block][i.cell] = i.value;
          n.freed[i.block] = static_cast<std::uint8_t>(n.freed[i.block] & ~(1 << i.cell));
          return true;
        });
      case Do::see: return simple(s, a, kSee, emit, [&](State& n) { return n.flag[i.block] != 0; });
      case Do::cross: return cross_edge(s, a, s.flag[i.block], emit);
      case Do::lock: return take_lock(s, a, emit);
      case Do::unlock:
        return simple(s, a, kUnlock, emit, [&](State& n) {
          n.held[i.block] = 0;
          const bool early = without(Mutation::lock_marked_early) && s.leading[x.at][kRelease];
          n.last[i.block] =
              static_cast<std::uint8_t>((x.at + 1) | (i.value == kMarked && early ? kReleasing : i.value));
          return true;
        });
      case Do::own: return own_page(s, a, i.block, emit);
      case Do::hand_back: return hand_page_back(s, a, emit);
      case Do::reclaim:
        return circles() ? arm_owned(s, a, emit) : block_event(s, a, Event::arrive_blank, emit);
      case Do::pin_write:
        return block_event(s, a, without(Mutation::whole_edge) ? Event::pin_whole : Event::pin_write, emit);
      case Do::pin_whole: return block_event(s, a, Event::pin_whole, emit);
      case Do::pin_read: return block_event(s, a, Event::pin_read, emit);
      case Do::unpin: return block_event(s, a, Event::unpin, emit);
      // Coherence::discard: the changes, then the copy if this rank may have a notice of it
      case Do::discard:
        if (x.stage == 0)
          return block_event(s, a, i.cell == (1 << kCells) - 1 ? Event::discard_block : Event::discard, emit);
        if (nothing_told_of(s, x.at, i.block) || without(Mutation::r7_told_copy_stays))
          return simple(s, a, kNothing, emit, [](State&) { return true; });
        return block_event(s, a, Event::acquire, emit);
      case Do::take:
        if (without(Mutation::r7_no_drop)) return simple(s, a, kNothing, emit, [](State&) { return true; });
        return block_event(s, a, Event::acquire, emit);
      case Do::send: return block_event(s, a, Event::release, emit);
      case Do::blank: return blank_block(s, a, emit);
      case Do::forget:
        return simple(s, a, kForget, emit, [&](State& n) {
          for (std::uint8_t b = first(i.block); b <= last(i.block); ++b) {
            std::fill_n(n.disk[x.at][b], kCells, 0);
            if (n.tier[i.block] != 0) set_bits(n.nothing, 1u << b);
            n.freed[b] = (1 << kCells) - 1;
          }
          return true;
        });
      case Do::assign:
        return simple(s, a, kHandBack, emit, [&](State& n) {
          if (n.busy[i.block]) return false;
          if (n.tier[i.block] != 0 && !without(Mutation::forgotten_untold)) replaced(n, x.at, i.block);
          return true;
        });
      case Do::release:
        if (without(Mutation::lock_unreleased))
          return simple(s, a, kNothing, emit, [](State&) { return true; });
        return fence(s, a, kRelease, emit);
      case Do::acquire: return fence(s, a, kAcquire, emit);
      case Do::put: return put_directly(s, a, emit);
      case Do::get: return get_directly(s, a, emit);
      case Do::keep: return keep_budget(s, a, emit);
      case Do::end: return;
    }
  }

  template <class Emit, class F>
  void simple(const State& s, std::uint8_t a, std::uint16_t kind, Emit&& emit, const F& f) const {
    State n = s;
    if (!f(n)) return;
    next_instr(n, a);
    emit(n, Step{kind, a, instr(s, a).block});
  }

  template <class Emit>
  void access(const State& s, std::uint8_t a, bool writes, Emit&& emit) const {
    const Instr& i = instr(s, a);
    const Actor& x = s.actor[a];
    const bool loads = !writes || (i.what == Do::add && x.stage == 0);
    const std::uint8_t allowed = s.prot[x.at][i.block];
    State n = s;
    std::uint8_t& byte = n.memory[x.at][i.block][i.cell];
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
      byte = i.what == Do::add ? static_cast<std::uint8_t>(x.loaded + 1) : i.value;
      n.ghost[i.block][i.cell] = byte;
      n.freed[i.block] = static_cast<std::uint8_t>(n.freed[i.block] & ~(1 << i.cell));
      next_instr(n, a);
      return emit(n, Step{kStore, a, i.block});
    }
    if (leaving(s, x, i.block)) return;
    if (!without(Mutation::tier_holds_and_waits) && !admitted(s, a, emit)) return;
    if (try_claim(n, a, i.block, loads ? Event::load : Event::store) != dsm::Verdict::proceed)
      return;  // busy: come back
    emit(n, Step{static_cast<std::uint16_t>(loads ? kLoadFault : kStoreFault), a, i.block});
  }

  template <class Emit>
  void take_lock(const State& s, std::uint8_t a, Emit&& emit) const {
    const Instr& i = instr(s, a);
    if (s.actor[a].stage == 0) {
      if (s.held[i.block]) return;
      State n = s;
      n.held[i.block] = static_cast<std::uint8_t>(a + 1);
      n.actor[a].stage = 1;
      return emit(n, Step{kLock, a, i.block});
    }
    const std::uint8_t last = s.last[i.block] & ~(kHasReleased | kMarked | kReleasing);
    const std::uint8_t released =
        without(Mutation::lock_mark_unended) ? kHasReleased | kReleasing : kHasReleased;
    if ((s.last[i.block] & released) == 0 || last - 1 == program_.workers[a].rank || s.actor[a].stage != 1)
      return cross_edge(s, a, last, emit);
    State n = s;
    n.actor[a].stage = 3;  // it acquires
    emit(n, Step{kSee, a, last});
  }

  /// The edge of docs/design/sched.md: the fact was seen; its source releases, then this rank acquires.
  /// source: rank + 1; 0: nothing has happened yet.
  template <class Emit>
  void cross_edge(const State& s, std::uint8_t a, std::uint8_t source, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t me = program_.workers[a].rank;
    State n = s;
    Actor& y = n.actor[a];
    if (x.stage <= 1) {
      if (source == 0 && instr(s, a).what == Do::cross) return;  // the fact is not there yet
      if (source == 0 || source - 1 == me) {
        next_instr(n, a);
      } else {
        y.at = without(Mutation::r1_no_source_release) ? me : static_cast<std::uint8_t>(source - 1);
        y.stage = without(Mutation::r1_no_source_release) ? 3 : 2;
      }
      return emit(n, Step{kSee, a, source});
    }
    if (x.round == 3) {
      if (x.stage == 2 && !without(Mutation::r1_no_acquire)) {
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

  template <class Emit>
  void fence(const State& s, std::uint8_t a, Kind kind, Emit&& emit) const {
    if (s.actor[a].round != 3) return join_round(s, a, kind, emit);
    simple(s, a, kRoundEnd, emit, [](State&) { return true; });
  }

  /// dsm/rounds.h, with "did a round begin since I asked?" in the place of its numbers.
  template <class Emit>
  void join_round(const State& s, std::uint8_t a, Kind kind, Emit&& emit) const {
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
      y.joined = s.leading[x.at][kind] && (kind == kRelease ? without(Mutation::r3_join_running_round)
                                                            : without(Mutation::r2_join_running_round));
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
      y.todo = static_cast<std::uint8_t>((1 << B) - 1);
      if (without(Mutation::r5_tell_before_completion)) begin_telling(n, y);
    } else {
      n.dropping[x.at] = 1;
      y.pages = 1;  // the notices are not taken yet
    }
    emit(n, Step{kLead, a, kind});
  }

  /// A release of the rank begins, or ends: dsm/rounds.h, whose numbers tell which marks came before.
  static void age_marks(State& n, std::uint8_t rank, std::uint8_t from, std::uint8_t to) {
    for (std::uint8_t& last : n.last) {
      if ((last & from) != 0 && (last & ~(kHasReleased | kMarked | kReleasing)) == rank + 1)
        last = static_cast<std::uint8_t>((last & ~from) | to);
    }
  }

  static void begin_telling(State& n, Actor& y) {
    n.telling[y.at] = 1;
    y.telling = 1;
    y.pages = static_cast<std::uint8_t>((1 << B) - 1);
  }

  bool naming(const State& s, std::uint8_t rank) const {
    return std::any_of(s.naming, s.naming + B, [&](std::uint8_t n) { return (n & ~kArrived) == rank + 1; });
  }

  template <class Emit>
  void sweep(const State& s, std::uint8_t a, Kind kind, Emit&& emit) const {
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
    if (x.todo == 0 && x.later == 0) {
      if (flushing && x.telling == 0 && naming(s, x.at) && !without(Mutation::r8_release_before_named))
        return;
      if (without(Mutation::r4_unlock_early))  // the round awaits completion, only the blocks do not
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
    const std::uint8_t set = again ? x.later : x.todo;
    const auto b = static_cast<std::uint8_t>(__builtin_ctz(set));
    std::uint8_t& from = again ? y.later : y.todo;
    const bool member = ((flushing ? s.dirty : s.cached)[x.at] & (1 << b)) != 0;
    if (member && may_stay_open(s, x.at, b)) {
      State other = n;
      Actor& z = other.actor[a];
      try_claim(other, a, b, flushing ? Event::release_open : Event::acquire_open);
      std::uint8_t& set_of_other = again ? z.later : z.todo;
      set_of_other = static_cast<std::uint8_t>(set_of_other & ~(1 << b));
      emit(other, Step{kRoundClaim, a, b});
    }
    const dsm::Verdict verdict =
        member ? try_claim(n, a, b, flushing ? Event::release : Event::acquire) : dsm::Verdict::done;
    if (verdict == dsm::Verdict::wait) {
      if (again) return;  // comes back when the holder is done
      if (flushing || !without(Mutation::r2_no_wait)) y.later = static_cast<std::uint8_t>(y.later | 1 << b);
    }
    from = static_cast<std::uint8_t>(from & ~(1 << b));
    emit(n, Step{static_cast<std::uint16_t>(verdict == dsm::Verdict::proceed ? kRoundClaim
                                            : verdict == dsm::Verdict::wait  ? kLater
                                                                             : kLook),
                 a, b});
  }

  /// That is a guess of the shipped code, so both are tried.
  [[nodiscard]] bool may_stay_open(const State& s, std::uint8_t r, std::uint8_t b) const noexcept {
    const Block w = word(s, r, b);
    return program_.open && !w.busy && w.twin && w.pins == 0;
  }

  /// Sharing::take_notices for a page: which blocks; does the rank stay a reader, as it has copies of others?
  /// That is a guess, so both are tried. If not, its bit is taken back, and all blocks are dropped. That is
  /// recorded; then the blocks are examined. x.sure: how far; x.blocks: blocks of the notice; x.open: only
  /// where a rule is left out: it examines the blocks first.
  template <class Emit>
  void hear(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    enum : std::uint8_t { kTakes, kTakesLate, kLeaves, kNotesLeaving, kLast };
    const auto p = static_cast<std::uint8_t>(__builtin_ctz(x.told));
    const std::uint8_t all = blocks_of(p);
    const auto note = [&](bool keeps) {
      const bool still = without(keeps ? Mutation::parts_asked_still : Mutation::r6_stay_not_ended);
      if (!still) set_stay(n, x.at, p, stay(s, x.at, p).after_notice(keeps));
      for (Actor& other : n.actor)
        if (other.at == x.at && other.acting && page(other.block) == p && !still) set_bits(other.stale, 2);
    };
    const auto end_page = [&](std::uint8_t drops) {
      clear_bits(y.told, 1u << p);
      if (!x.open) set_bits(y.todo, drops);
      y.open = y.sure = y.blocks = 0;
    };
    switch (x.sure) {
      case kTakes:
        if (without(Mutation::parts_asked_ended_early)) {
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
          z.sure = keeps ? kLast : without(Mutation::r6_stay_ended_early) ? kNotesLeaving : kLeaves;
          if (without(keeps ? Mutation::parts_asked_ended_late : Mutation::r5_leave_after_drop)) {
            z.open = 1;
            set_bits(z.todo, keeps ? y.blocks : all);
          }
          emit(either, Step{kHear, a, p});
        }
        return;
      }
      case kLeaves:
        clear_bits(n.readers[p], 1u << x.at);
        y.sure = kNotesLeaving;
        if (without(Mutation::r6_stay_ended_early)) end_page(all);
        return emit(n, Step{kLeave, a, p});
      case kNotesLeaving:
        note(false);
        y.sure = kLeaves;
        if (!without(Mutation::r6_stay_ended_early))
          end_page(without(Mutation::parts_left_kept) ? x.blocks : all);
        return emit(n, Step{kLeave, a, p});
      default:
        if (!without(Mutation::parts_asked_ended_early)) note(true);
        end_page(without(Mutation::parts_told_kept) ? std::uint8_t{0} : x.blocks);
        return emit(n, Step{kKeep, a, p});
    }
  }

  /// Sharing::send_notices and Coherence::inspect, page by page: what was put to; its readers; if it is own,
  /// each block's word, and its protection; its readers again; each gets the parts, then the page. x.sure:
  /// blocks that were put to; x.open: those that may have been stored to, and whether one is own.
  template <class Emit>
  void tell(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    State n = s;
    Actor& y = n.actor[a];
    const auto bit = static_cast<std::uint8_t>(1 << x.now);
    enum : std::uint8_t {
      kNextPage = 1,
      kFirstLook,
      kBlocks,
      kReaders,
      kLateWatch,
      kParts,
      kNotices,
      kDone = 9
    };
    enum : std::uint8_t { kWatches = 1, kAgain = 2 };  // x.watch
    constexpr std::uint8_t kOurs = 0x80;               // x.open
    const std::uint8_t all = blocks_of(x.now);
    const auto end_page = [&] {
      if (without(Mutation::r5_note_cleared_late)) clear_bits(n.changed[x.at], all);
      y.telling = kNextPage;
      y.now = y.blocks = y.open = y.sure = y.watch = y.told = 0;
    };
    const auto read_readers = [&](std::uint8_t p) {
      y.told = static_cast<std::uint8_t>(s.readers[p] & ~(1 << x.at));
      if (without(Mutation::r5_readers_taken)) clear_bits(n.readers[p], y.told);
    };
    const bool notice_first = without(Mutation::parts_after_notice);
    const auto begin_notices = [&] {
      y.blocks = 0;  // ranks that got the parts
      y.telling = notice_first ? kNotices : kParts;
      if (y.told == 0) end_page();
    };
    const std::uint8_t put =
        without(Mutation::parts_put_unsaid) && (s.ours[x.at] & bit) ? std::uint8_t{0} : x.sure;
    switch (x.telling) {
      case kNextPage: {
        if (x.pages == 0) {
          n.telling[x.at] = 0;
          y.telling = kDone;
          return emit(n, Step{kTell, a, 1});
        }
        const auto p = static_cast<std::uint8_t>(__builtin_ctz(x.pages));
        clear_bits(y.pages, 1u << p);
        if (!(s.marked[x.at] & 1 << p)) return emit(n, Step{kTakePage, a, p});
        clear_bits(n.marked[x.at], 1u << p);
        y.now = p;
        y.sure = s.changed[x.at] & blocks_of(p);
        if (!without(Mutation::r5_note_cleared_late)) clear_bits(n.changed[x.at], blocks_of(p));
        y.telling = kFirstLook;
        return emit(n, Step{kTakePage, a, p});
      }
      case kFirstLook:
        read_readers(x.now);
        if (without(Mutation::r5_adopt_blindly)) clear_bits(n.stale[x.at], bit);
        if (without(Mutation::r5_tell_late)) n.telling[x.at] = 0;
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
            if (!without(Mutation::ours_forgotten)) y.blocks = all;
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
        const auto b = static_cast<std::uint8_t>(__builtin_ctz(x.blocks));
        clear_bits(y.blocks, 1u << b);
        Block seen = word(s, x.at, b);
        if (dsm::may_be_ours(seen)) set_bits(y.open, kOurs);
        if (without(Mutation::tier_rest_watched) && seen.owned && seen.access == mem::Access::none)
          seen.access = mem::Access::read, seen.saved = false;
        if (without(Mutation::part_saved_watched) && seen.saved) seen = {false, true, mem::Access::read};
        const bool absent = !seen.owned && !seen.busy;
        if (absent && without(Mutation::tier_gone_untold)) return emit(n, Step{kTellLook, a, b});
        if (absent && without(Mutation::part_absent_passed) &&
            static_cast<gas::Tier>(s.tier[x.now]) == gas::Tier::partial)
          return emit(n, Step{kTellLook, a, b});
        const bool unsaid = without(Mutation::parts_open_unsaid) && (x.open & all) != 0;
        if (dsm::may_have_changed(seen) && !unsaid) set_bits(y.open, 1u << b);
        const bool late = without(Mutation::r5_watch_after_telling) && x.telling == kBlocks;
        // busy or pinned: it stays open
        if (x.watch == kWatches && !late) static_cast<void>(try_claim(n, a, b, Event::watch));
        return emit(n, Step{kTellLook, a, b});
      }
      case kReaders:  // again: readers that came before V was protected
        read_readers(x.now);
        if (without(Mutation::r5_watch_after_telling)) {
          y.blocks = all;
          y.telling = kLateWatch;
        } else {
          begin_notices();
        }
        return emit(n, Step{kTakeReaders, a, x.now});
      default: {  // kParts: all get the parts; kNotices: then all get the page
        const auto r = static_cast<std::uint8_t>(__builtin_ctz(x.told));
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
        return emit(n, Step{static_cast<std::uint16_t>(x.telling == kParts ? kTellParts : kTellRank), a, r});
      }
    }
  }

  /// A direct put (gas::DirectAccess): its own rank's copy is outdated from its completion on; its next
  /// release sends notices.
  template <class Emit>
  void put_directly(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const Instr& i = instr(s, a);
    const std::uint8_t p = page(i.block), me = program_.workers[a].rank;
    State n = s;
    Actor& y = n.actor[a];
    switch (x.stage) {
      case 0:
        if (asleep(s, p) && !without(Mutation::tier_put_asleep)) {
          y.waking = kAsking;
          y.whom = static_cast<std::uint8_t>(s.owner[p] + 1);
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
        if (!without(Mutation::r5_direct_keeps_copy)) set_bits(n.parts[me], 1u << i.block);
        break;
      case 2:
        if (!without(Mutation::r5_direct_keeps_copy)) set_bits(n.stale[me], 1u << p);
        break;
      case 3:
        if (!without(Mutation::r5_direct_untold)) set_bits(n.changed[me], 1u << i.block);
        break;
      case 4:
        if (!without(Mutation::r5_direct_untold)) set_bits(n.marked[me], 1u << p);
        break;
      default:
        --n.puts[p];
        next_instr(n, a);
        return emit(n, Step{kPut, a, 5});
    }
    ++y.stage;
    emit(n, Step{kPut, a, x.stage});
  }

  /// A direct get (gas::DirectAccess): the owner's frame is found, read, and looked at again.
  template <class Emit>
  void get_directly(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const Instr& i = instr(s, a);
    const std::uint8_t p = page(i.block);
    State n = s;
    Actor& y = n.actor[a];
    switch (x.stage) {
      case 0:
        if (s.tier[p] != 0 && s.recalled[p] && !without(Mutation::tier_read_asleep)) {
          if (!asleep(s, p)) return;
          y.waking = kAsking;
          y.whom = static_cast<std::uint8_t>(s.owner[p] + 1);
          return emit(n, Step{kGet, a, 3});
        }
        y.owner = s.owner[p];
        break;
      case 1: y.loaded = s.memory[x.owner][i.block][i.cell]; break;
      default:
        if ((x.stale & 4) && !without(Mutation::tier_get_not_stood)) {
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
  template <class Emit>
  void block_event(const State& s, std::uint8_t a, Event event, Emit&& emit) const {
    const std::uint8_t b = instr(s, a).block;
    State n = s;
    // only where a mutant moved a pinned page
    if (event == Event::unpin && word(s, s.actor[a].at, b).pins == 0)
      return simple(s, a, kNothing, emit, [](State&) { return true; });
    const bool pins = event == Event::pin_write || event == Event::pin_read || event == Event::pin_whole;
    if (pins && leaving(s, s.actor[a], b)) return;
    if (pins && !(s.actor[a].room & 4)) {  // once, however often it is tried
      if (!admitted(s, a, emit)) return;
      n.actor[a].room = 4;
    }
    const dsm::Verdict verdict = try_claim(n, a, b, event);
    if (verdict == dsm::Verdict::wait) return;
    if (instr(s, a).what == Do::send && may_stay_open(s, s.actor[a].at, b)) {
      State other = s;
      try_claim(other, a, b, Event::release_open);
      emit(other, Step{kEvent, a, b});
    }
    if (verdict == dsm::Verdict::done) next_of_event(n, a);
    emit(n, Step{static_cast<std::uint16_t>(verdict == dsm::Verdict::done ? kNothing : kEvent), a, b});
  }

  /// Sharing::changed of all of the page, by rank r.
  void replaced(State& n, std::uint8_t r, std::uint8_t p) const {
    set_bits(n.changed[r], blocks_of(p));
    set_bits(n.marked[r], 1u << p);
  }

  /// Waits for nothing: a thread that holds the block is about to use it.
  template <class Emit>
  void blank_block(const State& s, std::uint8_t a, Emit&& emit) const {
    const std::uint8_t b = instr(s, a).block;
    State n = s;
    if (s.actor[a].stage != 0) {
      replaced(n, s.actor[a].at, page(b));
      next_of_event(n, a);
      return emit(n, Step{kEvent, a, b});
    }
    const bool claimed = try_claim(n, a, b, Event::blank) == dsm::Verdict::proceed;
    if (!claimed) next_of_event(n, a);
    emit(n, Step{static_cast<std::uint16_t>(claimed ? kEvent : kNothing), a, b});
  }

  /// The event has been dealt with. After the first step of a discard the bytes belong to no worker.
  void next_of_event(State& n, std::uint8_t a) const {
    const Instr& i = instr(n, a);
    if (i.what == Do::blank) set_bits(n.freed[i.block], (1 << kCells) - 1);
    if (i.what != Do::discard || n.actor[a].stage != 0) return next_instr(n, a);
    set_bits(n.freed[i.block], i.cell);
    n.actor[a].stage = 1;
  }

  /// What follows when a claimed block is finished. Faults and rounds simply go on.
  void finish_event(State& n, std::uint8_t a) const {
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
      case Do::blank: return without(Mutation::blank_untold) ? next_of_event(n, a) : void(x.stage = 1);
      default: x.sub = x.cell = x.owner = 0; return;
    }
  }

  // ---- relocation, as gas/mover.cpp
  // ------------------------------------------------------------------------

  enum OwnStage : std::uint8_t {
    kClaiming,
    kLooking,
    kUnmarking,
    kTaking,
    kYielding,
    kRecalling,
    kDraining,
    kCopying,
    kNaming,
    kSettling,
    kGivingUp,
    kPausing
  };

  /// x.sure: its bytes do not matter; x.open: its tier before the mark.
  template <class Emit>
  void own_page(const State& s, std::uint8_t a, std::uint8_t p, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t me = program_.workers[a].rank;
    const auto rank = Rank{me};
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](OwnStage stage, std::uint16_t kind) {
      y.stage = stage;
      y.cell = y.sub = y.value = 0;
      emit(n, Step{kind, a, p});
    };
    switch (x.stage) {
      case kClaiming: {  // x.todo counts the blocks taken; x.later: the event of the claims
        if (x.todo == 0 && !admitted(s, a, emit)) return;
        const auto b = static_cast<std::uint8_t>(first(p) + x.todo);
        const Block w = word(s, me, b);
        const dsm::BlockStep step = dsm::next(w, Event::arrive);
        if (step.verdict == dsm::Verdict::wait) return;
        if (step.verdict == dsm::Verdict::done) {  // ours already: what was taken is given back
          give_back(n, me, p, x.todo);
          next_instr(n, a);
          return emit(n, Step{kNothing, a, p});
        }
        put_word(n, me, b, step.claimed);
        ++y.todo;
        if (b == last(p)) return to(kLooking, kOwnClaim);
        return emit(n, Step{kOwnClaim, a, b});
      }
      case kLooking: {
        gas::MoveStep move = gas::begin_move(entry(s, p), rank);  // one fetch-or
        if (move.verdict == gas::MoveVerdict::wait) return to(kGivingUp, kOwnWait);
        put_entry(n, p, move.claimed);
        y.owner = s.owner[p];
        y.open = s.tier[p];
        if (move.verdict == gas::MoveVerdict::on_ssd && without(Mutation::tier_move_asleep)) {
          n.tier[p] = 0;
          move = gas::begin_move(gas::end_page_in(entry(n, p)), rank);
        }
        if (move.verdict == gas::MoveVerdict::claim && program_.brings &&
            !without(Mutation::r8_landing_undrained))
          return to(kRecalling, kOwnBusy);
        const bool taken = move.verdict == gas::MoveVerdict::on_ssd ||
                           (move.verdict == gas::MoveVerdict::in_part && without(Mutation::part_taken));
        if (x.sure && taken) return to(kTaking, kOwnBusy);
        return to(move.verdict == gas::MoveVerdict::claim ? kYielding : kUnmarking, kOwnBusy);
      }
      case kTaking:  // its bytes do not matter
        put_entry(n, p, gas::end_take(entry(s, p), rank));
        return to(kSettling, kOwnLook);
      case kUnmarking: {  // there already, or on SSD: the entry becomes what it was
        gas::Location before = gas::in_tier(entry(s, p), static_cast<gas::Tier>(x.open));
        before.busy = false;
        put_entry(n, p, before);
        y.open = 0;
        if (gas::begin_move(before, rank).verdict == gas::MoveVerdict::fixed) {  // refused: EBUSY
          give_back(n, me, p, x.todo);
          next_instr(n, a);
          return emit(n, Step{kOwnLook, a, p});
        }
        if (before.tier == gas::Tier::dram) return to(kSettling, kOwnLook);
        // the rank that is asked when its blocks are unclaimed
        y.whom = static_cast<std::uint8_t>(x.owner + 1);
        return to(kGivingUp, kOwnLook);
      }
      // The owner is asked to yield and holders are asked to forget at the same time. A put that begins or
      // lands between the two is one that could have done so before the first.
      case kYielding: y.later = first(p); return yield_all(n, a, p, to);
      case kRecalling: n.recalled[p] = 1; return to(kDraining, kRecall);
      case kDraining:
        if (s.puts[p] != 0 && !without(Mutation::r8_no_drain)) return;
        if (program_.brings && !without(Mutation::r8_landing_undrained)) return to(kYielding, kDrained);
        if (x.dropping == 1) {
          put_entry(n, p, gas::end_move(entry(n, p), Rank{x.owner}));
          y.dropping = 0;
          return to(kGivingUp, kRefused);
        }
        y.later = first(p);
        return to(kCopying, kDrained);
      case kCopying: return arrive(n, a, p, to, emit);
      case kNaming: n.naming[p] = static_cast<std::uint8_t>(me + 1); return to(kSettling, kPosted);
      case kSettling: return settle(n, a, p, emit, [&] { next_instr(n, a); });
      default: {  // kGivingUp
        if (x.todo != 0) {
          const auto b = static_cast<std::uint8_t>(first(p) + x.todo - 1);
          Block w = word(s, me, b);
          w.busy = false;
          put_word(n, me, b, w);
          --y.todo;
          return emit(n, Step{kGiveUp, a, b});
        }
        if (s.busy[p] && x.whom == 0) return;  // pause until it stopped moving
        y.owner = 0;
        y.later = 0;
        y.room = 0;
        if (x.whom != 0) y.waking = kAsking;
        return to(kClaiming, kGiveUp);
      }
    }
  }

  /// The owner's handler: all blocks free → all protected; never blocks. One step: handler against handler
  /// cannot run on one page, and against workers the claims are taken before the first protection.
  template <class To>
  void yield_all(State& n, std::uint8_t a, std::uint8_t p, const To& to) const {
    Actor& x = n.actor[a];
    const std::uint8_t o = x.owner;
    bool refused = false;
    for (std::uint8_t b = first(p); b <= last(p); ++b) {
      const Block w = word(n, o, b);
      const auto v = mutated(dsm::next(w, Event::yield), w, Event::yield).verdict;
      refused = refused || v == dsm::Verdict::wait || v == dsm::Verdict::refuse;
    }
    const bool all_forgot = program_.brings && !without(Mutation::r8_landing_undrained);
    if (refused && all_forgot) {
      put_entry(n, p, gas::end_move(entry(n, p), Rank{o}));
      return to(kGivingUp, kRefused);
    }
    if (refused) {
      x.dropping = 1;
      return to(kRecalling, kRefused);
    }
    for (std::uint8_t b = first(p); b <= last(p); ++b) {
      const Block w = word(n, o, b);
      const dsm::BlockStep step = mutated(dsm::next(w, Event::yield), w, Event::yield);
      if (step.verdict == dsm::Verdict::done) continue;
      if (step.actions[0] == Action::protect_none) n.prot[o][b] = 0;
      put_word(n, o, b, step.after);
    }
    if (program_.brings) land(n, a, p);
    to(all_forgot ? kCopying : kRecalling, kYield);
  }

  /// Mover::arrival_frame: the frame as the yield leaves it, where all of it is simply copied; else it is
  /// read afterwards.
  void land(State& n, std::uint8_t a, std::uint8_t p) const {
    Actor& x = n.actor[a];
    const std::uint8_t me = program_.workers[a].rank;
    for (std::uint8_t b = first(p); b <= last(p); ++b) {
      if (word(n, me, b).dirty() && !without(Mutation::r8_landing_on_changes)) return;
    }
    for (std::uint8_t b = first(p); b <= last(p); ++b) {
      for (std::uint8_t c = 0; c < kCells; ++c) n.memory[me][b][c] = n.memory[x.owner][b][c];
    }
    x.dropping = 2;
  }

  /// The actions of `arrive` on each block of the page that we hold, up to (not with) allow_write.
  template <class To, class Emit>
  void arrive(State& n, std::uint8_t a, std::uint8_t p, const To& to, Emit&& emit) const {
    Actor& x = n.actor[a];
    const std::uint8_t me = program_.workers[a].rank, b = x.later, from = x.owner;
    Block before = word(n, me, b);
    before.busy = false;
    const dsm::BlockStep step = dsm::next(before, Event::arrive);
    const Action action = step.actions[x.sub >> 1];
    if (action == Action::protect_read || action == Action::protect_none) {
      n.prot[me][b] = action == Action::protect_read ? 1 : 0;
      x.sub = static_cast<std::uint8_t>(x.sub + 2);
      return emit(n, Step{kAction, a, static_cast<std::uint8_t>(static_cast<unsigned>(action) << 3)});
    }
    if (action == Action::merge_arrival && !x.sure && x.dropping != 2) {
      std::uint8_t& mine = n.memory[me][b][x.cell];
      const std::uint8_t half = x.sub & 1;
      const Step label{kAction, a, static_cast<std::uint8_t>(static_cast<unsigned>(action) << 3 | half)};
      if (half == 0) {  // read into a buffer; stores of other workers here may land before it is merged
        x.value = n.memory[from][b][x.cell];
        x.sub = static_cast<std::uint8_t>(x.sub | 1);
        return emit(n, label);
      }
      const bool taken =
          before.whole ? without(Mutation::whole_arrival) : !before.twin || x.value != n.twin[me][b][x.cell];
      if (taken || without(Mutation::r4_plain_arrival)) mine = x.value;
      x.value = 0;
      x.sub = static_cast<std::uint8_t>(x.sub & ~1);
      if (++x.cell == kCells) {
        x.cell = 0;
        x.sub = static_cast<std::uint8_t>(x.sub + 2);
      }
      return emit(n, label);
    }
    x.sub = 0;
    if (b == last(p)) {
      x.dropping = 0;
      return to(kNaming, kOwnLook);
    }
    ++x.later;
    emit(n, Step{kOwnLook, a, b});
  }

  template <class Emit, class Over>
  void settle(State& n, std::uint8_t a, std::uint8_t p, Emit&& emit, const Over& over) const {
    Actor& x = n.actor[a];
    const std::uint8_t me = program_.workers[a].rank;
    const auto b = static_cast<std::uint8_t>(first(p) + x.todo - 1);
    Block before = word(n, me, b);
    // once, before any block can be stored to; and again when the entry is known to name this rank
    if (x.sub == 0) {
      if (!without(Mutation::r5_arrival_unseen)) mark(n, me, p);
      for (std::uint8_t each = first(p); each <= last(p); ++each) fill(n, me, each);
      clear_bits(n.nothing, blocks_of(p));
      x.sub = 1;
      return emit(n,
                  Step{kAction, a, static_cast<std::uint8_t>(static_cast<unsigned>(Action::mark_page) << 3)});
    }
    if (n.prot[me][b] != 2) {  // allow_write, then the finish: two steps
      n.prot[me][b] = 2;
      return emit(
          n, Step{kAction, a, static_cast<std::uint8_t>(static_cast<unsigned>(Action::allow_write) << 3)});
    }
    before.busy = false;
    become(n, me, b, dsm::next(before, Event::page_in).after);
    if (--x.todo == 0) over();
    emit(n, Step{kFinish, a, b});
  }

  /// A block that is neither cached nor dirty any more.
  static void become(State& n, std::uint8_t r, std::uint8_t b, Block after) {
    clear_bits(n.dirty[r], 1u << b);
    clear_bits(n.cached[r], 1u << b);
    for (std::uint8_t& t : n.twin[r][b]) t = 0;
    if (after.owned && !after.saved)
      for (std::uint8_t& d : n.disk[r][b]) d = 0;
    put_word(n, r, b, after);
  }
  /// The first `count` blocks of the page, which are claimed, stay as they were.
  void give_back(State& n, std::uint8_t r, std::uint8_t p, std::uint8_t count) const {
    for (std::uint8_t b = first(p); b < first(p) + count; ++b) {
      Block free_again = word(n, r, b);
      free_again.busy = false;
      put_word(n, r, b, free_again);
    }
  }

  /// Mover::hand_back: this rank recalls the location, yields to itself, then names `to` without data.
  template <class Emit>
  void hand_page_back(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t p = instr(s, a).block, me = program_.workers[a].rank;
    const Rank to{instr(s, a).cell};
    State n = s;
    Actor& y = n.actor[a];
    enum : std::uint8_t { kMarkIt, kForgotten, kDrain, kYieldSelf, kName };
    switch (x.stage) {
      case kMarkIt: {
        const gas::MoveStep move = gas::begin_move(entry(s, p), to);
        if (move.verdict == gas::MoveVerdict::wait) return;  // it moves already
        put_entry(n, p, move.claimed);
        // on SSD its location has no holders, and no block is own
        y.stage = move.verdict == gas::MoveVerdict::on_ssd ? kName : kForgotten;
        // no data goes with it
        for (std::uint8_t b = first(p); b <= last(p); ++b) n.freed[b] = (1 << kCells) - 1;
        return emit(n, Step{kHandBack, a, p});
      }
      case kForgotten: n.recalled[p] = 1; break;
      case kDrain:
        if (s.puts[p] != 0) return;
        break;
      case kYieldSelf:
        for (std::uint8_t b = first(p); b <= last(p); ++b) {
          const dsm::BlockStep step = dsm::next(word(s, me, b), Event::yield);
          if (step.verdict == dsm::Verdict::wait) return;
          if (step.verdict == dsm::Verdict::refuse)
            return emit(n, Step{kRefused, a, p}, "a page handed back is pinned");
          if (step.verdict == dsm::Verdict::done) continue;
          n.prot[me][b] = 0;
          put_word(n, me, b, step.after);
        }
        break;
      // kName. Where frames are counted it begins on SSD: the new owner does not know of it
      // (AddressCache::initial_tier)
      default:
        put_entry(
            n, p,
            gas::in_tier(gas::end_move(entry(s, p), to),
                         limit(static_cast<std::uint8_t>(raw(to))) != 0 ? gas::Tier::ssd : gas::Tier::dram));
        if (n.tier[p] != 0) set_bits(n.nothing, blocks_of(p));
        if (!without(Mutation::r7_replaced_untold)) replaced(n, me, p);
        next_instr(n, a);
        return emit(n, Step{kHandBack, a, p});
    }
    ++y.stage;
    emit(n, Step{kHandBack, a, p});
  }

  /// Coherence::arm_owned of one page whose memory is allocated anew. x.later: blocks that it holds.
  template <class Emit>
  void arm_owned(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t p = page(instr(s, a).block), me = program_.workers[a].rank;
    if (x.sure) return own_page(s, a, p, emit);
    State n = s;
    Actor& y = n.actor[a];
    enum : std::uint8_t { kClaimAll, kLookWhere, kMarkPage, kArm };
    switch (x.stage) {
      case kClaimAll: {
        const auto b = static_cast<std::uint8_t>(first(p) + x.todo);
        const dsm::BlockStep step = dsm::next(word(s, me, b), Event::arrive_blank);
        if (step.verdict == dsm::Verdict::wait) return;
        if (!without(Mutation::tier_armed_unheld) || step.actions[0] != Action::end) {
          put_word(n, me, b, step.claimed);
          set_bits(y.later, 1u << b);
        }
        ++y.todo;
        if (b == last(p)) y.stage = kLookWhere;
        return emit(n, Step{kOwnClaim, a, b});
      }
      case kLookWhere:
        if (dsm::fetch_source(entry(s, p), Rank{me}) == dsm::Fetched::own ||
            without(Mutation::tier_armed_unlooked)) {
          y.stage = kMarkPage;
          return emit(n, Step{kOwnLook, a, p});
        }
        // nothing need be read
        if (dsm::fetch_source(entry(s, p), Rank{me}) == dsm::Fetched::on_ssd && has_room(s, me)) {
          put_entry(n, p, gas::in_tier(entry(s, p), gas::Tier::dram));
          y.stage = kMarkPage;
          return emit(n, Step{kOwnLook, a, p});
        }
        for (std::uint8_t b = first(p); b <= last(p); ++b) {
          if (!(x.later & 1 << b)) continue;
          Block free_again = word(n, me, b);
          free_again.busy = false;
          put_word(n, me, b, free_again);
        }
        y.stage = y.todo = y.later = 0;
        y.sure = 1;
        return emit(n, Step{kOwnBusy, a, p});
      case kMarkPage:
        mark(n, me, p);
        clear_bits(n.nothing, blocks_of(p));
        y.cell = has_room(s, me);  // else its blocks come to rest: faults fill them
        for (std::uint8_t b = first(p); b <= last(p); ++b) {
          if (y.cell) fill(n, me, b);
          if (y.cell && !(x.later & 1 << b)) n.prot[me][b] = 2;  // only where they are not held
        }
        y.stage = kArm;
        return emit(
            n, Step{kAction, a, static_cast<std::uint8_t>(static_cast<unsigned>(Action::mark_page) << 3)});
      default: {
        if (x.later == 0) {
          next_instr(n, a);
          return emit(n, Step{kNothing, a, p});
        }
        const auto b = static_cast<std::uint8_t>(__builtin_ctz(x.later));
        Block before = word(s, me, b);
        before.busy = false;
        Block after = dsm::next(before, Event::arrive_blank).after;
        if (!x.cell && after.pins == 0) after = dsm::next(after, Event::retire).after;
        if (n.prot[me][b] != static_cast<std::uint8_t>(after.access)) {
          n.prot[me][b] = static_cast<std::uint8_t>(after.access);
          return emit(n, Step{kAction, a,
                              static_cast<std::uint8_t>(static_cast<unsigned>(Action::allow_write) << 3)});
        }
        become(n, me, b, after);
        clear_bits(y.later, 1u << b);
        return emit(n, Step{kFinish, a, b});
      }
    }
  }

  // ---- memory larger than DRAM, as gas/tiers.cpp, dsm/eviction.cpp and dsm/pager.cpp
  // -----------------------

  static bool keeps(const Script& w) { return !w.code.empty() && w.code[0].what == Do::keep; }
  [[nodiscard]] std::uint8_t limit(std::uint8_t r) const noexcept { return program_.room[r]; }
  static unsigned used(const State& s, std::uint8_t r) noexcept {
    return static_cast<unsigned>(__builtin_popcount(s.frames[r]) + __builtin_popcount(s.twins[r]));
  }
  /// What the threads of the rank may have in hand: a frame and a twin of a page each.
  [[nodiscard]] unsigned slack(std::uint8_t r) const {
    return 2u * program_.blocks_per_page *
           static_cast<unsigned>(std::count_if(program_.workers.begin(), program_.workers.end(),
                                               [&](const Script& w) { return w.rank == r; }));
  }
  /// For another page.
  [[nodiscard]] bool has_room(const State& s, std::uint8_t r) const noexcept {
    return limit(r) == 0 || used(s, r) + program_.blocks_per_page <= limit(r);
  }
  void fill(State& n, std::uint8_t r, std::uint8_t b) const noexcept {
    if (limit(r) != 0) set_bits(n.frames[r], 1u << b);
  }
  void fill_twin(State& n, std::uint8_t r, std::uint8_t b) const noexcept {
    if (limit(r) != 0) set_bits(n.twins[r], 1u << b);
  }
  /// On SSD, and neither on its way there nor back.
  static bool asleep(const State& s, std::uint8_t p) noexcept { return s.tier[p] != 0 && !s.busy[p]; }
  [[nodiscard]] bool workers_done(const State& s) const {
    for (std::uint8_t a = 0; a < W; ++a)
      if (!keeps(program_.workers[a]) && s.actor[a].pc < program_.workers[a].code.size()) return false;
    return true;
  }

  /// Coherence::admit: may it go on to claim blocks? Else it waits, or sends its rank's changes, so that
  /// their blocks can go.
  template <class Emit>
  bool admitted(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    if (limit(x.at) == 0 || (x.room & 1)) return true;
    if (has_room(s, x.at)) {
      State n = s;
      set_bits(n.actor[a].room, 1);
      emit(n, Step{kRoom, a, 0});
      return false;
    }
    for (std::uint8_t b = 0; b < B && !without(Mutation::tier_keeps_changes); ++b) {
      State n = s;
      if (!(s.dirty[x.at] & 1 << b) || try_claim(n, a, b, Event::release) != dsm::Verdict::proceed) continue;
      set_bits(n.actor[a].room, 2);
      emit(n, Step{kSends, a, b});
    }
    return false;
  }

  enum Waking : std::uint8_t {
    kAwake,
    kAsking,
    kAsked,
    kInWaiting,
    kInClaiming,
    kInMarking,
    kInReading,
    kInNaming,
    kInSettling,
    kInUnmarking,
    kInGivingUp
  };

  [[nodiscard]] bool has_pager(std::uint8_t r) const {
    return std::any_of(program_.workers.begin(), program_.workers.end(),
                       [&](const Script& w) { return w.rank == r && keeps(w); });
  }
  /// Asks the page's owner for it, and waits. The owner's pager answers when it has paged the page in, or has
  /// found that it cannot.
  bool ask(State& n, Actor& x, std::uint8_t p) const {
    const auto owner = static_cast<std::uint8_t>(x.whom - 1);
    if (x.waking == kAsking) {
      if (has_pager(owner)) set_bits(n.asked[owner], 1u << p);
      x.waking = kAsked;
      return true;
    }
    if (n.asked[owner] & 1 << p) return false;
    x.waking = x.whom = 0;
    return true;
  }
  /// AddressCache::find: may its owner's frame be read? Else the owner is asked, or it is waited for.
  template <class Done>
  bool wakes(State& n, std::uint8_t a, const Done& done) const {
    const std::uint8_t p = page(n.actor[a].block);
    if (n.actor[a].waking == kAwake &&
        (n.tier[p] == 0 || !n.recalled[p] || without(Mutation::tier_read_asleep)))
      return true;
    if (n.actor[a].waking != kAwake || asleep(n, p)) ask_holding(n, a, done);
    return false;
  }
  /// By a worker that holds the bit of a block of another rank's page.
  template <class Done>
  void ask_holding(State& n, std::uint8_t a, const Done& done) const {
    Actor& x = n.actor[a];
    if (x.waking == kAwake) {
      x.waking = kAsking;
      x.whom = static_cast<std::uint8_t>(n.owner[page(x.block)] + 1);
      return done();
    }
    if (ask(n, x, page(x.block))) done();
  }

  [[nodiscard]] std::uint8_t page_of(const State& s, std::uint8_t a) const {
    const Instr& i = instr(s, a);
    if (i.what == Do::keep) return s.actor[a].now;
    return i.what == Do::own || i.what == Do::hand_back ? i.block : page(i.block);
  }
  template <class Emit>
  void wake(const State& s, std::uint8_t a, Emit&& emit) const {
    State n = s;
    Actor& y = n.actor[a];
    const std::uint8_t p = page_of(s, a);
    if (y.waking >= kInWaiting) return bring_in(s, a, p, emit);
    const std::uint8_t whom = y.whom;
    if (y.waking == kAsking && y.whom - 1 == y.at) {
      y.waking = kInWaiting;
      y.whom = 0;
    } else if (!ask(n, y, p)) {
      return;
    }
    emit(n, Step{static_cast<std::uint16_t>(s.actor[a].waking == kAsking ? kAskOwner : kAnswered), a,
                 static_cast<std::uint8_t>(whom - 1)});
  }

  /// Tiers::page_in, by a worker that faults on a page of its own rank, or by the pager for other ranks.
  template <class Emit>
  void bring_in(const State& s, std::uint8_t a, std::uint8_t p, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t me = x.at;
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](Waking stage, std::uint16_t kind) {
      y.waking = stage;
      y.sub = 0;
      emit(n, Step{kind, a, p});
    };
    const auto over = [&] {
      const Do what = instr(s, a).what;
      y.waking = y.whom = y.sub = y.todo = 0;
      clear_bits(y.room, 3);
      if ((what == Do::own || what == Do::reclaim) && !without(Mutation::tier_waits_again)) y.room = 1;
      if (what != Do::keep) return;
      clear_bits(n.asked[me], 1u << p);
      y.now = 0;
    };
    switch (x.waking) {
      case kInWaiting:
        if (!admitted(s, a, emit)) return;
        return to(kInClaiming, kRoom);
      case kInClaiming: {
        if (without(Mutation::tier_in_unclaimed)) {
          y.todo = program_.blocks_per_page;
          return to(kInMarking, kInClaim);
        }
        const auto b = static_cast<std::uint8_t>(first(p) + x.todo);
        const dsm::BlockStep step = dsm::next(word(s, me, b), Event::page_in);
        if (step.verdict == dsm::Verdict::wait) return;
        put_word(n, me, b, step.claimed);
        ++y.todo;
        return to(b == last(p) ? kInMarking : kInClaiming, kInClaim);
      }
      case kInMarking: {
        const gas::Location before = entry(s, p);
        if (before.busy) return to(kInGivingUp, kInNot);
        const bool comes = gas::pages_in(before, Rank{me});
        if (!without(Mutation::tier_in_unmarked)) put_entry(n, p, gas::begin_move(before, Rank{me}).claimed);
        return to(comes ? without(Mutation::tier_dram_early) ? kInNaming : kInReading
                  : without(Mutation::tier_in_unmarked) ? kInGivingUp
                                                        : kInUnmarking,
                  kInMark);
      }
      case kInReading:
        for (std::uint8_t b = first(p); b <= last(p); ++b) {
          Block before = word(s, me, b);
          before.busy = false;
          if (dsm::next(before, Event::page_in).actions[0] == Action::read_back ||
              without(Mutation::part_overwritten))
            std::copy_n(s.disk[me][b], kCells, n.memory[me][b]);
          std::fill_n(n.disk[me][b], kCells, 0);
        }
        return to(without(Mutation::tier_dram_early) ? kInSettling : kInNaming, kInRead);
      case kInNaming:
        put_entry(n, p, gas::end_page_in(entry(s, p)));
        return to(without(Mutation::tier_dram_early) ? kInReading : kInSettling, kInEnd);
      case kInSettling: {
        if (x.sub != 0 || !unused(s, me, p)) return settle(n, a, p, emit, over);
        for (std::uint8_t b = first(p); b <= last(p); ++b) fill(n, me, b);  // Coherence::settle_unused
        clear_bits(n.nothing, blocks_of(p));
        give_back(n, me, p, x.todo);
        over();
        return emit(n, Step{kGiveUp, a, p});
      }
      case kInUnmarking: {
        gas::Location before = entry(s, p);
        before.busy = false;
        put_entry(n, p, before);
        return to(kInGivingUp, kInNot);
      }
      default: {  // kInGivingUp
        const auto b = static_cast<std::uint8_t>(first(p) + x.todo - 1);
        Block w = word(s, me, b);
        w.busy = false;
        put_word(n, me, b, w);
        if (--y.todo == 0) over();
        return emit(n, Step{kGiveUp, a, b});
      }
    }
  }

  /// Of a claimed page that was on SSD: was nothing of it there, nor anything here? Then it stays unknown to
  /// its owner's block table.
  [[nodiscard]] bool unused(const State& s, std::uint8_t r, std::uint8_t p) const {
    for (std::uint8_t b = first(p); b <= last(p); ++b) {
      Block w = word(s, r, b);
      w.busy = false;
      if (!(s.nothing & 1 << b) || w != Block{}) return false;
    }
    return true;
  }

  enum PagerStage : std::uint8_t {
    kIdle,
    kGoing,
    kProtecting,
    kDropping,
    kFinishing,
    kDeclaring,
    kForgetting,
    kAwaitingPuts,
    kWriting,
    kPunching,
    kEnding,
    kUnmarkingIt
  };

  /// Pager::run, a page at a time. x.now: the page; x.told: its tier before; x.open: what becomes of it;
  /// x.todo: blocks that it holds; x.later: those that are written.
  template <class Emit>
  void keep_budget(const State& s, std::uint8_t a, Emit&& emit) const {
    const Actor& x = s.actor[a];
    const std::uint8_t me = x.at, p = x.now;
    State n = s;
    Actor& y = n.actor[a];
    const auto to = [&](PagerStage stage, std::uint16_t kind) {
      y.stage = stage;
      emit(n, Step{kind, a, p});
    };
    const auto idle = [&](std::uint16_t kind) {
      y = Actor{};
      y.at = me;
      emit(n, Step{kind, a, p});
    };
    const bool drops = static_cast<gas::EvictionKind>(x.open) == gas::EvictionKind::drop,
               in_part = static_cast<gas::EvictionKind>(x.open) == gas::EvictionKind::spill_part;
    const auto punch = [&] {
      for (std::uint8_t b = first(p); b <= last(p); ++b) {
        std::fill_n(n.memory[me][b], kCells, 0);
        clear_bits(n.frames[me], 1u << b);
        clear_bits(n.twins[me], 1u << b);
      }
    };
    switch (x.stage) {
      case kIdle: return look_for_work(s, a, emit);
      case kGoing: {
        const auto b = static_cast<std::uint8_t>(first(p) + x.todo);
        const Block w = word(s, me, b);
        if (in_part && !w.owned && without(Mutation::part_unheld)) {
          ++y.todo;
          return to(b == last(p) ? kProtecting : kGoing, kGoClaim);
        }
        const dsm::BlockStep step = mutated(dsm::next(w, Event::evict), w, Event::evict);
        if (step.verdict != dsm::Verdict::proceed) {
          give_back(n, me, p, x.todo);
          y.todo = 0;
          return to(kUnmarkingIt, kStays);
        }
        Block claimed = w;
        claimed.busy = true;
        put_word(n, me, b, claimed);
        if (!in_part || (w.owned && !w.saved)) set_bits(y.later, 1u << b);
        ++y.todo;
        return to(b == last(p) ? kProtecting : kGoing, kGoClaim);
      }
      case kProtecting:
        for (std::uint8_t b = first(p); b <= last(p) && !without(Mutation::tier_unprotected); ++b)
          n.prot[me][b] = 0;
        return to(!drops                                  ? kFinishing
                  : without(Mutation::tier_drop_unmarked) ? kUnmarkingIt
                                                          : kDropping,
                  kGoProtect);
      case kDropping: punch(); return to(kFinishing, kPunch);
      case kFinishing:
        if (const auto b = static_cast<std::uint8_t>(first(p) + x.todo - 1);
            !in_part || word(s, me, b).owned || !without(Mutation::part_unheld))
          become(n, me, b, Block{});
        if (--y.todo != 0) return to(kFinishing, kGoBlock);
        if (drops && without(Mutation::tier_drop_unmarked)) return idle(kGoBlock);
        return to(drops ? kUnmarkingIt : in_part ? kWriting : kDeclaring, kGoBlock);
      case kDeclaring:
        put_entry(n, p, gas::begin_evict(entry(s, p)));
        return to(without(Mutation::tier_unrecalled) ? kAwaitingPuts : kForgetting, kDeclare);
      case kForgetting:
        n.recalled[p] = 1;
        has_not_stood(n, p);
        return to(kAwaitingPuts, kGoRecall);
      case kAwaitingPuts:
        if (s.puts[p] != 0 && !without(Mutation::tier_undrained)) return;
        return to(kWriting, kGoDrained);
      case kWriting:
        for (std::uint8_t b = first(p); b <= last(p); ++b) {
          const bool writes = (x.later & 1 << b) != 0 && !(in_part && without(Mutation::part_unwritten));
          if (writes || (in_part && without(Mutation::part_all_written))) {
            std::copy_n(s.memory[me][b], kCells, n.disk[me][b]);
            clear_bits(n.nothing, 1u << b);
          }
        }
        y.later = 0;
        return to(kPunching, kWrite);
      case kPunching: punch(); return to(kEnding, kPunch);
      case kEnding:
        if (in_part) {
          gas::Location after = gas::in_tier(entry(s, p), gas::Tier::ssd);
          after.busy = false;
          put_entry(n, p, after);
        } else {
          put_entry(n, p, gas::end_evict(entry(s, p)));
        }
        return idle(kGone);
      default: {  // kUnmarkingIt
        gas::Location before = gas::in_tier(entry(s, p), static_cast<gas::Tier>(x.told));
        before.busy = false;
        put_entry(n, p, before);
        if (x.todo != 0) return to(kDropping, kGone);  // only where the mark goes away early
        return idle(kGone);
      }
    }
  }

  /// What other ranks ask for; and, while there is no room for another page, a page to evict, or to retire.
  template <class Emit>
  void look_for_work(const State& s, std::uint8_t a, Emit&& emit) const {
    const std::uint8_t me = s.actor[a].at;
    for (std::uint8_t p = 0; p < B; ++p) {
      if (!(s.asked[me] & 1 << p)) continue;
      State n = s;
      n.actor[a].now = p;
      n.actor[a].waking = kInClaiming;
      emit(n, Step{kAnswered, a, p});
    }
    if (has_room(s, me) || workers_done(s)) return;
    for (std::uint8_t p = 0; first(p) < B; ++p) {
      const gas::Location before = entry(s, p);
      const gas::EvictionKind way = gas::eviction_kind(before, Rank{me});
      bool here = false;
      for (std::uint8_t b = first(p); b <= last(p); ++b) here |= ((s.frames[me] | s.twins[me]) & 1 << b) != 0;
      if (!here || way == gas::EvictionKind::wait) continue;
      State n = s;
      put_entry(n, p, gas::begin_move(before, Rank{me}).claimed);
      n.actor[a].now = p;
      n.actor[a].open = static_cast<std::uint8_t>(way);
      n.actor[a].told = s.tier[p];
      n.actor[a].stage = kGoing;
      emit(n, Step{kMark, a, p});
    }
    for (std::uint8_t b = 0; b < B && instr(s, a).cell != 0; ++b) {
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
