// SPDX-License-Identifier: Apache-2.0
#include "mem/engines.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kasane::mem {
namespace {

constexpr long kUserModeOnly = 1;   // UFFD_USER_MODE_ONLY

// What the kernel says to userfaultfd(2): whole (system calls into V would work), from user mode only, or why not.
std::string probe_userfaultfd() {
  for (long mode : {0L, kUserModeOnly}) {
    const long fd = ::syscall(SYS_userfaultfd, O_CLOEXEC | mode);
    if (fd < 0) continue;
    ::close(static_cast<int>(fd));
    return mode == 0 ? "the kernel offers userfaultfd" : "the kernel offers userfaultfd for user mode only";
  }
  return "the kernel refuses userfaultfd: " + std::generic_category().message(errno);
}

}  // namespace

std::vector<EngineInfo> engines() {
  return {{"mprotect", true, "SIGSEGV and mprotect; any kernel"},
          {"uffd", false, "not built yet (" + probe_userfaultfd() + ")"}};
}

}  // namespace kasane::mem
