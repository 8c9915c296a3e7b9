// SPDX-License-Identifier: Apache-2.0
// Where functions of libc that have static results leave them: variables of the executable, which all ranks
// share and which are coherent like the program's own. So a thread finds its result on any rank.
#pragma once

#include <cstdint>
#include <ctime>

namespace kasane::runtime {

struct StaticResults {
  char* strtok_rest;
  std::tm time;
  char time_text[64];  ///< of asctime, ctime
  char address[16];
  std::uint16_t random_before[3];  ///< of seed48
};

/// Null: libc's serve.
StaticResults* static_results() noexcept;
/// Called once, before all constructors. Until then, and without it, the results are libc's.
void leave_results_in(StaticResults&) noexcept;

}  // namespace kasane::runtime
