// SPDX-License-Identifier: Apache-2.0
#include "base/options_cli.h"

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string_view>

#include "base/nearest.h"

namespace kasane {
namespace {

void set_from_flag(OptionTable& table, std::size_t row, const std::string& text) {
  if (auto done = table.set(row, text, OptionSource::command_line); !done)
    throw CLI::ValidationError(done.error().message);
}

/// "; did you mean --workers?" for --worker, or nothing; of a list's item how to give it: "--debug
/// seed=COUNT".
std::string option_like(std::string_view mistyped, const CLI::App& app, const OptionTable* table) {
  std::vector<std::string> names, meant;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back(name);
      meant.push_back("--" + name);
    }
  }
  for (const Option& row : table != nullptr ? table->rows() : std::vector<Option>()) {
    for (const Option& item : row.items) {
      names.push_back(item.flag);
      meant.push_back(OptionTable::item_text(OptionTable::long_flag(row) + " ", item));
    }
  }
  const std::string near =
      nearest(mistyped.substr(std::min(mistyped.find_first_not_of('-'), mistyped.size())), names);
  return near.empty()
             ? ""
             : "; did you mean " +
                   meant[static_cast<std::size_t>(std::ranges::find(names, near) - names.begin())] + "?";
}

}  // namespace

std::string explain(const CLI::App& app, const CLI::Error& error, const OptionTable* table) {
  const auto given = app.get_subcommands();
  const CLI::App& where = given.empty() ? app : *given.front();
  const bool misunderstood = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                             dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  for (const std::string& word : misunderstood ? app.remaining(true) : std::vector<std::string>{}) {
    if (word == "--") break;  // what follows is no option
    const std::string name = word.substr(0, word.find('='));
    if (name.starts_with("-"))
      return (given.empty() ? "" : app.get_name() + " ") + where.get_name() + " has no option " + name +
             option_like(name, where, table);
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
    CLI::Option* option = nullptr;
    if (row.unit == Unit::flag) {
      const auto text = std::make_shared<std::string>();  // where CLI11 puts it
      option = app.add_flag(row.flag + ",!--no-" + OptionTable::long_flag(row).substr(2), *text, help);
      option->each([&table, i, text](const std::string& given) { set_from_flag(table, i, given); });
    } else {
      option = app.add_option_function<std::string>(
          row.flag, [&table, i](const std::string& text) { set_from_flag(table, i, text); }, help);
      option->type_name(OptionTable::placeholder(row));
      if (row.unit == Unit::list || row.unit == Unit::names) option->join(',');
    }
    if (!row.group.empty()) option->group(row.group);
  }
}

}  // namespace kasane
