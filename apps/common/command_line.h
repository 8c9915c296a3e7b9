// SPDX-License-Identifier: Apache-2.0
// The command line of an application: its own options and the ones all share.
//
// Thread safety: none; main uses it before anything runs in parallel.
#pragma once

#include <cstdint>
#include <string>

#include "common/options.h"

namespace apps {

/// Options of every application.
struct Common {
  std::string json;          ///< --json FILE: the result as one JSON object; "-": standard output
  std::uint64_t repeat = 1;  ///< --repeat R: measured runs
  std::uint64_t seed = 19;   ///< --seed S
  bool serial = false;       ///< --serial: also run the sequential elision, and compare
  bool quiet = false;        ///< --quiet: no progress
};

class CommandLine : public Options {
 public:
  CommandLine(std::string name, const std::string& what);

  [[nodiscard]] const Common& common() const noexcept { return common_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  Common common_;
};

}  // namespace apps
