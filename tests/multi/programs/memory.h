/* SPDX-License-Identifier: Apache-2.0 */
/* What this process has in memory. */
#ifndef KASANE_TESTS_PROGRAMS_MEMORY_H
#define KASANE_TESTS_PROGRAMS_MEMORY_H
#include <stdio.h>
#include <string.h>

static long resident_kib(void) {
  long kib = -1;
  char line[200];
  FILE* const status = fopen("/proc/self/status", "r");
  if (status == NULL) return -1;
  while (fgets(line, sizeof line, status) != NULL)
    if (strncmp(line, "VmRSS:", 6) == 0) sscanf(line + 6, "%ld", &kib);
  fclose(status);
  return kib;
}

#endif
