/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are initialised again where they lie, as Pthreads programs do in each step of a loop and never
 * destroy them: they need no new record each time. One that a thread uses stays what it is. */
#include <errno.h>

#include "check.h"

/* more than a rank has records */
enum { kTimes = 140000 };

struct objects {
  kasane_mutex_t mutex;
  kasane_cond_t cond;
  kasane_barrier_t barrier;
  kasane_rwlock_t rwlock;
  kasane_sem_t sem;
  kasane_latch_t latch;
  kasane_once_t once;
};
union any { /* one place for objects of any kind */
  kasane_mutex_t mutex;
  kasane_sem_t sem;
  kasane_barrier_t barrier;
};

static int calls;
static void note_call(void* unused) {
  (void)unused;
  ++calls;
}

static void init_all(struct objects* o) {
  CHECK(kasane_mutex_init(&o->mutex) == 0);
  CHECK(kasane_cond_init(&o->cond) == 0);
  CHECK(kasane_barrier_init(&o->barrier, 1) == 0);
  CHECK(kasane_rwlock_init(&o->rwlock) == 0);
  CHECK(kasane_sem_init(&o->sem, 1) == 0);
  CHECK(kasane_latch_init(&o->latch, 1) == 0);
  CHECK(kasane_once_init(&o->once) == 0);
}

/* Each is as new: what the former objects were left in does not show. */
static void use_all(struct objects* o) {
  CHECK(kasane_mutex_lock(&o->mutex) == 0 && kasane_mutex_trylock(&o->mutex) == EBUSY);
  CHECK(kasane_cond_signal(&o->cond) == 0 && kasane_mutex_unlock(&o->mutex) == 0);
  CHECK(kasane_barrier_wait(&o->barrier) == 0);
  CHECK(kasane_rwlock_rdlock(&o->rwlock) == 0 && kasane_rwlock_rdunlock(&o->rwlock) == 0);
  CHECK(kasane_sem_trywait(&o->sem) == 0 && kasane_sem_trywait(&o->sem) == EBUSY);
  CHECK(kasane_latch_trywait(&o->latch) == EBUSY && kasane_latch_count_down(&o->latch, 1) == 0);
  const int before = calls;
  CHECK(kasane_call_once(&o->once, note_call, NULL) == 0 && calls == before + 1);
}

static void check_an_object_in_use(void) {
  kasane_mutex_t* const mutex = kasane_malloc(sizeof *mutex);
  CHECK(kasane_mutex_init(mutex) == 0 && kasane_mutex_lock(mutex) == 0);
  kasane_mutex_t held = *mutex;
  CHECK(kasane_mutex_init(mutex) == 0 && kasane_mutex_lock(mutex) == 0);
  CHECK(kasane_mutex_unlock(mutex) == 0 && kasane_mutex_unlock(&held) == 0);
  CHECK(kasane_mutex_destroy(mutex) == 0 && kasane_mutex_destroy(&held) == 0);
  /* destroyed: the bytes still name the record, which is another object's now */
  kasane_mutex_t other, third;
  CHECK(kasane_mutex_init(&other) == 0 && kasane_mutex_init(&third) == 0 && kasane_mutex_init(mutex) == 0);
  CHECK(kasane_mutex_lock(&other) == 0 && kasane_mutex_lock(&third) == 0 && kasane_mutex_lock(mutex) == 0);
  CHECK(kasane_mutex_unlock(&other) == 0 && kasane_mutex_unlock(&third) == 0);
  CHECK(kasane_mutex_unlock(mutex) == 0);
}

static void run(void* unused) {
  (void)unused;
  struct objects* const o = kasane_calloc(1, sizeof *o);
  for (int i = 0; i < kTimes; ++i) {
    init_all(o);
    if (i % 1000 == 0) use_all(o);
  }
  use_all(o);
  union any* const place = kasane_calloc(1, sizeof *place);
  for (int i = 0; i < kTimes; ++i) {
    CHECK(kasane_mutex_init(&place->mutex) == 0);
    CHECK(kasane_sem_init(&place->sem, 3) == 0);
    CHECK(kasane_barrier_init(&place->barrier, 2) == 0);
  }
  check_an_object_in_use();
}

int main(void) { return kasane_run(run, NULL); }
