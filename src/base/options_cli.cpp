// SPDX-License-Identifier: Apache-2.0
#include "base/options_cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace kasane {
namespace {

void set_from_flag(OptionTable& table, std::size_t row, const std::string& text) {
  if (auto done = table.set(row, text, OptionSource::command_line); !done)
    throw CLI::ValidationError(done.error().message);
}

}  // namespace

void add_flags(CLI::App& app, OptionTable& table) {
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const Option& row = table.rows()[i];
    if (row.flag.empty()) continue;
    const std::string help = row.help + " " + OptionTable::note(row);
    if (row.unit == Unit::flag) {
      app.add_flag_function(
          row.flag + ",!--no-" + OptionTable::long_flag(row).substr(2),
          [&table, i](std::int64_t times) { set_from_flag(table, i, times > 0 ? "1" : "0"); }, help);
      continue;
    }
    app.add_option_function<std::string>(
           row.flag, [&table, i](const std::string& text) { set_from_flag(table, i, text); }, help)
        ->type_name(OptionTable::placeholder(row));
  }
}

}  // namespace kasane
