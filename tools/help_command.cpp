// SPDX-License-Identifier: Apache-2.0
// kasane help [COMMAND], as kasane COMMAND --help; kasane version. Hidden flags of help print what the build
// makes of all options: --man as manual, --completion SHELL for a shell.
#include <fmt/format.h>
#include <kasane/version.h>

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "commands.h"
#include "described.h"

namespace kasane::tools {
namespace {

struct Help {
  std::string command, shell;
  bool man = false;
};

int print(const std::string& text) {
  fmt::print("{}", text);
  return 0;
}

int help(const CLI::App& kasane, const std::vector<Command>& commands, const Help& state) {
  const auto all = describe(kasane, commands);
  const auto named = std::ranges::find(all, state.command, &Described::name);
  if (named == all.end()) {
    std::vector<std::string> names;
    for (const Described& d : all) names.push_back(d.name);
    fmt::print(stderr, "kasane: there is no command {}{}\nkasane: see kasane help\n", state.command,
               suggestion(state.command, names));
    return 2;
  }
  if (state.man) return print(man_page(*named, all));
  if (state.shell.empty()) {
    const bool alone = state.command.empty();
    return print(help_of(alone ? kasane : *commands[static_cast<std::size_t>(named - all.begin() - 1)].app));
  }
  const std::string text = completion(state.shell, all);
  if (!text.empty()) return print(text);
  fmt::print(stderr, "kasane: help --completion {}: bash, zsh or fish\n", state.shell);
  return 2;
}

}  // namespace

std::string version_text() { return std::string("kasane ") + kasane_version(); }

Command make_help(CLI::App& kasane, const std::vector<Command>& commands) {
  auto state = std::make_shared<Help>();
  CLI::App* app = kasane.add_subcommand("help", "Print the help of kasane, or of one of its commands");
  app->add_option("COMMAND", state->command, "which")->type_name("");
  app->add_flag("--man", state->man)->group("");
  app->add_option("--completion", state->shell)->group("");
  return {app, [state, &kasane, &commands] { return help(kasane, commands, *state); }};
}

Command make_version(CLI::App& kasane) {
  return {kasane.add_subcommand("version", "Print the version, as --version does"),
          [] { return print(version_text() + "\n"); }};
}

}  // namespace kasane::tools
