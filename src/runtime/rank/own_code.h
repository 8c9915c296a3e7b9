// SPDX-License-Identifier: Apache-2.0
// Where the runtime's own code lies, and the program's: whether a function of libc's that is ours was called
// by the program, or by the runtime. Thread safety: any thread; async-signal-safe.
#pragma once

#include "runtime/rank/program_objects.h"

namespace kasane::runtime {

/// In the library, or in an executable that has the runtime linked in statically.
[[nodiscard]] bool is_code_of_runtime(const void* code) noexcept;
/// In the executable, or in what add_code_of_program() has added.
[[nodiscard]] bool is_code_of_program(const void* code) noexcept;
/// Before other threads exist. The first 64 count.
void add_code_of_program(AddressRange) noexcept;

}  // namespace kasane::runtime
