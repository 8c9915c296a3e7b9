/* SPDX-License-Identifier: Apache-2.0 */
/* A 9-point stencil on a square plate of N x N inner points, k steps in one pass over memory (temporal
 * blocking; k = 1: plain steps), as figure 6 of the paper on ComEx-PM. Says Flop/s.
 *
 * The plate is one global array, distributed by rows. In a pass each process goes once over its rows, a panel
 * at a time. When row i has come in, row i-1 can go one step on, row i-2 two, … and row i-k all k:
 *
 *      array  ─▶ panel   row i      of each level in between only three rows are kept. Nothing needs row i-k
 *      level 1           row i-1    any more when it is written: so there is one array, of which k steps read
 *         …                 …       and write each element once.
 *      array  ◀─ panel   row i-k
 *
 * The next panel comes in (NGA_NbGet), and the last one goes out (NGA_NbPut), while this one is computed.
 * Beyond its own rows a process needs k rows of its neighbours, as they were before the pass: it gets them
 * first, then all meet. Every other pass goes up: what the last one wrote last is read first, while it is in
 * the fastest memory.
 *
 * Verified: a sine mode of the plate, whose rim is kept at zero, decays by a known factor a step. */
#include "common.h"

static const double kCentre = 0.5, kEdge = 0.09375,
                    kCorner = 0.03125;                /* shares of a point and its neighbours */
static const double kWavesDown = 2, kWavesAcross = 1; /* half waves of the mode */
static const double kPi = 3.14159265358979323846;
enum { kFlops = 11 }; /* of a point and a step: 8 additions, 3 multiplications */

static long n = 2000, together = 10, steps = 20, panel_rows = 0, repetitions = 3;
static long pitch; /* n and the rim */
static int array;

static double angle(double waves) { return waves * kPi / (double)(n + 1); }
static double wave(double waves, long at) { return at == 0 || at > n ? 0 : sin(angle(waves) * (double)at); }
/* What is left of the mode after a step. */
static double decay(void) {
  const double down = cos(angle(kWavesDown)), across = cos(angle(kWavesAcross));
  return kCentre + 2 * kEdge * (down + across) + 4 * kCorner * down * across;
}

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }

/* Rows [first, last) of the array, as NGA_Put and NGA_Get name them. */
typedef struct {
  int lo[2], hi[2], ld[1];
} patch_t;
static patch_t rows_of(long first, long last) {
  const patch_t patch = {{(int)first, 0}, {(int)last - 1, (int)pitch - 1}, {(int)pitch}};
  return patch;
}

/* A non-blocking operation, if there is one. */
typedef struct {
  ga_nbhdl_t handle;
  int pending;
} transfer_t;
static void finish_transfer(transfer_t* t) {
  if (t->pending) NGA_NbWait(&t->handle);
  t->pending = 0;
}
static void get_rows(transfer_t* t, double* to, long first, long last) {
  if (first >= last) return;
  patch_t p = rows_of(first, last);
  NGA_NbGet(array, p.lo, p.hi, to, p.ld, &t->handle);
  t->pending = 1;
}
static void put_rows(transfer_t* t, double* from, long first, long last) {
  if (first >= last) return;
  patch_t p = rows_of(first, last);
  NGA_NbPut(array, p.lo, p.hi, from, p.ld, &t->handle);
  t->pending = 1;
}

/* The rows of this process, [first, last), in the order of a pass: those of the array, or of the array upside
 * down. */
typedef struct {
  long first, last;
  int up;
} order_t;

/* Rows [begin, end) of a pass, in memory as they are in the array. */
typedef struct {
  long begin, end;
  double* rows;
  transfer_t transfer;
} part_t;

static double* row_in(const order_t* order, const part_t* part, long i) {
  return part->rows + (order->up ? part->end - 1 - i : i - part->begin) * pitch;
}
static void get_part(const order_t* order, part_t* part) {
  if (order->up)
    get_rows(&part->transfer, part->rows, pitch - part->end, pitch - part->begin);
  else
    get_rows(&part->transfer, part->rows, part->begin, part->end);
}
static void put_part(const order_t* order, part_t* part) {
  if (order->up)
    put_rows(&part->transfer, part->rows, pitch - part->end, pitch - part->begin);
  else
    put_rows(&part->transfer, part->rows, part->begin, part->end);
}

