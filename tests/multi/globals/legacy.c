/* SPDX-License-Identifier: Apache-2.0 */
/* A static library that was compiled without kasane::kasane's flags: the linker copies stderr into the
   program, and what the program has beside it is each rank's own. */
#include <stdio.h>

int legacy_total;

void legacy_complain(const char* text);
void legacy_complain(const char* text) {
  ++legacy_total;
  fprintf(stderr, "legacy: %s\n", text);
}
