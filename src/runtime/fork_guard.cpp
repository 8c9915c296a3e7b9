// SPDX-License-Identifier: Apache-2.0
#include "runtime/fork_guard.h"

#include <pthread.h>

#include <cstdint>
#include <cstdlib>

#include "runtime/crash_text.h"
#include "runtime/process_state.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

void before_fork() {
  if (process().rank == kNoRank) return;
  const SlotId slot = ult::Pool::self();
  char here;
  if (slot == kNoSlot && !in_space(&here)) return;
  CrashText text;
  text.add("kasane: fork() on rank ").decimal(raw(process().rank));
  if (slot != kNoSlot) {
    text.add(" in the thread of slot ").decimal(raw(slot));
  } else {
    text.add(" in main");
  }
  text.add(
      ": its stack is shared by parent and child, so fork cannot work here. Use posix_spawn, system or "
      "popen.\n");
  tell(text.data(), text.size());
  std::abort();
}

}  // namespace

void install_fork_guard() { ::pthread_atfork(before_fork, nullptr, forget_process); }

}  // namespace kasane::runtime
