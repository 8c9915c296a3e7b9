/* SPDX-License-Identifier: Apache-2.0 */
/* Small objects share pages whatever their placement, and cyclic ones are dealt out to all ranks. */
#include <string.h>

#include "check.h"
#include "memory.h"

enum { kObjects = 5000, kBytes = 72, kMostPages = 64 };

struct object {
  long number;
  char rest[kBytes - sizeof(long)];
};

static int by_address(const void* a, const void* b) {
  const char *x = *(char* const*)a, *y = *(char* const*)b;
  return (x > y) - (x < y);
}

static void check_placement(kasane_placement_t placement, size_t page_bytes) {
  const long before = resident_kib();
  struct object** const all = malloc(kObjects * sizeof *all);
  uint32_t owned[64] = {0};
  for (long i = 0; i < kObjects; ++i) {
    all[i] = kasane_allocate_placed(kBytes, 64, placement, 0, page_bytes);
    CHECK(all[i] != NULL && (uintptr_t)all[i] % 64 == 0);
    all[i]->number = i;
    memset(all[i]->rest, (int)(i % 100), sizeof all[i]->rest);
  }
  for (long i = 0; i < kObjects; ++i) {
    CHECK(all[i]->number == i && all[i]->rest[0] == i % 100 && all[i]->rest[kBytes - 9] == i % 100);
    uint32_t owner = 64;
    CHECK(kasane_where(all[i], &owner) == 0 && owner < kasane_ranks());
    if (owner < 64) ++owned[owner];
  }
  CHECK(resident_kib() - before < 16 * 1024);
  qsort(all, kObjects, sizeof *all, by_address);
  size_t pages = 1;
  for (long i = 1; i < kObjects; ++i) {
    CHECK((char*)all[i] - (char*)all[i - 1] >= kBytes);
    pages += (uintptr_t)all[i] / 65536 != (uintptr_t)all[i - 1] / 65536;
  }
  CHECK(pages <= kMostPages);
  for (uint32_t r = 0; r < kasane_ranks(); ++r) CHECK(placement != KASANE_PLACEMENT_CYCLIC || owned[r] != 0);
  for (long i = 0; i < kObjects; ++i) kasane_free(all[i]);
  free(all);
}

static void run(void* unused) {
  (void)unused;
  for (int twice = 0; twice < 2; ++twice) {
    check_placement(KASANE_PLACEMENT_LOCAL, KASANE_PAGE_DEFAULT);
    check_placement(KASANE_PLACEMENT_BLOCK, KASANE_PAGE_DEFAULT);
    check_placement(KASANE_PLACEMENT_CYCLIC, KASANE_PAGE_DEFAULT);
    check_placement(KASANE_PLACEMENT_ONE_RANK, KASANE_PAGE_DEFAULT);
    check_placement(KASANE_PLACEMENT_FIRST_TOUCH, KASANE_PAGE_DEFAULT);
    check_placement(KASANE_PLACEMENT_CYCLIC, KASANE_PAGE_SMALL);
    check_placement(KASANE_PLACEMENT_FIRST_TOUCH, KASANE_PAGE_SMALL);
  }
}

int main(void) { return kasane_run(run, NULL); }
