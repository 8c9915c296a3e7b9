/* SPDX-License-Identifier: Apache-2.0 */
/* C11's mutexes, conditions, call_once and threads (threads.h), as variables that threads of all ranks use,
   on user-level threads and on OS threads of the program. */
#include <kasane/kasane.h>
#include <threads.h>

#include "check.h"

#define THREADS 6

static mtx_t lock, nested;
static cnd_t changed;
static once_flag once = ONCE_FLAG_INIT;
static long counter /* by lock */, deeper /* by nested */, prepared, turn;
static int words[1 << 14];

static void prepare(void) { ++prepared; }

static void work(void* argument) {
  const long own = *(const long*)argument;
  call_once(&once, prepare);
  for (int i = 0; i < 50; ++i) {
    CHECK(mtx_lock(&lock) == thrd_success);
    ++counter;
    ++words[(unsigned)(own * 1000 + i) % (sizeof words / sizeof words[0])];
    CHECK(mtx_unlock(&lock) == thrd_success);
  }
  CHECK(mtx_lock(&lock) == thrd_success);
  while (turn != own) CHECK(cnd_wait(&changed, &lock) == thrd_success);
  ++turn;
  CHECK(cnd_broadcast(&changed) == thrd_success);
  CHECK(mtx_unlock(&lock) == thrd_success);
  CHECK(mtx_lock(&nested) == thrd_success && mtx_lock(&nested) == thrd_success);
  ++deeper;
  CHECK(mtx_unlock(&nested) == thrd_success && mtx_unlock(&nested) == thrd_success);
}

static int work_of_os_thread(void* argument) {
  work(argument);
  return (int)*(const long*)argument + 40;
}

static void go_and_work(void* argument) {
  CHECK(kasane_thread_move_near(((long**)argument)[1]) == 0);
  work(((long**)argument)[0]);
}

static void on_ranks(void* unused) {
  (void)unused;
  static long number[THREADS];
  kasane_thread_t thread[THREADS];
  for (long i = 0; i < THREADS; ++i) {
    number[i] = i;
    const kasane_allocated_t t = kasane_thread_allocate(8, 2 * sizeof(long*));
    CHECK(t.id != 0);
    ((long**)t.argument)[0] = &number[i];
    ((long**)t.argument)[1] = kasane_allocate_at(8, 8, (uint32_t)i % kasane_ranks());
    thread[i] = t.id;
    kasane_thread_fork(t, go_and_work);
  }
  for (int i = 0; i < THREADS; ++i) CHECK(kasane_thread_join(thread[i]) == 0);
  struct timespec soon;
  timespec_get(&soon, TIME_UTC);
  CHECK(mtx_lock(&lock) == thrd_success);
  CHECK(cnd_timedwait(&changed, &lock, &soon) == thrd_timedout);
  CHECK(mtx_unlock(&lock) == thrd_success);
}

int main(void) {
  CHECK(mtx_init(&lock, mtx_timed) == thrd_success && mtx_init(&nested, mtx_recursive) == thrd_success);
  CHECK(cnd_init(&changed) == thrd_success);
  CHECK(kasane_run(on_ranks, NULL) == 0);
  CHECK(counter == THREADS * 50 && deeper == THREADS && prepared == 1 && turn == THREADS);
  turn = 0;
  long number[THREADS];
  thrd_t thread[THREADS];
  for (long i = 0; i < THREADS; ++i) {
    number[i] = i;
    CHECK(thrd_create(&thread[i], work_of_os_thread, &number[i]) == thrd_success);
  }
  for (int i = 0; i < THREADS; ++i) {
    int result = 0;
    CHECK(thrd_join(thread[i], &result) == thrd_success && result == i + 40);
  }
  CHECK(counter == 2 * THREADS * 50 && deeper == 2 * THREADS && prepared == 1);
  return 0;
}
