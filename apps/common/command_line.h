// SPDX-License-Identifier: Apache-2.0
// The command line of an application: its own options and the ones all share. CLI11 stays in command_line.cpp, so that applications compile quickly.
//
// Thread safety: none; main uses it before anything runs in parallel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace apps {

/// Options of every application.
struct Common {
  std::string json;           ///< --json FILE: the result as one JSON object; "-": standard output; empty: none
  std::uint64_t repeat = 1;   ///< --repeat R: measured runs
  std::uint64_t seed = 19;    ///< --seed S
  bool serial = false;        ///< --serial: also run the sequential elision, and compare
  bool quiet = false;         ///< --quiet: no progress
};

class CommandLine {
 public:
  CommandLine(std::string name, std::string what);
  ~CommandLine();

  /// Options write to the variable, whose value before is the default that --help shows.
  void number(const std::string& flag, std::uint64_t& value, const std::string& help, std::uint64_t least, std::uint64_t most);
  void real(const std::string& flag, double& value, const std::string& help, double least, double most);
  void text(const std::string& flag, std::string& value, const std::string& help);
  void choice(const std::string& flag, std::string& value, const std::vector<std::string>& allowed, const std::string& help);
  /// flag and other must not be given together.
  void exclusive(const std::string& flag, const std::string& other);
  /// flag makes sense only with other.
  void needs(const std::string& flag, const std::string& other);

  /// Empty: go on. Else the exit status: help was asked for and printed, or an error was explained on stderr.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

  [[nodiscard]] const Common& common() const noexcept { return common_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  struct Parser;
  std::string name_;
  Common common_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace apps
