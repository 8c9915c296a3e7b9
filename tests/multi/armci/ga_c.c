/* SPDX-License-Identifier: Apache-2.0 */
/* A Global Arrays program as its users write them: create, put, get and accumulate patches, atomics, gather
 * and scatter, groups, locks, a reduction and a matrix product, each checked. */
#include <ga.h>
#include <macdecls.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int me, nproc, failures;

static void expect(int right, const char* what) {
  if (right) return;
  ++failures;
  fprintf(stderr, "ga: process %d: wrong: %s\n", me, what);
}

static double value_at(int i, int j) { return i * 1000.0 + j; }

static void patches(void) {
  int dims[2] = {123, 77}, lo[2], hi[2], ld[1] = {77};
  int a = NGA_Create(C_DBL, 2, dims, "a", NULL);
  double* all = malloc(sizeof(double) * 123 * 77);
  /* Each process puts every nproc-th row. */
  for (int i = me; i < dims[0]; i += nproc) {
    double row[77];
    for (int j = 0; j < 77; ++j) row[j] = value_at(i, j);
    lo[0] = hi[0] = i, lo[1] = 0, hi[1] = 76;
    NGA_Put(a, lo, hi, row, ld);
  }
  GA_Sync();
  lo[0] = lo[1] = 0, hi[0] = 122, hi[1] = 76;
  NGA_Get(a, lo, hi, all, ld);
  int right = 1;
  for (int i = 0; i < 123; ++i)
    for (int j = 0; j < 77; ++j) right &= all[i * 77 + j] == value_at(i, j);
  expect(right, "get of all that was put");
  /* All add to an inner patch, blocking and not. */
  GA_Sync();
  double one[50 * 40], alpha = 0.5;
  for (int i = 0; i < 50 * 40; ++i) one[i] = 1 + me;
  int alo[2] = {30, 20}, ahi[2] = {79, 59}, ald[1] = {40};
  NGA_Acc(a, alo, ahi, one, ald, &alpha);
  ga_nbhdl_t handle;
  NGA_NbAcc(a, alo, ahi, one, ald, &alpha, &handle);
  NGA_NbWait(&handle);
  GA_Sync();
  NGA_NbGet(a, lo, hi, all, ld, &handle);
  NGA_NbWait(&handle);
  const double sum = nproc * (nproc + 1) / 2.0;
  right = 1;
  for (int i = 0; i < 123; ++i)
    for (int j = 0; j < 77; ++j) {
      const int in = i >= 30 && i < 80 && j >= 20 && j < 60;
      right &= all[i * 77 + j] == value_at(i, j) + (in ? sum : 0);
    }
  expect(right, "accumulated patches");
  /* One's own part, by pointer. */
  GA_Sync();
  NGA_Distribution(a, me, lo, hi);
  if (lo[0] >= 0 && hi[0] >= lo[0]) {
    double* mine;
    NGA_Access(a, lo, hi, &mine, ld);
    right = 1;
    for (int i = lo[0]; i <= hi[0]; ++i)
      for (int j = lo[1]; j <= hi[1]; ++j) {
        right &= mine[(i - lo[0]) * ld[0] + j - lo[1]] == all[i * 77 + j];
        mine[(i - lo[0]) * ld[0] + j - lo[1]] = -1;
      }
    expect(right, "access");
    NGA_Release_update(a, lo, hi);
  }
  GA_Sync();
  lo[0] = lo[1] = 0, hi[0] = 122, hi[1] = 76, ld[0] = 77;
  NGA_Get(a, lo, hi, all, ld);
  right = 1;
  for (int i = 0; i < 123 * 77; ++i) right &= all[i] == -1;
  expect(right, "stores by pointer");
  GA_Destroy(a);
  free(all);
}

