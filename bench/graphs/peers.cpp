// SPDX-License-Identifier: Apache-2.0
#include "graphs/peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "command_output.h"
#include "rows.h"

namespace kasane::bench::graphs {
namespace {

/// A run that takes longer hangs.
constexpr char kDeadline[] = "timeout --foreground -k 5 3600";

std::string player(const char* name) { return fmt::format("'{}/player-graph-{}'", own_folder(), name); }
bool is_there(const std::string& program) { return ::access(program.c_str(), X_OK) == 0; }

/// The number behind each `before` in the text.
std::vector<double> numbers_after(const std::string& text, const std::string& before) {
  std::vector<double> all;
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at))
    all.push_back(std::stod(text.substr(at += before.size(), 64)));
  return all;
}
double one_after(const std::string& command, const std::string& text, const std::string& before) {
  const auto all = numbers_after(text, before);
  if (all.empty()) throw std::runtime_error(command + ": does not say \"" + before + "\"");
  return all.back();
}

/// Of a player: one JSON object.
Outcome run_player(const std::string& command) {
  const std::string text = command_output(command);
  try {
    const auto object = nlohmann::json::parse(text.substr(std::min(text.find('{'), text.size())));
    Outcome all{
        {}, object.at("found").get<std::vector<double>>().back(), object.at("edges").at(0).get<double>()};
    for (const auto& ms : object.at("ms")) all.seconds.push_back(1e-3 * ms.get<double>());
    return all;
  } catch (const std::exception& e) {
    throw std::runtime_error(command + ": " + e.what());
  }
}

std::string job_of(const Job& job) {
  return fmt::format("{} '{}' run -n {} --workers {} -- {}", kDeadline, kasane_command(), job.ranks,
                     job.workers, player("kasane"));
}

std::string gapbs_program(const Task& task, const std::string& folder) {
  return folder + "/" + (task.kernel == "build" ? "converter" : task.kernel);
}
std::string reference(const Task& task, const std::string& folder) {
  return folder + (task.kernel == "sssp" ? "/graph500_reference_bfs_sssp" : "/graph500_reference_bfs");
}

}  // namespace

Outcome run_kasane(const Task& task, const Job& job) {
  if (task.kernel == "build")
    return run_player(
        fmt::format("{} build {} {} {}", job_of(job), task.scale, task.edge_factor, task.trials));
  return run_player(fmt::format("{} {} '{}' {}", job_of(job), task.kernel, task.file, task.trials));
}

void make_graph(const Task& task) {
  (void)command_output(
      fmt::format("{} make {} {} '{}'", job_of({1, 1}), task.scale, task.edge_factor, task.file));
}

std::string why_not_gapbs(const Task& task, const std::string& folder) {
  if (folder.empty()) return "--gapbs DIR says where it is";
  const std::string program = gapbs_program(task, folder);
  return is_there(program) ? "" : program + " is not there; make builds it";
}

Outcome run_gapbs(const Task& task, const std::string& folder, unsigned threads) {
  const std::string program =
      fmt::format("{} env OMP_NUM_THREADS={} '{}'", kDeadline, threads, gapbs_program(task, folder));
  if (task.kernel == "build") {
    Outcome all;
    for (unsigned i = 0; i < task.trials; ++i) {
      const std::string command =
          fmt::format("{} -g {} -k {} -b '{}'", program, task.scale, task.edge_factor, task.scratch);
      const std::string text = command_output(command);
      all.seconds.push_back(one_after(command, text, "Generate Time:") +
                            one_after(command, text, "Build Time:"));
    }
    return all;
  }
  std::string more;
  if (task.kernel == "sssp") more = fmt::format("-d {}", task.delta);
  if (task.kernel == "pr") more = "-i 100";  // as Kasane: until the tolerance is reached
  const std::string command = fmt::format("{} -f '{}' -n {} -a {}", program, task.file, task.trials, more);
  const std::string text = command_output(command);
  Outcome all;
  all.seconds = numbers_after(text, "Trial Time:");
  if (all.seconds.size() != task.trials) throw std::runtime_error(command + ": not as many times as trials");
  if (task.kernel == "bfs") all.found = one_after(command, text, "BFS Tree has ");
  if (task.kernel == "sssp") all.found = one_after(command, text, "SSSP Tree reaches ");
  if (task.kernel == "cc") all.found = one_after(command, text, "There are ");
  if (task.kernel == "tc") {  // "N triangles"
    const std::size_t end = text.find(" triangles");
    if (end == std::string::npos) throw std::runtime_error(command + ": does not say how many triangles");
    all.found = std::stod(text.substr(text.rfind('\n', end) + 1));
  }
  return all;
}

std::string why_not_graph500(const Task& task, const std::string& folder) {
  if (task.kernel != "bfs" && task.kernel != "sssp") return "it has no such kernel";
  if (folder.empty()) return "--graph500 DIR says where it is";
  if (task.scale == 0) return "it makes its graph itself: give --scale instead of files";
  const std::string program = reference(task, folder);
  return is_there(program) ? "" : program + " is not there; make in src builds it";
}

Outcome run_graph500(const Task& task, const std::string& folder, unsigned processes) {
  const std::string command =
      fmt::format("SKIP_VALIDATION=1 {} {} '{}' run --attach -n {} -- '{}' {} {} 2>/dev/null",
                  task.kernel == "sssp" ? "SKIP_BFS=1" : "", kDeadline, kasane_command(), processes,
                  reference(task, folder), task.scale, task.edge_factor);
  // It prints no times of roots, but their median.
  return {{one_after(command, command_output(command),
                     task.kernel + (task.kernel == "bfs" ? " " : "") + " median_time:")}};
}

std::string why_not_igraph(const Task& task) {
  if (task.kernel == "build") return "it has no such kernel";
  return is_there(own_folder() + "/player-graph-igraph")
             ? ""
             : "it was not here when Kasane was built (libigraph-dev)";
}

Outcome run_igraph(const Task& task) {
  return run_player(fmt::format("{} env OMP_NUM_THREADS=1 {} {} '{}' {}", kDeadline, player("igraph"),
                                task.kernel, task.file, task.trials));
}

}  // namespace kasane::bench::graphs
