// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of small data-race-free programs over the shipped block protocol, relocation and
// memory tiers, and shows that each of rules 1–8 is needed: without it the walk finds a stale or lost value.
//
// `model_coherence --gtest_filter=…` prints counts and lengths; docs/design/proof.md has them in a table.
#include "model/coherence_model.h"

#include <cstdlib>
#include <map>

#include "model/walk.h"

namespace kasane::model {
namespace {

/// Picks the smallest machine for the program: ranks, workers, blocks are template parameters so that states
/// stay small.
template <std::uint8_t B>
Outcome walk(const Program& p) {
  std::uint8_t ranks = 0;
  for (const Script& w : p.workers)
    ranks = std::max<std::uint8_t>(ranks, static_cast<std::uint8_t>(w.rank + 1));
  const auto go = [&]<std::uint8_t R, std::uint8_t W>() { return explore(Coherence<R, W, B>(p)); };
  switch (ranks * 10 + static_cast<int>(p.workers.size())) {
    case 21:
    case 22: return p.workers.size() == 2 ? go.template operator()<2, 2>() : go.template operator()<2, 1>();
    case 23: return go.template operator()<2, 3>();
    case 24: return go.template operator()<2, 4>();
    case 25: return go.template operator()<2, 5>();
    case 33: return go.template operator()<3, 3>();
    case 34: return go.template operator()<3, 4>();
    case 35: return go.template operator()<3, 5>();
    default:
      ADD_FAILURE() << "no machine of " << int{ranks} << " ranks and " << p.workers.size() << " workers";
      return {};
  }
}

struct Named {
  std::string name;
  Program program;
  std::uint8_t blocks = 1;
};

Outcome walk(const Named& n) { return n.blocks == 1 ? walk<1>(n.program) : walk<2>(n.program); }

// ---- programs: each is data-race-free; load() checks against the ghost memory ----------------------------

// Message passing from a rank that does not own the block to the one that does, and back.
Named message_passing() {
  return {"message passing",
          {{{1, {store(0, 0, 1), set(0), cross(1), load(0, 1)}},
            {0, {cross(0), load(0, 0), store(0, 1, 2), set(1)}}}}};
}

// Two bytes of a block, which arrive one by one.
Named both_cells_sent() {
  return {"two bytes sent together",
          {{{1, {store(0, 0, 1), store(0, 1, 2), set(0)}}, {0, {cross(0), load(0, 0), load(0, 1)}}}}};
}

// Both ends cache the block of a third rank; the reader has an old copy.
Named third_owner() {
  return {"message passing, third rank owns",
          {{{1, {store(0, 0, 1), set(0), cross(1), load(0, 1)}},
            {2, {load(0, 1), cross(0), load(0, 0), store(0, 1, 2), set(1)}},
            {0, {}}}}};
}

// Two ranks write different bytes of one block at once.
Named false_sharing() {
  return {"two writers of one block",
          {{{1, {store(0, 0, 1), set(0), cross(1), load(0, 1)}},
            {2, {store(0, 1, 2), set(1), cross(0), load(0, 0)}},
            {0, {cross(0), load(0, 0)}}}}};
}

// Two workers of one rank write the block while each crosses to and from elsewhere: stores happen at every
// moment of the other's fences.
Named two_workers() {
  return {"two workers a rank",
          {{{1, {store(0, 0, 1), set(0)}},
            {1, {store(0, 1, 2), set(1)}},
            {0, {cross(0), load(0, 0), cross(1), load(0, 1)}}}}};
}

// Two ranks store to one byte each of a third's block again and again, and read the other's.
Named rewritten() {
  return {"stored to again and again",
          {{{1, {store(0, 0, 1), set(0), cross(1), store(0, 0, 2), load(0, 1), set(2)}},
            {0, {cross(0), load(0, 0), store(0, 1, 3), set(1), cross(2), load(0, 0)}}}}};
}

// What a rank has sent, or has taken from the owner, is stored to by the owner before its next release.
Named stored_over_what_was_sent() {
  return {"stored over what was sent",
          {{{1, {store(0, 0, 1), set(0), store(0, 1, 2), set(1)}},
            {0, {cross(0), store(0, 0, 5), cross(1), load(0, 0)}}}}};
}
Named stored_over_what_was_merged() {
  return {"stored over what was merged",
          {{{1, {store(0, 0, 1), cross(1), store(0, 0, 2), set(2)}},
            {0, {store(0, 1, 3), set(1), store(0, 1, 4), cross(2), load(0, 1)}}}}};
}

// The page comes to a rank that stores to it again and again.
Named rewritten_and_moved() {
  return {"stored to again and again, and moved",
          {{{1, {store(0, 0, 1), release(), own(0), store(0, 0, 2), set(0)}},
            {1, {release()}},
            {0, {load(0, 1), cross(0), load(0, 0)}}}}};
}

// A worker stores while another of its rank takes notices of the block.
Named stored_while_acquiring() {
  return {"stored to while its rank acquires",
          {{{1, {store(0, 0, 1), store(0, 0, 2), set(1)}},
            {1, {cross(0), load(0, 1)}},
            {0, {store(0, 1, 3), set(0), cross(1), load(0, 0)}}}}};
}

// One worker acquires while the other fetches: the fetched copy must not outlive the acquire.
Named acquire_while_fetching() {
  return {"acquire while another worker fetches",
          {{{0, {store(0, 0, 1), set(0)}}, {1, {load(0, 1)}}, {1, {cross(0), load(0, 0)}}}}};
}

// Two workers of a rank acquire at once: the second must not be served by a round that began before its fact.
Named two_acquirers() {
  return {
      "two acquirers",
      {{{0, {store(0, 1, 2), set(1)}}, {1, {acquire()}}, {1, {cross(1), load(0, 1)}}, {1, {load(0, 0)}}}}};
}

// A release round is under way when the fact is fixed: the asker needs a later one.
Named two_releasers() {
  return {"two releasers",
          {{{1, {store(0, 0, 1), store(0, 0, 2), set(0)}}, {1, {release()}}, {0, {cross(0), load(0, 0)}}}}};
}

// A worker's own store must stay visible to it while other workers of its rank release and acquire.
Named own_store_over_fences() {
  return {"own store over fences",
          {{{1, {store(0, 0, 1), load(0, 0), load(0, 0)}}, {1, {release()}}, {1, {acquire()}}}}};
}

// Counter under a lock passed round by three workers of two ranks.
Named lock_passing() {
  return {"lock passed round",
          {{{0, {lock(0), add(0, 0), unlock(0)}},
            {1, {lock(0), add(0, 0), unlock(0)}},
            {1, {lock(0), add(0, 0), unlock(0)}}}}};
}

// … whose holders release before they give it up.
Named lock_released() {
  return {"lock passed round, released before",
          {{{0, {lock(0), add(0, 0), release(), unlock_released(0)}},
            {1, {lock(0), add(0, 0), release(), unlock_released(0)}},
            {1, {lock(0), add(0, 0), unlock(0)}}}}};
}

// … whose holders take marks, while another worker of a rank releases.
Named lock_marked() {
  return {"lock passed round, marked",
          {{{0, {lock(0), add(0, 0), unlock_marked(0)}},
            {1, {lock(0), add(0, 0), unlock_marked(0)}},
            {1, {store(0, 1, 3), release()}}}}};
}

// A lock, and a neighbour byte that is written without it.
Named lock_and_neighbour() {
  return {"lock and a neighbour",
          {{{0, {store(0, 1, 3), set(0)}},
            {1, {lock(0), add(0, 0), unlock(0), cross(0), load(0, 1)}},
            {2, {lock(0), add(0, 0), unlock(0)}}}}};
}

// The page moves to the reader while another rank writes it.
Named writer_while_moving() {
  return {"writer while the page moves",
          {{{1, {store(0, 0, 1), release(), set(0)}},
            {2, {own(0), store(0, 1, 2), cross(0), load(0, 0), set(1)}},
            {0, {cross(1), load(0, 1)}}}}};
}

// The page is used at its new owner before its entry says so: by the worker that brought it, and by another
// one there.
Named entry_on_its_way() {
  return {"the entry is on its way",
          {{{1, {own(0), store(0, 0, 1), set(0)}},
            {1, {store(0, 1, 2), set(1)}},
            {2, {cross(0), load(0, 0), cross(1), load(0, 1)}}}}};
}

// The owner itself writes while the page leaves.
Named owner_writes_while_leaving() {
  return {
      "the owner writes while its page leaves",
      {{{0, {store(0, 0, 1), store(0, 0, 2), set(0)}}, {1, {own(0), store(0, 1, 3), cross(0), load(0, 0)}}}}};
}

// Two ranks want the page.
Named two_movers() {
  return {"two movers",
          {{{0, {store(0, 0, 1), set(0)}},
            {1, {own(0), store(0, 1, 2), set(1)}},
            {2, {own(0), cross(0), load(0, 0), cross(1), load(0, 1)}}}}};
}

// The taker's other worker has unreleased stores in the page, and goes on storing while it arrives.
Named arrival_into_dirty() {
  return {"arrival into a dirty block",
          {{{1, {store(0, 0, 1), store(0, 0, 2), set(0)}},
            {1, {own(0), cross(0), load(0, 0), set(1)}},
            {0, {store(0, 1, 3), cross(1), load(0, 0)}}}}};
}

// The stack of a stolen parent: rank 1 takes the page while the child, at rank 0, still writes a captured
// variable in it; afterwards the parent reads it at rank 1 (thesis, listing 3.1).
Named captured_variable() {
  return {
      "captured variable of a stolen stack",
      {{{0, {set(0), store(0, 0, 1), set(1)}},
        {1, {cross(0), own(0), pin_write(0), store(0, 1, 2), cross(1), load(0, 0), load(0, 1), unpin(0)}}}}};
}

// The same, and a third rank wrote another captured variable.
Named captured_by_third() {
  return {"captured variable, pinned stack, third rank",
          {{{0, {pin_write(0), store(0, 1, 2), unpin(0), set(0), cross(1), load(0, 1)}},
            {1, {cross(0), own(0), pin_write(0), cross(2), load(0, 0), unpin(0), set(1)}},
            {2, {store(0, 0, 1), set(2)}}}}};
}

// A pinned page does not leave; its rank goes on storing.
Named pinned_stays() {
  return {"a pinned page does not leave",
          {{{0, {pin_write(0), store(0, 0, 1), poke(0, 0, 2), unpin(0), set(0)}},
            {1, {own(0), store(0, 1, 3), cross(0), load(0, 0)}}}}};
}

// A pinned-writable block of a foreign page is released in place while its worker goes on storing.
Named pinned_release() {
  return {"pinned foreign block: release",
          {{{1, {pin_write(0), store(0, 0, 1), store(0, 0, 2), set(0)}},
            {1, {set(2)}},
            {0, {cross(2), cross(0), load(0, 0)}}}}};
}

// … and refreshed in place.
Named pinned_acquire() {
  return {"pinned foreign block: acquire",
          {{{1, {pin_write(0), store(0, 0, 1), store(0, 0, 2), load(0, 0), set(0)}},
            {1, {cross(1), load(0, 1), set(2)}},
            {0, {store(0, 1, 2), set(1), cross(0), load(0, 0)}}}}};
}

// … and what was merged into it is no change of this rank: it must not be sent back later.
Named pinned_merge_back() {
  return {"pinned foreign block: merged bytes stay",
          {{{1, {pin_write(0), store(0, 0, 1), set(0)}},
            {1, {cross(1), set(2)}},
            {0, {store(0, 1, 2), set(1), see(2), store(0, 1, 3), cross(0), load(0, 1), load(0, 0)}}}}};
}

// Freed memory is taken by another rank while the freeing rank still has dirty bytes in the block.
Named free_dirty() {
  return {"freed while dirty, reused elsewhere",
          {{{1, {store(0, 0, 1), store(0, 1, 3), discard(0, 1), set(0)}},
            {2, {see(0), take(0), store(0, 0, 7), set(1)}},
            {0, {cross(1), cross(0), load(0, 0), load(0, 1)}}}}};
}

// The taker has an old copy of the block and stores just what it holds there.
Named reuse_stale() {
  return {"reused over a stale copy",
          {{{1, {store(0, 0, 1), release(), discard(0, 1), set(0)}},
            {2, {load(0, 1), see(0), take(0), store(0, 0, 0), set(1)}},
            {0, {cross(1), load(0, 0)}}}}};
}

// Freed and used again by the same rank; the new value equals the freed one, which the owner never got.
Named reuse_same_rank() {
  return {"freed and reused by the same rank",
          {{{1, {store(0, 0, 1), discard(0, 1), store(0, 0, 1), set(0)}},
            {1, {store(0, 1, 4), set(1)}},
            {0, {cross(0), load(0, 0), cross(1), load(0, 1)}}}}};
}

// Freed here with unreleased bytes, and used here again after another rank has allocated it: the new value
// equals the freed one, which the owner never got.
Named reuse_of_what_was_freed() {
  return {"freed, allocated elsewhere, used again",
          {{{1, {store(0, 0, 1), discard(0, 1), set(0), cross(1), store(0, 0, 1), set(2)}},
            {2, {see(0), take(0), set(1)}},
            {0, {cross(2), load(0, 0)}}}}};
}

// The same where all of the block is freed.
Named reuse_of_a_freed_block() {
  return {"a block freed, allocated elsewhere, used again",
          {{{1, {store(0, 0, 1), discard(0, 3), set(0), cross(1), store(0, 0, 1), set(2)}},
            {2, {see(0), take(0), set(1)}},
            {0, {cross(2), load(0, 0)}}}}};
}

// Freed with unreleased bytes, and used here again at once, by a direct put.
Named put_over_freed() {
  return {"freed, used again by a put",
          {{{1, {store(0, 0, 1), discard(0, 1), put(0, 0, 2), release(), acquire(), load(0, 0), set(0)}},
            {0, {cross(0), load(0, 0)}}}}};
}

// Put to, freed, and used here again at once: the new value is what this rank's copy held before the put.
Named stored_after_put_and_free() {
  return {"put, freed, used again by a store",
          {{{1, {load(0, 0), put(0, 0, 5), discard(0, 1), store(0, 0, 0), set(0)}},
            {1, {load(0, 1), acquire()}},
            {0, {cross(0), load(0, 0)}}}}};
}

// Memory that is allocated anew at another rank, which has other bytes of it than those that a third rank has
// cached, and stores again. By then the first owner knows that it has not stored since its notice of that
// copy.
Named reuse_elsewhere() {
  return {"allocated anew at another rank",
          {{{0, {store(0, 0, 5), set(0), set(2), see(1), release(), hand_back(0, 1), set(3)}},
            {2, {cross(0), load(0, 0), cross(2), load(0, 0), set(1), cross(3), store(0, 0, 5), set(4)}},
            {1, {cross(4), load(0, 0)}}}}};
}

// A page in the directory that its owner has not met yet is moved, put to and written to at once.
Named lazy_owner() {
  Named n{"an owner that has not met its page",
          {{{0, {store(0, 0, 1), set(0)}},
            {1, {own(0), cross(1), store(0, 1, 9), set(2)}},
            {2, {store(0, 1, 5), release(), set(1), cross(2), cross(0), load(0, 1), load(0, 0)}}}}};
  n.program.known = {false, false};
  return n;
}

// A stack slot: taken by rank 1, returned, recycled at rank 0, whose old copy must not come back.
Named recycled_stack() {
  return {
      "a recycled stack",
      {{{0, {store(0, 0, 1), set(0), cross(1), reclaim(0), store(0, 0, 5), load(0, 0), set(2)}},
        {1, {cross(0), own(0), load(0, 0), store(0, 1, 2), hand_back(0, 0), set(1), cross(2), load(0, 0)}}}}};
}

// Two blocks of two pages, owners on both sides: fences walk several blocks, with puts in both directions.
Named two_pages() {
  Named n{"two pages, crosswise",
          {{{0, {store(1, 0, 1), set(0), cross(1), load(0, 0)}},
            {1, {store(0, 0, 2), set(1), cross(0), load(1, 0)}}}},
          2};
  n.program.owner = {0, 1};
  return n;
}

// A page of two blocks moves while both are in use at the other end.
Named page_of_two_blocks() {
  Named n{"a page of two blocks moves",
          {{{0, {store(0, 0, 1), store(1, 0, 2), set(0)}},
            {1, {own(0), store(1, 1, 3), cross(0), load(0, 0), load(1, 0)}}}},
          2};
  n.program.blocks_per_page = 2;
  return n;
}

// Both ranks take the page of two blocks from each other, one of them with unreleased stores in it.
Named page_to_and_fro() {
  Named n{"a page of two blocks goes to and fro",
          {{{0, {store(0, 0, 1), own(0), set(0)}},
            {1, {store(1, 0, 2), own(0), store(0, 1, 3), cross(0), load(0, 0)}}}},
          2};
  n.program.blocks_per_page = 2;
  return n;
}

// A page is handed to a rank that has a pinned twin of it, and stores while another of its workers releases.
Named handed_over_a_pinned_twin() {
  return {"a page in DRAM is handed to a rank with a pinned twin",
          {{{0, {see(1), hand_back(0, 1), set(0), cross(2), load(0, 1)}},
            {1,
             {pin_write(0), store(0, 0, 1), discard(0, 1), set(1), cross(0), poke(0, 1, 2), poke(0, 1, 3),
              unpin(0), set(2), load(0, 1)}},
            {1, {release()}}}}};
}

// ---- which ranks have a copy, and which get notices ------------------------------------------------------

// The owner stores between the reader's looks: without a fault, watched, without a fault again.
Named owner_and_reader() {
  return {"owner and reader",
          {{{0, {store(0, 0, 1), set(0), cross(1), store(0, 0, 2), set(2)}},
            {1, {load(0, 1), cross(0), load(0, 0), set(1), cross(2), load(0, 0)}}}}};
}

// … and its other worker releases at any moment.
Named owner_releases_meanwhile() {
  return {"the owner's rank releases meanwhile",
          {{{0, {store(0, 0, 1), store(0, 0, 2), set(0)}},
            {0, {release(), release()}},
            {1, {load(0, 1), cross(0), load(0, 0)}}}}};
}

// A reader of the old owner's copy; the new owner stores.
Named copy_outlives_a_move() {
  return {"a copy outlives a move",
          {{{2, {load(0, 1), cross(0), load(0, 0)}}, {1, {own(0), store(0, 0, 1), set(0)}}, {0, {}}}}};
}

// … and releases before, so that no mark is left of its arrival.
Named arrival_then_release() {
  return {"a page arrives, its rank releases",
          {{{2, {load(0, 1), cross(0), load(0, 0)}},
            {1, {own(0), set(1), store(0, 0, 1), set(0)}},
            {1, {release()}},
            {0, {}}}}};
}

// … while its rank releases another page, which may take the mark before the entry names the rank.
Named arrival_while_releasing() {
  return {"a page arrives while its rank releases another",
          {{{2, {load(0, 1), cross(0), load(0, 0)}},
            {1, {own(0), store(0, 0, 1), set(0)}},
            {1, {store(1, 0, 5), release()}}}},
          2};
}

// The owner first faults on its page when another rank has a copy already.
Named late_meeting() {
  Named n{"the owner meets its page after its reader",
          {{{0, {see(1), store(0, 0, 1), set(0)}},
            {0, {release()}},
            {1, {load(0, 1), set(1), cross(0), load(0, 0)}}}}};
  n.program.known = {false, false};
  return n;
}

// Direct puts: others that have a copy, and the putter's own.
Named direct_put_told() {
  return {
      "a direct put, a copy elsewhere",
      {{{1, {put(0, 0, 1), set(0)}}, {1, {release()}}, {2, {load(0, 1), cross(0), load(0, 0)}}, {0, {}}}}};
}
Named direct_put_own_copy() {
  return {"a direct put over its rank's copy",
          {{{1, {load(0, 0), put(0, 0, 1), acquire(), load(0, 0)}},
            {0, {store(0, 1, 1), set(0)}},
            {1, {cross(0), load(0, 1)}}}}};
}
Named direct_put_of_owner() {
  return {"a direct put of the owner",
          {{{0, {put(0, 0, 1), set(0), cross(1), put(0, 0, 2), set(2)}},
            {1, {load(0, 1), cross(0), load(0, 0), set(1), cross(2), load(0, 0)}}}}};
}

// A rank that has a notice of another rank's change sends notices of its own.
Named told_and_telling() {
  return {"told and telling",
          {{{1, {store(0, 0, 1), release(), cross(0), load(0, 1)}}, {2, {store(0, 1, 2), set(0)}}, {0, {}}}}};
}

// Two workers acquire; one finds no notice, since the other has taken it.
Named notice_taken_by_another() {
  return {"a notice that another worker has taken",
          {{{0, {store(0, 0, 1), set(0)}}, {1, {load(0, 1), acquire()}}, {1, {cross(0), load(0, 0)}}}}};
}

// Two readers, of which the first is still about to have the owner look.
Named two_readers() {
  return {"two readers",
          {{{0, {store(0, 0, 1), set(0)}},
            {1, {load(0, 1), cross(0), load(0, 0)}},
            {2, {load(0, 1), cross(0), load(0, 0)}}}}};
}

// As in larger jobs: two of five bits name a rank, by the number that it has there. 0 and 1 have one in
// common; 1 and 3 together name 0, too. Or all ranks have the same bits.
Named by_two_bits(std::array<Byte, 3> number, Named n) {
  n.name += " named by two bits";
  n.program.readers = {5, 6};
  n.program.number = number;
  return n;
}
Named by_the_same_bits(Named n) {
  n.name += " named by the same bits";
  n.program.readers = {2, 6};
  return n;
}

// The first reader leaves, the other must get the notice of the second change.
Named one_reader_leaves() {
  return {"one reader leaves",
          {{{0, {store(0, 0, 1), set(0), see(1), store(0, 0, 2), set(2)}},
            {1, {load(0, 1), cross(0), set(1)}},
            {2, {load(0, 1), cross(2), load(0, 0)}}}}};
}

// Two ranks change the page and send its reader notices at the same time.
Named two_tellers() {
  return {"two tellers",
          {{{0, {store(0, 0, 1), release()}},
            {1, {store(0, 1, 2), set(0)}},
            {2, {pin_read(0), unpin(0), cross(0), load(0, 1)}}}}};
}

// One worker fetches while the other drops the same page, for a second time.
Named fetch_while_dropping() {
  Named n{"a fetch while the page is dropped",
          {{{0, {store(0, 0, 1), set(0), cross(1), store(1, 1, 2), set(2)}},
            {1, {load(0, 1), cross(0), load(0, 0)}},
            {1, {load(1, 0), set(1), cross(2), load(1, 1)}}}},
          2};
  n.program.blocks_per_page = 2;
  return n;
}

// Two workers acquire for two pages: the second must not be served by the first's round, which took its
// notices before.
Named two_acquirers_of_two_pages() {
  return {"two acquirers, two pages",
          {{{0, {store(1, 0, 1), set(0), store(0, 0, 1), set(1)}},
            {1, {load(1, 1), cross(0), load(1, 0)}},
            {1, {load(0, 1), cross(1), load(0, 0)}}}},
          2};
}

// A rank's own store stays visible to it while others of it release, and drop the block for another's sake.
Named own_store_while_dropping() {
  return {"own store while the block is dropped",
          {{{1, {store(0, 0, 1), load(0, 0), load(0, 0)}},
            {1, {release()}},
            {1, {cross(0), load(0, 1)}},
            {0, {store(0, 1, 2), set(0)}}}}};
}

// A rank tells of its own change between hearing of another's and dropping the page.
Named tells_before_it_drops() {
  return {"a rank tells before it drops",
          {{{1, {store(0, 0, 1), release()}},
            {1, {cross(0), load(0, 1)}},
            {2, {store(0, 1, 2), set(0)}},
            {0, {}}}}};
}

// The owner's page is watched, read, released, stored to.
Named watched_page() {
  Named n{"a watched page",
          {{{0, {see(1), store(0, 0, 1), set(0)}},
            {0, {release()}},
            {1, {load(0, 1), set(1), cross(0), load(0, 0)}}}}};
  n.program.watched = true;
  return n;
}
Named becomes_watched() {
  return {"a page becomes watched",
          {{{0, {store(0, 0, 1), set(0)}},
            {0, {release(), release()}},
            {1, {load(0, 1), acquire(), load(0, 1), cross(0), load(0, 0)}}}}};
}

// One block of the owner's page is watched, the other was never met.
Named half_met() {
  Named n{"half of a page is watched, half not met",
          {{{0, {load(0, 0), see(1), store(1, 0, 1), set(0)}},
            {0, {release(), release()}},
            {1, {load(1, 1), acquire(), load(1, 1), set(1), cross(0), load(1, 0)}}}},
          2};
  n.program.blocks_per_page = 2;
  n.program.known = {false, false};
  return n;
}

// The owner puts directly to its watched page, again and again.
Named puts_to_watched_page() {
  Named n{"direct puts to a watched page",
          {{{0, {put(0, 0, 1), put(0, 0, 2), set(0)}},
            {0, {release()}},
            {1, {load(0, 1), acquire(), load(0, 1), cross(0), load(0, 0)}}}}};
  n.program.watched = true;
  return n;
}

// A pinned copy is refreshed when there is a notice of it.
Named pinned_copy() {
  return {"a pinned copy",
          {{{0, {store(0, 0, 1), set(0), cross(1), store(0, 0, 2), set(2)}},
            {1, {pin_read(0), cross(0), load(0, 0), set(1), cross(2), load(0, 0), unpin(0)}}}}};
}

// A view that is written as a whole, by a rank that has an old copy of the block; then the other rank writes,
// and the first looks again.
Named view_over_copy() {
  return {"a view over an old copy",
          {{{1,
             {cross(0), load(0, 0), pin_whole(0), store(0, 0, 0), store(0, 1, 2), unpin(0), set(1), cross(2),
              load(0, 0), load(0, 1)}},
            {0, {store(0, 0, 4), set(0), cross(1), load(0, 0), load(0, 1), store(0, 0, 3), set(2)}}}}};
}

// The same without a copy: nothing is fetched, and its rank must get notices all the same.
Named view_over_nothing() {
  return {
      "a view over nothing",
      {{{1,
         {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(0), cross(1), load(0, 0), load(0, 1)}},
        {0, {cross(0), load(0, 0), load(0, 1), store(0, 0, 3), set(1)}}}}};
}

// Another worker of the rank releases while the view is being written.
Named view_released() {
  return {"a view, released meanwhile",
          {{{1, {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(0)}},
            {1, {release()}},
            {0, {cross(0), load(0, 0), load(0, 1)}}}}};
}

// … acquires: the page was changed in its other block.
Named view_acquired() {
  Named n{
      "a view, acquired meanwhile",
      {{{1,
         {load(0, 0), pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(0), cross(2), load(0, 0)}},
        {1, {load(1, 1), cross(1), load(1, 0)}},
        {0, {store(1, 0, 3), set(1), cross(0), load(0, 0), load(0, 1), store(0, 0, 4), set(2)}}}},
      2};
  n.program.blocks_per_page = 2;
  return n;
}

// What was written as a whole outlives an acquire, is released, and written elsewhere.
Named view_kept() {
  return {"a view, kept over an acquire",
          {{{1,
             {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), cross(0), set(1), cross(2), load(0, 0),
              load(0, 1)}},
            {0, {set(0), cross(1), load(0, 1), store(0, 0, 3), set(2)}}}}};
}

// … while another worker of its rank pins a part of it.
Named view_kept_in_part() {
  return {"a view, kept while a part is pinned",
          {{{1,
             {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(1), pin_write(0), store(0, 0, 4),
              unpin(0), set(2)}},
            {1, {cross(0), release()}},
            {0, {set(0), cross(1), load(0, 1), store(0, 1, 3), cross(2), load(0, 0), load(0, 1)}}}}};
}

// … brings the page here.
Named view_arrival() {
  return {"a view, and its page arrives",
          {{{1, {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(0)}},
            {1, {own(0)}},
            {0, {cross(0), load(0, 0), load(0, 1)}}}}};
}

// A third rank takes the page meanwhile, and looks.
Named view_moves() {
  return {"a view, and its page moves",
          {{{1, {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(0)}},
            {2, {own(0), cross(0), load(0, 0), load(0, 1)}},
            {0, {}}}}};
}

// Its rank owns the page and has not met it.
Named view_of_owner() {
  Named n{"a view of an owner that has not met its page",
          {{{1, {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), set(0)}},
            {0, {own(0), cross(0), load(0, 0), load(0, 1)}}}}};
  n.program.owner = {1, 1};
  n.program.known = {false, false};
  return n;
}