/* Private memory of a process, for all passes. */
static struct {
  double *before, *after, *in[2], *out[2];
  double* kept;  /* of levels 1 … k-1 three rows each: row i in place i mod 3 */
  double* spare; /* likewise of level 0, for rows whose panel is overwritten */
} memory;

static void allocate(void) {
  if (panel_rows == 0) panel_rows = most(1, (2 << 20) / (8 * pitch));
  memory.before = doubles(together * pitch), memory.after = doubles(together * pitch);
  for (int i = 0; i < 2; ++i)
    memory.in[i] = doubles(panel_rows * pitch), memory.out[i] = doubles(panel_rows * pitch);
  memory.kept = doubles(most(1, together - 1) * 3 * pitch), memory.spare = doubles(3 * pitch);
}

static void advance_row(double* restrict out, const double* restrict above, const double* restrict row,
                        const double* restrict below) {
  out[0] = row[0];
  for (long j = 1; j <= n; ++j) {
    out[j] = kCentre * row[j] + kEdge * (above[j] + row[j - 1] + row[j + 1] + below[j]) +
             kCorner * (above[j - 1] + above[j + 1] + below[j - 1] + below[j + 1]);
  }
  out[n + 1] = row[n + 1];
}

/* A pass of k steps under way. */
typedef struct {
  order_t order;
  long k;
  const double* level0[3]; /* where the last three rows that came in are */
  part_t out[2];           /* what is written, and what is on its way */
  int writing;
} pass_t;

static const double* row_at(const pass_t* pass, long level, long i) {
  return level == 0 ? pass->level0[i % 3] : memory.kept + ((level - 1) * 3 + i % 3) * pitch;
}

/* Where row i goes when it has taken all steps. */
static double* row_out(pass_t* pass, long i) {
  part_t* out = &pass->out[pass->writing];
  if (i == out->end || i == pass->order.first) {
    if (i != pass->order.first) {
      put_part(&pass->order, out);
      pass->writing = 1 - pass->writing;
      out = &pass->out[pass->writing];
      finish_transfer(&out->transfer);
    }
    out->begin = i, out->end = least(i + panel_rows, pass->order.last);
  }
  return row_in(&pass->order, out, i);
}

/* Row i of the pass is there, or is beyond the plate: all levels go on. */
static void advance(pass_t* pass, long i) {
  const order_t* o = &pass->order;
  for (long level = 1; level <= pass->k && level <= i; ++level) {
    const long j = i - level, more = pass->k - level;
    if (j < most(0, o->first - more) || j >= least(pitch, o->last + more)) continue;
    double* out = level == pass->k ? row_out(pass, j) : memory.kept + ((level - 1) * 3 + j % 3) * pitch;
    const double* row = row_at(pass, level - 1, j);
    if (j == 0 || j == pitch - 1)
      memcpy(out, row, (size_t)pitch * sizeof *out);
    else
      advance_row(out, row_at(pass, level - 1, j - 1), row, row_at(pass, level - 1, j + 1));
  }
}

/* A part that has come in. Its last rows outlive it. */
static void take_part(pass_t* pass, part_t* part) {
  finish_transfer(&part->transfer);
  for (long i = part->begin; i < part->end; ++i) {
    pass->level0[i % 3] = row_in(&pass->order, part, i);
    advance(pass, i);
  }
  for (long i = most(part->begin, part->end - 2); i < part->end; ++i) {
    double* copy = memory.spare + i % 3 * pitch;
    memcpy(copy, pass->level0[i % 3], (size_t)pitch * sizeof *copy);
    pass->level0[i % 3] = copy;
  }
}

/* The process's panels: while one is computed the next comes in. */
static void take_panels(pass_t* pass, part_t* panel) {
  const order_t* o = &pass->order;
  for (int now = 0; panel[now].begin < panel[now].end; now = 1 - now) {
    part_t* next = &panel[1 - now];
    next->begin = panel[now].end, next->end = least(next->begin + panel_rows, o->last);
    finish_transfer(&panel[now].transfer);
    get_part(o, next);
    take_part(pass, &panel[now]);
  }
}

