/* SPDX-License-Identifier: Apache-2.0 */
/* A Fourier transform of n = m² complex numbers, seen as a matrix of m rows, in six steps.
 *
 *   transpose | transform each row, multiply by twiddle factors | transpose | transform each row | transpose
 *
 * Each thread has a strip of rows, which it initialises, so that the strip lies near it; a transposition
 * reads a block from the strip of every other thread. Barriers stand between the steps.
 *
 * usage: fft [-m rows] [-p threads] [-t]      m: a power of two;  -t: test, transform back and compare
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

#include <math.h>

enum { kTile = 8 }; /* rows and columns that a transposition moves at a time: a line of the cache each */

typedef struct {
  double re, im;
} complex_t;

MAIN_ENV

struct matrices {
  complex_t *x, *y;   /* the transform goes from x to y and back */
  complex_t* twiddle; /* row by row: the root of 1 to the power row × column */
  complex_t* roots;   /* of a row's transform: m / 2 of them */
};

static long m = 64;
static int threads = 4;
static int test = 0;
static int bits; /* m = 1 << bits */
static struct matrices matrices;
static struct {
  LOCKDEC(lock)
  BARDEC(step)
  int next_id;
  double error; /* the largest difference after the way back */
} global;

static long first_row(int thread) { return m * thread / threads; }