// What was written as a whole is freed in part, and used by another rank.
Named view_freed() {
  return {"a view, freed in part",
          {{{1, {pin_whole(0), store(0, 0, 1), store(0, 1, 3), unpin(0), discard(0, 1), set(0)}},
            {2, {see(0), take(0), store(0, 0, 7), set(1)}},
            {0, {cross(1), cross(0), load(0, 0), load(0, 1)}}}}};
}

// … freed as a whole, and used by both.
Named view_freed_whole() {
  return {"a view, freed as a whole",
          {{{1,
             {pin_whole(0), store(0, 0, 1), store(0, 1, 3), unpin(0), discard(0, 3), set(0), store(0, 1, 5),
              set(2)}},
            {2, {see(0), take(0), store(0, 0, 7), set(1)}},
            {0, {cross(1), cross(2), load(0, 0), load(0, 1)}}}}};
}

// What was written as a whole is released while a part of it is pinned; then another rank writes the rest.
Named view_then_part() {
  return {"a view, then a part",
          {{{1,
             {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), pin_write(0), set(0), store(0, 0, 0),
              unpin(0), set(1)}},
            {0, {cross(0), load(0, 1), store(0, 1, 7), cross(1), load(0, 0), load(0, 1)}}}}};
}

// A block at a view's edge: another rank writes the part beyond.
Named view_edge() {
  return {"a view's edge",
          {{{1, {pin_write(0), store(0, 0, 1), unpin(0), set(0)}},
            {0, {store(0, 1, 2), set(1), cross(0), load(0, 0), load(0, 1)}}}}};
}