static void elements(void) {
  int dims[1] = {1000}, lo[1] = {0};
  int a = NGA_Create(C_INT, 1, dims, "counters", NULL);
  GA_Zero(a);
  int at[1] = {7};
  for (int i = 0; i < 100; ++i) NGA_Read_inc(a, at, 1);
  GA_Sync();
  int count = 0, ld[1] = {1};
  NGA_Get(a, at, at, &count, ld);
  expect(count == 100 * nproc, "read_inc");
  GA_Sync();
  GA_Zero(a);
  int values[50], *where[50], places[50];
  for (int i = 0; i < 50; ++i) {
    values[i] = me * 1000 + i;
    places[i] = (i * 19 % 50) * nproc + me;
    where[i] = &places[i];
  }
  NGA_Scatter(a, values, where, 50);
  GA_Sync();
  int back[50];
  for (int i = 0; i < 50; ++i) places[i] = (i * 19 % 50) * nproc + (me + 1) % nproc;
  NGA_Gather(a, back, where, 50);
  int right = 1;
  for (int i = 0; i < 50; ++i) right &= back[i] == (me + 1) % nproc * 1000 + i;
  expect(right, "scatter and gather");
  (void)lo;
  GA_Create_mutexes(2);
  GA_Sync();
  int mine = 5, other[1] = {900};
  GA_Zero(a);
  for (int i = 0; i < 50; ++i) {
    GA_Lock(1);
    GA_Init_fence();
    NGA_Get(a, other, other, &mine, ld);
    ++mine;
    NGA_Put(a, other, other, &mine, ld);
    GA_Fence();
    GA_Unlock(1);
  }
  GA_Sync();
  NGA_Get(a, other, other, &mine, ld);
  expect(mine == 50 * nproc, "a counter under a lock");
  GA_Sync();
  GA_Destroy_mutexes();
  GA_Destroy(a);
}

/* C = alpha A B against a product by hand of rank-one matrices. */
static void product(int type, int n) {
  int dims[2] = {n, n}, lo[2], hi[2], ld[1];
  int a = NGA_Create(type, 2, dims, "a", NULL), b = GA_Duplicate(a, "b"), c = GA_Duplicate(a, "c");
  const int parts = type == C_DCPL ? 2 : 1;
  NGA_Distribution(a, me, lo, hi);
  if (lo[0] >= 0 && hi[0] >= lo[0]) {
    double *pa, *pb;
    NGA_Access(a, lo, hi, &pa, ld);
    NGA_Access(b, lo, hi, &pb, ld);
    for (int i = lo[0]; i <= hi[0]; ++i)
      for (int j = lo[1]; j <= hi[1]; ++j) {
        double* at = pa + ((i - lo[0]) * ld[0] + j - lo[1]) * parts;
        double* bt = pb + ((i - lo[0]) * ld[0] + j - lo[1]) * parts;
        at[0] = (i % 7 + 1) * (j % 3 + 1), bt[0] = (i % 5 - 2) * (j % 4 + 1);
        if (parts == 2) at[1] = 0, bt[1] = bt[0]; /* B = (1 + i) times the real one */
      }
    NGA_Release_update(a, lo, hi);
    NGA_Release_update(b, lo, hi);
  }
  GA_Zero(c);
  GA_Sync();
  double inner = 0;
  for (int k = 0; k < n; ++k) inner += (k % 3 + 1) * (k % 5 - 2);
  if (type == C_DCPL) {
    DoubleComplex one = {2, 0}, zero = {0, 0};
    GA_Zgemm('N', 'N', n, n, n, one, a, b, zero, c);
  } else {
    GA_Dgemm('N', 'N', n, n, n, 2.0, a, b, 0.0, c);
  }
  GA_Sync();
  double* row = malloc(sizeof(double) * n * parts);
  int right = 1;
  for (int i = me; i < n; i += nproc) {
    int rlo[2] = {i, 0}, rhi[2] = {i, n - 1}, rld[1] = {n};
    NGA_Get(c, rlo, rhi, row, rld);
    for (int j = 0; j < n; ++j) {
      const double want = 2 * (i % 7 + 1) * inner * (j % 4 + 1);
      for (int p = 0; p < parts; ++p) right &= fabs(row[j * parts + p] - want) < 1e-9 * (1 + fabs(want));
    }
  }
  expect(right, type == C_DCPL ? "zgemm" : "dgemm");
  GA_Sync();
  /* 2 (A . B) where only real parts are multiplied by hand */
  if (type == C_DBL) {
    double dot = GA_Ddot(a, b), want = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) want += (double)(i % 7 + 1) * (j % 3 + 1) * (i % 5 - 2) * (j % 4 + 1);
    expect(fabs(dot - want) < 1e-9 * (1 + fabs(want)), "ddot");
    int t = GA_Duplicate(a, "t");
    GA_Transpose(a, t);
    double first = 0, second = 0;
    int p1[2] = {3, n - 2}, p2[2] = {n - 2, 3}, l1[1] = {1};
    NGA_Get(a, p1, p1, &first, l1);
    NGA_Get(t, p2, p2, &second, l1);
    expect(first == second, "transpose");
    GA_Destroy(t);
  }
  free(row);
  GA_Destroy(a);
  GA_Destroy(b);
  GA_Destroy(c);
}

