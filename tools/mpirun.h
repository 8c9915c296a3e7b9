// SPDX-License-Identifier: Apache-2.0
// Starts a job by an MPI's own launcher, on this host: finds the launchers, and executes one.
// Thread safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/rank/options.h"

namespace kasane::tools {

/// An MPI that Kasane has a module for, and its launcher here.
struct MpiLauncher {
  std::string mpi;      ///< as --mpi names it
  std::string package;  ///< Debian's, which brings the launcher
  std::string path;     ///< of the launcher; empty: not installed
};

/// In the order in which --mpi auto takes them.
inline constexpr const char* kMpis[] = {"openmpi", "mpich"};

/// Searches the PATH for it, and asks each candidate by --version which MPI it belongs to.
MpiLauncher mpi_launcher(const std::string& mpi);

/// Sets a key that no other job has, for ranks that are started one by one: they derive their stack guards
/// from it (runtime/start/same_image.h).
void set_job_key();

/// Becomes mpirun with options.ranks ranks of the command; returns the exit status if that fails. what: needs
/// it, for the message.
int run_by_mpi(const runtime::Options& options, std::vector<std::string> command,
               const char* what = "--transport mpi");

/// What a program loads at its start.
struct Libraries {
  bool kasane;      ///< libkasane.so
  std::string mpi;  ///< as --mpi names it; auto: none of those that Kasane knows
};
Libraries libraries_of(const std::string& program);

/// As run_by_mpi(), a program with a start of its own that attaches (kasane_attach). mpi: its MPI, unless
/// --mpi says another. Where it has none, and there is no mpirun: without an MPI.
int run_attaching(runtime::Options options, const std::string& mpi, std::vector<std::string> command);

}  // namespace kasane::tools