// A block is sent before the release, and another worker stores to it again meanwhile.
Named sent_ahead() {
  return {"sent ahead of the release",
          {{{1, {store(0, 0, 1), send(0), store(0, 0, 2), set(0)}},
            {1, {store(0, 1, 3), set(1)}},
            {2, {pin_read(0), unpin(0), cross(0), load(0, 0), cross(1), load(0, 1)}},
            {0, {}}}}};
}

// … and nothing of it is left to send when the release begins; as a view's block.
Named all_sent_ahead() {
  return {"all sent ahead of the release",
          {{{1, {pin_whole(0), store(0, 0, 1), store(0, 1, 2), unpin(0), send(0), set(0)}},
            {2, {pin_read(0), unpin(0), cross(0), load(0, 0), load(0, 1)}},
            {0, {}}}}};
}

// ---- some blocks of a page have changed, others not ------------------------------------------------------

Named in_a_page(Named n, bool watched) {
  n.program.blocks_per_page = n.blocks = 2;
  n.program.watched = watched;
  return n;
}

// The owner changes one block, then the other, of which its reader has kept its copy.
Named one_of_two_told() {
  return in_a_page({"one block of two is told of",
                    {{{0, {store(0, 0, 1), set(0), cross(1), store(1, 0, 2), set(2)}},
                      {1,
                       {load(0, 1), load(1, 1), cross(0), load(0, 0), load(1, 0), set(1), cross(2),
                        load(1, 0), load(0, 0)}}}}},
                   true);
}

