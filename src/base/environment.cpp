// SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <sys/auxv.h>

#include <cstdlib>

namespace kasane {

bool has_borrowed_rights() noexcept { return ::getauxval(AT_SECURE) != 0; }

const char* variable(const char* name) noexcept {
  return has_borrowed_rights() ? nullptr : std::getenv(name);
}

}  // namespace kasane
