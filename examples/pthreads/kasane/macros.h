/* SPDX-License-Identifier: Apache-2.0 */
/* The macros of SPLASH-2 and SPLASH-3 (Argonne National Laboratory's, "ANL") for Kasane: a program that
 * was written in them runs on all ranks without another change. ../posix/macros.h has the same macros for
 * Pthreads.
 *
 * How it is used. Programs include this file before all else (or a compiler option does: -include), or m4 is
 * given suite.m4 in its place. A program that was written for m4 may use a macro with or without a
 * semicolon behind it: what is a statement is a block here too.
 *
 *   MAIN_ENV                       once, at file scope, in the file of main; EXTERN_ENV in the others
 *   MAIN_INITENV(...)              main, first; MAIN_END: main's end
 *   CREATE(f, n)                   f() in n threads, of which the caller is one; CREATE(f): one more thread
 *   WAIT_FOR_END(n)                until all threads that CREATE made have ended
 *   LOCKDEC(l) LOCKINIT(l) LOCK(l) UNLOCK(l)
 *   ALOCKDEC(a, n) ALOCKINIT(a, n) ALOCK(a, i) AULOCK(a, i) AGETL(a, i)        an array of locks
 *   BARDEC(b) BARINIT(b, n) BARRIER(b, n)                                      BARINIT(b): n at BARRIER
 *   CONDVARDEC(c) CONDVARINIT(c) CONDVARWAIT(c, l) CONDVARSIGNAL(c) CONDVARBCAST(c)
 *   PAUSEDEC(p) PAUSEINIT(p) SETPAUSE(p) WAITPAUSE(p) CLEARPAUSE(p)            a flag to wait for
 *   SEMDEC(s) SEMINIT(s, n) SEMP(s) SEMV(s)                                    a semaphore
 *   GSDEC(g) GSINIT(g) GETSUB(g, i, last, n)                        i: the next of 0 ... last, then -1
 *   G_MALLOC(bytes) G_FREE(p) NU_MALLOC NU_FREE
 *   CLOCK(t)                       t becomes microseconds of the job's clock
 *   GET_PID(i) GET_HOME(i), and those for simulators (AUG_ON, TRACE_ON ...), which do nothing
 *
 * What is shared. Variables at file scope and what G_MALLOC returns: as with Pthreads. What plain malloc
 * returns is a rank's own, unless the program is started by `kasane run --malloc space`.
 *
 * Where threads run. CREATE deals the n threads out to the ranks: the first n / ranks of them, of which the
 * caller is one, to the rank of the caller, the next to the next rank. A thread begins at its rank.
 *
 * Where memory lies. Objects of less than kSharedPages lie at the rank that allocates them. Larger ones lie,
 * page by page (64 KiB), at the rank that touches a page first. So a program whose threads initialise what
 * they will use has it near; one whose main initialises all has all at main's rank.
 *
 * Thread safety: each macro may be used by any thread; CREATE and WAIT_FOR_END by one thread at a time.
 * Errors: the program ends with a message that names file and line, status 1. G_MALLOC returns NULL.
 */
#if !defined(EXAMPLES_PTHREADS_KASANE_MACROS_H) && (defined(__cplusplus) || __STDC_VERSION__ >= 199901L)
#define EXAMPLES_PTHREADS_KASANE_MACROS_H

#include <kasane/kasane.h>

/* What the macro files of the suites include, on which programs rely. */
#include <assert.h>
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

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what the macros are made of ---------------------------------------------------------------------- */

enum { kSharedPages = 32768, kStaggered = 1 << 20 }; /* bytes */

struct anl_environment {
  void** homes;             /* an address at each rank; the page of an address is never touched */
  kasane_thread_t* threads; /* that CREATE made and WAIT_FOR_END has not joined */
  uint32_t alive, room;     /* of threads: those, and how many fit */
  uint32_t home;            /* the rank at which the caller of CREATE began */
};
extern struct anl_environment anl;

typedef struct anl_barrier {
  kasane_barrier_t barrier;
  kasane_mutex_t lock; /* initialised where BARRIER brings the count */
  uint32_t count;      /* 0: no thread has brought it yet */
  uint32_t count_comes_late;
} anl_barrier_t;

typedef struct anl_pause {
  kasane_mutex_t lock;
  kasane_cond_t changed;
  uint32_t set;
} anl_pause_t;

