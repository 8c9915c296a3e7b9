// SPDX-License-Identifier: Apache-2.0
// The libraries that --globals-of names: from then on they are parts of the program. Their variables are
// parts of V like the executable's, and they are constructed and destroyed with it (program_image.h). And
// those that --code-of names, of which only the code counts.
//
// The dynamic loader would construct them before __libc_start_main, on each rank. So they are chosen in
// .preinit_array, before the constructors of all libraries.
//
// Thread safety: start only, one thread. No constructor is needed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/rank/program_objects.h"

namespace kasane::runtime {

/// The libraries among `loaded` that `names`, "LIB,LIB…", names, each after those that it needs. An error
/// says which name is none of a library that can be shared, and why.
Result<std::vector<Image>> choose_libraries(std::string_view names, const std::vector<Image>& loaded);

/// The libraries among `loaded` that `names`, "LIB,LIB…", names, where a thread may leave an access that
/// waits, as in the program's code (rank/program_code.h). An error as above.
Result<std::vector<Image>> computing_libraries(std::string_view names, const std::vector<Image>& loaded);

/// After more libraries may have been loaded than at the start: an error names one of them that needs a
/// library of the program, too.
Result<void> check_later_libraries(const std::vector<Image>& at_start);

/// For a program that was not built for this: what its libraries do, but for those of the language
/// (preloaded.h), the program does (is_code_of_program). Their variables are each rank's own.
void note_libraries_of_program(const std::vector<Image>& loaded);

}  // namespace kasane::runtime
