// SPDX-License-Identifier: Apache-2.0
#include "common/command_line.h"

#include <limits>
#include <utility>

namespace apps {

CommandLine::CommandLine(std::string name, const std::string& what)
    : Options(name, what), name_(std::move(name)) {
  text("--json", common_.json, "Write the result as JSON to this file; - for standard output");
  number("--repeat", common_.repeat, "Measured runs", 1, 1'000'000);
  number("--seed", common_.seed, "Seed of all randomness", 0, std::numeric_limits<std::uint64_t>::max());
  toggle("--serial", common_.serial, "Also run the sequential elision: the same code without threads");
  toggle("--quiet", common_.quiet, "No progress on standard error");
}

}  // namespace apps
