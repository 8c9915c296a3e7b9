// SPDX-License-Identifier: Apache-2.0
// A descriptor that did not come from a function of libc's that opens one (an ioctl, a message, liburing,
// mkostemp) gets its number from dup(): in libkasane that gives the runtime's own
// (runtime/process/own_descriptors.h).
// Thread safety: any thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace kasane {

/// The copy, closed by exec, in place of `descriptor`; -1 and errno are passed through.
inline int renumbered(int descriptor) noexcept {
  const int copy = descriptor < 0 ? -1 : ::dup(descriptor);
  if (copy < 0) return descriptor;
  ::fcntl(copy, F_SETFD, FD_CLOEXEC);
  ::close(descriptor);
  return copy;
}

}  // namespace kasane
