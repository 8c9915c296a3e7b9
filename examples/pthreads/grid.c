/* SPDX-License-Identifier: Apache-2.0 */
/* A current in a square basin, step by step: in each step the stream function u follows from the vorticity f
 * by Poisson's equation, which a multigrid solver with red-black relaxation solves; then wind, friction and
 * u itself change the vorticity.
 *
 * Each thread has a strip of rows of the grid of every level. All rows of a level lie in one array, behind an
 * array of pointers to rows. Barriers stand between the colours and the phases, the largest residual is found
 * under a lock. Each point is computed from the same values for any number of threads.
 *
 * usage: grid [-l levels] [-s steps] [-p threads] [-v]      2^levels - 1 points a side inside the basin
 */
#include MACROS /* posix/macros.h or kasane/macros.h, from the command line */

#include <math.h>

enum { kMostLevels = 13, kSweeps = 2, kMostCycles = 30 };

MAIN_ENV

struct level {
  int n;      /* points a side inside */
  double h2;  /* the square of the distance of two points */
  double** u; /* the solution; on the coarser levels, the correction */
  double** f; /* the right-hand side */
  double** r; /* the residual */
};

static int levels = 6, steps = 2, threads = 4, verbose = 0;
static struct level level[kMostLevels];
static const double tolerance = 1e-8;
static const double weights[3][3] = {
    {1 / 16., 1 / 8., 1 / 16.}, {1 / 8., 1 / 4., 1 / 8.}, {1 / 16., 1 / 8., 1 / 16.}};

struct bars {
  BARDEC(start)
  BARDEC(colour)
  BARDEC(phase)
  BARDEC(error)
};
struct locks {
  LOCKDEC(id)
  LOCKDEC(error)
};
static struct bars* bars;
static struct locks* locks;
static int next_id;
static double largest[2]; /* residual of this cycle and of the next, in turns */
static int cycles;        /* in all */

static int first_row(int l, int thread) { return 1 + level[l].n * thread / threads; }

static double** new_grid(int n) {
  double** const rows = G_MALLOC((size_t)(n + 2) * sizeof *rows);
  double* const points = G_MALLOC((size_t)(n + 2) * (size_t)(n + 2) * sizeof *points);
  for (int i = 0; i < n + 2; ++i) rows[i] = points + (size_t)i * (size_t)(n + 2);
  return rows;
}
static void free_grid(double** rows) {
  G_FREE(rows[0]);
  G_FREE(rows);
}

/* This thread's rows of all levels; the first and the last one clear the border, too. */
static void clear(int me) {
  for (int l = 0; l < levels; ++l) {
    const int n = level[l].n;
    const int first = me == 0 ? 0 : first_row(l, me), last = me == threads - 1 ? n + 2 : first_row(l, me + 1);
    for (int i = first; i < last; ++i)
      for (int j = 0; j < n + 2; ++j) level[l].u[i][j] = level[l].f[i][j] = level[l].r[i][j] = 0;
  }
}

static void relax(int me, int l, int sweeps) {
  const struct level* const g = &level[l];
  for (int s = 0; s < 2 * sweeps; ++s) {
    for (int i = first_row(l, me); i < first_row(l, me + 1); ++i) {
      double* const u = g->u[i];
      const double *const above = g->u[i - 1], *const below = g->u[i + 1], *const f = g->f[i];
      for (int j = 1 + (i + s) % 2; j <= g->n; j += 2)
        u[j] = 0.25 * (above[j] + below[j] + u[j - 1] + u[j + 1] - g->h2 * f[j]);
    }
    BARRIER(bars->colour, threads)
  }
}

/* The residual of this thread's rows; returns the largest. */
static double residual(int me, int l) {
  const struct level* const g = &level[l];
  double most = 0;
  for (int i = first_row(l, me); i < first_row(l, me + 1); ++i) {
    const double *const u = g->u[i], *const above = g->u[i - 1], *const below = g->u[i + 1];
    for (int j = 1; j <= g->n; ++j) {
      g->r[i][j] = g->f[i][j] - (above[j] + below[j] + u[j - 1] + u[j + 1] - 4 * u[j]) / g->h2;
      most = fmax(most, fabs(g->r[i][j]));
    }
  }
  return most;
}

/* The coarser level's right-hand side is this level's residual, weighed; its correction begins at 0. */
static void restrict_to_coarse(int me, int l) {
  const struct level *const fine = &level[l], *const coarse = &level[l + 1];
  for (int i = first_row(l + 1, me); i < first_row(l + 1, me + 1); ++i) {
    for (int j = 1; j <= coarse->n; ++j) {
      double sum = 0;
      for (int a = 0; a < 3; ++a)
        for (int b = 0; b < 3; ++b) sum += weights[a][b] * fine->r[2 * i - 1 + a][2 * j - 1 + b];
      coarse->f[i][j] = sum;
      coarse->u[i][j] = 0;
    }
  }
}
/* Adds the coarser level's correction, between its points the mean of those around. */
static void correct(int me, int l) {
  const struct level *const fine = &level[l], *const coarse = &level[l + 1];
  for (int i = first_row(l, me); i < first_row(l, me + 1); ++i) {
    const double *const a = coarse->u[i / 2], *const b = coarse->u[(i + 1) / 2];
    for (int j = 1; j <= fine->n; ++j)
      fine->u[i][j] += 0.25 * (a[j / 2] + a[(j + 1) / 2] + b[j / 2] + b[(j + 1) / 2]);
  }
}

