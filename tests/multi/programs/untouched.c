/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program never touches takes no DRAM, whatever its placement and its pages, when it is new
 * and when it was used before; what is touched of it is there. */
#include <string.h>

#include "check.h"
#include "memory.h"

enum { kMiB = 1 << 20 };

static void check_one(size_t bytes, kasane_placement_t placement, size_t page_bytes, int keep) {
  const long before = resident_kib();
  char* const memory = kasane_allocate_placed(bytes, 64, placement, 0, page_bytes);
  CHECK(memory != NULL);
  /* tables take some: a word a block */
  CHECK(resident_kib() - before < (long)(bytes / 1024 / 32 + 1024));
  for (size_t i = 0; i < bytes; i += bytes / 8) memory[i] = (char)(i / kMiB + 1);
  memory[bytes - 1] = 77;
  for (size_t i = 0; i < bytes; i += bytes / 8) CHECK(memory[i] == (char)(i / kMiB + 1));
  CHECK(memory[bytes - 1] == 77);
  CHECK(resident_kib() - before < (long)(bytes / 1024 / 32 + 1024 + 9 * 2048));
  if (!keep) kasane_free(memory);
}

/* new memory, and the same again */
static void check_twice(size_t bytes, kasane_placement_t placement, size_t page_bytes) {
  check_one(bytes, placement, page_bytes, 0);
  check_one(bytes, placement, page_bytes, 1);
}

/* each of a size that many programs allocate */
static void check_many(void) {
  enum { kMany = 256 };
  const long before = resident_kib();
  char* all[kMany];
  for (int i = 0; i < kMany; ++i) CHECK((all[i] = kasane_malloc(kMiB)) != NULL);
  CHECK(resident_kib() - before < kMany * 32 + 1024);
  for (int i = 0; i < kMany; ++i) kasane_free(all[i]);
}

static void run(void* unused) {
  (void)unused;
  check_many();
  const kasane_placement_t placements[] = {KASANE_PLACEMENT_LOCAL, KASANE_PLACEMENT_BLOCK,
                                           KASANE_PLACEMENT_CYCLIC, KASANE_PLACEMENT_FIRST_TOUCH};
  for (size_t p = 0; p < sizeof placements / sizeof *placements; ++p) {
    check_twice((size_t)512 * kMiB, placements[p], KASANE_PAGE_DEFAULT);
    check_twice((size_t)512 * kMiB, placements[p], KASANE_PAGE_LARGE);
    check_twice((size_t)64 * kMiB, placements[p], KASANE_PAGE_SMALL);
  }
}

int main(void) { return kasane_run(run, NULL); }
