// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of gets, puts and moves of one page over the shipped address cache protocol, and
// shows that each of its rules is needed: without it the walk finds a lost put, an old value, or workers that
// wait for each other.
//
// `model_address_cache --gtest_filter=…` prints counts and lengths; docs/design/proof.md has them in a table.
#include "model/address_cache_model.h"

#include "model/walk.h"

namespace kasane::model::addresses {
namespace {

struct Named {
  std::string name;
  Program program;
};

Outcome walk(const Named& n) {
  switch (n.program.workers.size()) {
    case 2: return explore(Addresses<3, 2>(n.program));
    case 3: return explore(Addresses<3, 3>(n.program));
    default: return explore(Addresses<3, 4>(n.program));
  }
}

// Rank 0 owns the page. The holder's first put fills its entry, its second one may hit; the page comes to the
// mover meanwhile.
Named put_while_moving() {
  return {"puts while the page moves", {{{1, {put(0, 1), put(0, 2)}}, {2, {own(), get()}}}}};
}

// … and a worker at the old owner reads and writes through an entry of its own.
Named owner_too() {
  return {"the old owner too",
          {{{1, {put(0, 1), put(0, 2)}}, {2, {own(), get()}}, {0, {get(), put(1, 1), get()}}}}};
}

// Two workers of one rank share an entry: the second use goes on where the first ends, and either of them may
// be the last.
Named shared_entry() {
  return {"two putters of one rank",
          {{{1, {put(0, 1), put(0, 2)}}, {1, {put(1, 1), put(1, 2)}}, {2, {own(), get()}}}}};
}

// The mover's own rank has puts under way.
Named movers_rank_puts() {
  return {"puts of the mover's rank",
          {{{2, {put(0, 1), put(0, 2)}}, {2, {own(), get()}}, {1, {get(), get()}}}}};
}

// Two ranks want the page; a third goes on using it.
Named two_movers() {
  return {"two movers", {{{1, {own(), put(0, 1)}}, {2, {own(), get()}}, {0, {put(1, 1), put(1, 2)}}}}};
}

// The page goes to and fro: entries filled for a former time of ownership must not come back, late reads meet
// a frame that arrives.
Named to_and_fro() {
  return {"the page goes to and fro",
          {{{0, {own(), own(), own()}}, {1, {own(), own()}}, {2, {put(0, 1), get(), put(0, 2)}}}}};
}

// Readers only hold locations, and one of them looks while the page moves.
Named readers() {
  return {"readers", {{{1, {get(), get()}}, {2, {own(), put(0, 1)}}, {0, {get(), put(1, 1)}}, {1, {get()}}}}};
}

// The owner refuses: holders were recalled for nothing.
Named refused() {
  return {"a move that is refused",
          {{{2, {own_refused(), own()}}, {1, {put(0, 1), get(), put(0, 2)}}, {1, {get(), put(1, 1)}}}}};
}

// All ranks have the same bits as holders, as several have in jobs of more than 576.
Named groups() {
  Named n{"holder bits of several ranks",
          {{{0, {put(1, 1), put(1, 2)}}, {1, {put(0, 1), put(0, 2)}}, {2, {own(), get()}}}}};
  n.program.code = {2, 6};
  return n;
}

// Also the mover's and those of the rank that fills while it moves.
Named one_group() {
  Named n{"… and of all", {{{1, {put(0, 1), own(), get()}}, {2, {own(), put(1, 1)}}, {0, {get(), get()}}}}};
  n.program.code = {2, 6};
  return n;
}

// As in jobs of more than 48: two of five bits name a rank, by the number that it has there. 0 and 1 have one
// in common; 1 and 3 together name 0, too.
Named crossed(std::array<std::uint8_t, 3> number, Named n) {
  n.name += " named by two bits, as";
  for (const std::uint8_t k : number) n.name += " " + std::to_string(k);
  n.program.code = {5, 6};
  n.program.number = number;
  return n;
}
Named two_putters_elsewhere(std::array<std::uint8_t, 3> number) {
  return crossed(number, {"two putters",
                          {{{0, {put(1, 1), put(1, 2)}}, {1, {put(0, 1), put(0, 2)}}, {2, {own(), get()}}}}});
}

// Where the entries of other ranks are mapped, movers take locations back directly; or only those of some
// ranks.
Named by_itself(Named n, const char* name, std::uint8_t reach) {
  n.name = name;
  n.program.reach = reach;
  return n;
}
Named taken_back() { return by_itself(put_while_moving(), "puts while the page moves, taken back", 7); }
Named shared_taken_back() { return by_itself(shared_entry(), "two putters of one rank, taken back", 7); }
Named refused_taken_back() { return by_itself(refused(), "refused, taken back", 7); }
Named some_taken_back() { return by_itself(two_movers(), "two movers, some taken back", 1); }

// Where operations are messages, the manager marks the page and takes its holders at once, for the rank that
// asks it.
Named by_message(Named n, const char* name) {
  n.name = name;
  n.program.by_message = true;
  return n;
}
Named put_taken_by_message() {
  return by_message(put_while_moving(), "puts while the page moves, by message");
}
Named two_by_message() { return by_message(two_movers(), "two movers, by message"); }
Named to_and_fro_by_message() { return by_message(to_and_fro(), "to and fro, by message"); }
Named refused_by_message() { return by_message(refused(), "refused, by message"); }

// The page is named in the directory while others already look for it.
Named fresh() {
  Named n{"a page that is just being assigned",
          {{{0, {assign(0), put(1, 1)}}, {1, {put(0, 1), put(0, 2)}}, {2, {own(), get()}}}}};
  n.program.allocated = false;
  return n;
}

// Everything at once.
Named four() {
  return {"two putters, two movers",
          {{{0, {put(0, 1), put(0, 2)}}, {1, {own(), put(1, 1)}}, {2, {own()}}, {2, {get()}}}}};
}

// The owner evicts the page to SSD while others use it; they have it paged in.
Named evicted() {
  return {"the page is evicted", {{{0, {put(1, 1), evict()}}, {1, {put(0, 1), get(), get()}}}}};
}
Named evicted_under_readers() {
  return {"evicted under readers",
          {{{0, {evict()}}, {1, {put(0, 1), get(), get()}}, {2, {get(), put(1, 1)}}}}};
}
Named evicted_twice() {
  return {"evicted twice",
          {{{0, {evict(), evict()}}, {1, {put(0, 1), get()}}, {2, {near_get(), near_get()}}}}};
}
Named evicted_near() {
  return {"evicted under a reader of word 0",
          {{{0, {put(0, 1), evict(), put(0, 2)}}, {1, {near_get(), near_get()}}, {0, {put(1, 1), get()}}}}};
}
Named evicted_under_two() {
  return {"evicted under two readers of one entry",
          {{{0, {evict()}}, {1, {put(0, 1), get(), get()}}, {1, {get()}}}}};
}
Named evicted_and_moved() {
  return {"evicted and moved",
          {{{0, {put(0, 1), evict()}}, {1, {own(), evict(), get()}}, {2, {get(), put(1, 1)}}}}};
}
Named evicted_by_both() {
  return {"two owners-to-be, both evict",
          {{{1, {own(), evict()}}, {2, {own(), put(0, 1), evict()}}, {0, {near_get(), put(1, 1)}}}}};
}

// A put of the whole page meets it on SSD, where an old value is; others read it, take it or put to it, and
// its owner evicts it again.
Named spilled(const char* name, std::vector<Script> workers) {
  Named n{name, {std::move(workers)}};
  n.program.spilled = true;
  return n;
}
Named replaced() {
  return spilled("a put of the whole page on SSD",
                 {{0, {evict(), evict()}}, {1, {put_all(2)}}, {2, {near_get(), get()}}});
}
Named replaced_twice() {
  return spilled("two puts of the whole page",
                 {{0, {evict(), get()}}, {1, {put_all(2), put_all(3)}}, {2, {get()}}});
}
Named replaced_by_its_owner() {
  return spilled("a put of the whole page at its owner",
                 {{0, {evict()}}, {0, {put_all(2), get()}}, {2, {near_get(), get()}}});
}
Named replaced_and_moved() {
  return spilled("a put of the whole page that moves",
                 {{0, {evict()}}, {1, {put_all(2)}}, {2, {own(), get()}}});
}
Named replaced_then_put() {
  return spilled("a put of the whole page, then of a cell",
                 {{0, {evict(), near_get()}}, {1, {put_all(2), put(0, 3)}}, {2, {get()}}});
}
// An owner pages its own page in for a put through its entry, and evicts it before the put has it.
Named put_of_its_owner() {
  return spilled("a put of the owner to its page on SSD",
                 {{0, {put(0, 2), put(0, 3)}}, {0, {evict(), get()}}, {1, {get(), put(1, 2)}}});
}
Named put_of_a_cell() {
  return spilled("a put of a part of the page on SSD", {{0, {get()}}, {1, {put(0, 2)}}});
}

// Allocated untouched with rank 0 as its provisional owner.
Named untouched(const char* name, std::vector<Script> workers) {
  Named n{name, {std::move(workers)}};
  n.program.untouched = true;
  return n;
}
Named touched_by_two() {
  return untouched("two touch a page first",
                   {{1, {touch(), put(0, 1), get()}}, {2, {touch(), put(1, 1), get()}}, {0, {get(), get()}}});
}
Named put_and_touch() {
  return untouched("a put and a touch", {{1, {put(0, 1), get()}}, {2, {get(), touch(), put(1, 1)}}});
}
Named get_put_touch() {
  return untouched("a get, then a put; a touch",
                   {{1, {get(), put(0, 1)}}, {2, {touch(), get()}}, {0, {touch(), put(1, 1)}}});
}
Named touch_and_own() {
  return untouched("a touch and an owner-to-be",
                   {{0, {own(), put(0, 1)}}, {1, {own(), put(1, 1)}}, {2, {touch(), get()}}});
}
// A rank keeps a copy over the acquire that tells it of the new page, and stores what rank 0's frame happens
// to have.
Named merge_and_touch() {
  Named n =
      untouched("a copy that is kept, and a touch", {{1, {merge(0, 1), get()}}, {2, {touch(), put(1, 1)}}});
  n.program.left = true;
  return n;
}
Named merge_beyond_dram() {
  Named n =
      untouched("a copy that is kept, beyond DRAM", {{1, {merge(0, 1), get()}}, {0, {touch(), put(1, 1)}}});
  n.program.left = n.program.budget = true;
  return n;
}

std::vector<Named> programs() {
  return {touched_by_two(),
          put_and_touch(),
          get_put_touch(),
          touch_and_own(),
          merge_and_touch(),
          merge_beyond_dram(),
          evicted(),
          evicted_under_readers(),
          evicted_twice(),
          evicted_near(),
          evicted_under_two(),
          evicted_and_moved(),
          evicted_by_both(),
          replaced(),
          replaced_twice(),
          replaced_by_its_owner(),
          replaced_and_moved(),
          replaced_then_put(),
          put_of_its_owner(),
          put_of_a_cell(),
          put_while_moving(),
          owner_too(),
          shared_entry(),
          movers_rank_puts(),
          two_movers(),
          to_and_fro(),
          readers(),
          refused(),
          groups(),
          one_group(),
          two_putters_elsewhere({0, 1, 3}),
          two_putters_elsewhere({1, 3, 0}),
          crossed({0, 1, 3}, to_and_fro()),
          crossed({3, 0, 1}, to_and_fro()),
          crossed({0, 3, 1}, movers_rank_puts()),
          fresh(),
          four(),
          put_taken_by_message(),
          two_by_message(),
          to_and_fro_by_message(),
          refused_by_message(),
          by_message(movers_rank_puts(), "puts of the mover's rank, by message"),
          by_message(evicted_and_moved(), "evicted and moved, by message"),
          by_message(touch_and_own(), "a touch and an owner-to-be, by message"),
          taken_back(),
          shared_taken_back(),
          refused_taken_back(),
          some_taken_back()};
}

// No interleaving loses a put or reads an old value.
INSTANTIATE_TEST_SUITE_P(Programs, Walks, testing::ValuesIn(walks(programs())), by_name);

std::vector<Mutant<Named, Mutation>> mutants() {
  using enum Mutation;
  return {
      {"no_wait_for_uses", no_wait_for_uses, put_while_moving()},
      {"no_wait_for_answers", no_wait_for_answers, put_while_moving()},
      {"no_stamp", no_stamp, put_while_moving()},
      {"stamp_with_mark", stamp_with_mark, to_and_fro()},
      {"stamp_at_end", stamp_at_end, put_while_moving()},
      {"no_register", no_register, put_while_moving()},
      {"recall_while_filling", recall_while_filling, put_while_moving()},
      // it would only let the mover wait for ever
      {"put_through_leaving", put_through_leaving, shared_entry(), Verdict::exhausted},
      {"swap_before_busy", swap_before_busy, to_and_fro()},
      {"ask_before_busy", ask_before_busy, put_while_moving()},
      {"ask_only_the_seen", ask_only_the_seen, put_while_moving()},
      {"fill_while_busy", fill_while_busy, put_while_moving()},
      {"put_while_busy", put_while_busy, put_while_moving()},
      {"own_entry_forgotten", own_entry_forgotten, movers_rank_puts()},
      {"own_entry_not_awaited", own_entry_not_awaited, movers_rank_puts()},
      {"group_forgotten", group_forgotten, groups()},
      {"ask_other_bits", ask_other_bits, two_putters_elsewhere({0, 1, 3})},
      {"filler_not_counted", filler_not_counted, put_while_moving()},
      {"use_ends_early", use_ends_early, put_while_moving()},
      {"no_second_look", no_second_look, evicted()},
      {"no_second_look_near", no_second_look, evicted_near()},
      {"second_look_by_state", second_look_by_state, evicted_under_two()},
      {"version_not_bumped", version_not_bumped, evicted_near()},
      {"tier_after_punch", tier_after_punch, evicted_near()},
      {"evict_without_recall", evict_without_recall, evicted_under_readers()},
      {"evict_undrained", evict_undrained, evicted_near()},
      {"fill_from_ssd", fill_from_ssd, evicted_under_readers()},
      {"put_leaves_untouched", put_leaves_untouched, put_and_touch()},
      {"untouched_is_kept", untouched_is_kept, get_put_touch()},
      {"merge_leaves_untouched", merge_leaves_untouched, merge_and_touch()},
      {"merge_leaves_untouched_beyond_dram", merge_leaves_untouched, merge_beyond_dram()},
      {"touch_without_look", touch_without_look, put_and_touch()},
      {"move_from_ssd", move_from_ssd, evicted_and_moved()},
      {"last_use_keeps_silent", last_use_keeps_silent, put_while_moving(), Verdict::deadlock},
      {"takes_without_look", takes_without_look, two_by_message()},
      {"watched_not_awaited", watched_not_awaited, taken_back()},
      {"recall_while_filling_by_itself", recall_while_filling, taken_back()},
      {"answered_early", answered_early, put_of_a_cell()},
      {"answer_kept_blindly", answer_kept_blindly, put_of_its_owner()},
      {"handed_unread", handed_unread, replaced()},
      {"handed_unmarked", handed_unmarked, replaced()},
      {"handed_in_part", handed_in_part, put_of_a_cell()},
      {"handed_for_granted", handed_for_granted, replaced_and_moved()},
  };
}

INSTANTIATE_TEST_SUITE_P(Rules, Walks, testing::ValuesIn(walks(mutants())), by_name);

// ---- the entry's word ------------------------------------------------------------------------------------

TEST(AddressEntry, SurvivesItsWord) {
  using gas::AddressEntry, gas::AddressState;
  constexpr std::uint32_t kLast = AddressEntry::kStamps - 1;
  for (const AddressEntry& e :
       {AddressEntry{}, AddressEntry{AddressState::valid, Rank{0}, 0, 0},
        AddressEntry{AddressState::none, kNoRank, 0, kLast},
        AddressEntry{AddressState::leaving, Rank{gas::kMaxRanks - 1}, AddressEntry::kMostUses, kLast}}) {
    EXPECT_TRUE(e.check());
    EXPECT_EQ(AddressEntry::of(e.word()), e);
  }
  EXPECT_EQ(AddressEntry{}.word(), 0u);  // untouched memory is an entry
}

TEST(AddressEntry, APutBeyondTheMostUsesWaits) {
  const gas::AddressEntry full{gas::AddressState::valid, Rank{3}, gas::AddressEntry::kMostUses, 7};
  EXPECT_EQ(gas::next(full, gas::AddressEvent::put).action, gas::AddressAction::wait);
  EXPECT_EQ(gas::next(full, gas::AddressEvent::read).action, gas::AddressAction::go);
}

TEST(AddressEntry, StampsWrap) {
  const gas::AddressEntry last{gas::AddressState::none, kNoRank, 0, gas::AddressEntry::kStamps - 1};
  EXPECT_EQ(gas::next(last, gas::AddressEvent::recall).after,
            (gas::AddressEntry{gas::AddressState::none, kNoRank, 0, 0}));
}

TEST(Registration, CountsForTheVersionOfItsStamp) {
  const gas::Location where{true, Rank{2}, gas::Tier::dram, false, 0x10007};
  constexpr std::uint64_t kHolders = (std::uint64_t{1} << gas::kHolderBits) - 1;
  EXPECT_TRUE(gas::registered(where, gas::unheld(7)));
  // the stamp wraps; other holders do not matter
  EXPECT_TRUE(gas::registered(where, gas::unheld(0x10007) | kHolders));
  EXPECT_FALSE(gas::registered(where, gas::unheld(8)));
  EXPECT_FALSE(gas::registered(where, gas::unheld(6) | kHolders));
  EXPECT_EQ(gas::unheld(0x10007) & kHolders, 0u);
}

}  // namespace
}  // namespace kasane::model::addresses
