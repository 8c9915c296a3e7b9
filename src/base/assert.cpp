// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kasane {
namespace {
void say(const char* text) noexcept {
  [[maybe_unused]] auto n = ::write(2, text, std::strlen(text));
}
}  // namespace

void check_failed(const char* expr, const char* file, int line, const char* hint) noexcept {
  char text[512];
  std::snprintf(text, sizeof text, "kasane: check failed: %s (%s:%d, pid %d)%s%s\n", expr, file, line, ::getpid(),
                hint ? ": " : "", hint ? hint : "");
  say(text);
  std::abort();
}

void check_op_failed(const char* expr, const char* file, int line, std::uint64_t left, std::uint64_t right) noexcept {
  char text[512];
  std::snprintf(text, sizeof text, "kasane: check failed: %s, with %llu and %llu (%s:%d, pid %d)\n", expr,
                static_cast<unsigned long long>(left), static_cast<unsigned long long>(right), file, line, ::getpid());
  say(text);
  std::abort();
}

}  // namespace kasane
