/* SPDX-License-Identifier: Apache-2.0 */
#include "counts.h"

#include <stdio.h>
#include <stdlib.h>

long counts_total = 1000;
long counts_table[65536];

static long* first = &counts_table[1];
static int constructed;

__attribute__((constructor)) static void begin(void) {
  constructed += 7;
  puts("counts: constructed");
}
__attribute__((destructor)) static void end(void) { printf("counts: destroyed, %ld\n", counts_total); }
static void at_exit(void) { printf("counts: at exit, %ld\n", counts_sum()); }

void counts_add(int index, long by) {
  counts_table[index] += by;
  if (index == 63) atexit(at_exit); /* registered by a thread, wherever it is */
}
long counts_sum(void) {
  long sum = 0;
  for (int i = 0; i < 65536; ++i) sum += counts_table[i];
  return sum;
}
int counts_constructed(void) { return constructed; }
long* counts_first(void) { return first; }
