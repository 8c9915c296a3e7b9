// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <iterator>
#include <stdexcept>

#include "base/nearest.h"
#include "base/options_cli.h"
#include "rows.h"
#include "suites.h"

namespace kasane::bench {
namespace {

constexpr int kUsage = 2;

const char* what_of(const std::string& suite) {
  const auto found =
      std::find_if(std::begin(kSuites), std::end(kSuites), [&](const Suite& s) { return suite == s.name; });
  if (found == std::end(kSuites)) throw std::logic_error("bench/suites.h has no suite " + suite);
  return found->what;
}

bool is_in(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

CommandLine::CommandLine(const std::string& suite, const std::string& quick)
    : name_("kasane bench " + suite), options_(name_, what_of(suite)) {
  options_.choices("--only", only_, {},
                   "measure only these; of each kind of names that --list shows all where none is given");
  options_.toggle("--list", list_, "say which names --only takes, and end");
  options_.toggle("--quick", quick_, quick);
  options_.text("--json", json_, "write the rows to FILE too (- for standard output)");
}

void CommandLine::names(const std::string& kind, std::vector<std::string> names, const std::string& shown) {
  kinds_.push_back({kind, std::move(names), shown});
}

void CommandLine::repetitions(unsigned usual, unsigned quick) {
  usual_repetitions_ = usual;
  quick_repetitions_ = quick;
  repetitions(std::to_string(usual) + (quick == usual ? "" : ", with --quick " + std::to_string(quick)));
}

void CommandLine::repetitions(const std::string& otherwise) {
  options_.app()
      .add_option("--repetitions", repetitions_, "of which the median counts (default: " + otherwise + ")")
      ->type_name("N")
      ->check(CLI::Range(1u, 1000u));
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  CLI::App& app = options_.app();
  app.failure_message([this](const CLI::App* where, const CLI::Error& e) {
    return "kasane: " + explain(*where, e) + "\nkasane: see " + name_ + " --help\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  if (list_) return list();
  std::vector<std::string> all;
  for (const Kind& k : kinds_) all.insert(all.end(), k.names.begin(), k.names.end());
  for (const std::string& name : only_) {
    if (is_in(all, name)) continue;
    std::fprintf(stderr, "kasane: --only: there is no %s%s\nkasane: see %s --list\n", name.c_str(),
                 suggestion(name, all).c_str(), name_.c_str());
    return kUsage;
  }
  return std::nullopt;
}

bool CommandLine::wants(std::string_view name) const {
  const auto found =
      std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& k) { return is_in(k.names, name); });
  if (found == kinds_.end()) throw std::logic_error(name_ + " has not said the name " + std::string(name));
  return is_in(wanted(found->name), name);
}

std::vector<std::string> CommandLine::wanted(const std::string& name) const {
  std::vector<std::string> chosen = named(name);
  return chosen.empty() ? kind(name).names : chosen;
}

std::vector<std::string> CommandLine::named(const std::string& name) const {
  std::vector<std::string> chosen;
  std::copy_if(kind(name).names.begin(), kind(name).names.end(), std::back_inserter(chosen),
               [&](const std::string& n) { return is_in(only_, n); });
  return chosen;
}

const CommandLine::Kind& CommandLine::kind(const std::string& name) const {
  return *std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& k) { return k.name == name; });
}

int CommandLine::list() const {
  for (const Kind& k : kinds_) {
    std::printf("%s:\n%s", k.name.c_str(), k.shown.c_str());
    if (!k.shown.empty()) continue;
    for (const std::string& name : k.names) std::printf("  %s\n", name.c_str());
  }
  return 0;
}

}  // namespace kasane::bench
