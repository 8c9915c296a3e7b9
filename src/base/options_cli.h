// SPDX-License-Identifier: Apache-2.0
// An option table's rows as CLI11 options. Only for programs with a command line; this header does not
// include CLI11.
#pragma once

#include "base/options.h"

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace kasane {

/// Adds every row that has a flag to app. The table lives until the command line is parsed; a value that
/// cannot be used throws CLI::ValidationError with the table's message. A flag row also gets its negation
/// --no-NAME; a list may be given several times.
void add_flags(CLI::App& app, OptionTable& table);

/// Why the command line could not be parsed, in one line: the first word that is no command or option of
/// `app` (or of its command that was given), with a similar one, which may be an item of a list of that
/// command's table; else the text of the error.
[[nodiscard]] std::string explain(const CLI::App& app, const CLI::Error& error,
                                  const OptionTable* table = nullptr);

}  // namespace kasane
