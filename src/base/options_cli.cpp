// SPDX-License-Identifier: Apache-2.0
#include "base/options_cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/nearest.h"

namespace kasane {
namespace {

void set_from_flag(OptionTable& table, std::size_t row, const std::string& text) {
  if (auto done = table.set(row, text, OptionSource::command_line); !done)
    throw CLI::ValidationError(done.error().message);
}

/// What may stand on app's command line, with its dashes.
std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

std::string explain(const CLI::App& app, const CLI::Error& error) {
  const auto given = app.get_subcommands();
  const CLI::App& where = given.empty() ? app : *given.front();
  const bool misunderstood = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  for (const std::string& word : misunderstood ? app.remaining(true) : std::vector<std::string>{}) {
    if (word == "--") break;   // what follows is no option
    const std::string name = word.substr(0, word.find('='));
    if (name.starts_with("-")) return (given.empty() ? "" : app.get_name() + " ") + where.get_name() + " has no option " + name + suggestion(name, options_of(where));
    if (&where != &app || app.get_subcommands({}).empty()) continue;
    std::vector<std::string> commands;
    for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
    return "there is no command " + name + suggestion(name, commands);
  }
  return error.what();
}

void add_flags(CLI::App& app, OptionTable& table) {
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const Option& row = table.rows()[i];
    if (row.flag.empty()) continue;
    const std::string help = row.help + " " + OptionTable::note(row);
    if (row.unit == Unit::flag) {
      CLI::Option* const flag = app.add_flag_function(
          row.flag + ",!--no-" + OptionTable::long_flag(row).substr(2),
          [&table, i](std::int64_t times) { set_from_flag(table, i, times > 0 ? "1" : "0"); }, help);
      if (!row.group.empty()) flag->group(row.group);
      continue;
    }
    CLI::Option* const option = app.add_option_function<std::string>(
        row.flag, [&table, i](const std::string& text) { set_from_flag(table, i, text); }, help);
    option->type_name(OptionTable::placeholder(row));
    if (!row.group.empty()) option->group(row.group);
  }
}

}  // namespace kasane
