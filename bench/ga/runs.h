// SPDX-License-Identifier: Apache-2.0
// The runs of kasane bench ga: a Global Arrays program of a system under an MPI, started by that MPI's mpirun
// with the same flags for all.
// Thread safety: none needed; the suite measures one thing at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kasane::bench::ga {

/// kasane-in-core: without a budget of DRAM. swap: armci-mpi with a limit of memory, under the kernel's swap.
inline constexpr const char* kSystems[] = {"kasane", "kasane-in-core", "armci-mpi", "swap"};
inline constexpr const char* kMpis[] = {"openmpi", "mpich"};

struct Settings {
  std::string directory;  ///< of spill and swap files
  unsigned ranks = 2;
  std::uint64_t budget = 0;  ///< of DRAM, for arrays
  unsigned deadline_seconds = 600;
  std::uint64_t together = 10;  ///< steps of the stencil with temporal blocking
};

/// An application at one size.
struct Work {
  std::string name;        ///< the case: "dgemm", "stencil", "stencil-tb"
  std::string program;     ///< "dgemm -n 4096 …", without the system's suffix
  std::uint64_t n, bytes;  ///< bytes: of all arrays

  /// The program with the suffix of the ARMCI. times: repetitions within the run.
  [[nodiscard]] std::string command(const std::string& armci, const std::string& mpi, unsigned times) const;
};

/// Those of kMpis for which the programs are there.
std::vector<std::string> mpis_here();

/// Of `calls` or `patches` by player-ga: the µs of these names.
std::vector<double> player_run(const Settings&, const std::string& armci, const std::string& mpi,
                               const std::string& what, const std::vector<std::string>& names);

/// GFlop/s. For swap: in a control group of the budget and what the program needs besides its arrays, which a
/// run without a limit has told. Throws std::runtime_error if the run fails or is not verified.
double work_run(const Settings&, const Work&, const std::string& system, const std::string& mpi,
                std::uint64_t limit_bytes);

/// The most memory that the work takes in core beside its arrays, with armci-mpi. Empty: not known.
std::optional<std::uint64_t> other_bytes(const Settings&, const Work&, const std::string& mpi);

/// The prefix of groups and swap files of the suite that this process (or its child) runs.
std::string name_prefix(long owner);

}  // namespace kasane::bench::ga
