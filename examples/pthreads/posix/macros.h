/* SPDX-License-Identifier: Apache-2.0 */
/* Macros in which threaded programs may be written (their names are those of the suites SPLASH-2 and
 * SPLASH-3), here for Pthreads; for Kasane: ../kasane/macros.h.
 *
 *   MAIN_ENV                  once, at file scope, in the file of main
 *   SHARE(pointer)            main: what all threads share; SHARED(type) is that pointer, anywhere
 *   CREATE(function, n)       function() in n threads, the caller being one
 *   WAIT_FOR_END(n)           until the others have ended
 *   LOCKDEC LOCKINIT LOCK UNLOCK
 *   BARDEC BARINIT BARRIER
 *   CONDVARDEC CONDVARINIT CONDVARWAIT CONDVARSIGNAL CONDVARBCAST
 *   G_MALLOC G_FREE           memory that threads share
 *   CLOCK(t)                  t, an unsigned long, becomes microseconds of some clock
 */
#ifndef EXAMPLES_PTHREADS_POSIX_MACROS_H
#define EXAMPLES_PTHREADS_POSIX_MACROS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostThreads = 64 };

struct environment {
  void* common;
  void (*function)(void);
  pthread_t threads[kMostThreads];
};
extern struct environment environment;

static inline void check(int code, const char* what) {
  if (code == 0) return;
  fprintf(stderr, "%s: %s\n", what, strerror(code));
  exit(1);
}
static inline void* start_thread(void* unused) {
  environment.function();
  return unused;
}
static inline void create_threads(void (*function)(void), int n) {
  environment.function = function;
  for (int i = 0; i < n - 1; ++i)
    check(pthread_create(&environment.threads[i], NULL, start_thread, NULL), "create");
  function();
}
static inline void wait_for_threads(int n) {
  for (int i = 0; i < n - 1; ++i) check(pthread_join(environment.threads[i], NULL), "join");
}
static inline unsigned long microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long)t.tv_sec * 1000000 + (unsigned long)t.tv_nsec / 1000;
}

#define MAIN_ENV struct environment environment;
#define SHARE(pointer) (environment.common = (pointer))
#define SHARED(type) ((type*)environment.common)

#define CREATE(function, n) create_threads(function, n)
#define WAIT_FOR_END(n) wait_for_threads(n)

#define LOCKDEC(l) pthread_mutex_t l;
#define LOCKINIT(l) check(pthread_mutex_init(&(l), NULL), "lock")
#define LOCK(l) check(pthread_mutex_lock(&(l)), "lock")
#define UNLOCK(l) check(pthread_mutex_unlock(&(l)), "unlock")

#define BARDEC(b) pthread_barrier_t b;
#define BARINIT(b, n) check(pthread_barrier_init(&(b), NULL, (unsigned)(n)), "barrier")
#define BARRIER(b, n) ((void)pthread_barrier_wait(&(b)))

#define CONDVARDEC(c) pthread_cond_t c;
#define CONDVARINIT(c) check(pthread_cond_init(&(c), NULL), "condition")
#define CONDVARWAIT(c, l) check(pthread_cond_wait(&(c), &(l)), "condition")
#define CONDVARSIGNAL(c) check(pthread_cond_signal(&(c)), "condition")
#define CONDVARBCAST(c) check(pthread_cond_broadcast(&(c)), "condition")

#define G_MALLOC(bytes) malloc(bytes)
#define G_FREE(pointer) free(pointer)
#define CLOCK(t) ((t) = microseconds())

#endif
