/* SPDX-License-Identifier: Apache-2.0 */
/* The macros of SPLASH-2 and SPLASH-3 for Pthreads; ../kasane/macros.h has the same, with their meaning. */
#if !defined(EXAMPLES_PTHREADS_POSIX_MACROS_H) && (defined(__cplusplus) || __STDC_VERSION__ >= 199901L)
#define EXAMPLES_PTHREADS_POSIX_MACROS_H

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif

enum { kMostThreads = 1024 };

struct anl_environment {
  pthread_t threads[kMostThreads]; /* that CREATE made and WAIT_FOR_END has not joined */
  int alive;
};
extern struct anl_environment anl;

typedef struct anl_barrier {
  pthread_barrier_t barrier;
  pthread_mutex_t lock;
  unsigned count;
  int count_comes_late;
} anl_barrier_t;

typedef struct anl_pause {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int set;
} anl_pause_t;

typedef struct anl_subscripts {
  pthread_mutex_t lock;
  pthread_cond_t begun_anew;
  long next;
  long exhausted;
  unsigned long round;
} anl_subscripts_t;

static inline void anl_check(int code, const char* file, int line) {
  if (code == 0) return;
  fprintf(stderr, "%s:%d: %s\n", file, line, strerror(code));
  exit(1);
}
#define ANL_CHECK(call) anl_check(call, __FILE__, __LINE__)

struct anl_start {
  void (*function)(void);
};
static inline void* anl_thread(void* p) {
  const struct anl_start start = *(const struct anl_start*)p;
  free(p);
  start.function();
  return NULL;
}
static inline void anl_create_one(void (*function)(void)) {
  struct anl_start* const start = (struct anl_start*)malloc(sizeof *start);
  if (start == NULL || anl.alive == kMostThreads) {
    fprintf(stderr, "no memory, or more than %d threads\n", kMostThreads);
    exit(1);
  }
  start->function = function;
  ANL_CHECK(pthread_create(&anl.threads[anl.alive++], NULL, anl_thread, start));
}
static inline void anl_create_all(void (*function)(void), int n) {
  for (int i = 1; i < n; ++i) anl_create_one(function);
  function();
}
static inline void anl_wait_for_end(void) {
  while (anl.alive > 0) ANL_CHECK(pthread_join(anl.threads[--anl.alive], NULL));
}

static inline void anl_locks_init(pthread_mutex_t* locks, size_t n) {
  for (size_t i = 0; i < n; ++i) ANL_CHECK(pthread_mutex_init(&locks[i], NULL));
}

static inline void anl_barrier_init(anl_barrier_t* b, unsigned count) {
  b->count = count;
  b->count_comes_late = count == 0;
  if (count == 0) {
    ANL_CHECK(pthread_mutex_init(&b->lock, NULL));
  } else {
    ANL_CHECK(pthread_barrier_init(&b->barrier, NULL, count));
  }
}
static inline void anl_barrier_wait(anl_barrier_t* b, unsigned count) {
  if (b->count_comes_late) {
    ANL_CHECK(pthread_mutex_lock(&b->lock));
    if (b->count == 0) ANL_CHECK(pthread_barrier_init(&b->barrier, NULL, count));
    b->count = count;
    ANL_CHECK(pthread_mutex_unlock(&b->lock));
  }
  pthread_barrier_wait(&b->barrier);
}

static inline void anl_pause_init(anl_pause_t* p) {
  ANL_CHECK(pthread_mutex_init(&p->lock, NULL));
  ANL_CHECK(pthread_cond_init(&p->changed, NULL));
  p->set = 0;
}
static inline void anl_pause_set(anl_pause_t* p, int set) {
  ANL_CHECK(pthread_mutex_lock(&p->lock));
  p->set = set;
  if (set) ANL_CHECK(pthread_cond_broadcast(&p->changed));
  ANL_CHECK(pthread_mutex_unlock(&p->lock));
}
static inline void anl_pause_wait(anl_pause_t* p) {
  ANL_CHECK(pthread_mutex_lock(&p->lock));
  while (!p->set) ANL_CHECK(pthread_cond_wait(&p->changed, &p->lock));
  ANL_CHECK(pthread_mutex_unlock(&p->lock));
}

