// SPDX-License-Identifier: Apache-2.0
// What the workers of the coherence model (coherence_model.h) run: small scripts, the machine that they begin
// on, and the rule that a walk leaves out.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dsm/protocol.h"
#include "gas/rank_code.h"

namespace kasane::model {

using Byte = std::uint8_t;

// clang-format off: names, as many a line as fit
/// Which rule the walk leaves out. The shipping code knows nothing of this. docs/design/proof.md says of each
/// what it is, and which program finds it.
enum class Mutation : Byte {
  none,
  r1_no_source_release, r1_no_acquire,
  r2_no_recheck, r2_no_wait, r2_join_running_round,
  r3_no_protect, r3_no_completion, r3_gaps, r3_two_loads, r3_join_running_round,
  r4_unlock_early, r4_plain_refresh, r4_twin_left, r4_plain_arrival,
  r7_no_discard, r7_no_drop, r7_freed_bytes_stay, r7_told_copy_stays, r7_replaced_untold,
  r8_no_protect, r8_no_drain, r8_landing_undrained, r8_landing_on_changes, r8_put_ignores_busy,
  r8_use_while_leaving, r8_move_pinned,
  r6_no_join, r6_join_after_data, r6_no_owner_mark, r6_owner_mark_after_data, r6_not_stood,
  r6_stay_not_ended, r6_stay_ended_early, r6_stay_noted_blindly, r6_stay_without_standing,
  r5_tell_before_completion, r5_tell_late, r5_release_passes_telling, r5_acquire_passes_dropping,
  r5_adopt_blindly, r5_put_untold, r5_direct_untold, r5_direct_keeps_copy, r5_own_store_unseen,
  r5_arrival_unseen, r5_arrival_marked_early, r5_first_meeting_unseen, r5_watch_after_telling,
  r5_readers_taken, readers_leave_others, readers_forgotten, r5_leave_after_drop, r5_note_cleared_late,
  r8_release_before_named, r8_naming_not_counted,
  whole_edge, whole_diffed, whole_unjoined, whole_dropped, whole_left, whole_arrival, whole_freed_later,
  whole_sent_live, whole_stays, whole_twin_left,
  tier_unprotected, tier_unrecalled, tier_undrained, tier_pinned, tier_dirty, tier_drop_unmarked,
  tier_dram_early, tier_in_unmarked, tier_in_unclaimed, tier_read_asleep, tier_own_asleep, tier_put_asleep,
  tier_get_not_stood, tier_move_asleep, tier_armed_unheld, tier_armed_unlooked, tier_gone_untold,
  tier_rest_watched, tier_rest_unseen, tier_holds_and_waits, tier_keeps_changes,
  part_saved_stays, part_stored_saved, part_unwritten, part_all_written, part_taken, part_overwritten,
  part_in_busy, part_not_noted, part_unarmed_page, part_saved_watched, part_absent_passed, part_unheld,
  tier_waits_again,
  blank_unprotected, blank_pinned, blank_untold,
  forgotten_untold,
  tier_put_own_asleep, tier_asked_holding,
  parts_after_notice, parts_open_unsaid, parts_put_unsaid, parts_told_kept, parts_left_kept,
  parts_asked_still, parts_asked_ended_early, parts_asked_ended_late,
  ours_unnoted, ours_noted_late,
  fixed_moves,
  open_unsent_twin, open_counts_clean, open_unrefreshed,
  lock_unreleased, lock_marked_early, lock_mark_unended,
  ours_forgotten,
  held_finished_first, cached_after_read, recalled_after_write, drop_counted_twice,
  put_counted_twice, put_over_own, held_kept,
};

enum class Do : Byte {
  load, store, add, poke, get, put,                         // bytes: in V; or, get and put, directly
  set, see, cross, lock, unlock, release, acquire,          // facts, fences
  own, hand_back, pin_write, pin_read, pin_whole, unpin,    // pages that move, and that do not
  take, discard, blank, forget, assign, reclaim,            // memory that is used again
  send, keep, end,
};
// clang-format on

/// Of State::last: the rank has released since it gave the lock up; it took a mark then; a release that began
/// after the mark is under way.
inline constexpr Byte kHasReleased = 0x80, kMarked = 0x40, kReleasing = 0x20;
inline constexpr Byte kCells = 2;

struct Instr {
  Do what = Do::end;
  Byte block = 0;  ///< or flag, lock, page
  Byte cell = 0;   ///< or a mask of cells (discard)
  Byte value = 0;

