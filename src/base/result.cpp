// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <system_error>

namespace kasane {

tl::unexpected<Error> fail_errno(Errc code, std::string message, int number) {
  message += ": " + std::generic_category().message(number);
  return fail(code, std::move(message));
}

}  // namespace kasane
