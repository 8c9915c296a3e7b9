// SPDX-License-Identifier: Apache-2.0
// The options of a program's command line. CLI11 stays in options.cpp, which is compiled once: applications
// and benchmarks compile quickly.
//
// Thread safety: none; main uses it before anything runs in parallel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace apps {

class Options {
 public:
  Options(const std::string& name, const std::string& what);
  ~Options();

  /// Options write to the variable, whose value before is the default that --help shows.
  void toggle(const std::string& flag, bool& value, const std::string& help);
  void number(const std::string& flag, std::uint64_t& value, const std::string& help, std::uint64_t least,
              std::uint64_t most);
  void number(const std::string& flag, unsigned& value, const std::string& help, unsigned least,
              unsigned most);
  void real(const std::string& flag, double& value, const std::string& help, double least, double most);
  /// type: what --help says that it is.
  void text(const std::string& flag, std::string& value, const std::string& help,
            const std::string& type = "FILE");
  /// What stands without an option before it: any number of FILEs.
  void files(std::vector<std::string>& value, const std::string& help);
  /// One that is there.
  void directory(const std::string& flag, std::string& value, const std::string& help);
  void choice(const std::string& flag, std::string& value, const std::vector<std::string>& allowed,
              const std::string& help);

  /// Lists: commas between. No default is shown where that is empty.
  void numbers(const std::string& flag, std::vector<std::uint64_t>& value, const std::string& help,
               std::uint64_t least, std::uint64_t most);
  void numbers(const std::string& flag, std::vector<unsigned>& value, const std::string& help, unsigned least,
               unsigned most);
  /// allowed: empty, if the program itself says what is wrong.
  void choices(const std::string& flag, std::vector<std::string>& value,
               const std::vector<std::string>& allowed, const std::string& help);

  /// flag and other must not be given together.
  void exclusive(const std::string& flag, const std::string& other);
  /// flag makes sense only with other.
  void needs(const std::string& flag, const std::string& other);

  /// For callers that parse by their own code.
  CLI::App& app();
  /// Empty: go on. Else the exit status: 0, help was asked for and printed; 2, an error was explained on
  /// stderr.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace apps