/* The numbers 0 ... last, dealt out; begins anew when `threads` threads have got the answer "no more". */
typedef struct anl_subscripts {
  kasane_mutex_t lock;
  kasane_cond_t begun_anew;
  long next;
  long exhausted; /* threads that have got that answer */
  unsigned long round;
} anl_subscripts_t;

static inline void anl_fail(const char* file, int line) {
  fprintf(stderr, "%s:%d: %s\n", file, line, kasane_error_message());
  exit(1);
}
#define ANL_CHECK(call)                            \
  do {                                             \
    if ((call) != 0) anl_fail(__FILE__, __LINE__); \
  } while (0)

/* -- main and threads -- */

struct anl_program {
  int (*main)(int, char**);
  int argc;
  char** argv;
  int status;
};
static inline void anl_first_thread(void* p) {
  struct anl_program* const program = (struct anl_program*)p;
  anl.homes = (void**)kasane_calloc(kasane_ranks(), sizeof *anl.homes);
  if (anl.homes == NULL) anl_fail(__FILE__, __LINE__);
  for (uint32_t r = 0; r < kasane_ranks(); ++r) {
    anl.homes[r] = kasane_allocate_at(KASANE_PAGE_DEFAULT, 64, r);
    if (anl.homes[r] == NULL) anl_fail(__FILE__, __LINE__);
  }
  program->status = program->main(program->argc, program->argv);
}
/* main as the first thread of the job: it creates others, takes locks and waits, as they do. */
static inline int anl_run(int (*program_main)(int, char**), int argc, char** argv) {
  struct anl_program program = {program_main, argc, argv, 1};
  ANL_CHECK(kasane_run(anl_first_thread, &program));
  return program.status;
}

struct anl_start {
  void (*function)(void);
  void* home;
};
/* Its creator goes on when the thread leaves for another rank, or when another worker takes it over. */
static inline void anl_thread(void* p) {
  const struct anl_start start = *(const struct anl_start*)p;
  ANL_CHECK(kasane_thread_move_near(start.home));
  start.function();
}
static inline void anl_create(void (*function)(void), uint32_t rank) {
  const kasane_allocated_t t =
      kasane_thread_allocate(__alignof__(struct anl_start), sizeof(struct anl_start));
  struct anl_start* const start = (struct anl_start*)t.argument;
  if (t.id == 0) anl_fail(__FILE__, __LINE__);
  if (anl.alive == anl.room) {
    anl.room = anl.room == 0 ? 16 : 2 * anl.room;
    anl.threads = (kasane_thread_t*)kasane_realloc(anl.threads, anl.room * sizeof *anl.threads);
    if (anl.threads == NULL) anl_fail(__FILE__, __LINE__);
  }
  anl.threads[anl.alive++] = t.id;
  start->function = function;
  start->home = anl.homes[rank % kasane_ranks()];
  kasane_thread_fork(t, anl_thread);
}
/* Thread 0 is the caller, which begins its part at the rank where it was. Those of other ranks go first: a
 * thread of the caller's own rank runs at once, and the caller only after it on a rank of one worker. */
static inline void anl_create_all(void (*function)(void), uint32_t n) {
  anl.home = kasane_rank();
  for (uint32_t i = n; i > 1; --i)
    anl_create(function, anl.home + (uint32_t)((uint64_t)(i - 1) * kasane_ranks() / n));
  ANL_CHECK(kasane_thread_move_near(anl.homes[anl.home]));
  function();
}
/* One more: the ranks in turn. */
static inline void anl_create_one(void (*function)(void)) {
  if (anl.alive == 0) anl.home = kasane_rank();
  anl_create(function, anl.home + anl.alive + 1);
}
/* The caller goes on at the rank where it was before: its open files are there. */
static inline void anl_wait_for_end(void) {
  while (anl.alive > 0) ANL_CHECK(kasane_thread_join(anl.threads[--anl.alive]));
  ANL_CHECK(kasane_thread_move_near(anl.homes[anl.home]));
}

/* -- synchronisation -- */

static inline void anl_locks_init(kasane_mutex_t* locks, size_t n) {
  for (size_t i = 0; i < n; ++i) ANL_CHECK(kasane_mutex_init(&locks[i]));
}

