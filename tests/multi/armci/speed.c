/* SPDX-License-Identifier: Apache-2.0 */
/* Times of ARMCI calls and of ga_dgemm on 2 processes: one line each, name and microseconds (dgemm:
 * Gflop/s). The same source is linked with either ARMCI. Usage: speed [dgemm]. Process 0 accesses memory of
 * the last one. */
#include <armci.h>
#include <ga.h>
#include <macdecls.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, nproc;
static char *theirs, *local;
static double one = 1.0;

static void put(int n) { ARMCI_Put(local, theirs, n, nproc - 1); }
static void get(int n) { ARMCI_Get(theirs, local, n, nproc - 1); }
static void acc(int n) { ARMCI_Acc(ARMCI_ACC_DBL, &one, local, theirs, n, nproc - 1); }
static void rows(int n, int what) {
  int far[1] = {4096}, near[1] = {8}, count[2] = {8, n};
  if (what == 0) ARMCI_PutS(local, near, theirs, far, count, 1, nproc - 1);
  if (what == 1) ARMCI_GetS(theirs, far, local, near, count, 1, nproc - 1);
  if (what == 2) ARMCI_AccS(ARMCI_ACC_DBL, &one, local, near, theirs, far, count, 1, nproc - 1);
}
static void put_rows(int n) { rows(n, 0); }
static void get_rows(int n) { rows(n, 1); }
static void acc_rows(int n) { rows(n, 2); }
static void rmw(int n) {
  long old = 0;
  ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &old, theirs, n, nproc - 1);
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static void measure(const char* name, void (*call)(int), int n, int times) {
  double runs[15];
  for (int r = 0; r < 15; ++r) {
    const double start = MPI_Wtime();
    for (int i = 0; i < times; ++i) call(n);
    ARMCI_AllFence();
    runs[r] = (MPI_Wtime() - start) / times * 1e6;
  }
  qsort(runs, 15, sizeof *runs, compare);
  printf("%-12s %8d %10.3f\n", name, n, runs[7]);
}

static void one_sided(void) {
  void** parts = malloc(sizeof(void*) * nproc);
  const int bytes = 8 << 20;
  ARMCI_Malloc(parts, bytes);
  memset(parts[me], 0, bytes);
  theirs = parts[nproc - 1], local = ARMCI_Malloc_local(bytes);
  memset(local, 0, bytes);
  ARMCI_Barrier();
  if (me == 0) {
    for (int n = 8; n <= 1 << 20; n *= n < 512 ? 16 : 8) {
      const int times = n < 10000 ? 2000 : 40;
      measure("put", put, n, times);
      measure("get", get, n, times);
      measure("acc", acc, n, times);
    }
    measure("put rows", put_rows, 1000, 20);
    measure("get rows", get_rows, 1000, 20);
    measure("acc rows", acc_rows, 1000, 20);
    measure("rmw", rmw, 1, 2000);
  }
  ARMCI_Barrier();
  ARMCI_Free(parts[me]);
}

/* Patches through GA, of an array whose halves are the processes'. */
static int array, patch_lo[2], patch_hi[2], patch_ld[1];
static void ga_put(int n) { (void)n, NGA_Put(array, patch_lo, patch_hi, local, patch_ld); }
static void ga_get(int n) { (void)n, NGA_Get(array, patch_lo, patch_hi, local, patch_ld); }
static void ga_acc(int n) { (void)n, NGA_Acc(array, patch_lo, patch_hi, local, patch_ld, &one); }

/* Collective. */
static void synchronise(void) {
  GA_Sync();
  const double start = MPI_Wtime();
  for (int i = 0; i < 2000; ++i) GA_Sync();
  if (me == 0) printf("%-12s %8d %10.3f\n", "ga sync", nproc, (MPI_Wtime() - start) / 2000 * 1e6);
}

static void patches(void) {
  const int dims[2] = {3000, 3000}, chunk[2] = {-1, 3000}, shapes[3][2] = {{1, 1}, {1000, 8}, {362, 362}};
  array = NGA_Create(C_DBL, 2, (int*)dims, "a", (int*)chunk);
  GA_Zero(array);
  local = ARMCI_Malloc_local(8 << 20);
  memset(local, 0, 8 << 20);
  GA_Sync();
  if (me == 0) {
    for (int i = 0; i < 3; ++i) {
      const int rows = shapes[i][0], columns = shapes[i][1], n = rows * columns, times = n == 1 ? 2000 : 20;
      patch_lo[0] = 1700, patch_lo[1] = 33;
      patch_hi[0] = 1700 + rows - 1, patch_hi[1] = 33 + columns - 1, patch_ld[0] = columns;
      measure("ga put", ga_put, n, times);
      measure("ga get", ga_get, n, times);
      measure("ga acc", ga_acc, n, times);
    }
  }
  GA_Sync();
  GA_Destroy(array);
}

static void product(int n) {
  int dims[2] = {n, n};
  int a = NGA_Create(C_DBL, 2, dims, "a", NULL), b = GA_Duplicate(a, "b"), c = GA_Duplicate(a, "c");
  double fill = 1, runs[5];
  GA_Fill(a, &fill);
  GA_Fill(b, &fill);
  for (int r = 0; r < 5; ++r) {
    GA_Sync();
    const double start = MPI_Wtime();
    GA_Dgemm('N', 'N', n, n, n, 1.0, a, b, 0.0, c);
    GA_Sync();
    runs[r] = 2.0 * n * n * n / (MPI_Wtime() - start) / 1e9;
  }
  qsort(runs, 5, sizeof *runs, compare);
  if (me == 0) printf("%-12s %8d %10.3f\n", "dgemm", n, runs[2]);
  GA_Destroy(a), GA_Destroy(b), GA_Destroy(c);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  GA_Initialize();
  MA_init(C_DBL, 4000000, 4000000);
  me = GA_Nodeid(), nproc = GA_Nnodes();
  if (argc > 1) {
    product(1024), product(2048);
  } else {
    one_sided();
    patches();
    synchronise();
  }
  GA_Terminate();
  MPI_Finalize();
}
