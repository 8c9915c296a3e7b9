// SPDX-License-Identifier: Apache-2.0
// kasane bench triad: STREAM's Triad over global memory, in the ways of Yasui and Fujisawa (2014): one array,
// placed by policy; an array a thread, on its NUMA node; from the threads of each node to the memory of each.
//
// Claim: it is as fast as over ordinary memory (ratio at least 0.98 of plain STREAM's, with as many
// threads). Both players live as long as their job, and take turns within each repetition; a rate is the
// median, a ratio the median of the repetitions' ratios. The players verify before they are timed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text_table.h"
#include "command_line.h"
#include "dialogue.h"
#include "job.h"
#include "median.h"
#include "progress.h"
#include "rows.h"

namespace {

using kasane::bench::Dialogue, kasane::bench::Job, kasane::bench::median, kasane::bench::Row;

constexpr double kBar = 0.98;
constexpr std::uint64_t kBytes = 3 * sizeof(double);  ///< an element: two loads and a store

struct Version {
  const char *name, *what;
  bool ranks;  ///< several ranks can have it
};
constexpr Version kVersions[] = {{"one-array", "as allocate() gives them, filled by one thread", false},
                                 {"first-touch", "each thread fills its part first", true},
                                 {"interleave", "page by page of all NUMA nodes", false},
                                 {"blocks", "a part on each NUMA node; of several ranks, at each rank", true},
                                 {"parted", "each thread has arrays of its own, on its node", true}};
constexpr char kNodes[] = "nodes";

struct Plan {
  std::vector<std::uint64_t> sizes;
  std::vector<std::string> versions, stores;
  bool nodes = true;
  unsigned repetitions = 1;
};

// ---- the machine -----------------------------------------------------------------------------------------

/// A NUMA node: its number, and its CPUs as the kernel lists them (empty: it has none).
struct Node {
  unsigned number;
  std::string cpus;
  unsigned cpu_count;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "0-2,5" → 0 1 2 5
std::vector<unsigned> numbers_of(const std::string& list) {
  std::vector<unsigned> all;
  for (std::size_t at = 0; at < list.size();) {
    std::size_t used = 0;
    const auto first = static_cast<unsigned>(std::stoul(list.substr(at), &used));
    unsigned last = first;
    at += used;
    if (at < list.size() && list[at] == '-') {
      last = static_cast<unsigned>(std::stoul(list.substr(at + 1), &used));
      at += used + 1;
    }
    for (unsigned i = first; i <= last; ++i) all.push_back(i);
    ++at;  // the comma
  }
  return all;
}

std::vector<Node> nodes_of_machine() {
  const std::string folder = "/sys/devices/system/node/";
  std::vector<Node> nodes;
  for (const unsigned n : numbers_of(first_line(folder + "has_memory"))) {
    const std::string cpus = first_line(folder + "node" + std::to_string(n) + "/cpulist");
    nodes.push_back({n, cpus, static_cast<unsigned>(numbers_of(cpus).size())});
  }
  if (nodes.empty()) {  // a kernel without NUMA
    const auto cpus = static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN));
    nodes.push_back({0, "0-" + std::to_string(cpus - 1), cpus});
  }
  return nodes;
}

/// From 2^10 up, as the paper, while the arrays of both players take less than an eighth of what is free.
std::vector<std::uint64_t> usual_sizes() {
  const std::uint64_t free = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
                             static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t n = 1 << 10; n <= std::uint64_t{1} << 30 && 2 * n * kBytes <= free / 8; n *= 4)
    sizes.push_back(n);
  return sizes;
}

// ---- measuring -------------------------------------------------------------------------------------------

std::string job_command(const Job& job, const std::string& binding) {
  return fmt::format("'{}' run -n {} --workers {} --bind {} -- '{}/player-triad-kasane'",
                     kasane::bench::kasane_command(), job.ranks, job.workers, binding,
                     kasane::bench::own_folder());
}
std::string stream_command(unsigned threads) {
  return fmt::format("env OMP_NUM_THREADS={} '{}/player-triad-stream'", threads, kasane::bench::own_folder());
}

/// So many that a run takes milliseconds.
std::uint64_t passes_for(std::uint64_t n) {
  return std::clamp<std::uint64_t>((std::uint64_t{1} << 22) / n, 2, 4096);
}

