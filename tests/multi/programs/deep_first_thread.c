/* SPDX-License-Identifier: Apache-2.0 */
/* The first thread has main's size of stack: it goes deep, forks and joins threads down there, which use what
 * lies on its stack, and may be stolen by other ranks at any depth. Twice, in two runs. */
#include <string.h>

#include "check.h"

enum { kFrame = 4000 };

struct call {
  long* from;
  long* sum;
};
static void add_up(void* p) {
  const struct call c = *(struct call*)p;
  long sum = 0;
  for (int i = 0; i < 100; ++i) sum += c.from[i];
  *c.sum = sum;
}

/* On each level an array of kFrame bytes; on some a thread that reads it. */
static long descend(int n) {
  long frame[kFrame / sizeof(long)];
  for (int i = 0; i < 100; ++i) frame[i] = n + i;
  long sum = 0;
  if (n % 16 == 0) {
    kasane_allocated_t t = kasane_thread_allocate(8, sizeof(struct call));
    CHECK(t.id != 0);
    *(struct call*)t.argument = (struct call){frame, &sum};
    kasane_thread_fork(t, add_up);
    const long below = n == 0 ? 0 : descend(n - 1);
    CHECK(kasane_thread_join(t.id) == 0);
    for (int i = 0; i < 100; ++i) CHECK(frame[i] == n + i);
    return sum + below;
  }
  const long below = descend(n - 1);
  for (int i = 0; i < 100; ++i) CHECK(frame[i] == n + i);
  return below;
}

static void let_others_run(void* unused) {
  (void)unused;
  kasane_thread_yield();
}

/* 6 MiB in one frame, of which only the far end is used */
static long jump(void) {
  volatile char large[6 << 20];
  for (int i = 0; i < 1000; ++i) large[i] = (char)i;
  kasane_allocated_t t = kasane_thread_allocate(8, 8);
  kasane_thread_fork(t, let_others_run);
  CHECK(kasane_thread_join(t.id) == 0);
  long sum = 0;
  for (int i = 0; i < 1000; ++i) sum += large[i] == (char)i;
  return sum;
}

static int depth = 1600; /* 6.4 MiB */
static void run(void* result) {
  long* const sum = result;
  *sum = descend(depth);
  CHECK(jump() == 1000);
}

int main(int argc, char** argv) {
  if (argc > 1) depth = atoi(argv[1]);
  long expected = 0;
  for (long n = 0; n <= depth; n += 16) expected += 100 * n + 4950;
  for (int i = 0; i < 2; ++i) {
    long sum = 0;
    CHECK(kasane_run(run, &sum) == 0);
    CHECK(sum == expected);
  }
  return 0;
}
