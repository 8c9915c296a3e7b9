// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of ranks that take groups of free objects and give objects back, over the shipped
// machines, and shows that each of their rules is needed: without it the walk finds an object that two actors
// have, or one that is lost.
#include "model/heap_model.h"

#include <gtest/gtest.h>

#include <iostream>

namespace kasane::model::heap {
namespace {

struct Named {
  const char* name;
  Program program;
};

Outcome walk(const Named& n) {
  return n.program.actors.size() == 2 ? explore(Stacks<2, 3>(n.program)) : explore(Stacks<3, 3>(n.program));
}

constexpr Do T = Do::take, V = Do::give, O = Do::give_one, A = Do::give_all, C = Do::collect, R = Do::renew;

Named to_and_fro() { return {"two take and give", {{{T, V, T, V}, {T, V, T, V}}, 2}}; }
Named one_by_one() { return {"objects one by one", {{{T, O, O, T}, {T, O, T, O}}, 2}}; }
Named one_group() { return {"one group for three", {{{T, O, O, T}, {T, O, T}, {T, O, O}}, 1}}; }
Named three_groups() { return {"three groups: the head comes back", {{{T, V}, {T, T, V, V, T}, {T, V}}, 3}}; }
Named three() { return {"three actors", {{{T, V, T}, {T, O, O}, {T, V, T}}, 2}}; }

Named collected() { return {"slabs are collected meanwhile", {{{T, O, O, T}, {T, V, T}, {C, R, C}}, 3}}; }
Named collected_and_kept() { return {"the rest goes back", {{{T, O}, {T, V}, {T, O, C, R}}, 3}}; }

Named together() { return {"groups go back together", {{{T, T, A, T}, {T, O, T, A}}, 3}}; }
Named together_among_others() { return {"together, among others", {{{T, T, A}, {T, O, O, T}, {T, A}}, 3}}; }
Named together_from_all() {
  return {"together, while slabs are collected", {{{T, T, A}, {C, R}, {T, O, V}}, 3}};
}

std::vector<Named> all() {
  return {to_and_fro(), one_by_one(),         one_group(), three_groups(),          three(),
          collected(),  collected_and_kept(), together(),  together_among_others(), together_from_all()};
}

TEST(Heap, EveryOrderHandsEveryObjectOutOnce) {
  for (const Named& n : all()) {
    const Outcome outcome = walk(n);
    EXPECT_TRUE(outcome.ok()) << n.name << ": " << outcome.report();
    EXPECT_GT(outcome.endings, 0u) << n.name;
    std::cout << n.name << ": " << outcome.states << " states, depth " << outcome.depth << ", "
              << outcome.endings << " endings\n";
  }
}

struct Mutant {
  const char* name;
  Mutation without;
};
class HeapMutant : public testing::TestWithParam<Mutant> {};

TEST_P(HeapMutant, IsFound) {
  for (Named n : all()) {
    n.program.without = GetParam().without;
    const Outcome outcome = walk(n);
    if (!outcome.refuted()) continue;
    std::cout << GetParam().name << ": " << outcome.why << " after " << outcome.length << " steps (" << n.name
              << ")\n";
    return;
  }
  FAIL() << "no walk found what goes wrong without it";
}

INSTANTIATE_TEST_SUITE_P(
    All, HeapMutant,
    testing::Values(
        Mutant{"no_tag", Mutation::no_tag}, Mutant{"push_always", Mutation::push_always},
        Mutant{"push_never", Mutation::push_never}, Mutant{"bits_by_store", Mutation::bits_by_store},
        Mutant{"bits_before_pop", Mutation::bits_before_pop}, Mutant{"link_once", Mutation::link_once},
        Mutant{"push_before_link", Mutation::push_before_link}, Mutant{"collect_any", Mutation::collect_any},
        Mutant{"collect_bits", Mutation::collect_bits}, Mutant{"collect_chain", Mutation::collect_chain},
        Mutant{"untied", Mutation::untied}, Mutant{"tied_late", Mutation::tied_late},
        Mutant{"tied_any", Mutation::tied_any}),
    [](const auto& test) { return std::string(test.param.name); });

// ---- runs of pages ---------------------------------------------------------------------------------------

struct NamedRuns {
  const char* name;
  RunProgram program;
};

Outcome walk(const NamedRuns& n) {
  return n.program.actors.size() == 2 ? explore(RunStack<2, 3>(n.program))
                                      : explore(RunStack<3, 3>(n.program));
}

constexpr RunDo t = RunDo::take, g = RunDo::give, j = RunDo::all;

std::vector<NamedRuns> all_runs() {
  return {{"takers and givers", {{{t, g, t, g}, {t, t, g, g}, {t, g}}, 3}},
          {"one joins meanwhile", {{{j, g, g, g}, {t, g, t, g}, {t, t, g, g}}, 3}},
          {"joined twice", {{{j, g, g, g, j, g, g}, {t, g, t}}, 3}}};
}

TEST(Runs, EveryOrderHandsEveryRunOutOnce) {
  for (const NamedRuns& n : all_runs()) {
    const Outcome outcome = walk(n);
    EXPECT_TRUE(outcome.ok()) << n.name << ": " << outcome.report();
    EXPECT_GT(outcome.endings, 0u) << n.name;
    std::cout << n.name << ": " << outcome.states << " states, depth " << outcome.depth << ", "
              << outcome.endings << " endings\n";
  }
}

struct RunMutant {
  const char* name;
  RunMutation without;
};
class RunsMutant : public testing::TestWithParam<RunMutant> {};

TEST_P(RunsMutant, IsFound) {
  for (NamedRuns n : all_runs()) {
    n.program.without = GetParam().without;
    const Outcome outcome = walk(n);
    if (!outcome.refuted()) continue;
    std::cout << GetParam().name << ": " << outcome.why << " after " << outcome.length << " steps (" << n.name
              << ")\n";
    return;
  }
  FAIL() << "no walk found what goes wrong without it";
}

INSTANTIATE_TEST_SUITE_P(All, RunsMutant,
                         testing::Values(RunMutant{"no_tag", RunMutation::no_tag},
                                         RunMutant{"all_by_store", RunMutation::all_by_store},
                                         RunMutant{"link_once", RunMutation::link_once}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kasane::model::heap
