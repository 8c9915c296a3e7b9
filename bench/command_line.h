// SPDX-License-Identifier: Apache-2.0
// The command line of a suite of `kasane bench`. All suites have these flags, with these meanings, and some
// of their own:
//
//   --only NAME,…      what is measured: of each kind of names (cases, systems …) those that are given, or
//                      all where none is
//   --list             say which names there are, and end
//   --repetitions N    of which the median counts (suites that measure time)
//   --quick            less of everything: seconds
//   --json FILE        write the rows to FILE
//
//   CommandLine line("gas", "one turn: seconds instead of a minute");
//   line.names("systems", {"kasane-shm", "kasane-ucx"});
//   line.repetitions(4, 1);
//   line.own().toggle("--deep", deep, "…");
//   if (const auto status = line.parse(argc, argv)) return *status;
//   if (line.wants("kasane-shm")) …
//
// Thread safety: one thread; main uses it before anything runs in parallel.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.h"

namespace kasane::bench {

class CommandLine {
 public:
  /// suite: one of kSuites (suites.h); quick: what --quick does.
  CommandLine(const std::string& suite, const std::string& quick);

  /// Names of a kind, for --only and --list. A name belongs to one kind. shown: what --list says of them, if
  /// not just the names.
  void names(const std::string& kind, std::vector<std::string> names, const std::string& shown = {});
  /// Adds --repetitions: so many where it is not given, and with --quick.
  void repetitions(unsigned usual, unsigned quick);
  /// Adds --repetitions for a suite that has several defaults; `otherwise` says which.
  void repetitions(const std::string& otherwise);
  /// For the suite's own flags.
  apps::Options& own() { return options_; }

  /// Empty: go on. Else the exit status: what was asked for was printed, or 2 and an error was explained on
  /// standard error.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

  [[nodiscard]] bool quick() const noexcept { return quick_; }
  [[nodiscard]] const std::string& json() const noexcept { return json_; }
  [[nodiscard]] unsigned repetitions() const noexcept {
    return given_repetitions().value_or(quick_ ? quick_repetitions_ : usual_repetitions_);
  }
  [[nodiscard]] std::optional<unsigned> given_repetitions() const noexcept {
    return repetitions_ != 0 ? std::optional(repetitions_) : std::nullopt;
  }
  [[nodiscard]] bool wants(std::string_view name) const;
  /// The wanted names of this kind.
  [[nodiscard]] std::vector<std::string> wanted(const std::string& kind) const;
  /// Those of this kind that --only names.
  [[nodiscard]] std::vector<std::string> named(const std::string& kind) const;

 private:
  struct Kind {
    std::string name;
    std::vector<std::string> names;
    std::string shown;
  };
  [[nodiscard]] const Kind& kind(const std::string& name) const;
  int list() const;

  std::string name_;
  apps::Options options_;
  std::vector<Kind> kinds_;
  std::vector<std::string> only_;
  std::string json_;
  unsigned repetitions_ = 0, usual_repetitions_ = 1, quick_repetitions_ = 1;  ///< the first 0: not given
  bool quick_ = false, list_ = false;
};

}  // namespace kasane::bench
