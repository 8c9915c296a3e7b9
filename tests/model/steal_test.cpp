// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of small fork-join programs over the shipped theft machine, deque protocol and
// join record, on two ranks; and shows that each part of the order claim → release → stack → acquire → run is
// needed (rule 1).
#include "model/steal_model.h"

#include <gtest/gtest.h>

#include <iostream>

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

Outcome walk(ForkJoin p, std::vector<std::uint8_t> ranks, StealMutation without = StealMutation::none,
             Bounds bounds = {}) {
  p.rank_of_worker = std::move(ranks);
  p.without = without;
  switch (p.rank_of_worker.size()) {
    case 2:
      return p.threads.size() == 4 ? explore(Stealing<2, 4, 5>(p), bounds)
                                   : explore(Stealing<2, 3, 5>(p), bounds);
    case 3: return explore(Stealing<3, 3, 5>(p), bounds);
    default: return explore(Stealing<4, 3, 5>(p), bounds);
  }
}

struct Case {
  const char* name;
  ForkJoin program;
  std::vector<std::uint8_t> ranks;
};

class EverySchedule : public testing::TestWithParam<Case> {};

TEST_P(EverySchedule, RunsEachContinuationOnceAndLosesNothing) {
  const Outcome o = walk(GetParam().program, GetParam().ranks);
  std::cout << GetParam().name << ": " << o.report() << "\n";
  EXPECT_TRUE(o.ok());
  EXPECT_GE(o.endings, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EverySchedule,
    testing::Values(
        Case{"fork_twice_1_1", fork_twice(), {0, 1}}, Case{"fork_twice_2_1", fork_twice(), {0, 0, 1}},
        Case{"fork_twice_1_2", fork_twice(), {0, 1, 1}}, Case{"fork_twice_2_2", fork_twice(), {0, 0, 1, 1}},
        Case{"nested_1_1", nested(), {0, 1}}, Case{"nested_1_2", nested(), {0, 1, 1}},
        Case{"nested_2_2", nested(), {0, 0, 1, 1}}, Case{"chain_2_2", chain(), {0, 0, 1, 1}},
        Case{"there_and_back_1_1", there_and_back(), {0, 1}},
        Case{"moved_child_2_2", moved_child(), {0, 0, 1, 1}}, Case{"placed_1_1", placed(), {0, 1}},
        Case{"placed_2_1", placed(), {0, 0, 1}}, Case{"commuting_1_2", commuting(), {0, 1, 1}},
        Case{"crossing_1_1", crossing(), {0, 1}}, Case{"crossing_1_2", crossing(), {0, 1, 1}}),
    [](const auto& param) { return std::string(param.param.name); });

struct Mutant {
  const char* name;
  StealMutation without;
  ForkJoin program;
  std::vector<std::uint8_t> ranks;
  Verdict expected = Verdict::counterexample;
};

class WithoutAStep : public testing::TestWithParam<Mutant> {};

TEST_P(WithoutAStep, TheWalkFindsTheLoss) {
  const Mutant& m = GetParam();
  const Outcome o = walk(m.program, m.ranks, m.without);
  std::cout << m.name << ": " << o.report() << "\n";
  EXPECT_EQ(o.verdict, m.expected);
}

using enum StealMutation;
INSTANTIATE_TEST_SUITE_P(
    Rules, WithoutAStep,
    testing::Values(Mutant{"release_before_claim", release_before_claim, fork_twice(), {0, 1}},
                    Mutant{"no_release", no_release, fork_twice(), {0, 1}},
                    Mutant{"no_acquire", no_acquire, there_and_back(), {0, 1}},
                    Mutant{"adopt_before_release",
                           adopt_before_release,
                           nested(),
                           {0, 1, 1},
                           Verdict::exhausted},  // not needed for correctness
                    Mutant{"bottom_before_top", bottom_before_top, nested(), {0, 1, 1}},
                    Mutant{"pop_without_swap", pop_without_swap, fork_twice(), {0, 1}},
                    Mutant{"push_before_save", push_before_save, fork_twice(), {0, 1}},
                    Mutant{"publish_before_save", publish_before_save, fork_twice(), {0, 1, 1}},
                    Mutant{"join_without_release", join_without_release, fork_twice(), {0, 1}},
                    Mutant{"join_without_acquire", join_without_acquire, moved_child(), {0, 0, 1}},
                    Mutant{"resumed_without_cross", resumed_without_cross, fork_twice(), {0, 1}},
                    Mutant{"arrive_for_nothing", arrive_for_nothing, placed(), {0, 1}},
                    Mutant{"arrive_without_release", no_release, placed(), {0, 1}},
                    Mutant{"arrive_without_acquire", no_acquire, commuting(), {0, 1}},
                    Mutant{"end_without_fence", end_without_fence, nested(), {0, 1, 1}},
                    Mutant{"end_without_swap", end_without_swap, fork_twice(), {0, 1}, Verdict::deadlock},
                    Mutant{"no_wake", no_wake, fork_twice(), {0, 1}, Verdict::deadlock}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace kasane::model
