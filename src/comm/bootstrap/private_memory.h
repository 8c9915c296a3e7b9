// SPDX-License-Identifier: Apache-2.0
// What an address is in another process of the job, for reports of crashes: a pointer to one rank's private
// memory, used on another rank.
// Thread safety: any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace kasane::comm {

struct MemoryAt {
  /// "the heap (malloc)", "the stack of main", "libfoo.so" …; empty: nothing that the program may use
  std::string what;
  bool constant = false;  ///< code or constants of the file that it names
};
/// What /proc/PID/maps says of the address.
MemoryAt memory_at(pid_t process, std::uint64_t address);

}  // namespace kasane::comm
