// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/private_memory.h"

#include <cinttypes>
#include <cstdio>
#include <memory>

namespace kasane::comm {

MemoryAt memory_at(pid_t process, std::uint64_t address) {
  const auto close = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> maps(
      std::fopen(("/proc/" + std::to_string(process) + "/maps").c_str(), "re"), close);
  if (maps == nullptr) return {};
  char line[4352];
  while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
    std::uint64_t first = 0, end = 0;
    char access[5] = {};
    int name_at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %*s %*u %n", &first, &end, access, &name_at) !=
            3 ||
        address < first || address >= end)
      continue;
    std::string name(line + name_at);
    if (!name.empty() && name.back() == '\n') name.pop_back();
    if (name == "[heap]") return {"the heap (malloc)"};
    if (name.starts_with("[stack")) return {"the stack of the first OS thread"};
    const bool file = name.starts_with('/');
    name = name.substr(name.rfind('/') + 1);
    if (access[1] != 'w') return file && access[0] == 'r' ? MemoryAt{name, true} : MemoryAt{};
    if (!file) return {"anonymous memory (malloc, an OS thread's stack or thread_locals, or mmap)"};
    return {name + " (variables of the program or of a library)"};
  }
  return {};
}

}  // namespace kasane::comm
