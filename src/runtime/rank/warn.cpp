// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/warn.h"

#include <unistd.h>

#include <cerrno>

namespace kasane::runtime {

void warn(const CrashText& text) noexcept {
  const int saved = errno;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  errno = saved;
}

}  // namespace kasane::runtime