static inline void anl_subscripts_init(anl_subscripts_t* g) {
  ANL_CHECK(pthread_mutex_init(&g->lock, NULL));
  ANL_CHECK(pthread_cond_init(&g->begun_anew, NULL));
  g->next = g->exhausted = 0;
  g->round = 0;
}
static inline long anl_subscript(anl_subscripts_t* g, long last, long threads) {
  long got = -1;
  ANL_CHECK(pthread_mutex_lock(&g->lock));
  if (g->next <= last) {
    got = g->next++;
  } else if (++g->exhausted == threads) {
    g->next = g->exhausted = 0;
    ++g->round;
    ANL_CHECK(pthread_cond_broadcast(&g->begun_anew));
  } else {
    for (const unsigned long round = g->round; g->round == round;)
      ANL_CHECK(pthread_cond_wait(&g->begun_anew, &g->lock));
  }
  ANL_CHECK(pthread_mutex_unlock(&g->lock));
  return got;
}

static inline unsigned long anl_microseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long)t.tv_sec * 1000000 + (unsigned long)t.tv_nsec / 1000;
}

#define ENV
#define EXTERN_ENV
#define MAIN_ENV struct anl_environment anl;
#define MAIN_INITENV(...) \
  {                       \
  }
#define MAIN_END \
  {              \
    exit(0);     \
  }

#define ANL_THIRD(a, b, c, ...) c
#define ANL_CREATE_ONE(f) anl_create_one((void (*)(void))(f))
#define ANL_CREATE_ALL(f, n) anl_create_all((void (*)(void))(f), (int)(n))
#define CREATE(...)                                                         \
  {                                                                         \
    ANL_THIRD(__VA_ARGS__, ANL_CREATE_ALL, ANL_CREATE_ONE, 0)(__VA_ARGS__); \
  }
#define WAIT_FOR_END(n) \
  {                     \
    anl_wait_for_end(); \
  }

#define LOCKDEC(l) pthread_mutex_t l;
#define LOCKINIT(l)                            \
  {                                            \
    ANL_CHECK(pthread_mutex_init(&(l), NULL)); \
  }
#define LOCK(l)                          \
  {                                      \
    ANL_CHECK(pthread_mutex_lock(&(l))); \
  }
#define UNLOCK(l)                          \
  {                                        \
    ANL_CHECK(pthread_mutex_unlock(&(l))); \
  }
#define NLOCKDEC(l) LOCKDEC(l)
#define NLOCKINIT(l) LOCKINIT(l)
#define NLOCK(l) LOCK(l)
#define NUNLOCK(l) UNLOCK(l)

#define ALOCKDEC(a, n) pthread_mutex_t a[n];
#define ALOCKINIT(a, n)             \
  {                                 \
    anl_locks_init(a, (size_t)(n)); \
  }
#define ALOCK(a, i) LOCK((a)[i])
#define AULOCK(a, i) UNLOCK((a)[i])
#define AGETL(a, i) ((a)[i])

#define BARDEC(b) anl_barrier_t b;
#define ANL_BARINIT_LATE(b) anl_barrier_init(&(b), 0)
#define ANL_BARINIT(b, n) anl_barrier_init(&(b), (unsigned)(n))
#define BARINIT(...)                                                       \
  {                                                                        \
    ANL_THIRD(__VA_ARGS__, ANL_BARINIT, ANL_BARINIT_LATE, 0)(__VA_ARGS__); \
  }
#define BARRIER(b, n)                      \
  {                                        \
    anl_barrier_wait(&(b), (unsigned)(n)); \
  }

#define CONDVARDEC(c) pthread_cond_t c;
#define CONDVARINIT(c)                        \
  {                                           \
    ANL_CHECK(pthread_cond_init(&(c), NULL)); \
  }
