// SPDX-License-Identifier: Apache-2.0
// What another program prints.
#pragma once

#include <string>

namespace kasane::bench {

/// Runs the shell command and returns what it has written to standard output. Throws std::runtime_error if it
/// cannot be run or fails.
std::string command_output(const std::string& command);

}  // namespace kasane::bench