static inline void anl_barrier_init(anl_barrier_t* b, uint32_t count) {
  b->count = count;
  b->count_comes_late = count == 0;
  if (count == 0) {
    ANL_CHECK(kasane_mutex_init(&b->lock));
  } else {
    ANL_CHECK(kasane_barrier_init(&b->barrier, count));
  }
}
static inline void anl_barrier_wait(anl_barrier_t* b, uint32_t count) {
  if (b->count_comes_late) {
    ANL_CHECK(kasane_mutex_lock(&b->lock));
    if (b->count == 0) ANL_CHECK(kasane_barrier_init(&b->barrier, count));
    b->count = count;
    ANL_CHECK(kasane_mutex_unlock(&b->lock));
  }
  ANL_CHECK(kasane_barrier_wait(&b->barrier));
}

static inline void anl_pause_init(anl_pause_t* p) {
  ANL_CHECK(kasane_mutex_init(&p->lock));
  ANL_CHECK(kasane_cond_init(&p->changed));
  p->set = 0;
}
static inline void anl_pause_set(anl_pause_t* p, uint32_t set) {
  ANL_CHECK(kasane_mutex_lock(&p->lock));
  p->set = set;
  if (set) ANL_CHECK(kasane_cond_broadcast(&p->changed));
  ANL_CHECK(kasane_mutex_unlock(&p->lock));
}
static inline void anl_pause_wait(anl_pause_t* p) {
  ANL_CHECK(kasane_mutex_lock(&p->lock));
  while (!p->set) ANL_CHECK(kasane_cond_wait(&p->changed, &p->lock));
  ANL_CHECK(kasane_mutex_unlock(&p->lock));
}

static inline void anl_subscripts_init(anl_subscripts_t* g) {
  ANL_CHECK(kasane_mutex_init(&g->lock));
  ANL_CHECK(kasane_cond_init(&g->begun_anew));
  g->next = g->exhausted = 0;
  g->round = 0;
}
/* After the last number a thread waits for the others: all get "no more", and the next round begins. */
static inline long anl_subscript(anl_subscripts_t* g, long last, long threads) {
  long got = -1;
  ANL_CHECK(kasane_mutex_lock(&g->lock));
  if (g->next <= last) {
    got = g->next++;
  } else if (++g->exhausted == threads) {
    g->next = g->exhausted = 0;
    ++g->round;
    ANL_CHECK(kasane_cond_broadcast(&g->begun_anew));
  } else {
    for (const unsigned long round = g->round; g->round == round;)
      ANL_CHECK(kasane_cond_wait(&g->begun_anew, &g->lock));
  }
  ANL_CHECK(kasane_mutex_unlock(&g->lock));
  return got;
}

/* -- memory -- */

/* Large arrays get a page more than they ask for, which is never touched. So arrays of equal size, say
 * 256 MiB, do not begin at addresses that differ in high bits only: loads and stores that go through several
 * such arrays in step miss the first-level caches of some processors each time. */
static inline void* anl_allocate(size_t bytes) {
  if (bytes < kSharedPages) return kasane_malloc(bytes);
  if (bytes >= kStaggered) bytes += KASANE_PAGE_DEFAULT;
  return kasane_allocate(bytes, 64, KASANE_PLACEMENT_FIRST_TOUCH);
}

#ifdef __cplusplus
}
#endif

/* ---- the macros --------------------------------------------------------------------------------------- */

/* The program's main has another name, whatever its parameters are; the name in brackets is not the macro. */
#ifdef __cplusplus
extern "C" int anl_program_main(int argc, char** argv);
#define ANL_MAIN anl_program_main
#else
int anl_main(int argc, char** argv) __asm__("anl_program_main");
#define ANL_MAIN anl_main
#endif
#define main(...) anl_program_main(__VA_ARGS__)

#define ENV
#define EXTERN_ENV
#define MAIN_ENV              \
  struct anl_environment anl; \
  int(main)(int argc, char** argv) { return anl_run(ANL_MAIN, argc, argv); }
#define MAIN_INITENV(...) \
  {                       \
  }
#define MAIN_END \
  {              \
    exit(0);     \
  }

