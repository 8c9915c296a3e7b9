/* SPDX-License-Identifier: Apache-2.0 */
/* The macros of ../posix/macros.h for Kasane: the same program, its threads on all ranks.
 *
 * Nothing here lies in a variable at file scope, so that it works with --globals private, too: a thread has
 * a pointer to the environment in a key (the first that the job makes has the number 0), which CREATE hands
 * on. main becomes the function of the first thread, so that it may create others and take locks.
 */
#ifndef EXAMPLES_PTHREADS_KASANE_MACROS_H
#define EXAMPLES_PTHREADS_KASANE_MACROS_H

#include <kasane/kasane.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMostThreads = 64, kEnvironmentKey = 0 };

struct environment {
  void* common;
  kasane_thread_t threads[kMostThreads];
  uint32_t started; /* through the direct view only */
};
struct program {
  int argc;
  char** argv;
  int status;
};
struct start {
  struct environment* environment;
  void (*function)(void);
  uint32_t wait_for;
};

int program_main(int argc, char** argv);

static inline void check(int code) {
  if (code == 0) return;
  fprintf(stderr, "%s\n", kasane_error_message());
  exit(1);
}
static inline struct environment* environment(void) { return kasane_key_get(kEnvironmentKey); }

static inline void start_program(void* p) {
  struct program* const program = p;
  struct environment* const e = kasane_calloc(1, sizeof *e);
  kasane_key_t key;
  check(e == NULL);
  check(kasane_key_create(&key, NULL));
  if (key != kEnvironmentKey) {
    fprintf(stderr, "the program made a key of its own before main\n");
    exit(1);
  }
  check(kasane_key_set(key, e));
  program->status = program_main(program->argc, program->argv);
  kasane_free(e);
}
static inline int run_program(int argc, char** argv) {
  struct program program = {argc, argv, 1};
  check(kasane_run(start_program, &program));
  return program.status;
}

/* A fork runs the child at once; the caller goes on where another worker takes it over. So that threads
 * spread over all ranks, each keeps its worker, for some milliseconds, until as many have started as there
 * are workers. */
static inline void start_thread(void* p) {
  const struct start start = *(const struct start*)p;
  uint64_t started = 0;
  check(kasane_key_set(kEnvironmentKey, start.environment));
  check(kasane_atomic(KASANE_FETCH_ADD, sizeof start.environment->started, &start.environment->started, 1, 0,
                      &started, NULL));
  for (uint32_t now = (uint32_t)started + 1; now < start.wait_for;
       check(kasane_get(&now, &start.environment->started, sizeof now))) {
    const struct timespec moment = {0, 50000};
    nanosleep(&moment, NULL);
  }
  start.function();
}
static inline void create_threads(void (*function)(void), uint32_t n) {
  struct environment* const e = environment();
  const uint32_t workers = kasane_ranks() * kasane_workers(), none = 0;
  const struct start start = {e, function, n < workers ? n : workers};
  check(kasane_put(&e->started, &none, sizeof none));
  for (uint32_t i = 0; i + 1 < n; ++i) {
    const kasane_allocated_t t = kasane_thread_allocate(_Alignof(struct start), sizeof start);
    check(t.id == 0);
    *(struct start*)t.argument = start;
    e->threads[i] = t.id;
    kasane_thread_fork(t, start_thread);
  }
  start_thread((void*)&start);
}
static inline void wait_for_threads(uint32_t n) {
  for (uint32_t i = 0; i + 1 < n; ++i) check(kasane_thread_join(environment()->threads[i]));
}
static inline unsigned long microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long)t.tv_sec * 1000000 + (unsigned long)t.tv_nsec / 1000;
}

/* The name in brackets is not the macro. */
#define MAIN_ENV \
  int(main)(int argc, char** argv) { return run_program(argc, argv); }
#define main(...) program_main(__VA_ARGS__)
#define SHARE(pointer) (environment()->common = (pointer))
#define SHARED(type) ((type*)environment()->common)

#define CREATE(function, n) create_threads(function, (uint32_t)(n))
#define WAIT_FOR_END(n) wait_for_threads((uint32_t)(n))

#define LOCKDEC(l) kasane_mutex_t l;
#define LOCKINIT(l) check(kasane_mutex_init(&(l)))
#define LOCK(l) check(kasane_mutex_lock(&(l)))
#define UNLOCK(l) check(kasane_mutex_unlock(&(l)))

#define BARDEC(b) kasane_barrier_t b;
#define BARINIT(b, n) check(kasane_barrier_init(&(b), (uint32_t)(n)))
#define BARRIER(b, n) check(kasane_barrier_wait(&(b)))

#define CONDVARDEC(c) kasane_cond_t c;
#define CONDVARINIT(c) check(kasane_cond_init(&(c)))
#define CONDVARWAIT(c, l) check(kasane_cond_wait(&(c), &(l)))
#define CONDVARSIGNAL(c) check(kasane_cond_signal(&(c)))
#define CONDVARBCAST(c) check(kasane_cond_broadcast(&(c)))

#define G_MALLOC(bytes) kasane_allocate(bytes, 64, KASANE_PLACEMENT_CYCLIC)
#define G_FREE(pointer) kasane_free(pointer)
#define CLOCK(t) ((t) = microseconds())

#endif
