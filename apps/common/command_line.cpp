// SPDX-License-Identifier: Apache-2.0
// The one file of the applications that includes CLI11.
#include "common/command_line.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace apps {

struct CommandLine::Parser {
  CLI::App app;
  Parser(const std::string& name, const std::string& what) : app(what, name) {}
};

CommandLine::CommandLine(std::string name, std::string what)
    : name_(std::move(name)), parser_(std::make_unique<Parser>(name_, std::move(what))) {
  auto& app = parser_->app;
  app.option_defaults()->always_capture_default();
  app.add_option("--json", common_.json, "Write the result as JSON to this file; - for standard output")->type_name("FILE");
  number("--repeat", common_.repeat, "Measured runs", 1, 1'000'000);
  app.add_option("--seed", common_.seed, "Seed of all randomness")->type_name("N");
  app.add_flag("--serial", common_.serial, "Also run the sequential elision: the same code without threads");
  app.add_flag("--quiet", common_.quiet, "No progress on standard error");
}

CommandLine::~CommandLine() = default;

void CommandLine::number(const std::string& flag, std::uint64_t& value, const std::string& help, std::uint64_t least,
                         std::uint64_t most) {
  parser_->app.add_option(flag, value, help)->check(CLI::Range(least, most))->type_name("N");
}

void CommandLine::real(const std::string& flag, double& value, const std::string& help, double least, double most) {
  parser_->app.add_option(flag, value, help)->check(CLI::Range(least, most))->type_name("X");
}

void CommandLine::text(const std::string& flag, std::string& value, const std::string& help) {
  parser_->app.add_option(flag, value, help)->type_name("FILE");
}

void CommandLine::choice(const std::string& flag, std::string& value, const std::vector<std::string>& allowed,
                         const std::string& help) {
  parser_->app.add_option(flag, value, help)->check(CLI::IsMember(allowed));
}

void CommandLine::exclusive(const std::string& flag, const std::string& other) {
  parser_->app.get_option(flag)->excludes(parser_->app.get_option(other));
}

void CommandLine::needs(const std::string& flag, const std::string& other) {
  parser_->app.get_option(flag)->needs(parser_->app.get_option(other));
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  try {
    parser_->app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    return parser_->app.exit(e);
  }
}

}  // namespace apps
