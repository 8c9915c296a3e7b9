// SPDX-License-Identifier: Apache-2.0
// The peers of kasane-bench-collectives: the same cases and loop over an MPI. One program an MPI, built by
// its wrapper compiler; rank 0 prints "case bytes µs".
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../collectives_cases.h"

namespace {

void call(const kasane::bench::CollectiveCase& c, std::vector<double>& a, std::vector<double>& b) {
  const int n = static_cast<int>(c.bytes / sizeof(double));
  if (std::strcmp(c.name, "barrier") == 0)
    MPI_Barrier(MPI_COMM_WORLD);
  else if (std::strcmp(c.name, "broadcast") == 0)
    MPI_Bcast(a.data(), n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  else if (std::strcmp(c.name, "allreduce") == 0)
    MPI_Allreduce(MPI_IN_PLACE, b.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  else
    MPI_Allgather(a.data(), n, MPI_DOUBLE, b.data(), n, MPI_DOUBLE, MPI_COMM_WORLD);
}

double measure(const kasane::bench::CollectiveCase& c, int ranks) {
  const std::size_t n = std::max<std::size_t>(c.bytes / sizeof(double), 1) * static_cast<std::size_t>(ranks);
  std::vector<double> a(n, 1.0), b(n, 1.0);
  for (int i = 0; i < c.calls / 10 + 1; ++i) call(c, a, b);
  std::fill(b.begin(), b.end(), 0.0);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < c.calls; ++i) call(c, a, b);
  return (MPI_Wtime() - begin) * 1e6 / c.calls;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);  // ours is safe for threads too
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const auto& c : kasane::bench::kCollectiveCases) {
    const double us = measure(c, ranks);
    if (rank == 0) std::printf("%s %zu %.4f\n", c.name, c.bytes, us);
  }
  MPI_Finalize();
  return 0;
}
