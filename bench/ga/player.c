/* SPDX-License-Identifier: Apache-2.0 */
/* What ARMCI calls and Global Arrays patches cost between two processes: the same source is linked with
 * either ARMCI. Process 0 accesses memory of the last one, which waits in a barrier.
 *
 *   player-ga calls     put, get and acc of 8 bytes to 1 MiB, rows (1000 of 8 bytes), rmw
 *   player-ga patches   GA's put, get and acc of patches of 1x1, 1000x8, 362x362 doubles; sync
 *
 * Process 0 prints one JSON object: "verified", and the µs of each case, by names as put-8, rows-put,
 * ga-put-1000x8. */
#include <armci.h>
#include <ga.h>
#include <macdecls.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRounds = 9, kBytes = 8 << 20, kFarRow = 4096 };

typedef struct {
  int rows, bytes; /* of a row */
} shape_t;
typedef enum { kPut, kGet, kAcc } what_t;
static const char* const kWhat[] = {"put", "get", "acc"};

static int me, processes, right = 1;
static char *theirs, *local;
static double one = 1.0;
static int array, patch_lo[2], patch_hi[2], patch_ld[1];

static void call(what_t what, shape_t s) {
  const int target = processes - 1;
  if (s.rows == 1) {
    if (what == kPut) ARMCI_Put(local, theirs, s.bytes, target);
    if (what == kGet) ARMCI_Get(theirs, local, s.bytes, target);
    if (what == kAcc) ARMCI_Acc(ARMCI_ACC_DBL, &one, local, theirs, s.bytes, target);
    return;
  }
  int far[1] = {kFarRow}, near[1] = {s.bytes}, count[2] = {s.bytes, s.rows};
  if (what == kPut) ARMCI_PutS(local, near, theirs, far, count, 1, target);
  if (what == kGet) ARMCI_GetS(theirs, far, local, near, count, 1, target);
  if (what == kAcc) ARMCI_AccS(ARMCI_ACC_DBL, &one, local, near, theirs, far, count, 1, target);
}

static void call_ga(what_t what, shape_t s) {
  (void)s;
  if (what == kPut) NGA_Put(array, patch_lo, patch_hi, local, patch_ld);
  if (what == kGet) NGA_Get(array, patch_lo, patch_hi, local, patch_ld);
  if (what == kAcc) NGA_Acc(array, patch_lo, patch_hi, local, patch_ld, &one);
}

static void read_modify_write(what_t what, shape_t s) {
  (void)what, (void)s;
  long old = 0;
  ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &old, theirs, 1, processes - 1);
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

/* The median of some rounds: an interruption does not count. */
static void measure(const char* name, void (*f)(what_t, shape_t), what_t what, shape_t s) {
  const int bytes = s.rows * s.bytes, times = bytes < 10000 && s.rows == 1 ? 1000 : 20;
  double rounds[kRounds];
  f(what, s);
  for (int i = 0; i < kRounds; ++i) {
    const double start = MPI_Wtime();
    for (int t = 0; t < times; ++t) f(what, s);
    ARMCI_AllFence();
    rounds[i] = (MPI_Wtime() - start) / times * 1e6;
  }
  qsort(rounds, kRounds, sizeof *rounds, compare);
  printf(", \"%s\": %.4f", name, rounds[kRounds / 2]);
}

/* Puts numbers, adds them once more and gets them, by calls of this shape. */
static void verify(void (*f)(what_t, shape_t), shape_t s) {
  const int doubles = s.rows * s.bytes / 8;
  double* mine = (double*)local;
  for (int i = 0; i < doubles; ++i) mine[i] = i + 0.5;
  f(kPut, s), f(kAcc, s);
  ARMCI_AllFence();
  memset(local, 0, (size_t)doubles * 8);
  f(kGet, s);
  for (int i = 0; i < doubles; ++i) right &= mine[i] == 2 * (i + 0.5);
  memset(local, 0, (size_t)doubles * 8);
  f(kPut, s);
  ARMCI_AllFence();
}

static void all_of(const char* before, const char* after, void (*f)(what_t, shape_t), shape_t s) {
  char name[64];
  verify(f, s);
  for (what_t what = kPut; what <= kAcc; ++what) {
    snprintf(name, sizeof name, "%s%s%s", before, kWhat[what], after);
    measure(name, f, what, s);
  }
}

static void measure_calls(void) {
  void** parts = malloc(sizeof(void*) * (size_t)processes);
  ARMCI_Malloc(parts, kBytes);
  memset(parts[me], 0, kBytes);
  theirs = parts[processes - 1];
  ARMCI_Barrier();
  if (me == 0) {
    const int sizes[] = {8, 64, 512, 4096, 16384, 65536, 131072, 262144, 1048576};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
      char after[16];
      snprintf(after, sizeof after, "-%d", sizes[i]);
      all_of("", after, call, (shape_t){1, sizes[i]});
    }
    all_of("rows-", "", call, (shape_t){1000, 8});
    measure("rmw", read_modify_write, kPut, (shape_t){1, 8});
  }
  ARMCI_Barrier();
  ARMCI_Free(parts[me]);
  free(parts);
}

/* Collective. */
static void measure_sync(void) {
  GA_Sync();
  const double start = MPI_Wtime();
  for (int i = 0; i < 500; ++i) GA_Sync();
  if (me == 0) printf(", \"ga-sync\": %.4f", (MPI_Wtime() - start) / 500 * 1e6);
}

/* Of an array whose halves are the processes'. */
static void measure_patches(void) {
  int dims[2] = {3000, 3000}, chunk[2] = {-1, 3000};
  const int shapes[3][2] = {{1, 1}, {1000, 8}, {362, 362}};
  char name[] = "a";
  array = NGA_Create(C_DBL, 2, dims, name, chunk);
  GA_Zero(array);
  GA_Sync();
  for (int i = 0; me == 0 && i < 3; ++i) {
    const int rows = shapes[i][0], columns = shapes[i][1];
    patch_lo[0] = 1700, patch_lo[1] = 33, patch_ld[0] = columns;
    patch_hi[0] = 1700 + rows - 1, patch_hi[1] = 33 + columns - 1;
    char after[32];
    snprintf(after, sizeof after, "-%dx%d", rows, columns);
    all_of("ga-", after, call_ga, (shape_t){rows, 8 * columns});
  }
  GA_Sync();
  measure_sync();
  GA_Destroy(array);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  GA_Initialize();
  MA_init(C_DBL, 1 << 16, 1 << 16);
  me = GA_Nodeid(), processes = GA_Nnodes();
  const int calls = argc == 2 && strcmp(argv[1], "calls") == 0,
            patches = argc == 2 && strcmp(argv[1], "patches") == 0;
  if (!calls && !patches) {
    if (me == 0) fputs("usage: player-ga calls|patches\n", stderr);
    GA_Terminate();
    MPI_Finalize();
    return 2;
  }
  local = ARMCI_Malloc_local(kBytes);
  memset(local, 0, kBytes);
  if (me == 0) printf("{\"processes\": %d", processes);
  if (calls)
    measure_calls();
  else
    measure_patches();
  if (me == 0) printf(", \"verified\": %s}\n", right ? "true" : "false");
  ARMCI_Free_local(local);
  GA_Terminate();
  MPI_Finalize();
  return 0;
}
