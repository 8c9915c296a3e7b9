// SPDX-License-Identifier: Apache-2.0
// NEED(condition): where it does not hold, the program says rank, line and errno, and ends.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>

namespace kasane::test {

inline void need(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "rank %u, line %d: wrong: %s (%s)\n", kasane::rank(), line, what,
               std::strerror(errno));
  std::abort();
}

}  // namespace kasane::test

#define NEED(holds) kasane::test::need(holds, #holds, __LINE__)
