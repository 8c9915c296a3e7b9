/* SPDX-License-Identifier: Apache-2.0 */
/* A threaded program in macros: A = L U of a dense matrix in blocks, without pivoting. Built twice from this
 * file, with Pthreads (posix/macros.h) and with Kasane (kasane/macros.h).
 *
 *   step k:   the owner of block (k, k) factors it and says so (condition)
 *             owners divide their blocks of column k and row k by it; all wait (barrier)
 *             owners subtract products of those from their blocks to the right and below, and go on:
 *             the next step's waits guard what it reads of others
 *
 * usage: lu [rows [threads]]
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBlock = 16 };

struct shared {
  LOCKDEC(lock)
  CONDVARDEC(factored_more)
  BARDEC(all)
  int rows, blocks, threads;
  int next_id;  /* under the lock, as the next two */
  int factored; /* steps whose diagonal block is done */
  double error; /* the largest difference of L U to A */
  double* a;    /* blocks one after the other, row by row */
};

MAIN_ENV

/* Element (i, j) of A: scattered, below 1; the diagonal outweighs its row. */
static double element(const struct shared* g, int i, int j) {
  const unsigned mixed = ((unsigned)i * 2654435761u ^ (unsigned)j * 2246822519u) * 3266489917u;
  return mixed / 4294967296.0 + (i == j ? g->rows : 0);
}

static double* block(const struct shared* g, int i, int j) {
  return g->a + (size_t)(i * g->blocks + j) * kBlock * kBlock;
}
static int owner(const struct shared* g, int i, int j) { return (i + j * 3) % g->threads; }

static void factor(double* d) {
  for (int k = 0; k < kBlock; ++k) {
    for (int i = k + 1; i < kBlock; ++i) {
      d[i * kBlock + k] /= d[k * kBlock + k];
      for (int j = k + 1; j < kBlock; ++j) d[i * kBlock + j] -= d[i * kBlock + k] * d[k * kBlock + j];
    }
  }
}
/* b := b U⁻¹ */
static void divide_right(double* b, const double* d) {
  for (int i = 0; i < kBlock; ++i) {
    for (int k = 0; k < kBlock; ++k) {
      b[i * kBlock + k] /= d[k * kBlock + k];
      for (int j = k + 1; j < kBlock; ++j) b[i * kBlock + j] -= b[i * kBlock + k] * d[k * kBlock + j];
    }
  }
}
/* b := L⁻¹ b */
static void divide_left(double* b, const double* d) {
  for (int k = 0; k < kBlock; ++k)
    for (int i = k + 1; i < kBlock; ++i)
      for (int j = 0; j < kBlock; ++j) b[i * kBlock + j] -= d[i * kBlock + k] * b[k * kBlock + j];
}
static void subtract_product(double* c, const double* l, const double* u) {
  for (int i = 0; i < kBlock; ++i)
    for (int k = 0; k < kBlock; ++k)
      for (int j = 0; j < kBlock; ++j) c[i * kBlock + j] -= l[i * kBlock + k] * u[k * kBlock + j];
}

static void fill(const struct shared* g, int me) {
  for (int i = 0; i < g->blocks; ++i)
    for (int j = 0; j < g->blocks; ++j)
      if (owner(g, i, j) == me)
        for (int e = 0; e < kBlock * kBlock; ++e)
          block(g, i, j)[e] = element(g, i * kBlock + e / kBlock, j * kBlock + e % kBlock);
}

static void step(struct shared* g, int me, int k) {
  const int n = g->blocks;
  if (owner(g, k, k) == me) {
    factor(block(g, k, k));
    LOCK(g->lock);
    g->factored = k + 1;
    CONDVARBCAST(g->factored_more);
    UNLOCK(g->lock);
  } else {
    LOCK(g->lock);
    while (g->factored <= k) CONDVARWAIT(g->factored_more, g->lock);
    UNLOCK(g->lock);
  }
  for (int i = k + 1; i < n; ++i) {
    if (owner(g, i, k) == me) divide_right(block(g, i, k), block(g, k, k));
    if (owner(g, k, i) == me) divide_left(block(g, k, i), block(g, k, k));
  }
  BARRIER(g->all, g->threads);
  for (int i = k + 1; i < n; ++i)
    for (int j = k + 1; j < n; ++j)
      if (owner(g, i, j) == me) subtract_product(block(g, i, j), block(g, i, k), block(g, k, j));
}

static double factor_at(const struct shared* g, int i, int j) {
  return block(g, i / kBlock, j / kBlock)[i % kBlock * kBlock + j % kBlock];
}

/* Compares rows me, me + threads … of L U with A. */
static void compare(struct shared* g, int me) {
  double error = 0;
  for (int i = me; i < g->rows; i += g->threads) {
    for (int j = 0; j < g->rows; ++j) {
      double sum = i <= j ? factor_at(g, i, j) : 0;
      for (int k = 0; k < i && k <= j; ++k) sum += factor_at(g, i, k) * factor_at(g, k, j);
      error = fmax(error, fabs(sum - element(g, i, j)));
    }
  }
  LOCK(g->lock);
  g->error = fmax(g->error, error);
  UNLOCK(g->lock);
}

static void work(void) {
  struct shared* const g = SHARED(struct shared);
  LOCK(g->lock);
  const int me = g->next_id++;
  UNLOCK(g->lock);
  fill(g, me);
  BARRIER(g->all, g->threads);
  for (int k = 0; k < g->blocks; ++k) step(g, me, k);
  BARRIER(g->all, g->threads);
  compare(g, me);
}

int main(int argc, char** argv) {
  const int rows = argc > 1 ? atoi(argv[1]) : 128, threads = argc > 2 ? atoi(argv[2]) : 4;
  if (rows < kBlock || rows % kBlock != 0 || threads < 1 || threads > kMostThreads) {
    fprintf(stderr, "usage: lu [rows [threads]]: rows a multiple of %d, 1 to %d threads\n", kBlock,
            kMostThreads);
    return 2;
  }
  struct shared* const g = G_MALLOC(sizeof *g);
  SHARE(g);
  g->rows = rows, g->blocks = rows / kBlock, g->threads = threads;
  g->next_id = g->factored = 0;
  g->error = 0;
  g->a = G_MALLOC((size_t)rows * (size_t)rows * sizeof(double));
  LOCKINIT(g->lock);
  CONDVARINIT(g->factored_more);
  BARINIT(g->all, threads);

  unsigned long start, end;
  CLOCK(start);
  CREATE(work, threads);
  WAIT_FOR_END(threads);
  CLOCK(end);

  const int good = g->error <= 1e-12 * rows && g->factored == g->blocks;
  printf("lu: %d rows, %d threads, %lu us, L U differs from A by %.1e: %s\n", rows, threads, end - start,
         g->error, good ? "ok" : "FAILED");
  G_FREE(g->a);
  G_FREE(g);
  return !good;
}
