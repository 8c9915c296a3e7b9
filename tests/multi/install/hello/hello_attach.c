/* SPDX-License-Identifier: Apache-2.0 */
/* docs/guide/attach.md: a program with a start of its own. With an MPI by mpicc -DWITH_MPI. */
#include <kasane/kasane.h>
#include <stdio.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

int main(int argc, char** argv) {
#ifdef WITH_MPI
  MPI_Init(&argc, &argv);
#else
  (void)argc, (void)argv;
#endif
  if (kasane_attach(NULL) != 0) {
    fprintf(stderr, "%s\n", kasane_error_message());
    return 1;
  }
  const uint32_t me = kasane_rank(), n = kasane_ranks();
  long* mine = kasane_malloc(1000 * sizeof(long));
  long* parts[64];
  kasane_ranks_allgather(&mine, parts, sizeof mine);
  for (int i = 0; i < 1000; ++i) mine[i] = me;
  kasane_ranks_barrier();
  long last = -1;
  kasane_get(&last, parts[n - 1] + 999, sizeof last);
  if (me == 0) printf("rank %ld is the last (%u ranks)\n", last, n);
  kasane_ranks_barrier();
  kasane_detach();
#ifdef WITH_MPI
  MPI_Finalize();
#endif
  return 0;
}