// Both blocks can be stored to without a fault.
Named two_of_two_told() {
  return in_a_page({"both blocks of two are told of",
                    {{{0, {store(0, 0, 1), store(1, 0, 2), set(0)}},
                      {1, {load(0, 1), load(1, 1), cross(0), load(0, 0), load(1, 0)}}}}},
                   false);
}

// A block with a notice is fetched again, and stored to without a fault, while the other block stays.
Named told_and_fetched_again() {
  return in_a_page(
      {"a block is told of and fetched again",
       {{{0, {store(0, 0, 1), set(0), cross(1), store(0, 0, 2), set(2)}},
         {1, {load(0, 1), load(1, 1), cross(0), load(0, 0), set(1), cross(2), load(0, 0), load(1, 1)}}}}},
      false);
}

// One worker fetches the block that the other worker's notice names, or the other one.
Named fetch_beside_a_drop() {
  return in_a_page({"a fetch beside a drop",
                    {{{0, {store(0, 0, 1), set(0), cross(1), store(0, 0, 2), store(1, 0, 3), set(2)}},
                      {1, {load(0, 1), cross(0), load(0, 0), set(1), cross(2), load(0, 0)}},
                      {1, {load(1, 1), load(0, 1), cross(2), load(1, 0)}}}}},
                   false);
}

// Of one block its reader hears, and does not look at the page again until the other has changed.
Named left_beside_a_copy() {
  return in_a_page({"a copy beside a block that is told of",
                    {{{0, {store(0, 0, 1), set(0), cross(1), store(1, 0, 2), set(2)}},
                      {1, {load(0, 1), load(1, 1), cross(0), set(1), cross(2), load(1, 0)}}}}},
                   true);
}

// One worker fetches a block again and again while the other hears of it twice.
Named fetched_between_notices() {
  return in_a_page({"fetches between two notices",
                    {{{0, {release(), release(), store(1, 0, 2), set(0)}},
                      {1, {load(0, 1), acquire()}},
                      {1, {load(1, 1), load(1, 1), cross(0), load(1, 0)}}}}},
                   false);
}

// A rank puts to one block of its page directly, which is watched, and stores to the other.
Named put_beside_a_watched_block() {
  return in_a_page({"a put beside a store",
                    {{{0, {put(0, 0, 1), store(1, 0, 2), set(0)}},
                      {1, {load(0, 1), load(1, 1), cross(0), load(0, 0), load(1, 0)}}}}},
                   true);
}

// A third rank puts to one block, the owner stores to the other, and the reader hears of both at any time.
Named put_and_stored_beside() {
  return in_a_page({"one block is put to, the other stored to",
                    {{{0, {store(1, 0, 2), set(1)}},
                      {1, {load(0, 1), load(1, 1), cross(0), load(0, 0), cross(1), load(1, 0), load(0, 0)}},
                      {2, {store(0, 0, 1), set(0)}}}}},
                   true);
}

// A rank stores to both blocks of its page, which then moves away; it stores to one of them again, before it
// releases.
Named stored_moved_and_put() {
  return in_a_page({"a page is stored to, moves, and is put to",
                    {{{0, {store(0, 0, 1), store(1, 0, 2), set(1), cross(2), store(0, 0, 3), set(0)}},
                      {1, {see(1), own(0), set(2)}},
                      {2, {load(0, 1), load(1, 1), cross(0), load(1, 0), load(0, 0)}}}}},
                   false);
}

// The page moves to a rank that has a copy of one block, and changes there.
Named moved_beside_a_copy() {
  return in_a_page({"a page moves while one block is told of",
                    {{{0, {store(0, 0, 1), set(0)}},
                      {1, {load(1, 1), own(0), store(1, 0, 2), set(1)}},
                      {2, {load(0, 1), load(1, 1), cross(0), load(0, 0), cross(1), load(1, 0)}}}}},
                   true);
}

// ---- memory larger than DRAM: pagers evict pages as often as they like -----------------------------------

/// The ranks have room for so many blocks, and those that are limited have a pager each.
Named kept(Named n, std::array<std::uint8_t, 3> room, bool rests = false) {
  n.program.room = room;
  for (std::uint8_t r = 0; r < room.size(); ++r)
    if (room[r] != 0) n.program.workers.push_back({r, {rests ? keep_resting() : keep()}});
  return n;
}

// The owner's page goes to SSD and comes back for it and for a reader.
Named evicted_owner() {
  return kept({"the owner's page leaves",
               {{{0, {store(0, 0, 1), load(0, 0), set(0)}}, {1, {load(0, 1), cross(0), load(0, 0)}}}}},
              {1});
}

// … for a writer.
Named evicted_under_writer() {
  return kept({"a page leaves while others write to it",
               {{{0, {store(0, 1, 2), set(1), cross(0), load(0, 0)}},
                 {1, {store(0, 0, 1), set(0), cross(1), load(0, 1)}}}}},
              {1});
}

// … by direct puts.
Named evicted_under_puts() {
  return kept({"a page leaves while others put to it",
               {{{0, {store(0, 1, 2), set(1), cross(0), load(0, 0)}},
                 {1, {put(0, 0, 1), set(0), cross(1), load(0, 1)}}}}},
              {1});
}

// A rank with room for one page uses two of another rank.
Named copies_dropped() {
  return kept(
      {"two pages, room for one",
       {{{1, {store(0, 0, 1), store(1, 0, 2), load(0, 0), set(0)}}, {0, {cross(0), load(0, 0), load(1, 0)}}}},
       2},
      {0, 1});
}

// Both have too little.
Named both_kept() {
  return kept({"the owner and its reader have too little room",
               {{{0, {store(0, 0, 1), set(0), cross(1), load(0, 1)}},
                 {1, {load(0, 1), cross(0), store(0, 1, 2), load(0, 0), set(1)}}}}},
              {1, 1});
}

// The page is wanted elsewhere.
Named evicted_and_moved() {
  return kept({"a page leaves and is moved",
               {{{0, {store(0, 0, 1), set(0)}}, {1, {own(0), store(0, 1, 2), cross(0), load(0, 0)}}}}},
              {1});
}

// … and leaves there, too.
Named evicted_at_both() {
  return kept({"a page moves, and leaves at both ends",
               {{{0, {store(0, 0, 1), set(0), cross(1), load(0, 1)}},
                 {1, {own(0), store(0, 1, 2), set(1), cross(0), load(0, 0)}}}}},
              {1, 1});
}

// A rank that has a copy is handed the page without its help; a third puts to it.
Named handed_a_copy() {
  return kept({"a copy becomes the page",
               {{{0, {see(1), hand_back(0, 1), set(0)}},
                 {1, {load(0, 0), set(1), cross(2), load(0, 0)}},
                 {2, {see(0), store(0, 0, 3), set(2)}}}}},
              {0, 1});
}

// A rank has changed and freed a block, and not released since. The page is allocated anew, as this rank's
// own, on SSD. Its release finds a twin of a page that it owns by now.
Named handed_over_a_twin() {
  return kept({"a page is handed to a rank with a twin",
               {{{0, {see(1), hand_back(0, 1), set(0), cross(2), load(0, 1)}},
                 {1, {store(0, 0, 1), discard(0, 1), set(1), see(0), store(0, 1, 2), set(2)}}}}},
              {0, 1});
}

// … and its acquire, of two blocks, while another of its threads uses the other one.
Named acquired_over_a_twin() {
  Named n = kept({"a page of two is handed to a rank with a twin",
                  {{{0, {see(1), hand_back(0, 1), set(0)}},
                    {1, {store(0, 0, 1), discard(0, 1), set(1), cross(0), store(0, 1, 2), load(0, 1)}},
                    {1, {see(0), store(1, 0, 3), load(1, 0)}}}},
                  2},
                 {0, 4});
  n.program.blocks_per_page = 2;
  return n;
}

// … in a view.
Named pinned_over_a_twin() {
  return kept({"a page is handed to a rank with a pinned twin",
               {{{0, {see(1), hand_back(0, 1), set(0)}},
                 {1,
                  {pin_write(0), store(0, 0, 1), discard(0, 1), set(1), cross(0), poke(0, 1, 2), release(),
                   unpin(0), load(0, 1)}},
                 {1, {acquire()}}}}},
              {0, 1});
}

// … or a whole block, which another rank wants.
Named handed_over_a_whole() {
  return kept({"a page is handed to a rank with a whole block",
               {{{0, {see(1), hand_back(0, 1), set(0), cross(2), load(0, 1)}},
                 {1,
                  {pin_whole(0), store(0, 0, 1), store(0, 1, 1), unpin(0), set(1), cross(0), store(0, 1, 2),
                   set(2)}}}}},
              {0, 1});
}

// Two ranks have changed and freed blocks of two pages of a third one, which hands each of them a page. The
// release of each finds its own page and the other's, both on SSD.
Named handed_a_twin_each() {
  return kept(
      {"two ranks with twins of two pages are handed one each",
       {{{0, {store(0, 0, 1), discard(0, 1), store(1, 0, 1), discard(1, 1), set(1), see(0), release()}},
         {1, {store(0, 1, 1), discard(0, 2), store(1, 1, 1), discard(1, 2), set(2), see(0), release()}},
         {2, {see(1), see(2), hand_back(0, 0), hand_back(1, 1), set(0)}}},
        {2, 2}},
       2},
      {5, 5});
}