#define CONDVARWAIT(c, l)                     \
  {                                           \
    ANL_CHECK(pthread_cond_wait(&(c), &(l))); \
  }
#define CONDVARSIGNAL(c)                  \
  {                                       \
    ANL_CHECK(pthread_cond_signal(&(c))); \
  }
#define CONDVARBCAST(c)                      \
  {                                          \
    ANL_CHECK(pthread_cond_broadcast(&(c))); \
  }

#define PAUSEDEC(p) anl_pause_t p;
#define PAUSEINIT(p)      \
  {                       \
    anl_pause_init(&(p)); \
  }
#define SETPAUSE(p)         \
  {                         \
    anl_pause_set(&(p), 1); \
  }
#define CLEARPAUSE(p)       \
  {                         \
    anl_pause_set(&(p), 0); \
  }
#define WAITPAUSE(p)      \
  {                       \
    anl_pause_wait(&(p)); \
  }

#define SEMDEC(s) sem_t s;
#define SEMINIT(s, n)                 \
  {                                   \
    sem_init(&(s), 0, (unsigned)(n)); \
  }
#define SEMP(s)     \
  {                 \
    sem_wait(&(s)); \
  }
#define SEMV(s)     \
  {                 \
    sem_post(&(s)); \
  }

#define GSDEC(g) anl_subscripts_t g;
#define GSINIT(g)              \
  {                            \
    anl_subscripts_init(&(g)); \
  }
#define GETSUB(g, i, last, n)                           \
  {                                                     \
    (i) = anl_subscript(&(g), (long)(last), (long)(n)); \
  }
#define NU_GSDEC(g) GSDEC(g)
#define NU_GSINIT(g) GSINIT(g)
#define NU_GETSUB(g, i, last, n) GETSUB(g, i, last, n)

#define ANL_FIRST(a, ...) (a)
#define G_MALLOC(...) malloc((size_t)ANL_FIRST(__VA_ARGS__, 0))
#define G_MALLOC_F(...) G_MALLOC(__VA_ARGS__)
#define NU_MALLOC(...) G_MALLOC(__VA_ARGS__)
#define NU_MALLOC_F(...) G_MALLOC(__VA_ARGS__)
#define G_FREE(p) free(p)
#define NU_FREE(p) free(p)

#define CLOCK(t)              \
  {                           \
    (t) = anl_microseconds(); \
  }
#define GET_PID(i) \
  {                \
    (i) = 0;       \
  }
#define GET_HOME(i) \
  {                 \
    (i) = 0;        \
  }

#define RELEASE_FENCE(...)                   \
  {                                          \
    __atomic_thread_fence(__ATOMIC_RELEASE); \
  }
#define ACQUIRE_FENCE(...)                   \
  {                                          \
    __atomic_thread_fence(__ATOMIC_ACQUIRE); \
  }
#define FULL_FENCE(...)                      \
  {                                          \
    __atomic_thread_fence(__ATOMIC_SEQ_CST); \
  }

#define SPLASH3_ROI_BEGIN()
#define SPLASH3_ROI_END()
#define EVENT(...) \
  {                \
  }
#define AUG_ON
#define AUG_OFF
#define AUG_DELAY(n) \
  {                  \
  }
#define AUG_SET_LOLIMIT(...) \
  {                          \
  }
#define AUG_SET_HILIMIT(...) \
  {                          \
  }
#define TRACE_ON
#define TRACE_OFF
#define REF_TRACE_ON
#define REF_TRACE_OFF
#define DYN_TRACE_ON
#define DYN_TRACE_OFF
#define DYN_REF_TRACE_ON
#define DYN_REF_TRACE_OFF
#define DYN_SIM_ON
#define DYN_SIM_OFF
#define DYN_SCHED_ON
#define DYN_SCHED_OFF
#define ST_LOG(...) \
  {                 \
  }
#define SET_HOME(...) \
  {                   \
  }

#endif
