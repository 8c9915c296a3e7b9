// SPDX-License-Identifier: Apache-2.0
#include "command_output.h"

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace kasane::bench {

std::string command_output(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (!pipe) throw std::runtime_error("cannot run " + command);
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get()))
    text.append(part.data(), n);
  if (::pclose(pipe.release()) != 0) throw std::runtime_error(command + " failed");
  return text;
}

}  // namespace kasane::bench
