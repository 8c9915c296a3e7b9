// SPDX-License-Identifier: Apache-2.0
// How each system runs a kernel on a graph. Thread safety: none needed; one run at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job.h"

namespace kasane::bench::graphs {

/// What is to be done.
struct Task {
  std::string kernel;  ///< bfs, sssp, cc, pr, tc, bc; build: to make the graph of this scale and edge factor
  std::string file;    ///< .sg, for sssp .wsg
  std::uint64_t scale = 0, edge_factor = 0;  ///< scale 0: the graph was given
  unsigned trials = 1;
  std::uint64_t delta = 0;  ///< of GAPBS's sssp
  std::string scratch;      ///< a file that may be written
};

/// What a run says.
struct Outcome {
  std::vector<double> seconds;  ///< of each trial
  /// Of the last trial: vertices reached (bfs, sssp), components, triangles; negative: it does not say.
  double found = -1;
  double edges = 0;  ///< of the graph; 0: it does not say
};

/// All throw std::runtime_error, with the command: a run that fails, or does not say what it should.
Outcome run_kasane(const Task& task, const Job& job);
Outcome run_gapbs(const Task& task, const std::string& folder, unsigned threads);
Outcome run_graph500(const Task& task, const std::string& folder, unsigned processes);
Outcome run_igraph(const Task& task);

/// Why a system cannot do this; empty: it can.
std::string why_not_gapbs(const Task& task, const std::string& folder);
std::string why_not_graph500(const Task& task, const std::string& folder);
std::string why_not_igraph(const Task& task);

/// Writes Graph500's graph of the task's scale and edge factor to its file.
void make_graph(const Task& task);

}  // namespace kasane::bench::graphs