// Memory is freed and allocated anew at its owner.
Named reused_on_ssd() {
  return kept({"freed on SSD, allocated anew",
               {{{0, {store(0, 0, 1), discard(0, 3), reclaim(0), store(0, 0, 5), set(0)}},
                 {1, {load(0, 1), cross(0), load(0, 0)}}}}},
              {1});
}

// Stores before a page is evicted, or to a retired one, cause notices.
Named evicted_and_told() {
  return kept({"a page leaves before its release",
               {{{0, {store(0, 0, 1), store(0, 0, 2), set(0)}},
                 {0, {release()}},
                 {1, {load(0, 1), cross(0), load(0, 0)}}}}},
              {1}, true);
}

// … twice: its reader hears of the first, and fetches it again.
Named evicted_and_told_twice() {
  return kept({"a page leaves before two releases",
               {{{0, {store(0, 0, 1), store(0, 0, 2), set(0)}},
                 {0, {release()}},
                 {1, {load(0, 1), acquire(), load(0, 1), cross(0), load(0, 0)}}}}},
              {1});
}

// … to one that was watched before it left.
Named evicted_watched() {
  Named n = kept({"a watched page leaves",
                  {{{0, {see(1), store(0, 0, 1), set(0)}},
                    {0, {release()}},
                    {1, {load(0, 1), set(1), cross(0), load(0, 0)}}}}},
                 {1});
  n.program.watched = true;
  return n;
}

// Pinned: it stays.
Named pinned_kept() {
  return kept(
      {"a pinned page stays in DRAM",
       {{{0, {pin_write(0), store(0, 0, 1), poke(0, 0, 2), unpin(0), set(0)}}, {1, {cross(0), load(0, 0)}}}}},
      {1});
}

// A pinned copy is refreshed from a page on SSD.
Named refreshed_from_ssd() {
  return kept({"a pinned copy of a page on SSD",
               {{{0, {store(0, 0, 1), set(0)}}, {1, {pin_read(0), cross(0), load(0, 0), unpin(0)}}}}},
              {1});
}

// Two blocks; another worker is at one of them.
Named evicted_page_of_two() {
  Named n = kept({"a page of two blocks leaves",
                  {{{0, {store(0, 0, 1), load(1, 0), set(0)}}, {1, {store(1, 1, 2), cross(0), load(0, 0)}}}},
                  2},
                 {2});
  n.program.blocks_per_page = 2;
  return n;
}

// Blocks of a page come back by themselves, and leave again, changed or not; then a reader wants all of it.
Named back_in_part() {
  Named n = kept(
      {"a page comes back in part",
       {{{0, {store(0, 0, 1), store(1, 0, 2), load(0, 0), store(1, 1, 3), load(0, 0), load(1, 0), set(0)}},
         {1, {cross(0), load(0, 0), load(1, 1)}}}},
       2},
      {3});
  n.program.blocks_per_page = 2;
  return n;
}

// … while another rank puts to what is not here, and its own releases.
Named in_part_under_puts() {
  Named n = kept({"a page in part, and puts to the rest",
                  {{{0, {store(0, 0, 1), load(0, 0), set(0), cross(1), load(1, 0)}},
                    {1, {put(1, 0, 2), set(1), cross(0), load(0, 0)}}}},
                  2},
                 {3});
  n.program.blocks_per_page = 2;
  return n;
}

// … pinned, in part.
Named pinned_in_part() {
  Named n = kept({"a page in part, one block pinned",
                  {{{0,
                     {store(1, 0, 1), pin_write(0), store(0, 0, 1), poke(0, 0, 2), unpin(0), pin_read(1),
                      load(1, 0), unpin(1), set(0)}},
                    {1, {cross(0), load(0, 0), load(1, 0)}}}},
                  2},
                 {3});
  n.program.blocks_per_page = 2;
  return n;
}

// Two threads of the rank, a block each; the rank retires them, too.
Named in_part_by_two() {
  Named n = kept({"two threads at a page in part",
                  {{{0, {store(0, 0, 1), load(0, 0), store(0, 0, 2), load(0, 0)}},
                    {0, {store(1, 0, 3), load(1, 0), add(1, 0), load(1, 0)}},
                    {1, {}}}},
                  2},
                 {3}, true);
  n.program.blocks_per_page = 2;
  return n;
}

// A reader's copy, stores to one block, and the other, which is saved or not here when the release looks.
Named in_part_and_told() {
  Named n = kept({"a page in part is told of",
                  {{{0, {see(1), store(0, 0, 1), load(1, 0), load(0, 0), set(0)}},
                    {1, {load(0, 1), set(1), cross(0), load(0, 0)}}}},
                  2},
                 {3});
  n.program.blocks_per_page = 2;
  return n;
}

// Memory that is freed while it is partial here, and used by another rank, which takes the page without its
// bytes.
Named in_part_taken() {
  return kept({"freed in part, taken by another rank",
               {{{0, {store(0, 0, 1), load(0, 0), discard(0, 3), set(0), cross(1), load(0, 0), load(0, 0)}},
                 {1, {see(0), reclaim(0), store(0, 0, 5), set(1)}}}}},
              {1});
}

// The bytes of a block do not matter for a while; then both are stored to.
Named blanked_in_part() {
  Named n = kept({"a block in part is given up",
                  {{{0,
                     {store(0, 0, 1), store(1, 0, 7), load(0, 0), blank(0), store(0, 0, 2), store(0, 1, 3),
                      load(1, 0), load(0, 0), set(0)}},
                    {1, {cross(0), load(0, 0), load(0, 1)}}}},
                  2},
                 {3}, true);
  n.program.blocks_per_page = 2;
  return n;
}

// … of one that is pinned; its page is wanted elsewhere.
Named blanked_and_pinned() {
  Named n = kept({"a pinned block is given up",
                  {{{0,
                     {store(0, 0, 1), store(1, 0, 7), pin_write(0), blank(0), poke(0, 0, 2), poke(0, 1, 4),
                      unpin(0), load(1, 0), load(0, 0), set(0)}},
                    {1, {cross(0), load(0, 0), load(0, 1)}}}},
                  2},
                 {3});
  n.program.blocks_per_page = 2;
  return n;
}

// Another rank stores what it has stored before, and what its copy still has. Meanwhile the owner has
// released, and given the block up on SSD. It was watched, so that the release need not tell of it …
Named given_up_under_a_copy() {
  Named n = kept({"a watched block is given up under a copy",
                  {{{0, {cross(0), release(), load(0, 0), blank(0), set(1), cross(2), load(0, 0)}},
                    {1, {store(0, 0, 5), set(0), cross(1), store(0, 0, 5), set(2)}}}}},
                 {1});
  n.program.watched = true;
  return n;
}
// … or the page came in for the other rank, and has never been its owner's to store to.
Named given_up_unmet() {
  Named n = given_up_under_a_copy();
  n.name = "given up, not met by its owner";
  n.program.watched = false;
  n.program.fresh = true;
  return n;
}

// … freed, and allocated anew.
Named forgotten_under_a_copy() {
  Named n =
      kept({"freed on SSD, watched, under a copy",
            {{{0, {cross(0), release(), discard(0, 3), forget(0), assign(0), set(1), cross(2), load(0, 0)}},
              {1, {store(0, 0, 5), set(0), cross(1), store(0, 0, 5), set(2)}}}}},
           {1});
  n.program.watched = true;
  return n;
}
Named forgotten_unmet() {
  Named n = forgotten_under_a_copy();
  n.name = "freed on SSD, not met by its owner";
  n.program.watched = false;
  n.program.fresh = true;
  return n;
}

// The page is wanted elsewhere.
Named in_part_and_moved() {
  Named n = kept({"a page in part is moved",
                  {{{0, {store(0, 0, 1), load(0, 0), store(1, 0, 4), set(0)}},
                    {1, {own(0), store(1, 1, 2), cross(0), load(0, 0), load(1, 0)}}}},
                  2},
                 {3});
  n.program.blocks_per_page = 2;
  return n;
}

// … and marked for a moment meanwhile, when it is on SSD.
Named in_part_and_marked() {
  return kept({"a page comes back in part while it is asked for",
               {{{0, {store(0, 0, 1), store(1, 0, 7), load(0, 0), store(0, 0, 2), load(1, 0), load(0, 0)}},
                 {1, {own(0)}}}},
               2},
              {2});
}

// Both threads of a rank ask for it: one finds it brought in for the other.
Named asked_for_twice() {
  return kept({"a page leaves, two ask for it",
               {{{0, {store(0, 1, 2), set(1), cross(0), load(0, 0)}},
                 {1, {put(0, 0, 1), set(0)}},
                 {1, {cross(1), load(0, 1)}}}}},
              {1});
}

// … one of them takes it.
Named asked_for_and_moved() {
  return kept({"a page leaves, is asked for and moved",
               {{{0, {store(0, 0, 1), set(0)}},
                 {1, {own(0), store(0, 1, 2), cross(0), load(0, 0)}},
                 {1, {cross(0), load(0, 0)}}}}},
              {1});
}

// A reader of one block asks for the other; it stays among the readers, so only paging in marks the page.
Named watched_page_of_two() {
  Named n = kept({"a watched page of two blocks comes back",
                  {{{0, {see(1), store(0, 0, 1), set(0)}},
                    {0, {release()}},
                    {1, {load(0, 1), set(1), load(1, 0), cross(0), load(0, 0)}}}},
                  2},
                 {2});
  n.program.blocks_per_page = 2;
  n.program.watched = true;
  return n;
}

// Its own rank wants it as a whole.
Named owned_on_ssd() {
  return kept({"own of a page on its rank's SSD",
               {{{0, {store(0, 0, 1), own(0), set(0)}}, {1, {cross(0), load(0, 0)}}}}},
              {1});
}

