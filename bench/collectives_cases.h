// SPDX-License-Identifier: Apache-2.0
// What kasane-bench-collectives measures, for ours and for the peers' programs alike. C++17 and no other
// header, since the peers are built by their own compilers' wrappers.
#pragma once

#include <cstddef>

namespace kasane::bench {

struct CollectiveCase {
  const char* name;
  std::size_t bytes;  ///< of a rank's part
  int calls;
};

constexpr CollectiveCase kCollectiveCases[] = {
    {"barrier", 0, 3000},       {"broadcast", 8, 3000},     {"broadcast", 4096, 1000},
    {"broadcast", 65536, 300},  {"broadcast", 1048576, 30}, {"broadcast", 4194304, 8},
    {"allreduce", 8, 3000},     {"allreduce", 512, 2000},   {"allreduce", 4096, 1000},
    {"allreduce", 65536, 300},  {"allreduce", 1048576, 30}, {"allreduce", 4194304, 8},
    {"allgather", 8, 3000},     {"allgather", 4096, 1000},  {"allgather", 65536, 200},
    {"allgather", 1048576, 20},
};

}  // namespace kasane::bench
