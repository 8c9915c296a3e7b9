/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of all ranks want few locks, with short and long turns and pauses, some of them with a thread that
 * the lock's holder waits for. What the locks guard is right, and every thread gets its turns. */
#include "check.h"

enum { kLocks = 3, kThreads = 12, kTurns = 1500 };

struct guarded {
  kasane_mutex_t mutex;
  long count, check;
};
struct shared {
  struct guarded of[kLocks];
  kasane_barrier_t start;
};
struct argument {
  struct shared* shared;
  long* home;
  uint32_t number;
};

static void spin(uint64_t ns) {
  const uint64_t end = kasane_clock_ns() + ns;
  while (kasane_clock_ns() < end) continue;
}

static void nothing(void* unused) { (void)unused; }

static void take_turns(void* p) {
  const struct argument a = *(struct argument*)p;
  while (kasane_rank() != a.number % kasane_ranks()) kasane_thread_move_near(a.home);
  CHECK(kasane_barrier_wait(&a.shared->start) == 0);
  uint32_t random = a.number * 2654435761u + 1;
  for (int i = 0; i < kTurns; ++i) {
    random = random * 1664525u + 1013904223u;
    struct guarded* const g = &a.shared->of[(random >> 24) % kLocks];
    if (random >> 20 & 1) {
      while (kasane_mutex_trylock(&g->mutex) != 0) kasane_thread_yield();
    } else {
      CHECK(kasane_mutex_lock(&g->mutex) == 0);
    }
    CHECK(g->check == (g->count ^ 0x5555));
    ++g->count;
    if ((random >> 8) % 64 == 0) spin(100000);
    if ((random >> 8) % 64 == 1) {
      kasane_allocated_t t = kasane_thread_allocate(8, 8);
      kasane_thread_fork(t, nothing);
      kasane_thread_join(t.id);
    }
    g->check = g->count ^ 0x5555;
    CHECK(kasane_mutex_unlock(&g->mutex) == 0);
    spin((random >> 12) % 4 * 2000);
  }
}

static void run(void* unused) {
  (void)unused;
  struct shared* const s = kasane_calloc(1, sizeof *s);
  for (int k = 0; k < kLocks; ++k) {
    CHECK(kasane_mutex_init(&s->of[k].mutex) == 0);
    s->of[k].check = 0x5555;
  }
  CHECK(kasane_barrier_init(&s->start, kThreads) == 0);
  kasane_thread_t ids[kThreads];
  for (uint32_t t = 0; t < kThreads; ++t) {
    kasane_allocated_t made = kasane_thread_allocate(8, sizeof(struct argument));
    CHECK(made.id != 0);
    ids[t] = made.id;
    *(struct argument*)made.argument = (struct argument){s, kasane_allocate_at(8, 8, t % kasane_ranks()), t};
    kasane_thread_fork(made, take_turns);
  }
  for (int t = 0; t < kThreads; ++t) CHECK(kasane_thread_join(ids[t]) == 0);
  long turns = 0;
  for (int k = 0; k < kLocks; ++k) turns += s->of[k].count;
  CHECK(turns == (long)kThreads * kTurns);
}

int main(void) { return kasane_run(run, NULL); }
