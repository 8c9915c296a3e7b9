// SPDX-License-Identifier: Apache-2.0
// The one file of applications and benchmarks that includes CLI11.
#include "common/options.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <limits>
#include <type_traits>

namespace apps {

struct Options::Parser {
  CLI::App app;
  Parser(const std::string& name, const std::string& what) : app(what, name) {}

  template <class T>
  void number(const std::string& flag, T& value, const std::string& help, T least, T most, const char* type) {
    CLI::Option* const option = app.add_option(flag, value, help)->type_name(type)->capture_default_str();
    if (least != std::numeric_limits<T>::min() || most != std::numeric_limits<T>::max())
      option->check(CLI::Range(least, most));
  }
  template <class T>
  CLI::Option* list(const std::string& flag, std::vector<T>& value, const std::string& help) {
    CLI::Option* const option = app.add_option(flag, value, help)
                                    ->delimiter(',')
                                    ->type_name(std::is_integral_v<T> ? "N,..." : "NAME,...");
    if (!value.empty()) option->default_str(CLI::detail::join(value, ","));
    return option;
  }
};

Options::Options(const std::string& name, const std::string& what)
    : parser_(std::make_unique<Parser>(name, what)) {}
Options::~Options() = default;

void Options::toggle(const std::string& flag, bool& value, const std::string& help) {
  parser_->app.add_flag(flag, value, help);
}

void Options::number(const std::string& flag, std::uint64_t& value, const std::string& help,
                     std::uint64_t least, std::uint64_t most) {
  parser_->number(flag, value, help, least, most, "N");
}

void Options::number(const std::string& flag, unsigned& value, const std::string& help, unsigned least,
                     unsigned most) {
  parser_->number(flag, value, help, least, most, "N");
}

void Options::real(const std::string& flag, double& value, const std::string& help, double least,
                   double most) {
  parser_->number(flag, value, help, least, most, "X");
}

void Options::text(const std::string& flag, std::string& value, const std::string& help,
                   const std::string& type) {
  parser_->app.add_option(flag, value, help)->type_name(type)->capture_default_str();
}

void Options::files(std::vector<std::string>& value, const std::string& help) {
  parser_->app.add_option("FILE", value, help)->type_name("");
}

void Options::directory(const std::string& flag, std::string& value, const std::string& help) {
  parser_->app.add_option(flag, value, help)
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR")
      ->capture_default_str();
}

void Options::choice(const std::string& flag, std::string& value, const std::vector<std::string>& allowed,
                     const std::string& help) {
  parser_->app.add_option(flag, value, help)->check(CLI::IsMember(allowed))->capture_default_str();
}

void Options::numbers(const std::string& flag, std::vector<std::uint64_t>& value, const std::string& help,
                      std::uint64_t least, std::uint64_t most) {
  parser_->list(flag, value, help)->check(CLI::Range(least, most));
}

void Options::numbers(const std::string& flag, std::vector<unsigned>& value, const std::string& help,
                      unsigned least, unsigned most) {
  parser_->list(flag, value, help)->check(CLI::Range(least, most));
}

void Options::choices(const std::string& flag, std::vector<std::string>& value,
                      const std::vector<std::string>& allowed, const std::string& help) {
  CLI::Option* const list = parser_->list(flag, value, help);
  if (!allowed.empty()) list->check(CLI::IsMember(allowed));
}

void Options::exclusive(const std::string& flag, const std::string& other) {
  parser_->app.get_option(flag)->excludes(parser_->app.get_option(other));
}

void Options::needs(const std::string& flag, const std::string& other) {
  parser_->app.get_option(flag)->needs(parser_->app.get_option(other));
}

CLI::App& Options::app() { return parser_->app; }

std::optional<int> Options::parse(int argc, char** argv) {
  try {
    parser_->app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    return parser_->app.exit(e) == 0 ? 0 : 2;
  }
}

}  // namespace apps