std::vector<Named> kept_programs() {
  return {back_in_part(),
          in_part_under_puts(),
          pinned_in_part(),
          in_part_by_two(),
          in_part_and_told(),
          in_part_taken(),
          blanked_in_part(),
          blanked_and_pinned(),
          in_part_and_moved(),
          in_part_and_marked(),
          asked_for_twice(),
          asked_for_and_moved(),
          watched_page_of_two(),
          owned_on_ssd(),
          evicted_owner(),
          evicted_under_writer(),
          evicted_under_puts(),
          copies_dropped(),
          both_kept(),
          evicted_and_moved(),
          evicted_at_both(),
          handed_a_copy(),
          handed_over_a_twin(),
          acquired_over_a_twin(),
          handed_a_twin_each(),
          pinned_over_a_twin(),
          handed_over_a_whole(),
          reused_on_ssd(),
          evicted_and_told(),
          evicted_and_told_twice(),
          evicted_watched(),
          pinned_kept(),
          refreshed_from_ssd(),
          evicted_page_of_two(),
          given_up_under_a_copy(),
          given_up_unmet(),
          forgotten_under_a_copy(),
          forgotten_unmet()};
}

// ---- one frame (include/kasane/kasane.h, attached processes): the owner's loads and stores and everybody's
// direct access, ordered by facts that are seen without a fence, on a page that stays with its owner

// The owner loads what another rank has put, which gets what the owner has stored.
Named frame_put_and_load() {
  return {
      "a load sees a put, and a get a store",
      {{{1, {put(0, 0, 1), set(0), see(1), get(0, 1)}}, {0, {see(0), load(0, 0), store(0, 1, 2), set(1)}}}}};
}
// Both ways again and again, on one byte.
Named frame_to_and_fro() {
  return {
      "one byte to and fro",
      {{{1, {put(0, 0, 1), set(0), see(1), get(0, 0)}}, {0, {see(0), load(0, 0), store(0, 0, 2), set(1)}}}}};
}
// The other rank has a copy, which its get does not take.
Named frame_beside_a_copy() {
  return {"a get beside a copy",
          {{{1, {load(0, 1), see(0), get(0, 0), put(0, 1, 3), set(1)}},
            {0, {store(0, 0, 1), set(0), see(1), load(0, 1)}}}}};
}
// Two ranks put to one block, to which the owner stores meanwhile.
Named frame_of_three() {
  return {"two put beside the owner's store",
          {{{1, {put(0, 0, 1), set(0)}},
            {2, {see(0), get(0, 0), put(0, 0, 2), set(1)}},
            {0, {store(0, 1, 4), see(1), load(0, 0), load(0, 1)}}}}};
}
// What a rank has stored to its copy and released is at the owner.
Named frame_of_a_release() {
  return {"what was released, without an acquire",
          {{{1, {store(0, 1, 2), release(), set(0), see(1), get(0, 0)}},
            {0, {see(0), load(0, 1), store(0, 0, 1), set(1)}}}}};
}
// A page of two blocks.
Named frame_of_two_blocks() {
  Named n{
      "a put to one block, a store to the other",
      {{{1, {put(0, 0, 1), set(0), see(1), get(1, 0)}}, {0, {store(1, 0, 2), see(0), load(0, 0), set(1)}}}},
      2};
  n.program.blocks_per_page = 2;
  return n;
}

// Fixed pages (kasane::placement::fixed): other ranks ask for the page, in vain.
Named fixed_asked_for() {
  Named n{"a fixed page is asked for",
          {{{1, {own(0), put(0, 0, 1), set(0), see(1), get(0, 1)}},
            {0, {see(0), load(0, 0), store(0, 1, 2), set(1)}}}}};
  n.program.fixed = true;
  return n;
}
// … by a rank that has a copy, while the owner stores and a third rank gets.
Named fixed_of_three() {
  Named n{"a fixed page is asked for over a copy",
          {{{1, {load(0, 1), own(0)}}, {2, {see(0), get(0, 0)}}, {0, {store(0, 0, 1), set(0)}}}}};
  n.program.fixed = true;
  return n;
}

/// Each in DRAM, and where the owner's pager evicts the page as often as it likes, and retires it.
std::vector<Named> frame_programs() {
  std::vector<Named> all;
  for (const Named& n : {frame_put_and_load(), frame_to_and_fro(), frame_beside_a_copy(), frame_of_three(),
                         frame_of_a_release(), frame_of_two_blocks(), fixed_asked_for(), fixed_of_three()}) {
    all.push_back(n);
    for (const bool rests : {false, true}) {
      Named little = kept(n, {n.program.blocks_per_page}, rests);
      little.name += rests ? ", evicted and retired" : ", evicted";
      all.push_back(little);
    }
  }
  return all;
}

std::vector<Named> programs() {
  return {owner_and_reader(),
          owner_releases_meanwhile(),
          copy_outlives_a_move(),
          arrival_then_release(),
          arrival_while_releasing(),
          late_meeting(),
          direct_put_told(),
          direct_put_own_copy(),
          direct_put_of_owner(),
          told_and_telling(),
          notice_taken_by_another(),
          two_readers(),
          by_two_bits({0, 1, 3}, two_readers()),
          by_the_same_bits(two_readers()),
          one_reader_leaves(),
          by_two_bits({3, 0, 1}, one_reader_leaves()),
          by_the_same_bits(one_reader_leaves()),
          two_tellers(),
          fetch_while_dropping(),
          two_acquirers_of_two_pages(),
          own_store_while_dropping(),
          tells_before_it_drops(),
          watched_page(),
          becomes_watched(),
          half_met(),
          puts_to_watched_page(),
          pinned_copy(),
          view_over_copy(),
          view_over_nothing(),
          view_released(),
          view_acquired(),
          view_kept(),
          view_kept_in_part(),
          view_arrival(),
          view_moves(),
          view_of_owner(),
          view_freed(),
          view_freed_whole(),
          view_then_part(),
          view_edge(),
          sent_ahead(),
          all_sent_ahead(),
          one_of_two_told(),
          two_of_two_told(),
          told_and_fetched_again(),
          fetch_beside_a_drop(),
          left_beside_a_copy(),
          fetched_between_notices(),
          put_beside_a_watched_block(),
          put_and_stored_beside(),
          stored_moved_and_put(),
          moved_beside_a_copy(),
          message_passing(),
          both_cells_sent(),
          handed_over_a_pinned_twin(),
          third_owner(),
          false_sharing(),
          two_workers(),
          acquire_while_fetching(),
          two_acquirers(),
          two_releasers(),
          own_store_over_fences(),
          lock_passing(),
          lock_and_neighbour(),
          writer_while_moving(),
          entry_on_its_way(),
          owner_writes_while_leaving(),
          two_movers(),
          arrival_into_dirty(),
          captured_variable(),
          captured_by_third(),
          pinned_stays(),
          pinned_release(),
          pinned_acquire(),
          pinned_merge_back(),
          free_dirty(),
          reuse_stale(),
          reuse_same_rank(),
          lazy_owner(),
          recycled_stack(),
          reuse_of_what_was_freed(),
          put_over_freed(),
          stored_after_put_and_free(),
          reuse_of_a_freed_block(),
          reuse_elsewhere(),
          two_pages(),
          page_of_two_blocks(),
          page_to_and_fro(),
          rewritten(),
          stored_over_what_was_sent(),
          stored_over_what_was_merged(),
          rewritten_and_moved(),
          stored_while_acquiring(),
          lock_released(),
          lock_marked()};
}

/// The other programs, where ranks 0 and 1 have room for one page; only one of them where both are too much
/// to walk, and none where that is. Owners that are asked when all holders have forgotten the page, and bring
/// it along.
std::vector<Named> programs_with_pages_brought() {
  std::vector<Named> all;
  for (Named n : {writer_while_moving(), owner_writes_while_leaving(), two_movers(), entry_on_its_way(),
                  arrival_into_dirty(), arrival_while_releasing(), captured_variable(), captured_by_third(),
                  pinned_stays(), lazy_owner()}) {
    n.name += ", brought along";
    n.program.brings = true;
    all.push_back(n);
  }
  return all;
}
Named brought(Named n) {
  n.program.brings = true;
  return n;
}

std::vector<Named> programs_with_little_room() {
  const std::map<std::string, std::array<bool, 2>> fewer = {{owner_releases_meanwhile().name, {false, true}},
                                                            {arrival_then_release().name, {true, false}},
                                                            {arrival_while_releasing().name, {}},
                                                            {direct_put_told().name, {true, false}},
                                                            {two_readers().name, {false, true}},
                                                            {by_two_bits({0, 1, 3}, two_readers()).name, {}},
                                                            {by_the_same_bits(two_readers()).name, {}},
                                                            {two_tellers().name, {false, true}},
                                                            {fetch_while_dropping().name, {false, true}},
                                                            {two_acquirers_of_two_pages().name, {}},
                                                            {own_store_while_dropping().name, {false, true}},
                                                            {tells_before_it_drops().name, {false, true}},
                                                            {becomes_watched().name, {false, true}},
                                                            {half_met().name, {false, true}},
                                                            {puts_to_watched_page().name, {false, true}},
                                                            {view_acquired().name, {false, true}},
                                                            {view_kept_in_part().name, {false, true}},
                                                            {sent_ahead().name, {true, false}},
                                                            {false_sharing().name, {false, true}},
                                                            {two_acquirers().name, {true, false}},
                                                            {lock_and_neighbour().name, {true, false}},
                                                            {two_movers().name, {false, true}},
                                                            {lazy_owner().name, {false, true}},
                                                            {two_pages().name, {true, false}},
                                                            {fetched_between_notices().name, {}},
                                                            {fetch_beside_a_drop().name, {false, true}},
                                                            {moved_beside_a_copy().name, {false, true}},
                                                            {stored_moved_and_put().name, {false, true}}};
  std::vector<Named> all;
  for (Named n : programs()) {
    const auto found = fewer.find(n.name);
    const auto limited = found == fewer.end() ? std::array{true, true} : found->second;
    if (!limited[0] && !limited[1]) continue;
    const auto one = [&](bool yes) { return static_cast<std::uint8_t>(yes ? n.program.blocks_per_page : 0); };
    n.name += ", with little room";
    all.push_back(kept(n, {one(limited[0]), one(limited[1])}));
  }
  return all;
}

