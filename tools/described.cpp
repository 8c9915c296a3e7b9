// SPDX-License-Identifier: Apache-2.0
#include "described.h"

#include <algorithm>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <sstream>

#include "suites.h"

namespace kasane::tools {
namespace {

/// Of "a|b", and of "TEXT:{a,b}", as CLI11 says what it checks, which becomes the former.
std::vector<Word> choices_of(std::string& value) {
  std::vector<Word> words;
  if (const std::size_t set = value.find(":{"); set != std::string::npos) {
    value = value.substr(set + 2, value.find('}') - set - 2);
    std::ranges::replace(value, ',', '|');
  }
  if (value.find('|') == std::string::npos) return words;
  std::istringstream parts(value);
  for (std::string word; std::getline(parts, word, '|');) words.push_back({word, {}});
  return words;
}

const Option* row_of(const OptionTable* table, const std::string& long_name) {
  if (table == nullptr) return nullptr;
  const auto& rows = table->rows();
  const auto row = std::ranges::find_if(
      rows, [&](const Option& r) { return !r.flag.empty() && OptionTable::long_flag(r) == long_name; });
  return row == rows.end() ? nullptr : &*row;
}

Flag flag_of(const CLI::Option& option, const OptionTable* table) {
  Flag flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) flag.value = option.get_type_name();
  flag.help = option.get_description();
  flag.group = option.get_group();
  flag.choices = choices_of(flag.value);
  if (const Option* row = row_of(table, flag.names.back()); row != nullptr) {
    flag.value = OptionTable::placeholder(*row);
    for (const Option& item : row->items)
      flag.items.push_back({OptionTable::item_text("", item), item.help + " " + OptionTable::note(item)});
  }
  return flag;
}

void set_takes(Described& d, const CLI::App& kasane) {
  if (d.positionals.empty()) return;
  const std::string& name = d.positionals.front().names.front();
  d.takes = name == "PROGRAM" ? Takes::program : name == "FILE" ? Takes::files : Takes::words;
  if (name == "SUITE") {
    for (const bench::Suite& suite : bench::kSuites) d.words.push_back({suite.name, suite.what});
  } else if (name == "COMMAND") {
    for (const CLI::App* command : kasane.get_subcommands({}))
      if (!command->get_group().empty()) d.words.push_back({command->get_name(), command->get_description()});
  }
}

/// The usage line is the second of the help's text.
std::string usage_of(const CLI::App& app) {
  const std::string help = help_of(app);
  const std::string before = "Usage: ";
  const std::size_t begin = help.find(before);
  return begin == std::string::npos
             ? std::string()
             : help.substr(begin + before.size(), help.find('\n', begin) - begin - before.size());
}

Described described(const CLI::App& app, const CLI::App& kasane, const OptionTable* table) {
  Described d{.name = &app == &kasane ? "" : app.get_name(),
              .help = app.get_description(),
              .usage = usage_of(app),
              .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    if (option->get_positional()) {
      d.positionals.push_back({.names = {option->get_name(true)}, .help = option->get_description()});
    } else {
      d.flags.push_back(flag_of(*option, table));
    }
  }
  std::ranges::stable_partition(d.flags, [](const Flag& flag) { return flag.group == "Options"; });
  set_takes(d, kasane);
  return d;
}

}  // namespace

std::string help_of(const CLI::App& app) {
  const std::string name = app.get_parent() != nullptr ? "kasane " + app.get_name() : app.get_name();
  return app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
}

std::vector<Described> describe(const CLI::App& kasane, std::span<const Command> commands) {
  std::vector<Described> all{described(kasane, kasane, nullptr)};
  all.front().takes = Takes::words;
  for (const Command& command : commands) {
    if (command.app->get_group().empty()) continue;  // no user's
    all.push_back(described(*command.app, kasane, command.options));
    all.front().words.push_back({command.app->get_name(), command.app->get_description()});
  }
  return all;
}

}  // namespace kasane::tools