  constexpr Instr() = default;
  constexpr Instr(Do d, int b = 0, int c = 0, int v = 0)
      : what(d), block(Byte(b)), cell(Byte(c)), value(Byte(v)) {}
};

inline Instr load(int b, int c) { return {Do::load, b, c}; }
inline Instr store(int b, int c, int v) { return {Do::store, b, c, v}; }
/// a load, then a store of one more
inline Instr add(int b, int c) { return {Do::add, b, c}; }
/// a store that cannot fault (the kernel's, a stack switch's) into a pinned block
inline Instr poke(int b, int c, int v) { return {Do::poke, b, c, v}; }
/// fixes a fact; its rank is the source
inline Instr set(int flag) { return {Do::set, flag}; }
/// sees it without a fence (an allocator's fact)
inline Instr see(int flag) { return {Do::see, flag}; }
/// sees the fact and crosses its source
inline Instr cross(int flag) { return {Do::cross, flag}; }
inline Instr lock(int l) { return {Do::lock, l}; }
inline Instr unlock(int l) { return {Do::unlock, l}; }
/// its holder's rank has released before, so the next holder asks for nothing
inline Instr unlock_released(int l) { return {Do::unlock, l, 0, kHasReleased}; }
/// With a mark, as ult::Mutex does: who takes it over looks whether its holder's rank has released since.
inline Instr unlock_marked(int l) { return {Do::unlock, l, 0, kMarked}; }
inline Instr own(int page) { return {Do::own, page}; }
inline Instr pin_write(int b) { return {Do::pin_write, b}; }
inline Instr pin_read(int b) { return {Do::pin_read, b}; }
/// all cells are stored to before unpin()
inline Instr pin_whole(int b) { return {Do::pin_whole, b}; }
inline Instr unpin(int b) { return {Do::unpin, b}; }
inline Instr discard(int b, int cells) { return {Do::discard, b, cells}; }
/// memory last used elsewhere comes into use
inline Instr take(int b) { return {Do::take, b}; }
inline Instr hand_back(int page, int to) { return {Do::hand_back, page, to}; }
inline Instr reclaim(int page) { return {Do::reclaim, page}; }
inline Instr release() { return Do::release; }
inline Instr acquire() { return Do::acquire; }
/// sends a block's changes before a release (clean())
inline Instr send(int b) { return {Do::send, b}; }
/// the block's bytes are undefined until they are stored to (Coherence::blank())
inline Instr blank(int b) { return {Do::blank, b}; }
/// The page is freed, and what its owner's spill file has of it forgotten (Heap::discard_run) …
inline Instr forget(int page) { return {Do::forget, page}; }
/// … and allocated anew, for the same owner (Mover::assign).
inline Instr assign(int page) { return {Do::assign, page}; }
/// a direct put, complete when it returns
inline Instr put(int b, int c, int v) { return {Do::put, b, c, v}; }
/// a direct get: the owner's byte, whatever copy this rank has
inline Instr get(int b, int c) { return {Do::get, b, c}; }
/// the only instruction of a pager; of one that retires pages, too
inline Instr keep() { return Do::keep; }
inline Instr keep_resting() { return {Do::keep, 0, 1}; }

struct Script {
  Byte rank;
  std::vector<Instr> code;
};

struct Program {
  std::vector<Script> workers;
  std::array<Byte, 2> owner{0, 0};        ///< of each page at the start
  std::array<bool, 2> known{true, true};  ///< does the owner's block table say so already?
  bool watched = false;                   ///< are the owners' blocks protected at the start?
  bool fresh = false;  ///< do the pages begin on SSD, where nothing of them is? Then no owner knows its page
  Byte blocks_per_page = 1;
  gas::RankCode readers{8, 8};          ///< how a page's readers are named …
  std::array<Byte, 3> number{0, 1, 2};  ///< … each rank by the number that it would have in a larger job
  /// owners are asked when all holders have forgotten the location, and their answers bring the page along
  bool brings = false;
  /// a release or an acquire may leave a changed block writable (BlockEvent::release_open)
  bool open = false;
  bool fixed = false;          ///< the owners of all pages never change
  std::array<Byte, 3> room{};  ///< of each rank, in blocks of M and T; 0: no limit
  Mutation without = Mutation::none;
};

/// next() with a rule taken out.
inline dsm::BlockStep mutated(Mutation rule, dsm::BlockStep step, const dsm::BlockState& before,
                              dsm::BlockEvent event) {
  using enum Mutation;
  using Action = dsm::Action;
  using Block = dsm::BlockState;
  using Event = dsm::BlockEvent;
  const auto without = [rule](Mutation m) { return rule == m; };
  const auto drop = [&](Action gone) {
    std::array<Action, 4> kept{};
    std::size_t k = 0;
    for (Action act : step.actions)
      if (act != gone && act != Action::end) kept[k++] = act;
    step.actions = kept;
  };
  if (without(r3_no_protect) && event == Event::release) drop(Action::protect_read);
  if (without(open_unsent_twin) && event == Event::release_open && before.twin)
    step.actions = {Action::diff_put};
  if (without(open_unrefreshed) && event == Event::acquire_open) drop(Action::refresh);
  if (without(r7_no_discard) && event == Event::discard) drop(Action::restore_bytes);
  if (before.whole && !before.busy) {
    if (without(whole_diffed) && event == Event::release && before.pins == 0)
      step.actions[1] = Action::diff_put;
    if (without(whole_dropped) && event == Event::acquire)
      step.after = Block{}, step.actions = {Action::protect_none};
    if (without(whole_left) && event == Event::acquire) drop(Action::find);
    if (without(whole_freed_later) && event == Event::discard) step = {};
    if (without(whole_sent_live) && event == Event::release && before.pins != 0)
      step.after.twin = false, step.after.access = mem::Access::read;
    if (without(whole_stays) && step.actions[0] == Action::put_all_live)
      step.after.twin = false, step.after.whole = true;
  }
  if (without(part_saved_stays) && before.saved && event == Event::store) step.after.saved = true;
  if (without(r5_own_store_unseen) && before.access == mem::Access::read) drop(Action::mark_page);
  if (without(tier_rest_unseen) && before.owned && before.access == mem::Access::none)
    drop(Action::mark_page);
  if (without(blank_unprotected) && event == Event::blank) drop(Action::protect_none);
  if (without(r8_no_protect) && event == Event::yield) drop(Action::protect_none);
  Block lighter = before;  // than it is: what its pins or its changes hinder is done
  if ((without(blank_pinned) && event == Event::blank) || (without(tier_pinned) && event == Event::evict) ||
      (without(r8_move_pinned) && event == Event::yield && before.owned))
    lighter.pins = 0;
  if (without(tier_dirty) && event == Event::evict) lighter.twin = lighter.whole = false;
  if (lighter == before || before.busy) return step;
  step = dsm::next(lighter, event);
  if (event == Event::blank) {
    step.after.pins = before.pins;
    step.after.access = before.access;
    drop(Action::protect_none);
  }
  return step;
}

}  // namespace kasane::model
