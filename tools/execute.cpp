// SPDX-License-Identifier: Apache-2.0
#include "execute.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace kasane::tools {

int execute(std::vector<std::string> command, const std::string& hint) {
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int number = errno;
  const bool missing = number == ENOENT || number == ENOTDIR;
  std::fprintf(stderr, "kasane: cannot execute %s: %s\n", argv[0],
               missing ? "no such program" : std::strerror(number));
  if (!hint.empty()) std::fprintf(stderr, "kasane: %s\n", hint.c_str());
  return missing ? 127 : 126;
}

}  // namespace kasane::tools
