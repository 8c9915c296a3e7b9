/* SPDX-License-Identifier: Apache-2.0 */
/* kasane_allocate takes every placement that has no argument, and says of the others what to call. */
#include <errno.h>
#include <string.h>

#include "check.h"

enum { kPages = 8 };

static void refuse(int placement, const char* why) {
  CHECK(kasane_allocate(8, 8, (kasane_placement_t)placement) == NULL);
  CHECK(kasane_error_code() == EINVAL && strstr(kasane_error_message(), why) != NULL);
}

struct touch {
  char* memory;
  char* home;
};
static void touch_mine(void* p) {
  const struct touch t = *(struct touch*)p;
  while (kasane_rank() != kasane_ranks() - 1) kasane_thread_move_near(t.home);
  for (size_t i = 0; i < kPages; ++i) t.memory[i * KASANE_PAGE_DEFAULT] = 1;
}

static void check_first_touch(void) {
  const uint32_t last = kasane_ranks() - 1;
  char* const memory = kasane_allocate(kPages * KASANE_PAGE_DEFAULT, 64, KASANE_PLACEMENT_FIRST_TOUCH);
  CHECK(memory != NULL);
  kasane_allocated_t thread = kasane_thread_allocate(8, sizeof(struct touch));
  *(struct touch*)thread.argument = (struct touch){memory, kasane_allocate_at(8, 8, last)};
  kasane_thread_fork(thread, touch_mine);
  kasane_thread_join(thread.id);
  for (size_t i = 0; i < kPages; ++i) {
    uint32_t owner = ~0u;
    CHECK(kasane_where(memory + i * KASANE_PAGE_DEFAULT, &owner) == 0 && owner == last);
    CHECK(memory[i * KASANE_PAGE_DEFAULT] == 1);
  }
  kasane_free(memory);
}

static void run(void* unused) {
  (void)unused;
  const kasane_placement_t without_argument[] = {KASANE_PLACEMENT_LOCAL, KASANE_PLACEMENT_BLOCK,
                                                 KASANE_PLACEMENT_CYCLIC, KASANE_PLACEMENT_FIRST_TOUCH};
  for (size_t i = 0; i < sizeof without_argument / sizeof *without_argument; ++i) {
    for (size_t bytes = 1; bytes <= (1 << 20); bytes *= 16) {
      char* const p = kasane_allocate(bytes, 64, without_argument[i]);
      CHECK(p != NULL && (uintptr_t)p % 64 == 0);
      memset(p, 7, bytes);
      kasane_free(p);
    }
  }
  refuse(KASANE_PLACEMENT_BLOCK_CYCLIC, "kasane_allocate_placed");
  refuse(KASANE_PLACEMENT_ONE_RANK, "kasane_allocate_placed");
  refuse(KASANE_PLACEMENT_NUMA, "kasane_allocate_placed");
  refuse(10, "no such placement");
  refuse(-1, "no such placement");
  check_first_touch();
}

int main(void) { return kasane_run(run, NULL); }
