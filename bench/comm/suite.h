// SPDX-License-Identifier: Apache-2.0
// What kasane bench pingpong and kasane bench comm have in common: the options that choose systems, sizes and
// threads, and the way from them to a report.
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command_line.h"
#include "comparison.h"

namespace kasane::bench {

struct SuiteOptions {
  std::vector<unsigned> threads;
  std::vector<std::uint64_t> sizes;  ///< bytes
  std::vector<std::string> over{"memory", "tcp"};
  std::string against;
};

/// What is said of the options that mean different things to the suites.
struct SuiteHelp {
  const char* threads;
  const char* sizes;
  const char* over;
};
void add_suite_options(CommandLine&, SuiteOptions&, const SuiteHelp&);

/// Plays the chosen systems over each connection, prints the report and writes it. The exit status: refusals
/// are said here.
using PlayOver = std::function<void(Over, const std::vector<System>&, Report&)>;
int run_suite(const std::string& suite, const CommandLine&, const SuiteOptions&, const PlayOver&);

}  // namespace kasane::bench
