// SPDX-License-Identifier: Apache-2.0
// Checks of a model that can be built with a rule of its protocol taken away.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <iostream>
#include <iterator>

#include "model/explorer.h"

namespace kasane::model {

/// The model with all its rules ends, and its invariants hold in every order of its steps.
template <class Model>
void expect_sound(const Model& model) {
  const Outcome outcome = explore(model, {});
  std::cout << outcome.report() << "\n";
  EXPECT_TRUE(outcome.ok()) << outcome.report();
  EXPECT_GT(outcome.endings, 0u);
}

/// Model{.without = rule} is refuted for each of the rules.
template <class Model, class Without>
void expect_needed(std::initializer_list<Without> rules) {
  for (const Without w : rules) {
    const Outcome outcome = explore(Model{.without = w}, {});
    EXPECT_TRUE(outcome.refuted()) << static_cast<int>(w) << ": " << outcome.report();
  }
}

/// For each of the rules build(rule, scenario) is refuted in one of the scenarios.
template <class Without, class Scenarios, class Build>
void expect_needed(std::initializer_list<Without> rules, const Scenarios& scenarios, const Build& build) {
  for (const Without w : rules) {
    const auto refuted = [&](const auto& scenario) { return explore(build(w, scenario), {}).refuted(); };
    EXPECT_TRUE(std::any_of(std::begin(scenarios), std::end(scenarios), refuted)) << static_cast<int>(w);
  }
}

}  // namespace kasane::model
