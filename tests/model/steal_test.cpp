// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of small fork-join programs over the shipped theft machine, deque protocol and
// join record, on two ranks; and shows that each part of the order claim → release → stack → acquire → run is
// needed (rule 1).
#include "model/steal_model.h"

#include "model/walk.h"

namespace kasane::model {
namespace {

// Variables 0, 1, 2: global memory, 0 and 2 owned by rank 1; 3: on the root's stack; 4: on the root's stack,
// captured by reference in child 1.
const std::vector<std::uint8_t> kVariables = {kHeapOfRank1, kHeapOfRank0, kHeapOfRank1, 0, 0};

/// The root forks twice, and writes between: its slot is popped and pushed again under a thief's eyes.
ForkJoin fork_twice() {
  return {{{st(0, 1), st(3, 1), fk(1), st(0, 2), st(3, 2), fk(2), ld(0), ld(3), jn(1), ld(1), ld(4), jn(2),
            ld(2)},
           {st(1, 7), st(4, 8)},
           {ld(0), st(2, 9)}},
          kVariables,
          {0, 1}};
}

/// A child that forks a grandchild, all of them reading what was written above them.
ForkJoin nested() {
  return {{{st(0, 1), st(3, 4), fk(1), st(3, 5), jn(1), ld(0), ld(1), ld(2), ld(3), ld(4)},
           {ld(0), st(0, 2), fk(2), st(1, 3), jn(2), ld(2), st(4, 6)},
           {st(2, 5)}},
          kVariables,
          {0, 1}};
}

/// One variable handed on from thread to thread through forks and joins.
ForkJoin chain() {
  return {
      {{st(0, 1), fk(1), jn(1), ld(0), st(0, 3), fk(2), jn(2), ld(0)}, {ld(0), st(0, 2)}, {ld(0), st(0, 4)}},
      kVariables,
      {0, 1}};
}

/// The root goes to the other rank, back and there again: what it cached the first time must not be used the
/// third time.
ForkJoin there_and_back() {
  return {
      {{fk(1), ld(1), fk(2), st(1, 9), fk(3), ld(1), jn(1), jn(2), jn(3)}, {}, {}, {}}, kVariables, {0, 1}};
}

/// The joined child ends on the other rank, where it wrote what the joiner's rank has cached.
ForkJoin moved_child() {
  return {{{ld(0), fk(1), jn(1), ld(0)}, {fk(2), st(0, 5), jn(2)}, {}}, kVariables, {0, 1}};
}

/// A child that moves to the other rank without being stolen, and comes back.
ForkJoin placed() {
  return {{{st(0, 1), st(3, 1), fk(1), ld(0), jn(1), ld(1), ld(4), fk(2), jn(2)},
           {mv(1), ld(0), ld(3), st(1, 7), mv(0), ld(1), st(1, 8), st(4, 8)},
           {}},
          kVariables,
          {0, 1}};
}

/// It comes again, after a write where it was meanwhile.
ForkJoin commuting() {
  return {
      {{fk(1), jn(1), fk(2), jn(2)}, {mv(1), ld(1), mv(0), st(1, 7), mv(1), ld(1)}, {}}, kVariables, {0, 1}};
}

/// Two that pass each other, each with a write that the other's rank has to see.
ForkJoin crossing() {
  return {{{st(0, 1), fk(1), ld(0), fk(2), jn(2), jn(1), ld(1), ld(2)},
           {mv(1), ld(0), st(1, 7), mv(0)},
           {st(2, 5), mv(1), ld(2), st(2, 6)}},
          kVariables,
          {0, 1}};
}

struct Case {
  std::string name;
  ForkJoin program;
};

Case on(std::vector<std::uint8_t> ranks, ForkJoin program, std::string name = {}) {
  program.rank_of_worker = std::move(ranks);
  return {std::move(name), std::move(program)};
}

Outcome walk(const Case& c) {
  const ForkJoin& p = c.program;
  switch (p.rank_of_worker.size()) {
    case 2: return p.threads.size() == 4 ? explore(Stealing<2, 4, 5>(p)) : explore(Stealing<2, 3, 5>(p));
    case 3: return explore(Stealing<3, 3, 5>(p));
    default: return explore(Stealing<4, 3, 5>(p));
  }
}

std::vector<Case> programs() {
  return {on({0, 1}, fork_twice(), "fork_twice_1_1"),
          on({0, 0, 1}, fork_twice(), "fork_twice_2_1"),
          on({0, 1, 1}, fork_twice(), "fork_twice_1_2"),
          on({0, 0, 1, 1}, fork_twice(), "fork_twice_2_2"),
          on({0, 1}, nested(), "nested_1_1"),
          on({0, 1, 1}, nested(), "nested_1_2"),
          on({0, 0, 1, 1}, nested(), "nested_2_2"),
          on({0, 0, 1, 1}, chain(), "chain_2_2"),
          on({0, 1}, there_and_back(), "there_and_back_1_1"),
          on({0, 0, 1, 1}, moved_child(), "moved_child_2_2"),
          on({0, 1}, placed(), "placed_1_1"),
          on({0, 0, 1}, placed(), "placed_2_1"),
          on({0, 1, 1}, commuting(), "commuting_1_2"),
          on({0, 1}, crossing(), "crossing_1_1"),
          on({0, 1, 1}, crossing(), "crossing_1_2")};
}

std::vector<Mutant<Case, StealMutation>> mutants() {
  using enum StealMutation;
  return {{"release_before_claim", release_before_claim, on({0, 1}, fork_twice())},
          {"no_release", no_release, on({0, 1}, fork_twice())},
          {"no_acquire", no_acquire, on({0, 1}, there_and_back())},
          // not needed for correctness
          {"adopt_before_release", adopt_before_release, on({0, 1, 1}, nested()), Verdict::exhausted},
          {"bottom_before_top", bottom_before_top, on({0, 1, 1}, nested())},
          {"pop_without_swap", pop_without_swap, on({0, 1}, fork_twice())},
          {"push_before_save", push_before_save, on({0, 1}, fork_twice())},
          {"publish_before_save", publish_before_save, on({0, 1, 1}, fork_twice())},
          {"join_without_release", join_without_release, on({0, 1}, fork_twice())},
          {"join_without_acquire", join_without_acquire, on({0, 0, 1}, moved_child())},
          {"resumed_without_cross", resumed_without_cross, on({0, 1}, fork_twice())},
          {"arrive_for_nothing", arrive_for_nothing, on({0, 1}, placed())},
          {"arrive_without_release", no_release, on({0, 1}, placed())},
          {"arrive_without_acquire", no_acquire, on({0, 1}, commuting())},
          {"end_without_fence", end_without_fence, on({0, 1, 1}, nested())},
          {"end_without_swap", end_without_swap, on({0, 1}, fork_twice()), Verdict::deadlock},
          {"no_wake", no_wake, on({0, 1}, fork_twice()), Verdict::deadlock}};
}

// Each schedule runs each continuation once and loses nothing; without a step the walk finds the loss.
INSTANTIATE_TEST_SUITE_P(Programs, Walks, testing::ValuesIn(walks(programs())), by_name);
INSTANTIATE_TEST_SUITE_P(Rules, Walks, testing::ValuesIn(walks(mutants())), by_name);

}  // namespace
}  // namespace kasane::model
