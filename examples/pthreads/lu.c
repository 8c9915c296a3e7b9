/* SPDX-License-Identifier: Apache-2.0 */
/* A = L U of a dense matrix in blocks, without pivoting.
 *
 *   step k:   the owner of block (k, k) factors it and says so (condition)
 *             owners divide their blocks of column k and row k by it; all wait (barrier)
 *             owners subtract products of those from their blocks to the right and below, and go on:
 *             the next step's waits guard what it reads of others
 *
 * Each block is computed by its owner in the order of the steps, so the factors are the same, bit by bit,
 * for any number of threads.
 *
 * usage: lu [-n rows] [-p threads] [-t]      -t: test, compare L U with A
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

#include <math.h>

enum { kBlock = 16 };

MAIN_ENV

struct progress {
  LOCKDEC(lock)
  CONDVARDEC(more)
  int factored; /* steps whose diagonal block is done */
};

static int rows = 128, threads = 4, test = 0;
static int blocks;
static double** block; /* block (i, j): block[i * blocks + j], of kBlock rows */
static struct progress progress;
static struct {
  LOCKDEC(id_lock)
  LOCKDEC(error_lock)
  int next_id;
  double error; /* the largest difference of L U to A */
} global;
BARDEC(all)

/* Element (i, j) of A: scattered, below 1; the diagonal outweighs its row. */
static double element(int i, int j) {
  const unsigned mixed = ((unsigned)i * 2654435761u ^ (unsigned)j * 2246822519u) * 3266489917u;
  return mixed / 4294967296.0 + (i == j ? rows : 0);
}

static int owner(int i, int j) { return (i + j * 3) % threads; }

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

static void fill(int me) {
  for (int i = 0; i < blocks; ++i)
    for (int j = 0; j < blocks; ++j)
      if (owner(i, j) == me)
        for (int e = 0; e < kBlock * kBlock; ++e)
          block[i * blocks + j][e] = element(i * kBlock + e / kBlock, j * kBlock + e % kBlock);
}

/* Until the diagonal block of step k is factored, by this thread or by its owner. */
static void factor_or_wait(int me, int k) {
  if (owner(k, k) == me) {
    factor(block[k * blocks + k]);
    LOCK(progress.lock)
    progress.factored = k + 1;
    CONDVARBCAST(progress.more)
    UNLOCK(progress.lock)
  } else {
    LOCK(progress.lock)
    while (progress.factored <= k) CONDVARWAIT(progress.more, progress.lock)
    UNLOCK(progress.lock)
  }
}

static void step(int me, int k) {
  factor_or_wait(me, k);
  const double* const diagonal = block[k * blocks + k];
  for (int i = k + 1; i < blocks; ++i) {
    if (owner(i, k) == me) divide_right(block[i * blocks + k], diagonal);
    if (owner(k, i) == me) divide_left(block[k * blocks + i], diagonal);
  }
  BARRIER(all, threads)
  for (int i = k + 1; i < blocks; ++i)
    for (int j = k + 1; j < blocks; ++j)
      if (owner(i, j) == me)
        subtract_product(block[i * blocks + j], block[i * blocks + k], block[k * blocks + j]);
}

static double factor_at(int i, int j) {
  return block[i / kBlock * blocks + j / kBlock][i % kBlock * kBlock + j % kBlock];
}

/* Compares rows me, me + threads … of L U with A. */
static void compare(int me) {
  double error = 0;
  for (int i = me; i < rows; i += threads) {
    for (int j = 0; j < rows; ++j) {
      double sum = i <= j ? factor_at(i, j) : 0;
      for (int k = 0; k < i && k <= j; ++k) sum += factor_at(i, k) * factor_at(k, j);
      error = fmax(error, fabs(sum - element(i, j)));
    }
  }
  LOCK(global.error_lock)
  if (error > global.error) global.error = error;
  UNLOCK(global.error_lock)
}

static void work(void) {
  LOCK(global.id_lock)
  const int me = global.next_id++;
  UNLOCK(global.id_lock)
  fill(me);
  BARRIER(all, threads)
  for (int k = 0; k < blocks; ++k) step(me, k);
  BARRIER(all, threads)
  if (test) compare(me);
}

/* Of all bits of the factors. */
static uint64_t checksum(void) {
  uint64_t sum = 0;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < rows; ++j) {
      const double value = factor_at(i, j);
      uint64_t bits;
      memcpy(&bits, &value, sizeof bits);
      sum = (sum ^ bits) * 0x9e3779b97f4a7c15u;
    }
  }
  return sum;
}

static void options(int argc, char** argv) {
  for (int c; (c = getopt(argc, argv, "n:p:t")) != -1;) {
    switch (c) {
      case 'n': rows = atoi(optarg); break;
      case 'p': threads = atoi(optarg); break;
      case 't': test = 1; break;
      default: fprintf(stderr, "usage: lu [-n rows] [-p threads] [-t]\n"); exit(2);
    }
  }
  if (rows < kBlock || rows % kBlock != 0 || threads < 1) {
    fprintf(stderr, "lu: rows is a multiple of %d, and there is a thread at least\n", kBlock);
    exit(2);
  }
}

int main(int argc, char** argv) {
  MAIN_INITENV(, 80000000)
  options(argc, argv);
  blocks = rows / kBlock;
  block = G_MALLOC((size_t)blocks * (size_t)blocks * sizeof *block);
  double* const elements = G_MALLOC((size_t)rows * (size_t)rows * sizeof *elements);
  for (int i = 0; i < blocks * blocks; ++i) block[i] = elements + (size_t)i * kBlock * kBlock;
  LOCKINIT(global.id_lock)
  LOCKINIT(global.error_lock)
  LOCKINIT(progress.lock)
  CONDVARINIT(progress.more)
  BARINIT(all, threads)

  unsigned long start, end;
  CLOCK(start)
  CREATE(work, threads)
  WAIT_FOR_END(threads)
  CLOCK(end)

  const int good = global.error <= 1e-12 * rows && progress.factored == blocks;
  printf("time %lu us\n", end - start);
  printf("lu: %d rows, checksum %016llx: %s\n", rows, (unsigned long long)checksum(), good ? "ok" : "FAILED");
  G_FREE(elements);
  G_FREE(block);
  if (!good) exit(1);
  MAIN_END
}
