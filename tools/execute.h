// SPDX-License-Identifier: Apache-2.0
// Executes another program in place of this one, with the messages and exit codes of a shell.
#pragma once

#include <string>
#include <vector>

namespace kasane::tools {

/// Replaces this process. Returns only on failure, after a message: 127 if the program does not exist, else
/// 126. hint: a second line of that message.
int execute(std::vector<std::string> command, const std::string& hint = {});

}  // namespace kasane::tools
