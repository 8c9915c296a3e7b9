// SPDX-License-Identifier: Apache-2.0
// A second file of the program: C++ orders the construction of two files' variables by their place in the
// link.
#include "other.h"

namespace other {
long total = [] { return 1000L; }();
void add(long by) { total += by; }
}  // namespace other
