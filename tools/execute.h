// SPDX-License-Identifier: Apache-2.0
// Executes another program: in place of this one, with the messages and exit codes of a shell, or for what it
// prints.
#pragma once

#include <string>
#include <vector>

namespace kasane::tools {

/// Replaces this process. Returns only on failure, after a message: 127 if the program does not exist, else
/// 126. hint: a second line of that message.
int execute(std::vector<std::string> command, const std::string& hint = {});

/// What the command prints, on both outputs and with no input, within 5 s.
std::string output_of(std::vector<std::string> command);

/// The libraries that the program in this file loads at its start, a line each, as the dynamic loader lists
/// them.
std::string loaded_by(const std::string& file);

}  // namespace kasane::tools
