// SPDX-License-Identifier: Apache-2.0
// docs/guide/from_mpi.md: heat in a rod, in the shape of an MPI program: each member of a team has a part of
// the rod, reads a cell of each neighbour, waits for all, and the sum over all is known to all.
#include <cmath>
#include <cstdio>
#include <kasane/kasane.hpp>
#include <kasane/team.hpp>
#include <numeric>
#include <vector>

namespace {

constexpr std::size_t kCells = 1000, kSteps = 200;  // of a member's part

struct Rod {
  std::vector<double*> parts;  ///< where each member's lies: what MPI_Win_allocate would make
  std::vector<double> heat;    ///< a word of each member: what MPI_Allreduce would add up
};

void heat(kasane::member& me, Rod& rod) {
  const std::size_t rank = me.index(), size = me.size();  // MPI_Comm_rank, MPI_Comm_size
  const auto now = kasane::make_array<double>(kCells), next = kasane::make_array<double>(kCells);
  double* const mine = now.get();
  for (std::size_t i = 0; i < kCells; ++i) mine[i] = rank == 0 && i == kCells / 2 ? 1000 : 0;
  rod.parts[rank] = mine;
  for (std::size_t step = 0; step < kSteps; ++step) {
    me.wait();  // MPI_Barrier, or MPI_Win_fence: all have stored
    // What MPI_Sendrecv or MPI_Get brings, by plain loads; the neighbour takes no part.
    const double left = rank > 0 ? rod.parts[rank - 1][kCells - 1] : 0;
    const double right = rank + 1 < size ? rod.parts[rank + 1][0] : 0;
    for (std::size_t i = 0; i < kCells; ++i) {
      const double a = i > 0 ? mine[i - 1] : left, b = i + 1 < kCells ? mine[i + 1] : right;
      next[i] = mine[i] + 0.25 * (a - 2 * mine[i] + b);
    }
    me.wait();  // all have read
    std::copy_n(next.get(), kCells, mine);
  }
  rod.heat[rank] = std::accumulate(mine, mine + kCells, 0.0);
  me.wait();
  const double sum = std::accumulate(rod.heat.begin(), rod.heat.end(), 0.0);
  if (rank == 0) std::printf("heat: %.3f after %zu steps, %zu members\n", sum, kSteps, size);
}

}  // namespace

int main() {
  return kasane::run([] {
    const std::size_t members = kasane::ranks() * kasane::workers();
    Rod rod{std::vector<double*>(members), std::vector<double>(members)};
    kasane::team([&rod](kasane::member& me) { heat(me, rod); });
    return std::abs(std::accumulate(rod.heat.begin(), rod.heat.end(), 0.0) - 1000) < 1e-6 ? 0 : 1;
  });
}
