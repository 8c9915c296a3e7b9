// SPDX-License-Identifier: Apache-2.0
// The rows of the offload engine alone, as text: comm_offload [--quick]
#include <cstring>

#include "comm_offload.h"

int main(int argc, char** argv) {
  return kasane::bench::or_told("comm_offload", [&] {
    print(kasane::bench::comm_offload(argc > 1 && std::strcmp(argv[1], "--quick") == 0));
    return 0;
  });
}