/* Element i of the input: scattered, between -1 and 1. */
static complex_t input(long i) {
  const uint32_t a = (uint32_t)i * 2654435761u, b = (a ^ (a >> 15)) * 2246822519u;
  return (complex_t){b / 2147483648.0 - 1, (b ^ (b >> 13)) * 3266489917u / 2147483648.0 - 1};
}
static complex_t times(complex_t a, complex_t b) {
  return (complex_t){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static void initialise(int me) {
  const double turn = -2 * M_PI / ((double)m * (double)m);
  for (long row = first_row(me); row < first_row(me + 1); ++row) {
    for (long column = 0; column < m; ++column) {
      const double angle = turn * (double)(row * column);
      matrices.x[row * m + column] = input(row * m + column);
      matrices.y[row * m + column] = (complex_t){0, 0};
      matrices.twiddle[row * m + column] = (complex_t){cos(angle), sin(angle)};
    }
  }
}

/* Columns of `from` become rows of `to`: this thread's, tile by tile, those of its right neighbours first, so
 * that threads do not all read from the same one. */
static void transpose(int me, const complex_t* from, complex_t* to) {
  for (int turn = 0; turn < threads; ++turn) {
    const int other = (me + turn) % threads;
    for (long r = first_row(me); r < first_row(me + 1); r += kTile) {
      for (long c = first_row(other); c < first_row(other + 1); c += kTile) {
        const long last_r = r + kTile < first_row(me + 1) ? r + kTile : first_row(me + 1);
        const long last_c = c + kTile < first_row(other + 1) ? c + kTile : first_row(other + 1);
        for (long i = r; i < last_r; ++i)
          for (long j = c; j < last_c; ++j) to[i * m + j] = from[j * m + i];
      }
    }
  }
}

static void reverse(complex_t* row) {
  for (long i = 0, j = 0; i < m; ++i) {
    if (i < j) {
      const complex_t kept = row[i];
      row[i] = row[j];
      row[j] = kept;
    }
    long bit = m >> 1;
    for (; bit > 0 && (j & bit); bit >>= 1) j &= ~bit;
    j |= bit;
  }
}
static void transform_row(complex_t* row) {
  reverse(row);
  for (int level = 1; level <= bits; ++level) {
    const long half = 1L << (level - 1), stride = m >> level;
    for (long at = 0; at < m; at += 2 * half) {
      for (long i = 0; i < half; ++i) {
        const complex_t a = row[at + i], b = times(row[at + half + i], matrices.roots[i * stride]);
        row[at + i] = (complex_t){a.re + b.re, a.im + b.im};
        row[at + half + i] = (complex_t){a.re - b.re, a.im - b.im};
      }
    }
  }
}

/* x becomes its transform, in y; what x holds afterwards is not used. */
static void transform(int me, complex_t* x, complex_t* y) {
  transpose(me, x, y);
  BARRIER(global.step, threads)
  for (long row = first_row(me); row < first_row(me + 1); ++row) {
    transform_row(y + row * m);
    for (long c = 0; c < m; ++c) y[row * m + c] = times(y[row * m + c], matrices.twiddle[row * m + c]);
  }
  BARRIER(global.step, threads)
  transpose(me, y, x);
  BARRIER(global.step, threads)
  for (long row = first_row(me); row < first_row(me + 1); ++row) transform_row(x + row * m);
  BARRIER(global.step, threads)
  transpose(me, x, y);
  BARRIER(global.step, threads)
}

/* The way back is the transform of the conjugate, conjugated and divided by n. */
static void compare(int me) {
  const double n = (double)m * (double)m;
  double error = 0;
  for (long i = first_row(me) * m; i < first_row(me + 1) * m; ++i) matrices.y[i].im = -matrices.y[i].im;
  BARRIER(global.step, threads)
  transform(me, matrices.y, matrices.x);
  for (long i = first_row(me) * m; i < first_row(me + 1) * m; ++i) {
    const complex_t was = input(i), is = matrices.x[i];
    error = fmax(error, fmax(fabs(is.re / n - was.re), fabs(-is.im / n - was.im)));
  }
  LOCK(global.lock)
  if (error > global.error) global.error = error;
  UNLOCK(global.lock)
}

static uint64_t checksum(const complex_t* x) {
  uint64_t sum = 0;
  for (long i = 0; i < m * m; ++i) {
    uint64_t bits_of[2];
    memcpy(bits_of, &x[i], sizeof bits_of);
    sum = (sum ^ bits_of[0]) * 0x9e3779b97f4a7c15u + bits_of[1];
  }
  return sum;
}
static uint64_t result;

static void work(void) {
  LOCK(global.lock)
  const int me = global.next_id++;
  UNLOCK(global.lock)
  initialise(me);
  BARRIER(global.step, threads)
  transform(me, matrices.x, matrices.y);
  if (me == threads / 2) result = checksum(matrices.y);
  BARRIER(global.step, threads)
  if (test) compare(me);
}

static void options(int argc, char** argv) {
  for (int c; (c = getopt(argc, argv, "m:p:t")) != -1;) {
    switch (c) {
      case 'm': m = atol(optarg); break;
      case 'p': threads = atoi(optarg); break;
      case 't': test = 1; break;
      default: fprintf(stderr, "usage: fft [-m rows] [-p threads] [-t]\n"); exit(2);
    }
  }
  while (bits < 16 && 1L << bits < m) ++bits;
  if (m != 1L << bits || m < 2 || threads < 1) {
    fprintf(stderr, "fft: m is a power of two, 2 to 65536, and there is a thread at least\n");
    exit(2);
  }
}

int main(int argc, char** argv) {
  MAIN_INITENV(, 80000000)
  options(argc, argv);
  const size_t bytes = (size_t)m * (size_t)m * sizeof(complex_t);
  matrices.x = G_MALLOC(bytes);
  matrices.y = G_MALLOC(bytes);
  matrices.twiddle = G_MALLOC(bytes);
  matrices.roots = G_MALLOC((size_t)m * sizeof(complex_t));
  for (long i = 0; i < m / 2; ++i) {
    const double angle = -2 * M_PI * (double)i / (double)m;
    matrices.roots[i] = (complex_t){cos(angle), sin(angle)};
  }
  LOCKINIT(global.lock)
  BARINIT(global.step, threads)

  unsigned long start, end;
  CLOCK(start)
  CREATE(work, threads)
  WAIT_FOR_END(threads)
  CLOCK(end)

  const int good = global.error < 1e-12;
  printf("time %lu us\n", end - start);
  printf("fft: %ld numbers, checksum %016llx: %s\n", m * m, (unsigned long long)result,
         good ? "ok" : "FAILED");
  G_FREE(matrices.x);
  G_FREE(matrices.y);
  G_FREE(matrices.twiddle);
  G_FREE(matrices.roots);
  if (!good) exit(1);
  MAIN_END
}
