// SPDX-License-Identifier: Apache-2.0
// What kasane bench pingpong and kasane bench comm have in common: the options that choose systems and how to show them, and the way from them to a report.
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/options.h"
#include "match.h"

namespace kasane::bench {

struct SuiteOptions {
  std::vector<std::string> systems;                 ///< empty: all that are here
  std::vector<unsigned> threads;
  std::vector<std::uint64_t> sizes;                 ///< bytes
  std::vector<std::string> over{"memory", "tcp"};
  bool quick = false, list = false;
  unsigned repetitions = 0;                         ///< 0: the default
  std::string json, against;

  [[nodiscard]] unsigned repetitions_or_default() const noexcept { return repetitions != 0 ? repetitions : quick ? 3 : 7; }
};

/// What is said of the options that mean different things to the suites.
struct SuiteHelp {
  const char* threads;
  const char* sizes;
  const char* over;
  const char* quick;
};
void add_suite_options(apps::Options&, SuiteOptions&, const SuiteHelp&);

/// Lists the systems if asked to; else plays the chosen ones over each connection, prints the report and writes it. The exit status: refusals are said here.
using PlayOver = std::function<void(Over, const std::vector<System>&, Report&)>;
int run_suite(const std::string& suite, const SuiteOptions&, const PlayOver&);

}  // namespace kasane::bench
