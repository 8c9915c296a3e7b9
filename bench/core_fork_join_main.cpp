// SPDX-License-Identifier: Apache-2.0
// The fork-join rows alone, as text: core_fork_join [--quick]
#include <cstdio>
#include <cstring>
#include <exception>

#include "core_fork_join.h"

int main(int argc, char** argv) {
  try {
    for (const auto& row : kasane::bench::core_fork_join(argc > 1 && std::strcmp(argv[1], "--quick") == 0))
      std::printf("%-10s %-8s %u thread(s) %8.2f %s\n", row.case_.c_str(), row.system.c_str(), row.threads, row.value, row.unit.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "core_fork_join: %s\n", e.what());
    return 1;
  }
}
