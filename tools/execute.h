// SPDX-License-Identifier: Apache-2.0
// Becoming another program, with the messages and exit codes of a shell.
#pragma once

#include <string>
#include <vector>

namespace kasane::tools {

/// Replaces this process. Returns only on failure, after a message: 127 if the program does not exist, else 126. hint: one more line to say then.
int execute(std::vector<std::string> command, const std::string& hint = {});

}  // namespace kasane::tools
