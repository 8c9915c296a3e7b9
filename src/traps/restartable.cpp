// SPDX-License-Identifier: Apache-2.0
#include "traps/restartable.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"

#ifdef KASANE_RESTARTABLE
#include <sys/rseq.h>
#endif

namespace kasane::traps {

#ifdef KASANE_RESTARTABLE

bool can_restart_sequences() noexcept {
  return __rseq_size != 0 &&
         ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0;
}

void restart_sequences() noexcept {
  const long done = ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0);
  KASANE_CHECK(done == 0, "the kernel restarts no sequences, though it said that it does");
}

std::ptrdiff_t rseq_offset() noexcept { return __rseq_offset; }

#else

bool can_restart_sequences() noexcept { return false; }
void restart_sequences() noexcept {}
std::ptrdiff_t rseq_offset() noexcept { return 0; }

#endif

}  // namespace kasane::traps