/* Macros with one argument or two: ANL_TWO(arguments, the one for two, the one for one). */
#define ANL_THIRD(a, b, c, ...) c
#define ANL_CREATE_ONE(f) anl_create_one((void (*)(void))(f))
#define ANL_CREATE_ALL(f, n) anl_create_all((void (*)(void))(f), (uint32_t)(n))
#define CREATE(...)                                                         \
  {                                                                         \
    ANL_THIRD(__VA_ARGS__, ANL_CREATE_ALL, ANL_CREATE_ONE, 0)(__VA_ARGS__); \
  }
#define WAIT_FOR_END(n) \
  {                     \
    anl_wait_for_end(); \
  }

#define LOCKDEC(l) kasane_mutex_t l;
#define LOCKINIT(l)                     \
  {                                     \
    ANL_CHECK(kasane_mutex_init(&(l))); \
  }
#define LOCK(l)                         \
  {                                     \
    ANL_CHECK(kasane_mutex_lock(&(l))); \
  }
#define UNLOCK(l)                         \
  {                                       \
    ANL_CHECK(kasane_mutex_unlock(&(l))); \
  }
#define NLOCKDEC(l) LOCKDEC(l)
#define NLOCKINIT(l) LOCKINIT(l)
#define NLOCK(l) LOCK(l)
#define NUNLOCK(l) UNLOCK(l)

#define ALOCKDEC(a, n) kasane_mutex_t a[n];
#define ALOCKINIT(a, n)             \
  {                                 \
    anl_locks_init(a, (size_t)(n)); \
  }
#define ALOCK(a, i) LOCK((a)[i])
#define AULOCK(a, i) UNLOCK((a)[i])
#define AGETL(a, i) ((a)[i])

#define BARDEC(b) anl_barrier_t b;
#define ANL_BARINIT_LATE(b) anl_barrier_init(&(b), 0)
#define ANL_BARINIT(b, n) anl_barrier_init(&(b), (uint32_t)(n))
#define BARINIT(...)                                                       \
  {                                                                        \
    ANL_THIRD(__VA_ARGS__, ANL_BARINIT, ANL_BARINIT_LATE, 0)(__VA_ARGS__); \
  }
#define BARRIER(b, n)                      \
  {                                        \
    anl_barrier_wait(&(b), (uint32_t)(n)); \
  }

#define CONDVARDEC(c) kasane_cond_t c;
#define CONDVARINIT(c)                 \
  {                                    \
    ANL_CHECK(kasane_cond_init(&(c))); \
  }
#define CONDVARWAIT(c, l)                    \
  {                                          \
    ANL_CHECK(kasane_cond_wait(&(c), &(l))); \
  }
#define CONDVARSIGNAL(c)                 \
  {                                      \
    ANL_CHECK(kasane_cond_signal(&(c))); \
  }
#define CONDVARBCAST(c)                     \
  {                                         \
    ANL_CHECK(kasane_cond_broadcast(&(c))); \
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

#define SEMDEC(s) kasane_sem_t s;
#define SEMINIT(s, n)                                \
  {                                                  \
    ANL_CHECK(kasane_sem_init(&(s), (uint32_t)(n))); \
  }
#define SEMP(s)                       \
  {                                   \
    ANL_CHECK(kasane_sem_wait(&(s))); \
  }
#define SEMV(s)                          \
  {                                      \
    ANL_CHECK(kasane_sem_post(&(s), 1)); \
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

/* A second argument, in some programs the home of the memory, is not used. */
#define ANL_FIRST(a, ...) (a)
#define G_MALLOC(...) anl_allocate((size_t)ANL_FIRST(__VA_ARGS__, 0))
#define G_MALLOC_F(...) G_MALLOC(__VA_ARGS__)
#define NU_MALLOC(...) G_MALLOC(__VA_ARGS__)
#define NU_MALLOC_F(...) G_MALLOC(__VA_ARGS__)
#define G_FREE(p) kasane_free(p)
#define NU_FREE(p) kasane_free(p)

#define CLOCK(t)                    \
  {                                 \
    (t) = kasane_clock_ns() / 1000; \
  }
#define GET_PID(i) \
  {                \
    (i) = 0;       \
  }
#define GET_HOME(i)      \
  {                      \
    (i) = kasane_rank(); \
  }

/* C11's, between ranks too where the program is compiled as kasane.pc says. */
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

/* For simulators; SPLASH3_ROI: the region of interest. */
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
