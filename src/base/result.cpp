// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace kasane {

tl::unexpected<Error> fail_errno(Errc code, std::string message, int number) {
  message += ": " + std::generic_category().message(number);
  if (number == EPERM || number == ENOSYS)
    message += " (in a container or sandbox its filter of system calls, seccomp, may refuse the call)";
  return fail(code, std::move(message));
}

}  // namespace kasane
