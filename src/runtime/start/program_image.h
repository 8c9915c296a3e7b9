// SPDX-License-Identifier: Apache-2.0
// The program's own part of this process: the pages of the executable that hold its variables, its
// constructors and its destructors. So variables can be global memory, and the program is constructed once,
// on the rank that runs main.
//
//   executable   | code | constants | .data.rel.ro, .got: read-only after the start (RELRO) | .data  .bss |
//                                                                              └─ the windows of V ──────┘
//
// Not shared: a page that holds a copy of a library's variable (a copy relocation: stdout, std::cout,
// environ, of a program that was compiled without -mno-direct-extern-access). Each rank's libraries use their
// own. The variables of the program in such a page are private, too.
//
// Thread safety: start only, one thread. The functions read ELF structures; no constructor of the program is
// needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::runtime {

struct ProgramVariables {
  std::vector<mem::Window> shared;  ///< whole OS pages, in ascending order, not placed yet
  /// Variables of the program that lie in pages of it that cannot be shared, and of which libraries'
  /// variables there are copies.
  std::vector<std::string> kept_private, copies;
  std::string refusal;  ///< not empty: why nothing is shared
};

/// The variables of the executable.
ProgramVariables variables_of_program();

/// From now on the dynamic loader does not run the functions of the executable that are to run at the end.
void take_destructors_of_program() noexcept;
/// Runs the executable's constructors, as the C library would.
void construct_program(int argc, char** argv, char** environment);
/// Runs the functions that the executable has in .fini_array, in reverse order.
void destroy_program() noexcept;

/// The sentence about variables that stay private; empty: there are none.
[[nodiscard]] std::string private_variables_text(const ProgramVariables&);

}  // namespace kasane::runtime