/// All programs, where blocks may stay writable over a release or an acquire; those too large to walk without
/// it excepted.
std::vector<Named> programs_with_open_blocks() {
  std::vector<Named> all;
  for (const auto& of : {programs(), kept_programs()}) {
    for (Named n : of) {
      n.name += ", blocks stay open";
      n.program.open = true;
      all.push_back(n);
    }
  }
  return all;
}
Named open(Named n) {
  n.program.open = true;
  return n;
}

/// Those whose owner has a pager, where nothing is in DRAM at first, nor on SSD.
std::vector<Named> programs_begun_on_ssd() {
  std::vector<Named> all;
  for (Named n : kept_programs()) {
    if (n.program.room[n.program.owner[0]] == 0 || n.program.fresh || n.program.watched) continue;
    n.name += ", begun on SSD";
    n.program.fresh = true;
    all.push_back(n);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Programs, Walks, testing::ValuesIn(walks(programs())), by_name);
INSTANTIATE_TEST_SUITE_P(OneFrame, Walks, testing::ValuesIn(walks(frame_programs())), by_name);
INSTANTIATE_TEST_SUITE_P(Tiers, Walks, testing::ValuesIn(walks(kept_programs())), by_name);
INSTANTIATE_TEST_SUITE_P(BegunOnSsd, Walks, testing::ValuesIn(walks(programs_begun_on_ssd())), by_name);
INSTANTIATE_TEST_SUITE_P(BroughtAlong, Walks, testing::ValuesIn(walks(programs_with_pages_brought())),
                         by_name);
INSTANTIATE_TEST_SUITE_P(Open, Walks, testing::ValuesIn(walks(programs_with_open_blocks())), by_name);
INSTANTIATE_TEST_SUITE_P(WithLittleRoom, Walks, testing::ValuesIn(walks(programs_with_little_room())),
                         by_name);

// ---- random small programs: each walked exhaustively -----------------------------------------------------

/// Data-race-free by construction: every cell is held by one worker at a time and changes hands by an edge,
/// or by free and take.
class Writer {
 public:
  explicit Writer(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {
    static const std::vector<std::vector<std::uint8_t>> kRanks = {{0, 1, 1},    {0, 0, 1, 1}, {0, 1, 2},
                                                                  {0, 1, 1, 2}, {0, 1, 2, 2}, {0, 1, 1}};
    for (std::uint8_t r : kRanks[pick(kRanks.size())]) n_.program.workers.push_back({r, {}});
    n_.blocks = static_cast<std::uint8_t>(pick(3) == 0 ? 2 : 1);
    n_.program.blocks_per_page = static_cast<std::uint8_t>(n_.blocks == 2 && pick(2) == 0 ? 2 : 1);
    const auto ranks = n_.program.workers.back().rank + 1u;
    for (int p = 0; p < 2; ++p) {
      n_.program.owner[p] = static_cast<std::uint8_t>(pick(ranks));
      n_.program.known[p] = pick(4) != 0;
    }
    n_.program.watched = pick(3) == 0;
    n_.program.brings = seed % 2 == 0;
    n_.program.open = seed / 2 % 2 == 0;
    for (auto& h : holder_) h = pick(workers());
  }

  Named write(unsigned actions) {
    for (unsigned i = 0; i < actions; ++i) act();
    for (unsigned c = 0; c < cells(); ++c) {  // another worker looks at the result
      if (flags_ < 8 && pick(2) == 0) hand_over(c, pick(workers()));
      code(holder_[c]).push_back(load(block(c), cell(c)));
    }
    return n_;
  }

 private:
  unsigned pick(std::size_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<unsigned>((state_ >> 33) % bound);
  }
  [[nodiscard]] unsigned workers() const { return static_cast<unsigned>(n_.program.workers.size()); }
  [[nodiscard]] unsigned cells() const { return n_.blocks * kCells; }
  static int block(unsigned c) { return static_cast<int>(c / kCells); }
  static int cell(unsigned c) { return static_cast<int>(c % kCells); }
  std::vector<Instr>& code(unsigned w) { return n_.program.workers[w].code; }
  int value() { return static_cast<int>(pick(3)); }

  void hand_over(unsigned c, unsigned to) {
    if (to == holder_[c]) return;
    code(holder_[c]).push_back(set(static_cast<int>(flags_)));
    code(to).push_back(cross(static_cast<int>(flags_++)));
    holder_[c] = to;
  }
  void access(unsigned c, bool pinned) {
    const unsigned w = holder_[c];
    switch (pick(6)) {
      case 5:
        if (pinned) return access(c, pinned);
        // both views of one cell: fences between
        for (const Instr& i : {release(), put(block(c), cell(c), value()), acquire()}) code(w).push_back(i);
        break;
      case 0: code(w).push_back(load(block(c), cell(c))); break;
      case 1: code(w).push_back(add(block(c), cell(c))); break;
      case 4: code(w).push_back(pinned ? poke(block(c), cell(c), value()) : add(block(c), cell(c))); break;
      default: code(w).push_back(store(block(c), cell(c), value())); break;
    }
  }
  void act() {
    const unsigned c = pick(cells()), w = pick(workers());
    switch (pick(13)) {
      case 7: {  // its holder gets the whole block, and writes it through a view
        const unsigned holder = holder_[c], first = c / kCells * kCells;
        unsigned moves = 0;
        for (unsigned k = first; k < first + kCells; ++k) moves += holder_[k] != holder;
        if (flags_ + moves > 6) break;
        for (unsigned k = first; k < first + kCells; ++k) hand_over(k, holder);
        code(holder).push_back(pin_whole(block(c)));
        for (unsigned k = first; k < first + kCells; ++k)
          code(holder).push_back(store(block(k), cell(k), value()));
        code(holder).push_back(unpin(block(c)));
        break;
      }
      case 0:
      case 1:
        if (flags_ < 6) hand_over(c, w);
        break;
      case 2: {  // freed by its holder, used again by w
        if (flags_ >= 6) break;
        code(holder_[c]).push_back(discard(block(c), 1 << cell(c)));
        if (w != holder_[c]) {
          code(holder_[c]).push_back(set(static_cast<int>(flags_)));
          code(w).push_back(see(static_cast<int>(flags_++)));
          code(w).push_back(take(block(c)));
        }
        code(w).push_back(store(block(c), cell(c), value()));
        holder_[c] = w;
        break;
      }
      case 3:
      case 4: code(w).push_back(own(block(c) / n_.program.blocks_per_page)); break;
      case 5: {
        const unsigned kind = pick(3);
        code(w).push_back(kind == 0 ? release() : kind == 1 ? acquire() : send(block(c)));
        break;
      }
      case 6:
        code(holder_[c]).push_back(pin_write(block(c)));
        access(c, true);
        if (pick(2) == 0) access(c, true);
        code(holder_[c]).push_back(unpin(block(c)));
        break;
      default: access(c, false); break;
    }
  }

  std::uint64_t state_;
  Named n_{"", {}, 1};
  std::array<unsigned, 4> holder_{};
  unsigned flags_ = 0;
};

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* s = std::getenv(name);
  return s == nullptr ? otherwise : std::strtoull(s, nullptr, 10);
}

// KASANE_MODEL_SEED=S KASANE_MODEL_COUNT=1 replays one program.
TEST(RandomPrograms, LoseNothing) {
  const std::uint64_t first = setting("KASANE_MODEL_SEED", 1), count = setting("KASANE_MODEL_COUNT", 300);
  const auto actions = static_cast<unsigned>(setting("KASANE_MODEL_ACTIONS", 6));
  std::uint64_t states = 0, largest = 0, unbounded = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome o = walk(Writer(seed).write(actions));
    states += o.states;
    largest = std::max(largest, o.states);
    unbounded += o.verdict == Verdict::bounded;
    ASSERT_FALSE(o.refuted()) << "KASANE_MODEL_SEED=" << seed << " KASANE_MODEL_ACTIONS=" << actions << " "
                              << o.report();
  }
  std::cout << count << " programs, " << states << " states, the largest " << largest << ", not exhausted "
            << unbounded << "\n";
  EXPECT_EQ(unbounded, 0u);
}