/* Collective: k steps of the plate. */
static void take_steps(const order_t* order, long k) {
  pass_t pass = {.order = *order, .k = k};
  part_t before = {.begin = most(0, order->first - k), .end = order->first, .rows = memory.before};
  part_t after = {.begin = order->last, .end = least(pitch, order->last + k), .rows = memory.after};
  part_t panel[2] = {
      {.begin = order->first, .end = least(order->first + panel_rows, order->last), .rows = memory.in[0]},
      {.rows = memory.in[1]}};
  const int works = order->first < order->last;
  for (int i = 0; i < 2; ++i) pass.out[i].rows = memory.out[i];
  if (works) {
    get_part(order, &before), get_part(order, &after), get_part(order, &panel[0]);
    finish_transfer(&before.transfer), finish_transfer(&after.transfer);
  }
  GA_Sync(); /* all have their neighbours' rows */
  if (works) {
    take_part(&pass, &before);
    take_panels(&pass, panel);
    take_part(&pass, &after);
    for (long i = after.end; i < order->last + k; ++i) advance(&pass, i);
    put_part(order, &pass.out[pass.writing]);
    for (int i = 0; i < 2; ++i) finish_transfer(&pass.out[i].transfer);
  }
  GA_Sync(); /* all have written theirs */
}

/* The mode, as it is at first. */
static void fill(long first, long last) {
  double* across = doubles(pitch);
  for (long j = 0; j < pitch; ++j) across[j] = wave(kWavesAcross, j);
  for (long row = first; row < last; row += panel_rows) {
    const long end = least(row + panel_rows, last);
    for (long i = row; i < end; ++i) {
      const double down = wave(kWavesDown, i);
      for (long j = 0; j < pitch; ++j) memory.in[0][(i - row) * pitch + j] = down * across[j];
    }
    transfer_t transfer = {.pending = 0};
    put_rows(&transfer, memory.in[0], row, end);
    finish_transfer(&transfer);
  }
  free(across);
}

/* The largest difference from the mode after so many steps. */
static double error_of(long first, long last, long all_steps) {
  const double left = pow(decay(), (double)all_steps);
  double *across = doubles(pitch), worst = 0;
  for (long j = 0; j < pitch; ++j) across[j] = left * wave(kWavesAcross, j);
  for (long row = first; row < last; row += panel_rows) {
    const long end = least(row + panel_rows, last);
    transfer_t transfer = {.pending = 0};
    get_rows(&transfer, memory.in[0], row, end);
    finish_transfer(&transfer);
    for (long i = row; i < end; ++i) {
      const double down = wave(kWavesDown, i);
      for (long j = 0; j < pitch; ++j) {
        const double difference = fabs(memory.in[0][(i - row) * pitch + j] - down * across[j]);
        if (!(difference <= worst)) worst = difference;
      }
    }
  }
  free(across);
  return largest(worst / left);
}

int main(int argc, char** argv) {
  start(&argc, &argv, 1 << 16);
  const option_t options[] = {{'n', &n, 1, "inner rows and columns of the plate"},
                              {'k', &together, 1, "steps in one pass over memory"},
                              {'s', &steps, 1, "steps of a repetition"},
                              {'p', &panel_rows, 0, "rows of a panel (0: 2 MiB)"},
                              {'r', &repetitions, 1, "repetitions, of which the median counts"}};
  read_options(argc, argv, "stencil", options, 5);
  repetitions = least(repetitions, kMostRepetitions), together = least(together, steps), pitch = n + 2;
  allocate();
  int dims[2] = {(int)pitch, (int)pitch}, chunk[2] = {-1, (int)pitch}, lo[2], hi[2];
  char name[] = "plate";
  array = NGA_Create(C_DBL, 2, dims, name, chunk);
  NGA_Distribution(array, me, lo, hi);
  const long first = lo[0] < 0 ? 0 : lo[0], last = lo[0] < 0 ? 0 : hi[0] + 1;
  const order_t orders[2] = {{pitch - last, pitch - first, 1}, {first, last, 0}};
  fill(first, last);
  GA_Sync();
  double seconds[kMostRepetitions];
  int passes = 0;
  for (long r = 0; r < repetitions; ++r) {
    const double begin = MPI_Wtime();
    for (long left = steps; left > 0; left -= least(together, left))
      take_steps(&orders[passes++ % 2], least(together, left));
    seconds[r] = largest(MPI_Wtime() - begin);
  }
  const double error = error_of(first, last, steps * repetitions);
  char parameters[128];
  snprintf(parameters, sizeof parameters, "\"n\": %ld, \"k\": %ld, \"steps\": %ld", n, together, steps);
  const int status = report("ga_stencil", parameters, (double)kFlops * (double)n * (double)n * (double)steps,
                            seconds, repetitions, error, 1e-12 * (double)(steps * repetitions + 10));
  GA_Destroy(array);
  return finish(status);
}
