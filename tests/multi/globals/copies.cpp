// SPDX-License-Identifier: Apache-2.0
// Built without kasane::kasane's flags: the linker copies stdout into the program.
#include <cstdio>
#include <kasane/kasane.hpp>

int beside_the_copy = 0;

int main() {
  kasane::run([] { ++beside_the_copy; });
  std::fputs("ended\n", stdout);
}
