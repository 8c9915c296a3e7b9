// SPDX-License-Identifier: Apache-2.0
// What an address is in another process of the job, for reports of crashes: a pointer to one rank's private
// memory, used on another rank.
// Thread safety: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace kasane::comm {

/// "the heap (malloc)", "the stack of main", "libfoo.so" …, as /proc/PID/maps has it; empty: nothing is
/// mapped there that code of the program may store to.
std::string memory_at(pid_t process, std::uint64_t address);

}  // namespace kasane::comm
