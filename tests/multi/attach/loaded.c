/* SPDX-License-Identifier: Apache-2.0 */
/* `loaded LIBRARY`: loads libkasane.so after MPI_Init, for itself alone, attaches, sends global memory. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void* library;

static void* function(const char* name) {
  void* const found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "loaded: %s\n", dlerror());
    abort();
  }
  return found;
}

static void check(int condition, const char* what) {
  if (condition) return;
  const char* (*const message)(void) = (const char* (*)(void))function("kasane_error_message");
  fprintf(stderr, "loaded: %s: %s\n", what, message());
  abort();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "loaded: %s\n", dlerror());
    abort();
  }
  int (*const attach)(const void*) = (int (*)(const void*))function("kasane_attach");
  int (*const detach)(void) = (int (*)(void))function("kasane_detach");
  int (*const barrier)(void) = (int (*)(void))function("kasane_ranks_barrier");
  uint32_t (*const rank)(void) = (uint32_t (*)(void))function("kasane_rank");
  uint32_t (*const ranks)(void) = (uint32_t (*)(void))function("kasane_ranks");
  void* (*const allocate)(size_t) = (void* (*)(size_t))function("kasane_malloc");
  int (*const get)(void*, const void*, size_t) = (int (*)(void*, const void*, size_t))function("kasane_get");
  int (*const gather)(const void*, void*, size_t) =
      (int (*)(const void*, void*, size_t))function("kasane_ranks_allgather");
  enum { kWords = 1 << 17, kMostRanks = 64 };
  for (int round = 0; round < 2; ++round) {
    check(attach(NULL) == 0, "attach");
    const int me = (int)rank(), n = (int)ranks();
    long *const mine = allocate(kWords * sizeof(long)), *const other = malloc(kWords * sizeof(long));
    long* all[kMostRanks];
    check(mine != NULL && gather(&mine, all, sizeof mine) == 0, "allocation");
    for (int i = 0; i < kWords; ++i) mine[i] = me * 1000000L + i;
    check(barrier() == 0, "barrier");
    long word = -1;
    check(get(&word, all[(me + 1) % n] + 77, sizeof word) == 0 && word == (me + 1) % n * 1000000L + 77,
          "get");
    MPI_Sendrecv(mine, kWords, MPI_LONG, (me + 1) % n, 0, other, kWords, MPI_LONG, (me + n - 1) % n, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(other[kWords - 1] == (me + n - 1) % n * 1000000L + kWords - 1, "message");
    free(other);
    check(detach() == 0, "detach");
    if (me == 0 && round == 1) printf("loaded: passed\n");
  }
  MPI_Finalize();
  return 0;
}
