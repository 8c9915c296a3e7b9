// SPDX-License-Identifier: Apache-2.0
// Walks every interleaving of ranks that take groups of free objects and give objects back, over the shipped
// machines, and shows that each of their rules is needed: without it the walk finds an object that two actors
// have, or one that is lost.
#include "model/heap_model.h"

#include "model/walk.h"

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

// Every order hands every object out once.
INSTANTIATE_TEST_SUITE_P(Groups, Walks, testing::ValuesIn(walks(all())), by_name);

TEST(Heap, EachRuleIsNeeded) {
  using enum Mutation;
  expect_needed({no_tag, push_always, push_never, bits_by_store, bits_before_pop, link_once, push_before_link,
                 collect_any, collect_bits, collect_chain, untied, tied_late, tied_any},
                all(), [](Mutation without, Named n) {
                  n.program.without = without;
                  return walk(n);
                });
}

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

// Every order hands every run out once.
INSTANTIATE_TEST_SUITE_P(Runs, Walks, testing::ValuesIn(walks(all_runs())), by_name);

TEST(Runs, EachRuleIsNeeded) {
  expect_needed({RunMutation::no_tag, RunMutation::all_by_store, RunMutation::link_once}, all_runs(),
                [](RunMutation without, NamedRuns n) {
                  n.program.without = without;
                  return walk(n);
                });
}

}  // namespace
}  // namespace kasane::model::heap
