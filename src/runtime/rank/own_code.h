// SPDX-License-Identifier: Apache-2.0
// Where the runtime's own code lies, and the program's: whether a function of libc's that is ours was called
// by the program, or by the runtime. Thread safety: any thread; async-signal-safe.
#pragma once

namespace kasane::runtime {

/// In the library, or in an executable that has the runtime linked in statically.
[[nodiscard]] bool is_code_of_runtime(const void* code) noexcept;
[[nodiscard]] bool is_code_of_executable(const void* code) noexcept;

}  // namespace kasane::runtime
