// SPDX-License-Identifier: Apache-2.0
// kasane bench bfs: the kernels of kasane/graph.hpp in real jobs, beside GAPBS, the Graph500 reference and
// igraph. All systems that read files have the same one, and search from the same roots.
//
// Claim: bars.h. A run of a system does all trials of a kernel on the graph that it has read; the systems
// take turns within each repetition. A time is the median over the repetitions of the median of the trials,
// a ratio the median of the repetitions' ratios. Kasane's player checks its results; peers say what they
// have found, and have to agree.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text_table.h"
#include "command_line.h"
#include "graphs/bars.h"
#include "graphs/peers.h"
#include "guarded.h"
#include "job.h"
#include "median.h"
#include "progress.h"
#include "rows.h"

namespace {

using kasane::bench::Job, kasane::bench::median, kasane::bench::Row;
using namespace kasane::bench::graphs;

constexpr char kName[] = "kasane bench bfs";

struct Kernel {
  const char* name;
  unsigned trials, quick;
};
constexpr Kernel kKernels[] = {{"build", 1, 1}, {"bfs", 64, 64}, {"sssp", 16, 2}, {"cc", 16, 2},
                               {"pr", 8, 2},    {"tc", 2, 1},    {"bc", 16, 2}};

struct Plan {
  std::vector<std::string> kernels, systems, files;
  std::vector<Job> jobs;
  std::string gapbs, graph500, directory;
  std::uint64_t scale = 20, edge_factor = 16, delta = 2;  // delta: as its own benchmark has it for this graph
  unsigned repetitions = 1;
  bool quick = false;
};

/// A system in one of its forms, and the medians of its runs of one kernel.
struct Turn {
  std::string system, label;  ///< "kasane", "kasane, 1 x 2"
  Job job;
  std::function<Outcome(const Task&)> run;
  std::vector<double> seconds = {};
  bool failed = false;
};

/// A folder for what is made; nothing is left of it.
class Folder {
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/kasane-bench-bfs.XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error(path_ + ": " + std::strerror(errno) + "; --dir names another folder");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string plural(unsigned n, const char* what) { return fmt::format("{} {}{}", n, what, n > 1 ? "s" : ""); }

/// All forms of all systems that can do the task. Others are told of, once each.
std::vector<Turn> turns_for(const Plan& plan, const Task& task, std::vector<std::string>& told) {
  std::vector<Turn> turns;
  const auto wants = [&](const char* system) {
    return std::find(plan.systems.begin(), plan.systems.end(), system) != plan.systems.end();
  };
  const auto may = [&](const char* system, const std::string& why_not) {
    if (why_not.empty()) return true;
    const std::string text = fmt::format("{} is left out: {}", system, why_not);
    if (why_not != "it has no such kernel" && std::find(told.begin(), told.end(), text) == told.end()) {
      std::fprintf(stderr, "%s: %s\n", kName, text.c_str());
      told.push_back(text);
    }
    return false;
  };
  std::vector<unsigned> threads;
  for (const Job& job : plan.jobs) {
    if (std::find(threads.begin(), threads.end(), job.threads()) == threads.end())
      threads.push_back(job.threads());
    if (wants("kasane"))
      turns.push_back({"kasane", fmt::format("kasane, {} x {}", job.ranks, job.workers), job,
                       [job](const Task& t) { return run_kasane(t, job); }});
  }
  if (wants("gapbs") && may("gapbs", why_not_gapbs(task, plan.gapbs)))
    for (const unsigned n : threads)
      turns.push_back(
          {"gapbs", "gapbs, " + plural(n, "thread"), {1, n}, [n, folder = plan.gapbs](const Task& t) {
             return run_gapbs(t, folder, n);
           }});
  if (wants("graph500") && may("graph500", why_not_graph500(task, plan.graph500)))
    for (const unsigned n : threads)
      if ((n & (n - 1)) == 0)  // it runs on powers of two alone
        turns.push_back({"graph500",
                         fmt::format("graph500, {} process{}", n, n > 1 ? "es" : ""),
                         {n, 1},
                         [n, folder = plan.graph500](const Task& t) { return run_graph500(t, folder, n); }});
  if (wants("igraph") && may("igraph", why_not_igraph(task)))
    turns.push_back({"igraph", "igraph, 1 thread", {1, 1}, run_igraph});
  return turns;
}

std::vector<double> ratios(const Turn& slower, const Turn& faster) {
  std::vector<double> all;
  for (std::size_t i = 0; i < std::min(slower.seconds.size(), faster.seconds.size()); ++i)
    all.push_back(slower.seconds[i] / faster.seconds[i]);
  return all;
}

/// One kernel by all systems, in turns. False: a run failed, or systems have found different things.
bool measure(const Plan& plan, const Task& task, std::vector<Turn>& turns, double& edges,
             kasane::bench::Progress& progress) {
  bool good = true;
  std::optional<std::pair<std::string, double>> found;
  const auto wrong = [&](const std::string& what) {
    progress.pause();
    std::fprintf(stderr, "%s: %s\n", kName, what.c_str());
    good = false;
  };
  for (unsigned r = 0; r < plan.repetitions; ++r) {
    for (std::size_t i = 0; i < turns.size(); ++i) {
      Turn& turn = turns[(i + r) % turns.size()];  // each repetition begins with another
      progress.begin(fmt::format("{}: {}", task.kernel, turn.label));
      if (turn.failed) continue;
      try {
        const Outcome is = turn.run(task);
        turn.seconds.push_back(median(is.seconds));
        if (is.edges > 0) edges = is.edges;
        if (is.found < 0 || task.kernel == "build") continue;
        if (!found) found = {turn.label, is.found};
        if (found->second != is.found)
          wrong(fmt::format("{}: {} finds {}, but {} {}", task.kernel, found->first, found->second,
                            turn.label, is.found));
      } catch (const std::exception& e) {
        wrong(e.what());
        turn.failed = true;
      }
    }
  }
  return good;
}

Row row_of(const Plan& plan, const Task& task, const Turn& turn, const std::vector<Turn>& turns,
           double edges) {
  std::vector<double> ms;
  for (const double s : turn.seconds) ms.push_back(1e3 * s);
  const auto [low, high] = std::minmax_element(ms.begin(), ms.end());
  Row row{"bfs",
          task.kernel,
          turn.system,
          turn.job.ranks,
          turn.job.threads(),
          0,
          median(ms),
          "ms",
          static_cast<unsigned>(ms.size()),
          {{"low", *low}, {"high", *high}, {"trials", std::uint64_t{task.trials}}}};
  if (task.scale != 0) row.more.push_back({"scale", task.scale});
  if (task.scale != 0) row.more.push_back({"edge_factor", plan.edge_factor});
  if (edges > 0) row.more.push_back({"edges", edges});
  if (edges > 0) row.more.push_back({"million_edges_per_second", edges / median(ms) / 1e3});
  if (turn.system != "kasane") return row;
  for (const Turn& other : turns)
    if (other.system != "kasane" && !other.seconds.empty() &&
        (other.job.threads() == turn.job.threads() || other.system == "igraph"))
      row.more.push_back({"ratio_" + other.system, median(ratios(other, turn))});
  return row;
}

void print_kernel(const Task& task, const std::vector<Row>& rows, const std::vector<Turn>& turns,
                  std::FILE* table) {
  const kasane::TextTable lines({-6, -24, 11, 14, 9, 10, 9});
  for (std::size_t i = 0, k = 0; i < turns.size(); ++i) {
    if (turns[i].seconds.empty()) continue;
    const Row& row = rows[k++];
    std::array<std::string, 7> cells{task.kernel, turns[i].label, fmt::format("{:.3f}", row.value)};
    for (const Row::Figure& f : row.more) {
      const auto text = [&] { return fmt::format("{:.2f}", std::get<double>(f.value)); };
      if (f.name == "million_edges_per_second") cells[3] = fmt::format("{:.1f}", std::get<double>(f.value));
      if (f.name == "ratio_gapbs") cells[4] = text();
      if (f.name == "ratio_graph500") cells[5] = text();
      if (f.name == "ratio_igraph") cells[6] = text();
    }
    std::fputs(lines.line(cells).c_str(), table);
  }
  std::fflush(table);
}

/// The ratios that have a bar at this scale, as rows too.
void report_bars(const Task& task, const std::vector<Turn>& turns, std::vector<Row>& rows, std::FILE* table) {
  const auto find = [&](const std::string& label) {
    const auto at = std::find_if(turns.begin(), turns.end(), [&](const Turn& t) { return t.label == label; });
    return at != turns.end() && !at->seconds.empty() ? &*at : nullptr;
  };
  for (const Bar& bar : bars()) {
    if (bar.kernel != task.kernel || (bar.scale == 0 ? task.scale < 20 : task.scale != bar.scale)) continue;
    const Turn *const slower = find(bar.slower), *const faster = find(bar.faster);
    if (slower == nullptr || faster == nullptr) continue;
    const double value = median(ratios(*slower, *faster));
    const std::string text = fmt::format("{}: {} to {}", bar.kernel, bar.faster, bar.slower);
    std::fprintf(table, "  %-48s %6.2f times as fast, at least %.2f\n", text.c_str(), value, bar.at_least);
    rows.push_back({"bfs",
                    "bars",
                    text,
                    0,
                    0,
                    0,
                    value,
                    "x, at least",
                    static_cast<unsigned>(slower->seconds.size()),
                    {{"limit", bar.at_least}}});
  }
}

/// The tasks, with their files; kernels without one are told of.
std::vector<Task> tasks_of(const Plan& plan, const Folder& folder) {
  std::vector<Task> tasks;
  std::map<std::string, std::string> files;  // by suffix
  for (const std::string& f : plan.files) files[std::filesystem::path(f).extension()] = f;
  for (const Kernel& kernel : kKernels) {
    if (std::find(plan.kernels.begin(), plan.kernels.end(), kernel.name) == plan.kernels.end()) continue;
    Task task{kernel.name,
              "",
              plan.files.empty() ? plan.scale : 0,
              plan.edge_factor,
              plan.quick ? kernel.quick : kernel.trials,
              plan.delta,
              folder.file("scratch.sg")};
    const std::string suffix = task.kernel == "sssp" ? ".wsg" : ".sg";
    if (!plan.files.empty() && (task.kernel == "build" || files[suffix].empty())) {
      std::fprintf(stderr, "%s: %s is left out: %s\n", kName, kernel.name,
                   task.kernel == "build" ? "it makes a graph of --scale"
                                          : ("no " + suffix + " file was given").c_str());
      continue;
    }
    task.file = plan.files.empty() ? folder.file("graph" + suffix) : files[suffix];
    tasks.push_back(task);
  }
  return tasks;
}

bool measure_all(const Plan& plan, const Folder& folder, std::vector<Row>& rows, std::FILE* table) {
  const std::vector<Task> tasks = tasks_of(plan, folder);
  std::vector<std::string> told;
  std::vector<std::vector<Turn>> turns;
  std::size_t runs = 0;
  for (const Task& task : tasks) {
    turns.push_back(turns_for(plan, task, told));
    runs += turns.back().size() * plan.repetitions;
  }
  kasane::bench::Progress progress(runs);
  bool good = true;
  const kasane::TextTable lines({-6, -24, 11, 14, 9, 10, 9});
  std::fputs(lines
                 .line(std::array<std::string, 7>{"kernel", "system", "median ms", "M edges/s", "to gapbs",
                                                  "graph500", "igraph"})
                 .c_str(),
             table);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    if (plan.files.empty() && task.kernel != "build" && !std::filesystem::exists(task.file)) make_graph(task);
    double edges = 0;
    good &= measure(plan, task, turns[i], edges, progress);
    progress.pause();
    std::vector<Row> of_kernel;
    for (const Turn& turn : turns[i])
      if (!turn.seconds.empty()) of_kernel.push_back(row_of(plan, task, turn, turns[i], edges));
    print_kernel(task, of_kernel, turns[i], table);
    report_bars(task, turns[i], of_kernel, table);
    rows.insert(rows.end(), of_kernel.begin(), of_kernel.end());
  }
  return good;
}

int refuse(const std::string& what) {
  std::fprintf(stderr, "kasane: %s\nkasane: see %s --help\n", what.c_str(), kName);
  return 2;
}

std::string usual_directory() {
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/var/tmp";
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("bfs", "scale 10, one repetition, few trials: seconds");
  std::vector<std::string> names;
  for (const Kernel& k : kKernels) names.emplace_back(k.name);
  line.names("systems", {"kasane", "gapbs", "graph500", "igraph"});
  line.repetitions(5, 1);
  Plan plan;
  std::vector<std::string> job_texts{"1x1", "1x2", "2x1"};
  plan.kernels = {"bfs"};
  apps::Options& own = line.own();
  own.choices("--kernels", plan.kernels, names,
              "what to compute; build: to generate the graph and build its rows");
  own.files(plan.files, "the graph: GAPBS's .sg, and a .wsg for sssp; by default Graph500's of --scale");
  own.number("--scale", plan.scale, "log2 of the number of vertices", 1, 31);
  own.number("--edge-factor", plan.edge_factor, "edges a vertex", 1, 1024);
  own.choices("--jobs", job_texts, {}, "ranks x workers; peers get as many threads or processes");
  own.directory("--gapbs", plan.gapbs, "the built GAP Benchmark Suite (github.com/sbeamer/gapbs)");
  own.number("--delta", plan.delta, "width of the buckets of GAPBS's sssp", 1, 1'000'000);
  own.directory("--graph500", plan.graph500, "src of the built Graph500 reference 3.0.0");
  own.directory("--dir", plan.directory, "where the graph's files are made (default: TMPDIR, or /var/tmp)");
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto jobs = kasane::bench::parse_jobs(job_texts, kName);
  if (!jobs) return 2;
  plan.jobs = *jobs;
  for (const std::string& file : plan.files) {
    if (!file.ends_with(".sg") && !file.ends_with(".wsg")) return refuse(file + ": neither .sg nor .wsg");
    if (::access(file.c_str(), R_OK) != 0) return refuse(file + ": " + std::strerror(errno));
  }
  plan.quick = line.quick();
  if (plan.quick) plan.scale = std::min<std::uint64_t>(plan.scale, 10);
  plan.systems = line.wanted("systems");
  plan.repetitions = line.repetitions();
  if (plan.directory.empty()) plan.directory = usual_directory();
  return kasane::bench::or_told(kName, [&] {
    const Folder folder(plan.directory);  // this process cleans up, however the measuring ends
    return kasane::bench::run_guarded(kName, [&] {
      std::vector<Row> rows;
      const bool good = measure_all(plan, folder, rows, kasane::bench::table_file(line.json()));
      write(line.json(), rows);
      return good ? 0 : 1;
    });
  });
}
