// SPDX-License-Identifier: Apache-2.0
// The program's own part of this process: the pages of the executable, and of the libraries that are the
// program's (program_libraries.h), that hold variables; their constructors and their destructors. So
// variables can be global memory, and the program is constructed once, on the rank that runs main.
//
//   object       | code | constants | .data.rel.ro, .got: read-only after the start (RELRO) | .data  .bss |
//                                                                              └─ the parts of V ───────┘
//
// Not shared: a page of the executable that holds a copy of a library's variable (a copy relocation: stdout,
// std::cout, environ, of a program that was compiled without -mno-direct-extern-access). Each rank's
// libraries use their own. The variables of the program in such a page are private, too.
//
// Thread safety: start only, one thread. The functions read ELF structures; no constructor of the program is
// needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "mem/space.h"
#include "runtime/rank/program_objects.h"

namespace kasane::runtime {

struct ProgramVariables {
  /// Whole OS pages, not placed yet; of each object in ascending order.
  std::vector<mem::ViewPart> shared;
  /// Variables of the program that lie in pages of it that cannot be shared.
  std::vector<std::string> kept_private;
  struct Copy {
    std::string name;
    std::uintptr_t at;
  };
  std::vector<Copy> copies;  ///< of libraries' variables
  std::string refusal;       ///< not empty: why nothing is shared
};

/// The variables of the executable and of the libraries that were taken. preloaded: of a library, where the
/// program was not built for this (preloaded.h): then copies of some of libc's variables are shared like the
/// variables beside them, and others refused.
ProgramVariables variables_of_program(const std::optional<mem::ViewPart>& preloaded);

/// From now on the runtime uses libc's own stdout and its like, not the copies of them that become parts of
/// V: its threads and its end use them where V cannot be touched.
void refer_to_originals();

/// From now on these libraries are the program's: the dynamic loader runs none of their functions. Before it
/// has constructed any; each after those that it needs.
void take_libraries(std::vector<Image>);
/// From now on the dynamic loader does not run the functions of the executable that are to run at the end.
/// After take_libraries().
void take_destructors_of_program();
/// Runs the constructors of the libraries that were taken, then the executable's, as the dynamic loader and
/// the C library would.
void construct_program(int argc, char** argv, char** environment);
/// Runs the functions that these have in .fini_array, and the libraries' in DT_FINI, in reverse order.
void destroy_program() noexcept;

/// The sentence about variables that stay private; empty: there are none.
[[nodiscard]] std::string private_variables_text(const ProgramVariables&);

}  // namespace kasane::runtime