/* Complex elements accumulated with a complex factor, in an array whose elements need not be aligned to 16.
 * */
static void complex_patches(void) {
  int dims[2] = {91, 130}, lo[2] = {0, 0}, hi[2] = {90, 129}, ld[1] = {130};
  int a = NGA_Create(C_DCPL, 2, dims, "z", NULL);
  DoubleComplex* z = malloc(sizeof(DoubleComplex) * 91 * 130);
  GA_Zero(a);
  for (int i = 0; i < 91 * 130; ++i) z[i].real = i, z[i].imag = 1;
  DoubleComplex factor = {0, 2};
  NGA_Acc(a, lo, hi, z, ld, &factor);
  GA_Sync();
  NGA_Get(a, lo, hi, z, ld);
  int right = 1;
  for (int i = 0; i < 91 * 130; ++i) right &= z[i].real == -2.0 * nproc && z[i].imag == 2.0 * i * nproc;
  expect(right, "complex accumulate");
  GA_Destroy(a);
  free(z);
}

/* Arrays of groups: halves of the world, each with its own. */
static void groups(void) {
  if (nproc < 2) return;
  const int half = me < nproc / 2 ? 0 : 1, first = half ? nproc / 2 : 0,
            size = half ? nproc - nproc / 2 : nproc / 2;
  int members[64];
  for (int i = 0; i < size; ++i) members[i] = first + i;
  int group = GA_Pgroup_create(members, size);
  GA_Pgroup_set_default(group);
  int dims[1] = {100}, lo[1] = {0}, hi[1] = {99}, ld[1] = {1};
  int a = NGA_Create(C_LONG, 1, dims, "half", NULL);
  long values[100], sum = me;
  for (int i = 0; i < 100; ++i) values[i] = half * 1000 + i;
  if (GA_Nodeid() == 0) NGA_Put(a, lo, hi, values, ld);
  GA_Sync();
  long back[100];
  NGA_Get(a, lo, hi, back, ld);
  int right = 1;
  for (int i = 0; i < 100; ++i) right &= back[i] == values[i];
  expect(right, "an array of a group");
  GA_Lgop(&sum, 1, "+");
  long want = 0;
  for (int i = 0; i < size; ++i) want += first + i;
  expect(sum == want, "a sum in a group");
  GA_Destroy(a);
  GA_Pgroup_set_default(GA_Pgroup_get_world());
  GA_Pgroup_destroy(group);
}

static void collectives(void) {
  double x[3] = {me, -me - 1, 1};
  GA_Dgop(x, 3, "absmax");
  expect(x[0] == nproc - 1 && x[1] == nproc && x[2] == 1, "absmax");
  int i[2] = {me, 1};
  GA_Igop(i, 2, "+");
  expect(i[0] == nproc * (nproc - 1) / 2 && i[1] == nproc, "sum");
  char text[8] = "?";
  if (me == nproc - 1) snprintf(text, sizeof text, "hello");
  GA_Brdcst(text, sizeof text, nproc - 1);
  expect(text[0] == 'h' && text[4] == 'o', "broadcast");
  int dims[1] = {500}, where[1] = {0};
  int a = NGA_Create(C_DBL, 1, dims, "s", NULL);
  double fill = 1, low = -3, got = 0;
  GA_Fill(a, &fill);
  GA_Sync();
  int at[1] = {321}, ld[1] = {1};
  if (me == 0) NGA_Put(a, at, at, &low, ld);
  GA_Sync();
  NGA_Select_elem(a, "min", &got, where);
  expect(got == -3 && where[0] == 321, "select");
  GA_Destroy(a);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  GA_Initialize();
  me = GA_Nodeid(), nproc = GA_Nnodes();
  MA_init(C_DBL, 4000000, 4000000);
  patches();
  elements();
  product(C_DBL, argc > 1 ? atoi(argv[1]) : 150);
  product(C_DCPL, 90);
  complex_patches();
  groups();
  collectives();
  GA_Igop(&failures, 1, "+");
  const int failed = failures != 0;
  if (me == 0 && !failed) printf("ga: passed on %d processes\n", nproc);
  GA_Terminate();
  MPI_Finalize();
  return failed;
}
