// SPDX-License-Identifier: Apache-2.0
// Which place of the program the calling thread is at, while it is in the runtime: for --stats
// (base/time_spent.h). A fault's is its instruction, or the program's call of the library that faulted
// (memcpy); a fence's and a wait's is the call that the program made, which the unwinder finds: it may load
// the program's variables.
//
// Thread safety: know_program() once, before other threads use the rest, which is async-signal-safe in a
// handler that serves a fault. Nothing allocates but that, or takes a lock.
#pragma once

#include <cstdint>

namespace kasane::runtime {

/// Notes where the program's code is loaded. Allocates.
void know_program();

/// As a return address, so an instruction's is one more. 0: the thread runs nothing of the program.
[[nodiscard]] std::uintptr_t place_in_program() noexcept;

}  // namespace kasane::runtime
