// SPDX-License-Identifier: Apache-2.0
// The rows of the offload engine alone, as text: comm_offload [--quick]
#include <cstdio>
#include <cstring>
#include <exception>

#include "comm_offload.h"

int main(int argc, char** argv) {
  try {
    for (const auto& row : kasane::bench::comm_offload(argc > 1 && std::strcmp(argv[1], "--quick") == 0))
      std::printf("%-18s %-18s %u thread(s) %10.3f %s\n", row.case_.c_str(), row.system.c_str(), row.threads, row.value, row.unit.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "comm_offload: %s\n", e.what());
    return 1;
  }
}
