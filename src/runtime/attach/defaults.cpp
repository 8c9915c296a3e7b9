// SPDX-License-Identifier: Apache-2.0
// What the library does when it is loaded into a program that an MPI's launcher started and that does not
// become ranks by our start: defaults of the environment, before the program initialises its MPI (attach.h).
// Without effect where the MPI runs already.
//
// Thread safety: a constructor.
#include <string>

#include "base/environment.h"
#include "comm/mpi/library.h"
#include "mem/engines.h"
#include "mem/uffd_engine.h"
#include "runtime/rank/process_state.h"

namespace kasane::runtime {
namespace {

/// Whether the kernel, which copies from another process's global memory, waits for what is absent there.
bool kernel_will_wait() {
  const char* const asked = variable("KASANE_FAULTS");
  const std::string engine = asked != nullptr && *asked != '\0' ? asked : "auto";
  return (engine == "auto" || engine == mem::kUffdThread) && mem::engine_for(mem::kUffdThread);
}

[[gnu::constructor]] void set_defaults() {
  if (process().rank == kNoRank && comm::mpi::Library::launched())
    comm::mpi::set_defaults_for_program(kernel_will_wait());
}

}  // namespace
}  // namespace kasane::runtime