static void cycle(int me, int l) {
  if (l == levels - 1) {
    relax(me, l, 1); /* one point */
    return;
  }
  relax(me, l, kSweeps);
  residual(me, l);
  BARRIER(bars->phase, threads)
  restrict_to_coarse(me, l);
  BARRIER(bars->phase, threads)
  cycle(me, l + 1);
  correct(me, l);
  BARRIER(bars->phase, threads)
  relax(me, l, kSweeps);
}

/* Cycles until the residual is small; returns how many. */
static int solve(int me) {
  for (int done = 1;; ++done) {
    double* const most = &largest[done % 2];
    cycle(me, 0);
    const double mine = residual(me, 0);
    LOCK(locks->error)
    if (mine > *most) *most = mine;
    UNLOCK(locks->error)
    BARRIER(bars->error, threads)
    const double all = *most;
    if (me == 0) largest[(done + 1) % 2] = 0;
    BARRIER(bars->error, threads)
    if (all < tolerance || done == kMostCycles) return done;
  }
}

/* Wind drives, friction slows, and the current carries: the next step's vorticity. */
static void drive(int me, int step) {
  const struct level* const g = &level[0];
  const double width = g->n + 1;
  for (int i = first_row(0, me); i < first_row(0, me + 1); ++i) {
    const double wind = sin(M_PI * i / width) * cos(0.1 * step);
    for (int j = 1; j <= g->n; ++j)
      g->f[i][j] =
          0.9 * g->f[i][j] - wind * sin(2 * M_PI * j / width) + 0.05 * g->u[i][j] * (j - 0.5 * width) / width;
  }
}

static void slave(void) {
  LOCK(locks->id)
  const int me = next_id++;
  UNLOCK(locks->id)
  clear(me);
  BARRIER(bars->start, threads)
  for (int s = 0; s < steps; ++s) {
    drive(me, s);
    BARRIER(bars->phase, threads)
    const int done = solve(me);
    if (me == 0) {
      cycles += done;
      if (verbose) printf("step %d: %d cycles\n", s, done);
    }
  }
}

static uint64_t checksum(void) {
  uint64_t sum = 0;
  for (int i = 1; i <= level[0].n; ++i) {
    for (int j = 1; j <= level[0].n; ++j) {
      uint64_t bits;
      memcpy(&bits, &level[0].u[i][j], sizeof bits);
      sum = (sum ^ bits) * 0x9e3779b97f4a7c15u;
    }
  }
  return sum;
}

static void options(int argc, char** argv) {
  int c;
  while ((c = getopt(argc, argv, "l:s:p:v")) != -1) {
    switch (c) {
      case 'l': levels = atoi(optarg); break;
      case 's': steps = atoi(optarg); break;
      case 'p': threads = atoi(optarg); break;
      case 'v': verbose = 1; break;
      default: fprintf(stderr, "usage: grid [-l levels] [-s steps] [-p threads] [-v]\n"); exit(2);
    }
  }
  if (levels < 1 || levels > kMostLevels || steps < 1 || threads < 1) {
    fprintf(stderr, "grid: 1 to %d levels, one step and one thread at least\n", kMostLevels);
    exit(2);
  }
}

int main(int argc, char** argv) {
  unsigned long start, end;
  MAIN_INITENV(, 60000000)
  options(argc, argv);
  bars = (struct bars*)G_MALLOC(sizeof(struct bars));
  locks = (struct locks*)G_MALLOC(sizeof(struct locks));
  BARINIT(bars->start, threads)
  BARINIT(bars->colour, threads)
  BARINIT(bars->phase, threads)
  BARINIT(bars->error, threads)
  LOCKINIT(locks->id)
  LOCKINIT(locks->error)
  for (int l = 0; l < levels; ++l) {
    const int n = (1 << (levels - l)) - 1;
    level[l] = (struct level){n, 1.0 / ((n + 1.0) * (n + 1.0)), new_grid(n), new_grid(n), new_grid(n)};
  }

  CLOCK(start)
  CREATE(slave, threads)
  WAIT_FOR_END(threads)
  CLOCK(end)

  const int good = cycles < steps * kMostCycles;
  printf("time %lu us\n", end - start);
  printf("grid: %d x %d, %d steps, %d cycles, checksum %016llx: %s\n", level[0].n, level[0].n, steps, cycles,
         (unsigned long long)checksum(), good ? "ok" : "FAILED");
  for (int l = 0; l < levels; ++l) {
    free_grid(level[l].u);
    free_grid(level[l].f);
    free_grid(level[l].r);
  }
  if (!good) exit(1);
  MAIN_END
}
