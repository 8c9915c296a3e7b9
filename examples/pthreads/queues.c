/* SPDX-License-Identifier: Apache-2.0 */
/* The Mandelbrot set by rectangles: where all points of a rectangle's border belong together, so do those
 * inside; else it is cut into four. Rectangles are tasks in queues, one a thread, each with its lock. A
 * thread takes the newest task of its own queue, or the oldest one of another's; if all are empty it waits
 * (condition) until there are tasks, or until the last one is done.
 *
 * The points' values and the number of tasks do not depend on who computed what.
 *
 * usage: queues [-n points a side] [-i iterations] [-p threads] [-v]      -v: each thread says what it did
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

enum { kSmallest = 16, kStock = 64, kMostQueues = 256, kUnknown = -1 };

MAIN_ENV

typedef struct task {
  struct task *older, *newer;
  int x, y, width, height;
} task;

typedef struct {
  task *oldest, *newest;
  int length;
} queue;

struct statistics {
  long tasks, taken_from_others, waits, points;
};

static int size = 256, iterations = 500, threads = 4, verbose = 0;
static int* image; /* of size × size points: iterations until they leave the circle */
static queue queues[kMostQueues];
static task* stock[kMostQueues]; /* unused tasks of each thread */
static struct statistics statistics[kMostQueues];
ALOCKDEC(queue_lock, kMostQueues)
static struct {
  LOCKDEC(lock)
  CONDVARDEC(changed)
  int queued;     /* tasks in all queues, and those about to be put there */
  int unfinished; /* tasks that are not done */
  int next_id;
} pool;

static task* new_task(int me) {
  if (stock[me] == NULL) {
    task* const more = G_MALLOC(kStock * sizeof(task));
    for (int i = 0; i < kStock; ++i) {
      more[i].older = stock[me];
      stock[me] = &more[i];
    }
  }
  task* const t = stock[me];
  stock[me] = t->older;
  return t;
}
static void put_back(int me, task* t) {
  t->older = stock[me];
  stock[me] = t;
}

static void push(int q, task* t) {
  ALOCK(queue_lock, q)
  t->newer = NULL;
  t->older = queues[q].newest;
  if (t->older != NULL)
    t->older->newer = t;
  else
    queues[q].oldest = t;
  queues[q].newest = t;
  ++queues[q].length;
  AULOCK(queue_lock, q)
}
static task* pop_newest(int q) {
  ALOCK(queue_lock, q)
  task* const t = queues[q].newest;
  if (t != NULL) {
    queues[q].newest = t->older;
    if (t->older != NULL)
      t->older->newer = NULL;
    else
      queues[q].oldest = NULL;
    --queues[q].length;
  }
  AULOCK(queue_lock, q)
  return t;
}
static task* pop_oldest(int q) {
  ALOCK(queue_lock, q)
  task* const t = queues[q].oldest;
  if (t != NULL) {
    queues[q].oldest = t->newer;
    if (t->newer != NULL)
      t->newer->older = NULL;
    else
      queues[q].newest = NULL;
    --queues[q].length;
  }
  AULOCK(queue_lock, q)
  return t;
}

static void count_new(int n) {
  LOCK(pool.lock)
  pool.queued += n;
  pool.unfinished += n;
  CONDVARBCAST(pool.changed)
  UNLOCK(pool.lock)
}
static void count_done(void) {
  LOCK(pool.lock)
  if (--pool.unfinished == 0) CONDVARBCAST(pool.changed)
  UNLOCK(pool.lock)
}

/* NULL: all tasks are done. */
static task* next_task(int me) {
  for (;;) {
    task* t = pop_newest(me);
    for (int i = 1; t == NULL && i < threads; ++i) {
      t = pop_oldest((me + i) % threads);
      if (t != NULL) ++statistics[me].taken_from_others;
    }
    LOCK(pool.lock)
    if (t != NULL) --pool.queued;
    while (t == NULL && pool.queued == 0 && pool.unfinished > 0) {
      ++statistics[me].waits;
      CONDVARWAIT(pool.changed, pool.lock)
    }
    const int over = pool.unfinished == 0;
    UNLOCK(pool.lock)
    if (t != NULL || over) return t;
  }
}

static int point(int me, int x, int y) {
  int* const known = &image[(size_t)y * (size_t)size + (size_t)x];
  if (*known != kUnknown) return *known;
  const double a = -2.2 + 3.0 * x / size, b = -1.5 + 3.0 * y / size;
  double re = 0, im = 0;
  int n = 0;
  for (; n < iterations && re * re + im * im < 4; ++n) {
    const double next = re * re - im * im + a;
    im = 2 * re * im + b;
    re = next;
  }
  ++statistics[me].points;
  return *known = n;
}

