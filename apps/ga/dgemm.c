/* SPDX-License-Identifier: Apache-2.0 */
/* C = A B of N x N doubles by GA_Dgemm, as figure 7 of the paper on ComEx-PM: the time from arrays filled
 * with random numbers to the product in its array.
 *
 * Verified: C x = A (B x) for a random vector x. Each process multiplies its own rows, some at a time. */
#include "common.h"

enum { kRows = 64 }; /* of a panel in private memory */

static long n = 2000, repetitions = 3;

/* A number of [-0.5, 0.5), the same whatever the number of processes. */
static double random_at(unsigned long seed, unsigned long i) {
  unsigned long z = (seed << 40) + i + 0x9e3779b97f4a7c15ul;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ul;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebul;
  return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0 - 0.5;
}

/* The patch of the array that this process owns. */
typedef struct {
  int lo[2], hi[2];
  long columns;
} part_t;

static part_t my_part(int array) {
  part_t part;
  NGA_Distribution(array, me, part.lo, part.hi);
  part.columns = part.hi[1] - part.lo[1] + 1L;
  if (part.lo[0] < 0 || part.hi[0] < part.lo[0]) part.lo[0] = 0, part.hi[0] = -1, part.columns = 0;
  return part;
}

/* The next panel of the part from this row on; its number of rows. */
static int panel_of(const part_t* part, int row, int* lo, int* hi, int* ld) {
  lo[0] = row, lo[1] = part->lo[1];
  hi[0] = row + kRows - 1 < part->hi[0] ? row + kRows - 1 : part->hi[0], hi[1] = part->hi[1];
  ld[0] = (int)part->columns;
  return hi[0] - row + 1;
}

static void fill(int array, unsigned long seed) {
  const part_t part = my_part(array);
  double* panel = doubles(kRows * part.columns + 1);
  int lo[2], hi[2], ld[1];
  for (int row = part.lo[0]; row <= part.hi[0]; row += kRows) {
    const int rows = panel_of(&part, row, lo, hi, ld);
    for (long i = 0; i < rows; ++i)
      for (long j = 0; j < part.columns; ++j)
        panel[i * part.columns + j] = random_at(seed, (unsigned long)((row + i) * n + part.lo[1] + j));
    NGA_Put(array, lo, hi, panel, ld);
  }
  free(panel);
}

/* y = array x, at all processes. */
static void multiply(int array, const double* x, double* y) {
  const part_t part = my_part(array);
  double* panel = doubles(kRows * part.columns + 1);
  int lo[2], hi[2], ld[1];
  memset(y, 0, (size_t)n * sizeof *y);
  for (int row = part.lo[0]; row <= part.hi[0]; row += kRows) {
    const int rows = panel_of(&part, row, lo, hi, ld);
    NGA_Get(array, lo, hi, panel, ld);
    for (long i = 0; i < rows; ++i)
      for (long j = 0; j < part.columns; ++j) y[row + i] += panel[i * part.columns + j] * x[part.lo[1] + j];
  }
  char operation[] = "+";
  GA_Dgop(y, (int)n, operation);
  free(panel);
}

/* The largest difference between C x and A (B x), to what N products of numbers of this size may sum to. */
static double error_of(int a, int b, int c) {
  double *x = doubles(n), *bx = doubles(n), *abx = doubles(n), *cx = doubles(n), worst = 0;
  for (long i = 0; i < n; ++i) x[i] = random_at(3, (unsigned long)i);
  multiply(b, x, bx);
  multiply(a, bx, abx);
  multiply(c, x, cx);
  for (long i = 0; i < n; ++i) {
    const double difference = fabs(cx[i] - abx[i]);
    if (!(difference <= worst)) worst = difference;
  }
  free(x), free(bx), free(abx), free(cx);
  return largest(worst / (double)n);
}

int main(int argc, char** argv) {
  /* GA_Dgemm cuts the product to pieces for which MA has room. */
  start(&argc, &argv, 8 << 20);
  const option_t options[] = {{'n', &n, 1, "rows and columns of the matrices"},
                              {'r', &repetitions, 1, "repetitions, of which the median counts"}};
  read_options(argc, argv, "dgemm", options, 2);
  if (repetitions > kMostRepetitions) repetitions = kMostRepetitions;
  int dims[2] = {(int)n, (int)n};
  char names[3][2] = {"a", "b", "c"};
  int a = NGA_Create(C_DBL, 2, dims, names[0], NULL), b = GA_Duplicate(a, names[1]),
      c = GA_Duplicate(a, names[2]);
  fill(a, 1), fill(b, 2);
  GA_Zero(c);
  double seconds[kMostRepetitions];
  for (long r = 0; r < repetitions; ++r) {
    GA_Sync();
    const double begin = MPI_Wtime();
    GA_Dgemm('N', 'N', (int)n, (int)n, (int)n, 1.0, a, b, 0.0, c);
    GA_Sync();
    seconds[r] = largest(MPI_Wtime() - begin);
  }
  const double error = error_of(a, b, c);
  char parameters[64];
  snprintf(parameters, sizeof parameters, "\"n\": %ld", n);
  const int status = report("ga_dgemm", parameters, 2.0 * (double)n * (double)n * (double)n, seconds,
                            repetitions, error, 1e-12);
  GA_Destroy(a), GA_Destroy(b), GA_Destroy(c);
  return finish(status);
}