void prepare(Dialogue& player, const std::string& version, std::uint64_t n,
             const std::vector<std::string>& stores) {
  player.ask(fmt::format("array {} {}", version, n));
  for (const std::string& s : stores) {
    player.ask("run " + s + " 1");
    player.ask("check");
  }
}

/// GB/s, as STREAM counts bytes: streaming stores or not.
double rate(Dialogue& player, const std::string& stores, std::uint64_t n) {
  const std::uint64_t passes = passes_for(n);
  const double seconds = std::stod(player.ask(fmt::format("run {} {}", stores, passes)));
  return static_cast<double>(n * kBytes * passes) / seconds / 1e9;
}

struct Rates {
  std::vector<double> ours, plain;
};

/// In turns, each first in every other repetition; plain: if there is such a player.
Rates take_turns(Dialogue& ours, Dialogue* plain, const std::string& stores, std::uint64_t n,
                 unsigned repetitions) {
  Rates r;
  for (unsigned i = 0; i < repetitions; ++i) {
    if (plain != nullptr && i % 2 == 1) r.plain.push_back(rate(*plain, stores, n));
    r.ours.push_back(rate(ours, stores, n));
    if (plain != nullptr && i % 2 == 0) r.plain.push_back(rate(*plain, stores, n));
  }
  return r;
}

Row row_of(const std::string& name, const std::string& system, const Job& job, std::uint64_t n,
           const std::vector<double>& rates) {
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  return {"triad",
          name,
          system,
          job.ranks,
          job.threads(),
          0,
          median(rates),
          "GB/s",
          static_cast<unsigned>(rates.size()),
          {{"N", n}, {"low", *low}, {"high", *high}}};
}

std::string case_of(const std::string& version, const std::string& stores) {
  return version + (stores == "streaming" ? "-streaming" : "");
}

struct Table {
  std::FILE* file;
  kasane::TextTable lines{{-24, -16, 12, 12, 12, 8}};

  void line(const std::string& name, const std::string& threads, const std::string& n,
            const std::string& ours, const std::string& plain, const std::string& ratio) const {
    std::fputs(lines.line(std::array<std::string, 6>{name, threads, n, ours, plain, ratio}).c_str(), file);
    std::fflush(file);
  }
};

/// All versions of one job, beside plain STREAM.
void measure_job(const Plan& plan, const Job& job, kasane::bench::Progress& progress, const Table& table,
                 std::vector<Row>& rows) {
  Dialogue ours(job_command(job, "none")), plain(stream_command(job.threads()));
  const std::string threads = fmt::format("{} x {}", job.ranks, job.workers);
  for (const Version& version : kVersions) {
    if (std::find(plan.versions.begin(), plan.versions.end(), version.name) == plan.versions.end()) continue;
    if (job.ranks > 1 && !version.ranks) continue;
    for (const std::uint64_t n : plan.sizes) {
      progress.begin(fmt::format("{}, {} ranks x workers, N = {}", version.name, threads, n));
      prepare(ours, version.name, n, plan.stores);
      prepare(plain, version.name, n, plan.stores);
      for (const std::string& stores : plan.stores) {
        const Rates r = take_turns(ours, &plain, stores, n, plan.repetitions);
        std::vector<double> ratios;
        for (std::size_t i = 0; i < r.ours.size(); ++i) ratios.push_back(r.ours[i] / r.plain[i]);
        const std::string name = case_of(version.name, stores);
        rows.push_back(row_of(name, "kasane", job, n, r.ours));
        rows.back().more.push_back({"ratio", median(ratios)});
        rows.back().more.push_back({"ratio_of_best", *std::max_element(r.ours.begin(), r.ours.end()) /
                                                         *std::max_element(r.plain.begin(), r.plain.end())});
        rows.push_back(row_of(name, "stream", job, n, r.plain));
        progress.pause();
        table.line(name, threads, std::to_string(n), fmt::format("{:.2f}", median(r.ours)),
                   fmt::format("{:.2f}", median(r.plain)), fmt::format("{:.3f}", median(ratios)));
      }
    }
  }
}