/* Whether all points of the border have one value, which `value` becomes. Tasks have no point in common. */
static int one_border(int me, const task* t, int* value) {
  int same = 1;
  *value = point(me, t->x, t->y);
  for (int i = 0; i < t->width; ++i) {
    same &= point(me, t->x + i, t->y) == *value;
    same &= point(me, t->x + i, t->y + t->height - 1) == *value;
  }
  for (int j = 0; j < t->height; ++j) {
    same &= point(me, t->x, t->y + j) == *value;
    same &= point(me, t->x + t->width - 1, t->y + j) == *value;
  }
  return same;
}
static void compute(int me, const task* t) {
  for (int y = t->y; y < t->y + t->height; ++y)
    for (int x = t->x; x < t->x + t->width; ++x) point(me, x, y);
}
static void fill(const task* t, int value) {
  for (int y = t->y; y < t->y + t->height; ++y)
    for (int x = t->x; x < t->x + t->width; ++x) image[(size_t)y * (size_t)size + (size_t)x] = value;
}
static void cut(int me, const task* t) {
  const int left = t->width / 2, top = t->height / 2;
  count_new(4);
  for (int i = 0; i < 4; ++i) {
    task* const part = new_task(me);
    part->x = i % 2 ? t->x + left : t->x;
    part->y = i / 2 ? t->y + top : t->y;
    part->width = i % 2 ? t->width - left : left;
    part->height = i / 2 ? t->height - top : top;
    push(me, part);
  }
}

static void work(void) {
  LOCK(pool.lock)
  const int me = pool.next_id++;
  UNLOCK(pool.lock)
  for (task* t; (t = next_task(me)) != NULL;) {
    int value;
    ++statistics[me].tasks;
    if (t->width <= kSmallest || t->height <= kSmallest)
      compute(me, t);
    else if (one_border(me, t, &value))
      fill(t, value);
    else
      cut(me, t);
    put_back(me, t);
    count_done();
  }
  if (verbose)
    printf("thread %d: %ld tasks, %ld of others, %ld points, waited %ld times\n", me, statistics[me].tasks,
           statistics[me].taken_from_others, statistics[me].points, statistics[me].waits);
}

static void options(int argc, char** argv) {
  int c;
  while ((c = getopt(argc, argv, "n:i:p:v")) != -1) {
    switch (c) {
      case 'n': size = atoi(optarg); break;
      case 'i': iterations = atoi(optarg); break;
      case 'p': threads = atoi(optarg); break;
      case 'v': verbose = 1; break;
      default: fprintf(stderr, "usage: queues [-n points] [-i iterations] [-p threads] [-v]\n"); exit(2);
    }
  }
  if (size < 1 || iterations < 1 || threads < 1 || threads > kMostQueues) {
    fprintf(stderr, "queues: a point and an iteration at least, 1 to %d threads\n", kMostQueues);
    exit(2);
  }
}

int main(int argc, char** argv) {
  unsigned long start, end;
  uint64_t sum = 0;
  long tasks = 0, points = 0;
  MAIN_INITENV()
  options(argc, argv);
  const size_t n = (size_t)size * (size_t)size;
  image = G_MALLOC(n * sizeof *image);
  for (size_t i = 0; i < n; ++i) image[i] = kUnknown;
  LOCKINIT(pool.lock)
  CONDVARINIT(pool.changed)
  ALOCKINIT(queue_lock, threads)
  task* const whole = new_task(0);
  *whole = (task){.width = size, .height = size};
  push(0, whole);
  count_new(1);

  CLOCK(start)
  CREATE(work, threads)
  WAIT_FOR_END(threads)
  CLOCK(end)

  for (size_t i = 0; i < n; ++i) sum = (sum ^ (uint64_t)image[i]) * 0x9e3779b97f4a7c15u;
  for (int i = 0; i < threads; ++i) {
    tasks += statistics[i].tasks;
    points += statistics[i].points;
  }
  const int good = pool.unfinished == 0 && pool.queued == 0;
  printf("time %lu us\n", end - start);
  printf("queues: %d x %d, %ld tasks, %ld points, checksum %016llx: %s\n", size, size, tasks, points,
         (unsigned long long)sum, good ? "ok" : "FAILED");
  G_FREE(image);
  if (!good) exit(1);
  MAIN_END
}