std::vector<Mutant<Named, Mutation>> mutants() {
  using enum Mutation;
  return {
      {"r1_no_source_release", r1_no_source_release, message_passing()},
      {"r1_no_acquire", r1_no_acquire, third_owner()},
      {"r2_no_recheck", r2_no_recheck, acquire_while_fetching(), Verdict::exhausted},
      {"r2_no_wait", r2_no_wait, acquire_while_fetching()},
      {"r2_join_running_round", r2_join_running_round, two_acquirers_of_two_pages()},
      {"r3_no_protect", r3_no_protect, two_releasers()},
      {"r3_no_completion", r3_no_completion, message_passing()},
      {"r3_gaps", r3_gaps, false_sharing()},
      {"r3_two_loads", r3_two_loads, pinned_release()},
      {"r3_join_running_round", r3_join_running_round, two_releasers()},
      {"r4_unlock_early", r4_unlock_early, own_store_while_dropping()},
      {"r4_plain_refresh", r4_plain_refresh, pinned_acquire()},
      {"r4_twin_left", r4_twin_left, pinned_merge_back()},
      {"r4_plain_arrival", r4_plain_arrival, arrival_into_dirty()},
      {"r7_no_discard", r7_no_discard, free_dirty()},
      {"r7_no_drop", r7_no_drop, reuse_stale()},
      {"r7_freed_bytes_stay", r7_freed_bytes_stay, reuse_of_what_was_freed()},
      {"r7_no_discard_put", r7_no_discard, put_over_freed()},
      {"r7_told_copy_stays", r7_told_copy_stays, stored_after_put_and_free()},
      {"r7_replaced_untold", r7_replaced_untold, reuse_elsewhere()},
      {"r8_no_protect", r8_no_protect, owner_writes_while_leaving()},
      {"r8_no_drain", r8_no_drain, writer_while_moving()},
      {"r8_landing_undrained", r8_landing_undrained, brought(writer_while_moving())},
      {"r8_landing_on_changes", r8_landing_on_changes, brought(arrival_into_dirty())},
      {"r8_put_ignores_busy", r8_put_ignores_busy, writer_while_moving()},
      {"r8_use_while_leaving", r8_use_while_leaving, lazy_owner()},
      {"r8_move_pinned", r8_move_pinned, pinned_stays()},
      {"r6_no_join", r6_no_join, owner_and_reader()},
      {"r6_join_after_data", r6_join_after_data, owner_releases_meanwhile()},
      {"r6_no_owner_mark", r6_no_owner_mark, owner_and_reader()},
      {"r6_owner_mark_after_data", r6_owner_mark_after_data, acquire_while_fetching()},
      {"r6_not_stood", r6_not_stood, arrival_then_release()},
      {"r6_stay_not_ended", r6_stay_not_ended, owner_and_reader()},
      {"r6_stay_ended_early", r6_stay_ended_early, fetch_while_dropping()},
      {"r6_stay_noted_blindly", r6_stay_noted_blindly, fetch_while_dropping()},
      {"r6_stay_without_standing", r6_stay_without_standing, arrival_then_release()},
      {"r5_tell_before_completion", r5_tell_before_completion, third_owner()},
      {"r5_tell_late", r5_tell_late, owner_releases_meanwhile()},
      {"r5_release_passes_telling", r5_release_passes_telling, owner_releases_meanwhile()},
      {"r5_acquire_passes_dropping", r5_acquire_passes_dropping, notice_taken_by_another()},
      {"r5_adopt_blindly", r5_adopt_blindly, tells_before_it_drops()},
      {"r5_put_untold", r5_put_untold, third_owner()},
      {"r5_sent_ahead_untold", r5_put_untold, all_sent_ahead()},
      {"r5_direct_untold", r5_direct_untold, direct_put_told()},
      {"r5_direct_keeps_copy", r5_direct_keeps_copy, direct_put_own_copy()},
      {"r5_own_store_unseen", r5_own_store_unseen, watched_page()},
      {"r5_arrival_unseen", r5_arrival_unseen, copy_outlives_a_move()},
      {"r5_arrival_marked_early", r5_arrival_marked_early, arrival_while_releasing()},
      {"r5_first_meeting_unseen", r5_first_meeting_unseen, half_met()},
      {"r5_watch_after_telling", r5_watch_after_telling, becomes_watched()},
      {"r5_readers_taken", r5_readers_taken, two_tellers()},
      {"readers_leave_others", readers_leave_others, by_two_bits({3, 0, 1}, one_reader_leaves())},
      {"readers_forgotten", readers_forgotten, by_the_same_bits(two_readers())},
      {"r5_leave_after_drop", r5_leave_after_drop, fetch_while_dropping()},
      {"r5_note_cleared_late", r5_note_cleared_late, puts_to_watched_page()},
      {"r8_release_before_named", r8_release_before_named, entry_on_its_way()},
      {"r8_naming_not_counted", r8_naming_not_counted, arrival_while_releasing()},
      {"whole_edge", whole_edge, view_edge()},
      {"whole_diffed", whole_diffed, view_over_copy()},
      {"whole_unjoined", whole_unjoined, view_over_nothing()},
      {"whole_dropped", whole_dropped, view_acquired()},
      {"whole_left", whole_left, view_kept()},
      {"whole_arrival", whole_arrival, view_arrival()},
      {"whole_freed_later", whole_freed_later, view_freed()},
      {"whole_sent_live", whole_sent_live, view_released()},
      {"whole_stays", whole_stays, view_then_part()},
      {"whole_twin_left", whole_twin_left, view_then_part()},
      {"tier_unprotected", tier_unprotected, evicted_owner()},
      {"tier_unrecalled", tier_unrecalled, evicted_under_puts()},
      {"tier_undrained", tier_undrained, evicted_under_puts()},
      {"tier_undrained_of_diffs", tier_undrained, evicted_under_writer()},
      {"tier_pinned", tier_pinned, pinned_kept()},
      {"tier_dirty", tier_dirty, copies_dropped()},
      // a page that is handed over begins on SSD, and is paged in with its blocks' bits held
      {"tier_drop_unmarked", tier_drop_unmarked, handed_a_copy(), Verdict::exhausted},
      {"tier_dram_early", tier_dram_early, asked_for_twice()},
      {"tier_in_unmarked", tier_in_unmarked, asked_for_and_moved()},
      {"tier_in_unclaimed", tier_in_unclaimed, evicted_owner()},
      {"tier_not_stood", r6_not_stood, evicted_owner()},
      {"tier_read_asleep", tier_read_asleep, evicted_owner()},
      {"tier_own_asleep", tier_own_asleep, evicted_owner()},
      {"tier_put_asleep", tier_put_asleep, evicted_under_puts()},
      {"tier_move_asleep", tier_move_asleep, evicted_and_moved()},
      {"tier_armed_unheld", tier_armed_unheld, reused_on_ssd()},
      {"tier_armed_unlooked", tier_armed_unlooked, reused_on_ssd()},
      {"tier_arrival_unseen", r5_arrival_unseen, watched_page_of_two()},
      {"tier_gone_untold", tier_gone_untold, evicted_owner()},
      {"tier_rest_watched", tier_rest_watched, evicted_and_told()},
      // a retired block counts as open
      {"tier_rest_unseen", tier_rest_unseen, evicted_and_told(), Verdict::exhausted},
      {"part_saved_stays", part_saved_stays, in_part_by_two()},
      {"part_stored_saved", part_stored_saved, back_in_part()},
      {"part_unwritten", part_unwritten, back_in_part()},
      {"part_all_written", part_all_written, evicted_page_of_two()},
      {"part_taken", part_taken, in_part_taken()},
      {"part_overwritten", part_overwritten, back_in_part()},
      {"part_in_busy", part_in_busy, in_part_and_marked()},
      {"part_not_noted", part_not_noted, back_in_part()},
      {"part_unarmed_page", part_unarmed_page, back_in_part()},
      {"part_saved_watched", part_saved_watched, in_part_and_told()},
      {"part_absent_passed", part_absent_passed, in_part_and_told()},
      {"part_unheld", part_unheld, in_part_by_two()},
      {"blank_unprotected", blank_unprotected, blanked_in_part()},
      {"blank_pinned", blank_pinned, blanked_and_pinned()},
      {"blank_untold", blank_untold, given_up_under_a_copy()},
      {"blank_untold_unmet", blank_untold, given_up_unmet()},
      {"forgotten_untold", forgotten_untold, forgotten_under_a_copy()},
      {"forgotten_untold_unmet", forgotten_untold, forgotten_unmet()},
      {"tier_waits_again", tier_waits_again, owned_on_ssd(), Verdict::trapped},
      {"tier_put_own_asleep", tier_put_own_asleep, handed_over_a_twin(), Verdict::deadlock},
      {"tier_put_own_asleep_acquired", tier_put_own_asleep, acquired_over_a_twin(), Verdict::deadlock},
      {"tier_put_own_asleep_live", tier_put_own_asleep, pinned_over_a_twin(), Verdict::deadlock},
      {"tier_found_own_asleep", tier_put_own_asleep, handed_over_a_whole(), Verdict::deadlock},
      {"tier_asked_holding", tier_asked_holding, handed_a_twin_each(), Verdict::deadlock},
      {"parts_after_notice", parts_after_notice, notice_taken_by_another()},
      {"parts_open_unsaid", parts_open_unsaid, two_of_two_told()},
      {"parts_open_unsaid_of_a_former_owner", parts_open_unsaid, stored_moved_and_put()},
      {"parts_put_unsaid", parts_put_unsaid, put_beside_a_watched_block()},
      {"parts_told_kept", parts_told_kept, one_of_two_told()},
      {"parts_left_kept", parts_left_kept, left_beside_a_copy()},
      {"parts_asked_still", parts_asked_still, told_and_fetched_again()},
      {"parts_asked_ended_early", parts_asked_ended_early, fetched_between_notices()},
      {"parts_asked_ended_late", parts_asked_ended_late, fetch_beside_a_drop()},
      {"ours_unnoted", ours_unnoted, copy_outlives_a_move()},
      {"ours_noted_late", ours_noted_late, late_meeting()},
      {"lock_unreleased", lock_unreleased, lock_released()},
      {"lock_marked_early", lock_marked_early, lock_marked()},
      {"lock_mark_unended", lock_mark_unended, lock_marked()},
      {"open_unsent_twin", open_unsent_twin, open(stored_over_what_was_sent())},
      {"open_counts_clean", open_counts_clean, open(rewritten())},
      {"open_unrefreshed", open_unrefreshed, open(rewritten())},
      {"open_two_loads", r3_two_loads, open(two_releasers())},
      {"open_no_join", r6_no_join, open(rewritten())},
      {"open_plain_refresh", r4_plain_refresh, open(stored_while_acquiring())},
      {"open_twin_left", r4_twin_left, open(stored_over_what_was_merged())},
      {"ours_forgotten", ours_forgotten, evicted_and_told_twice()},
      {"held_finished_first", held_finished_first, two_releasers()},
      {"cached_after_read", cached_after_read, acquire_while_fetching()},
      {"recalled_after_write", recalled_after_write, evicted_under_puts()},
      {"drop_counted_twice", drop_counted_twice, copies_dropped()},
      {"put_counted_twice", put_counted_twice, both_cells_sent()},
      {"held_kept", held_kept, evicted_page_of_two(), Verdict::deadlock},
      {"put_over_own", put_over_own, handed_over_a_pinned_twin()},
      {"frame_not_stood", tier_get_not_stood, kept(frame_put_and_load(), {1})},
      {"frame_read_asleep", tier_read_asleep, kept(frame_put_and_load(), {1})},
      {"frame_put_asleep", tier_put_asleep, kept(frame_put_and_load(), {1})},
      {"frame_undrained", tier_undrained, kept(frame_to_and_fro(), {1})},
      {"frame_unprotected", tier_unprotected, kept(frame_to_and_fro(), {1})},
      {"frame_unrecalled", tier_unrecalled, kept(frame_of_three(), {1})},
      {"fixed_moves", fixed_moves, fixed_asked_for()},
      {"fixed_moves_of_three", fixed_moves, fixed_of_three()},
      {"tier_holds_and_waits", tier_holds_and_waits, copies_dropped(), Verdict::trapped},
      {"tier_keeps_changes", tier_keeps_changes, copies_dropped(), Verdict::trapped},
  };
}

INSTANTIATE_TEST_SUITE_P(Rules, Walks, testing::ValuesIn(walks(mutants())), by_name);

}  // namespace
}  // namespace kasane::model
