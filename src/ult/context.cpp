// SPDX-License-Identifier: Apache-2.0
#include "ult/context.h"

#include <cstddef>

namespace {

std::ptrdiff_t errno_offset() noexcept {
  const char* thread;
  asm("movq %%fs:0, %0" : "=r"(thread));
  // in brackets: not the macro of kasane/errno.h, which needs this number
  return reinterpret_cast<const char*>((__errno_location)()) - thread;
}

}  // namespace

extern "C" {
const std::ptrdiff_t kasane_ult_errno_offset = errno_offset();
}
