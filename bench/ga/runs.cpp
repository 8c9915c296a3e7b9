// SPDX-License-Identifier: Apache-2.0
#include "ga/runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "memory_group.h"
#include "rows.h"
#include "run_app.h"

namespace kasane::bench::ga {
namespace {

constexpr unsigned kTimes = 3;  ///< with swap once

std::string suffix(const std::string& armci, const std::string& mpi) { return "-" + armci + "-" + mpi; }

/// kasane run becomes mpirun for a program that attaches, or is said to.
std::string job(const Settings& s, const std::string& options, const std::string& program) {
  return fmt::format(
      "env OPENBLAS_NUM_THREADS=1 timeout --foreground -k 5 {} '{}' run --attach -n {} {} -- {}",
      s.deadline_seconds, kasane_command(), s.ranks, options, program);
}

}  // namespace

std::string Work::command(const std::string& armci, const std::string& mpi, unsigned times) const {
  const auto end = program.find(' ');
  return "'" + apps_folder() + "/ga/" + program.substr(0, end) + suffix(armci, mpi) + "'" +
         program.substr(end) + " -r " + std::to_string(times);
}

std::vector<std::string> mpis_here() {
  std::vector<std::string> here;
  for (const char* mpi : kMpis)
    if (std::filesystem::exists(own_folder() + "/player-ga" + suffix("kasane", mpi))) here.emplace_back(mpi);
  return here;
}

std::string name_prefix(long owner) { return "kasane-bench-ga." + std::to_string(owner) + "."; }

std::vector<double> player_run(const Settings& s, const std::string& armci, const std::string& mpi,
                               const std::string& what, const std::vector<std::string>& names) {
  std::vector<std::string> figures;
  for (const std::string& name : names) figures.push_back("/" + name);
  return run_app(job(s, armci == "kasane" ? "--dram 0 --spill none" : "",
                     "'" + own_folder() + "/player-ga" + suffix(armci, mpi) + "' " + what),
                 figures);
}

double work_run(const Settings& s, const Work& work, const std::string& system, const std::string& mpi,
                std::uint64_t limit_bytes) {
  const bool ours = system == "kasane" || system == "kasane-in-core";
  const std::string options = system == "kasane"
                                  ? fmt::format("--dram {} --spill '{}'", s.budget, s.directory)
                              : ours ? "--dram 0 --spill none"
                                     : "";
  std::string command =
      job(s, options, work.command(ours ? "kasane" : "armci-mpi", mpi, system == "swap" ? 1 : kTimes));
  if (system != "swap") return run_app(command, {"/result/gigaflops"}).at(0);
  const MemoryGroup group(name_prefix(::getppid()) + "swap", limit_bytes, MemoryGroup::Swap::allowed);
  return run_app(group.around(command), {"/result/gigaflops"}).at(0);
}

std::optional<std::uint64_t> other_bytes(const Settings& s, const Work& work, const std::string& mpi) {
  const MemoryGroup group(name_prefix(::getppid()) + "peak", MemoryGroup::kNoLimit);
  if (!group.good()) return {};
  run_app(group.around(job(s, "", work.command("armci-mpi", mpi, 1))), {"/result/gigaflops"});
  const auto peak = group.peak();
  if (!peak || *peak <= work.bytes) return {};
  return *peak - work.bytes;
}

}  // namespace kasane::bench::ga
