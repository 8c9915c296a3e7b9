// SPDX-License-Identifier: Apache-2.0
// Links legacy.c, a static library without kasane::kasane's flags.
#include <kasane/kasane.hpp>

extern "C" void legacy_complain(const char* text);

int main() {
  legacy_complain("from main");
  kasane::run([] {});
}