/// From the threads of each node that has CPUs to the memory of each node.
void measure_nodes(const Plan& plan, const std::vector<Node>& nodes, kasane::bench::Progress& progress,
                   const Table& table, std::vector<Row>& rows) {
  for (const Node& from : nodes) {
    if (from.cpu_count == 0) continue;
    const Job job{1, from.cpu_count};
    Dialogue ours(job_command(job, from.cpus));
    for (const Node& to : nodes) {
      for (const std::uint64_t n : plan.sizes) {
        progress.begin(
            fmt::format("threads on node {}, memory of node {}, N = {}", from.number, to.number, n));
        prepare(ours, fmt::format("node:{}", to.number), n, plan.stores);
        for (const std::string& stores : plan.stores) {
          const Rates r = take_turns(ours, nullptr, stores, n, plan.repetitions);
          const std::string pair = fmt::format("node {} to {}", from.number, to.number);
          rows.push_back(row_of(case_of(kNodes, stores), "kasane, " + pair, job, n, r.ours));
          rows.back().more.push_back({"threads_node", std::uint64_t{from.number}});
          rows.back().more.push_back({"memory_node", std::uint64_t{to.number}});
          progress.pause();
          table.line(case_of(kNodes, stores), pair, std::to_string(n), fmt::format("{:.2f}", median(r.ours)),
                     "", "");
        }
      }
    }
  }
}

std::size_t runs_of(const Plan& plan, const std::vector<Job>& jobs, const std::vector<Node>& nodes) {
  std::size_t runs = 0;
  for (const Job& job : jobs)
    for (const Version& v : kVersions)
      if (std::find(plan.versions.begin(), plan.versions.end(), v.name) != plan.versions.end() &&
          (job.ranks == 1 || v.ranks))
        runs += plan.sizes.size();
  if (plan.nodes)
    for (const Node& node : nodes)
      if (node.cpu_count != 0) runs += nodes.size() * plan.sizes.size();
  return runs;
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("triad", "three sizes, one repetition: seconds");
  std::vector<std::string> names;
  std::string shown;
  for (const Version& v : kVersions) {
    names.emplace_back(v.name);
    shown += fmt::format("  {:<12} {}\n", v.name, v.what);
  }
  names.emplace_back(kNodes);
  shown += fmt::format("  {:<12} {}\n", kNodes, "from the threads of each NUMA node to the memory of each");
  line.names("versions", names, shown);
  line.names("stores", {"ordinary", "streaming"});
  line.repetitions(11, 1);
  Plan plan;
  std::vector<std::string> job_texts{"1x1", "1x2", "2x1"};
  line.own().numbers(
      "--sizes", plan.sizes,
      "N: elements of an array of doubles; there are three (default: 1024, 4096, … while those "
      "of Kasane and STREAM fit into an eighth of the free memory)",
      8, std::uint64_t{1} << 36);
  line.own().choices("--jobs", job_texts, {}, "ranks x workers");
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto parsed = kasane::bench::parse_jobs(job_texts, "kasane bench triad");
  if (!parsed) return 2;
  const std::vector<Job>& jobs = *parsed;
  plan.repetitions = line.repetitions();
  plan.versions = line.wanted("versions");
  plan.stores = line.wanted("stores");
  plan.nodes = line.wants(kNodes);
  if (plan.sizes.empty())
    plan.sizes = line.quick() ? std::vector<std::uint64_t>{1 << 10, 1 << 14, 1 << 18} : usual_sizes();

  return kasane::bench::or_told("kasane bench triad", [&] {
    std::vector<Row> rows;
    const std::vector<Node> nodes = nodes_of_machine();
    const Table table{kasane::bench::table_file(line.json())};
    kasane::bench::Progress progress(runs_of(plan, jobs, nodes));
    table.line("version", "ranks x workers", "N", "GB/s", "STREAM", "ratio");
    if (std::any_of(std::begin(kVersions), std::end(kVersions), [&](const Version& v) {
          return std::find(plan.versions.begin(), plan.versions.end(), v.name) != plan.versions.end();
        }))
      for (const Job& job : jobs) measure_job(plan, job, progress, table, rows);
    if (plan.nodes) {
      if (nodes.size() == 1)
        std::fprintf(table.file, "this machine has one NUMA node: the matrix of nodes is 1 x 1\n");
      measure_nodes(plan, nodes, progress, table, rows);
    }
    std::fprintf(table.file, "ratio: to plain STREAM of as many threads; the bar is %.2f\n", kBar);
    write(line.json(), rows);
    return 0;
  });
}
