// SPDX-License-Identifier: Apache-2.0
#include "arrays/error.h"

#include <cstdarg>
#include <cstdio>
#include <kasane/error.hpp>

namespace kasane::arrays {

void fail(int code, const char* format, ...) {
  char text[480];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw error(code, text);
}

}  // namespace kasane::arrays
