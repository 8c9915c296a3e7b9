// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>

namespace kasane::tools {

/// The first word of a file of /proc or /sys, or "unknown".
[[nodiscard]] inline std::string read_word(const char* path) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? word : "unknown";
}

}  // namespace kasane::tools
