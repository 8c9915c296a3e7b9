// SPDX-License-Identifier: Apache-2.0
// What the tests of this folder say of a walk: a model ends, and its invariants hold in every order of its
// steps; without one of the rules of its protocol the walk finds what is lost. It is printed what each has
// found.
//
// A model is a System (explorer.h). Where a test has one model, it uses expect_sound() and expect_needed();
// where it has a table of programs, each is a Walk of its own, with a name.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/explorer.h"

namespace kasane::model {

// ---- one model -------------------------------------------------------------------------------------------

template <class Model>
void expect_sound(const Model& model) {
  const Outcome outcome = explore(model, {});
  std::cout << outcome.report() << "\n";
  EXPECT_TRUE(outcome.ok()) << outcome.report();
  // where it circles, each state has a way to a finished one, which may have successors
  EXPECT_TRUE(outcome.endings > 0 || Explorer<Model>::circles(model));
}

/// Without the rule the walk is refuted, or ends just so.
template <class Without>
void expect_refuted(Without rule, const Outcome& outcome, std::optional<Verdict> end = {}) {
  std::cout << "without " << static_cast<int>(rule) << ": " << outcome.why << " after " << outcome.length
            << " steps\n";
  EXPECT_TRUE(end ? outcome.verdict == *end : outcome.refuted())
      << static_cast<int>(rule) << ": " << outcome.report();
}

/// Each of the rules is needed in Model{.without = rule}.
template <class Model, class Without>
void expect_needed(std::initializer_list<Without> rules, std::optional<Verdict> end = {}) {
  for (const Without rule : rules) expect_refuted(rule, explore(Model{.without = rule}, {}), end);
}

/// What run(scenario) returns for the first one that it refutes; else for the last one.
template <class Scenarios, class Run>
Outcome first_refuted(const Scenarios& scenarios, const Run& run) {
  Outcome outcome;
  for (const auto& scenario : scenarios) {
    outcome = run(scenario);
    if (outcome.refuted()) break;
  }
  return outcome;
}

/// Each of the rules is needed in one of the scenarios: run(rule, scenario) walks it.
template <class Without, class Scenarios, class Run>
void expect_needed(std::initializer_list<Without> rules, const Scenarios& scenarios, const Run& run) {
  for (const Without rule : rules)
    expect_refuted(rule, first_refuted(scenarios, [&](const auto& s) { return run(rule, s); }));
}

// ---- tables of programs ----------------------------------------------------------------------------------

struct Walk {
  std::string name;
  std::function<Outcome()> run;
  std::optional<Verdict> end = Verdict::exhausted;  ///< none: it is refuted

  friend void PrintTo(const Walk& walk, std::ostream* out) { *out << walk.name; }
};

/// INSTANTIATE_TEST_SUITE_P(Programs, Walks, testing::ValuesIn(…), by_name)
class Walks : public testing::TestWithParam<Walk> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Walks);

TEST_P(Walks, EndAsTheyMust) {
  const Outcome outcome = GetParam().run();
  std::cout << GetParam().name << ": " << outcome.report() << std::endl;
  EXPECT_TRUE(GetParam().end ? outcome.verdict == *GetParam().end : outcome.refuted());
  if (outcome.ok()) {
    EXPECT_GE(outcome.endings, 1u);
  }
}

/// Of a test: its name, as far as gtest allows.
inline const auto by_name = [](const testing::TestParamInfo<Walk>& walk) {
  std::string name = walk.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
};

/// A program whose own program member has a rule left out, and how its walk is to end.
template <class Program, class Without>
struct Mutant {
  std::string name;
  Without without;
  Program program;
  Verdict end = Verdict::counterexample;  ///< exhausted: another rule covers it
};

/// Each program is walked by walk(program).
template <class Program>
std::vector<Walk> walks(const std::vector<Program>& programs) {
  std::vector<Walk> all;
  for (const Program& p : programs) all.push_back({p.name, [p] { return walk(p); }});
  return all;
}
template <class Program, class Without>
std::vector<Walk> walks(const std::vector<Mutant<Program, Without>>& mutants) {
  std::vector<Walk> all;
  for (Mutant<Program, Without> m : mutants) {
    m.program.program.without = m.without;
    all.push_back({m.name, [p = m.program] { return walk(p); }, m.end});
  }
  return all;
}

}  // namespace kasane::model
