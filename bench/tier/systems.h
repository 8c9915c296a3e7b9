// SPDX-License-Identifier: Apache-2.0
// The systems of kasane bench tier, and how each is run: a job is one run of one system, which gives the
// values of some cases.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "memory_group.h"

namespace kasane::bench::tier {

struct Settings {
  std::string here;       ///< folder of the kasane command
  std::string directory;  ///< of all files
  std::string run;        ///< further options of kasane run
  std::uint64_t bytes, budget, slack, page;
  std::uint64_t reads;  ///< of random-T
};

struct Case {
  const char* name;
  const char* unit;
  unsigned threads;
};
inline constexpr Case kCases[] = {
    {"seq-read", "MiB/s", 1}, {"seq-write", "MiB/s", 1}, {"random-1", "1/s", 1},       {"random-8", "1/s", 8},
    {"random-64", "1/s", 64}, {"stencil", "GFlop/s", 1}, {"stencil-tb", "GFlop/s", 1}, {"sort", "M/s", 1}};

/// kasane-ample has a budget that is larger than the data, kasane-in-core none.
inline constexpr const char* kSystems[] = {"kasane", "mmap", "mmap-sequential", "mmap-random",
                                           "fio",    "umap", "kasane-ample",    "kasane-in-core"};

/// What we hold ourselves to: system's value of a case is at least so many times the other's.
struct Bar {
  const char* name;
  const char* system;
  const char* against;
  double least;
};
inline constexpr Bar kBars[] = {{"seq-read", "kasane", "mmap-sequential", 0.9},
                                {"seq-write", "kasane", "mmap", 1.0},
                                {"random-1", "kasane", "fio", 0.8},
                                {"random-8", "kasane", "fio", 0.85},
                                {"random-64", "kasane", "fio", 0.85},
                                {"stencil", "kasane", "mmap", 1.3},
                                {"stencil-tb", "kasane", "kasane-in-core", 0.8},
                                {"sort", "kasane", "kasane-in-core", 0.5},
                                {"stencil", "kasane-ample", "kasane-in-core", 0.97},
                                {"stencil-tb", "kasane-ample", "kasane-in-core", 0.97},
                                {"sort", "kasane-ample", "kasane-in-core", 0.97}};

using Values = std::map<std::string, double>;

struct Job {
  std::string system;
  std::vector<std::string> cases;
  std::uint64_t limit;  ///< of its memory control group; MemoryGroup::kNoLimit
  /// seed: another one in each repetition. Throws std::runtime_error if the run fails or its result is wrong.
  std::function<Values(const MemoryGroup&, unsigned seed)> run;
};

/// Those of the wanted systems that can be had here; notes says why others cannot.
std::vector<Job> jobs(const Settings&, const std::vector<std::string>& systems,
                      const std::vector<std::string>& cases, bool grouped, std::vector<std::string>& notes);

}  // namespace kasane::bench::tier
