// SPDX-License-Identifier: Apache-2.0
// An option table's rows as CLI11 options. Only for programs with a command line: CLI11 itself stays out of this header.
#pragma once

#include "base/options.h"

namespace CLI {
class App;
class Error;
}

namespace kasane {

/// Adds every row that has a flag to app. The table must live until the command line is parsed; a value that cannot be
/// used throws CLI::ValidationError with the table's message. A flag row also gets its negation --no-NAME; a list may be given several times.
void add_flags(CLI::App& app, OptionTable& table);

/// Why the command line could not be parsed, in one line: of words that are no command or option of `app` (or of its command that was given) the first, with
/// what is like it, which may be an item of a list of that command's table; else what the error says.
[[nodiscard]] std::string explain(const CLI::App& app, const CLI::Error& error, const OptionTable* table = nullptr);

}  // namespace kasane
