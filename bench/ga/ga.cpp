// SPDX-License-Identifier: Apache-2.0
// kasane bench ga: Global Arrays programs, linked with Kasane's libarmci and with Debian's armci-mpi.
//
// Claim: calls cost no more than armci-mpi's, and programs whose arrays are several times the budget of DRAM
// run nearly as fast as in core, where the kernel's swap makes them crawl (kBars). Calls and patches between
// two processes; GFlop/s of a stencil and of GA_Dgemm against N, as figures 6 and 7 of the paper on ComEx-PM.
// All systems take turns within each repetition; a value is the median, a ratio the median of the
// repetitions' ratios. The programs verify their results.
#include <fmt/format.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/text_table.h"
#include "command_line.h"
#include "ga/figures_by_system.h"
#include "ga/runs.h"
#include "guarded.h"
#include "memory_group.h"
#include "progress.h"
#include "rows.h"
#include "swap_file.h"

namespace {

using kasane::bench::MemoryGroup;
using kasane::bench::Row;
using kasane::bench::SwapFile;
using namespace kasane::bench::ga;

constexpr char kName[] = "kasane bench ga";
constexpr std::uint64_t kSizes[] = {8, 64, 512, 4096, 16384, 65536, 131072, 262144, 1048576};
constexpr const char* kOperations[] = {"put", "get", "acc"};
struct Shape {
  const char* name;
  std::uint64_t bytes;
};
constexpr Shape kShapes[] = {{"1x1", 8}, {"1000x8", 64000}, {"362x362", 1048352}};

/// What is measured, besides the settings of a run.
struct Plan {
  Settings settings;
  std::vector<std::string> mpis, systems;
  std::vector<Work> works;
  unsigned repetitions = 1;

  [[nodiscard]] bool has(const std::string& system) const {
    return std::find(systems.begin(), systems.end(), system) != systems.end();
  }
};

// ---- calls and patches ------------------------------------------------------------------------------------

bool is_transfer(const Point& point) {
  return point.kind == "put" || point.kind == "get" || point.kind == "acc";
}

std::vector<Point> points_of(const std::string& what) {
  std::vector<Point> points;
  if (what == "calls") {
    for (const std::uint64_t bytes : kSizes)
      for (const std::string operation : kOperations)
        points.push_back({operation + "-" + std::to_string(bytes), operation, bytes});
    for (const std::string operation : kOperations)
      points.push_back({"rows-" + operation, "rows-" + operation, 8000});
    points.push_back({"rmw", "rmw", 8});
    return points;
  }
  for (const Shape& shape : kShapes)
    for (const std::string operation : kOperations)
      points.push_back({"ga-" + operation + "-" + shape.name, "patch-" + operation, shape.bytes, shape.name});
  points.push_back({"ga-sync", "sync", 0});
  return points;
}

/// Each system's run gives all points.
Figures measure_player(const Plan& plan, const std::string& what, kasane::bench::Progress& progress) {
  const std::vector<Point> points = points_of(what);
  std::vector<std::string> names;
  for (const Point& point : points) names.push_back(point.name);
  Figures figures;
  for (unsigned r = 0; r < plan.repetitions; ++r) {
    for (const std::string& mpi : plan.mpis) {
      for (const std::string system : {"kasane", "armci-mpi"}) {
        if (!plan.has(system)) continue;
        progress.begin(what + ": " + system + ", " + mpi);
        const auto values = player_run(plan.settings, system, mpi, what, names);
        for (std::size_t i = 0; i < points.size(); ++i)
          figures[{points[i].name, system, mpi}].push_back(values.at(i));
      }
    }
  }
  return figures;
}

/// Small transfers by their time, large ones by their rate; 4 KiB by both.
std::vector<Row> player_rows(const Plan& plan, const Point& point, const Figures& figures) {
  std::vector<Row> rows;
  for (const auto& [key, values] : figures) {
    if (key.point != point.name) continue;
    Row row{"ga",
            point.kind,
            key.system + ", " + key.mpi,
            plan.settings.ranks,
            1,
            point.bytes,
            kasane::bench::median(values),
            "us",
            plan.repetitions};
    if (!point.patch.empty()) row.more.push_back({"patch", point.patch});
    const Key other{key.point, "armci-mpi", key.mpi};
    if (key.system == "kasane" && figures.count(other) != 0)
      row.more.insert(row.more.end(),
                      {{"against", "armci-mpi"}, {"ratio", ratio(figures.at(other), values)}});
    if (!is_transfer(point)) {
      rows.push_back(row);
      continue;
    }
    row.case_ = point.kind + "-latency";
    if (point.bytes <= 4096) rows.push_back(row);
    row.case_ = point.kind + "-bandwidth", row.unit = "GB/s";
    row.value = static_cast<double>(point.bytes) / 1000 / row.value;
    if (point.bytes >= 4096) rows.push_back(row);
  }
  return rows;
}

void print_player(const Plan& plan, const std::vector<Point>& points, const Figures& figures,
                  std::FILE* table) {
  using Cells = std::vector<std::string>;
  const kasane::TextTable lines({-12, 12, -9, 12, 12, 10});
  std::fputs(lines.line(Cells{"case", "patch, bytes", "MPI", "kasane us", "armci-mpi us", "speed"}).c_str(),
             table);
  for (const Point& point : points) {
    for (const std::string& mpi : plan.mpis) {
      const auto ours = figures.find({point.name, "kasane", mpi}),
                 theirs = figures.find({point.name, "armci-mpi", mpi});
      const auto text = [&](auto at) {
        return at == figures.end() ? std::string("-")
                                   : fmt::format("{:.3f}", kasane::bench::median(at->second));
      };
      const bool both = ours != figures.end() && theirs != figures.end();
      std::fputs(lines
                     .line(Cells{point.kind, point.patch.empty() ? std::to_string(point.bytes) : point.patch,
                                 mpi, text(ours), text(theirs),
                                 both ? fmt::format("{:.2f}", ratio(theirs->second, ours->second)) : "-"})
                     .c_str(),
                 table);
    }
  }
}

/// The lowest of the points' speeds beside another system's, and where.
void print_lowest(const Figures& figures, const std::vector<Point>& points, const char* what, const Key& one,
                  const Key& other, const char* beside, double bar, std::FILE* table) {
  double lowest = 0;
  std::string where;
  for (const Point& point : points) {
    const auto a = figures.find({point.name, one.system, one.mpi}),
               b = figures.find({point.name, other.system, other.mpi});
    if (a == figures.end() || b == figures.end()) continue;
    const double speed = ratio(b->second, a->second);
    if (where.empty() || speed < lowest) lowest = speed, where = point.name;
  }
  if (!where.empty())
    std::fprintf(table, "%s: at least %.2f x %s (%s; bar: %.2f)\n", what, lowest, beside, where.c_str(), bar);
}

void print_player_bars(const std::string& what, const std::vector<Point>& points, const Figures& figures,
                       std::FILE* table) {
  const Key ours{"", "kasane", "openmpi"}, peer{"", "armci-mpi", "openmpi"}, mpich{"", "kasane", "mpich"};
  std::vector<Point> some;
  for (const Point& point : points) {
    if (is_transfer(point) || point.patch == "1000x8") some.push_back(point);
  }
  const bool calls = what == "calls";
  print_lowest(figures, some, calls ? "put, get, acc over Open MPI" : "patches of 1000x8 over Open MPI", ours,
               peer, "armci-mpi", calls ? 1 : 3, table);
  print_lowest(figures, some, "over MPICH", mpich, ours, "over Open MPI", 0.9, table);
}

// ---- Flop/s -----------------------------------------------------------------------------------------------

/// What swap may have under each MPI: the budget, and what the program takes beside its arrays.
class Limits {
 public:
  Limits(const Settings& settings, const Work& work) : settings_(settings), work_(work) {}

  /// Throws std::runtime_error if it cannot be known.
  std::uint64_t of(const std::string& mpi) {
    std::uint64_t& limit = limits_[mpi];
    if (limit != 0) return limit;
    const auto others = other_bytes(settings_, work_, mpi);
    if (!others) throw std::runtime_error("the memory that it needs in core is not known");
    return limit = settings_.budget + *others;
  }

 private:
  const Settings& settings_;
  const Work& work_;
  std::map<std::string, std::uint64_t> limits_;
};

/// False: a run failed, and its system is left out of this size.
bool measure_work(const Plan& plan, const Work& work, Figures& figures, Limits& limits,
                  kasane::bench::Progress& progress) {
  bool good = true;
  const auto failed = [&](const std::string& system, const std::string& mpi, const std::string& why) {
    progress.pause();
    std::fprintf(stderr, "%s: %s, N = %llu: %s, %s failed: %s\n", kName, work.name.c_str(),
                 static_cast<unsigned long long>(work.n), system.c_str(), mpi.c_str(), why.c_str());
    figures[{work.name, system, mpi}].clear();
    good = false;
  };
  for (unsigned r = 0; r < plan.repetitions; ++r) {
    for (const std::string& mpi : plan.mpis) {
      for (const std::string& system : plan.systems) {
        auto& values = figures[{work.name, system, mpi}];
        progress.begin(fmt::format("{}, N = {}: {}, {}", work.name, work.n, system, mpi));
        if (values.size() != r) continue;  // it failed
        try {
          const std::uint64_t limit = system == "swap" ? limits.of(mpi) : MemoryGroup::kNoLimit;
          values.push_back(work_run(plan.settings, work, system, mpi, limit));
        } catch (const std::exception& e) {
          failed(system, mpi, e.what());
        }
      }
    }
  }
  return good;
}

std::vector<Row> work_rows(const Plan& plan, const Work& work, const Figures& figures, Limits& limits) {
  std::vector<Row> rows;
  for (const auto& [key, values] : figures) {
    if (values.empty()) continue;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    Row row{"ga",
            work.name,
            key.system + ", " + key.mpi,
            plan.settings.ranks,
            0,
            0,
            kasane::bench::median(values),
            "GFlop/s",
            plan.repetitions,
            {{"N", work.n},
             {"low", *low},
             {"high", *high},
             {"data_bytes", work.bytes},
             {"budget_bytes", plan.settings.budget}}};
    if (key.system == "swap") row.more.push_back({"limit_bytes", limits.of(key.mpi)});
    for (const auto& [system, against] : kCompared) {
      const auto other = figures.find({key.point, against, key.mpi});
      if (key.system == system && other != figures.end() && !other->second.empty())
        row.more.push_back({fmt::format("ratio_{}", against), ratio(values, other->second)});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_work(const Plan& plan, const Work& work, const Figures& figures, std::FILE* table) {
  for (const std::string& mpi : plan.mpis) {
    std::vector<std::string> cells{
        work.name, std::to_string(work.n), mpi,
        fmt::format("{:.2f}", static_cast<double>(work.bytes) / static_cast<double>(plan.settings.budget))};
    for (const char* system : kSystems) {
      const auto at = figures.find({work.name, system, mpi});
      cells.push_back(at == figures.end() || at->second.empty()
                          ? "-"
                          : fmt::format("{:.2f}", kasane::bench::median(at->second)));
    }
    for (const auto& [system, against] : kCompared) {
      const auto one = figures.find({work.name, system, mpi}),
                 other = figures.find({work.name, against, mpi});
      const bool both =
          one != figures.end() && other != figures.end() && !one->second.empty() && !other->second.empty();
      cells.push_back(both ? fmt::format("{:.2f}", ratio(one->second, other->second)) : "-");
    }
    std::fputs(kWorkTable.line(cells).c_str(), table);
  }
  std::fflush(table);
}

/// N for arrays of a quarter of the budget to four times as much.
std::vector<Work> works_for(const Settings& s, const std::vector<std::string>& cases,
                            const std::vector<double>& shares) {
  std::vector<Work> works;
  for (const std::string& name : cases) {
    for (const double share : shares) {
      const double bytes = share * static_cast<double>(s.budget);
      const bool product = name == "dgemm";
      const auto side = static_cast<std::uint64_t>(std::sqrt(bytes / (product ? 24 : 8)));
      if (side < 8) throw std::runtime_error("--dram is too little for any arrays");
      const std::uint64_t n = product ? side : side - 2, k = name == "stencil" ? 1 : s.together;
      works.push_back({name,
                       product ? fmt::format("dgemm -n {}", n)
                               : fmt::format("stencil -n {} -k {} -s {}", n, k, k == 1 ? 2 : 2 * k),
                       n, (product ? 24 : 8) * side * side});
    }
  }
  return works;
}

// ---- the suite --------------------------------------------------------------------------------------------

/// Why the kernel's swap cannot be measured here; empty: it can, and swap is there while `file` lives.
std::string make_swap(const Plan& plan, std::unique_ptr<SwapFile>& file) {
  struct statfs s{};
  if (::statfs(plan.settings.directory.c_str(), &s) == 0 && s.f_type == TMPFS_MAGIC)
    return plan.settings.directory + " is memory, no disk: name another with --dir";
  const std::string prefix = name_prefix(::getppid());
  if (!MemoryGroup(prefix + "try", plan.settings.budget, MemoryGroup::Swap::allowed).good())
    return "no memory control group can be made here (that needs root, or a delegated one)";
  std::uint64_t most = 0;
  for (const Work& work : plan.works) most = std::max(most, work.bytes);
  file = std::make_unique<SwapFile>(plan.settings.directory, prefix + "swap", 2 * most);
  return file->good() ? "" : "no swap file in " + plan.settings.directory + ": " + file->problem();
}

int bench(Plan plan, const std::vector<std::string>& players, const std::string& json) {
  std::unique_ptr<SwapFile> swap;
  std::FILE* const table = kasane::bench::table_file(json);
  if (plan.has("swap") && !plan.works.empty()) {
    if (const std::string problem = make_swap(plan, swap); !problem.empty()) {
      std::fprintf(table, "swap: left out: %s\n", problem.c_str());
      std::erase(plan.systems, "swap");
    }
  }
  std::vector<Row> rows;
  bool good = true;
  const std::size_t callers = plan.has("kasane") + plan.has("armci-mpi");
  kasane::bench::Progress progress(plan.repetitions * plan.mpis.size() *
                                   (players.size() * callers + plan.works.size() * plan.systems.size()));
  for (const std::string& what : players) {
    const Figures figures = measure_player(plan, what, progress);
    progress.pause();
    const auto points = points_of(what);
    print_player(plan, points, figures, table);
    print_player_bars(what, points, figures, table);
    for (const Point& point : points)
      for (Row& row : player_rows(plan, point, figures)) rows.push_back(std::move(row));
  }
  if (!plan.works.empty()) std::fputs(kWorkTable.line(kWorkHead).c_str(), table);
  for (const Work& work : plan.works) {
    Figures figures;
    Limits limits(plan.settings, work);
    good &= measure_work(plan, work, figures, limits, progress);
    progress.pause();
    print_work(plan, work, figures, table);
    for (Row& row : work_rows(plan, work, figures, limits)) rows.push_back(std::move(row));
  }
  write(json, rows);
  return good ? 0 : 1;
}

std::string default_directory() {
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/var/tmp";
}

constexpr char kCases[] =
    "  calls       ARMCI's put, get and acc of 8 bytes to 1 MiB, rows of 8 bytes, Rmw\n"
    "  patches     GA's put, get and acc of patches; GA_Sync\n"
    "  dgemm       GA_Dgemm of N x N doubles\n"
    "  stencil     a 9-point stencil on N x N doubles, plain steps\n"
    "  stencil-tb  the same with temporal blocking, --together steps a pass\n";

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("ga", "one repetition, with 16M, arrays of 1/4 and 4 times as much");
  line.names("cases", {"calls", "patches", "dgemm", "stencil", "stencil-tb"}, kCases);
  line.names("systems", {std::begin(kSystems), std::end(kSystems)});
  line.names("MPIs", {std::begin(kMpis), std::end(kMpis)});
  line.repetitions(3, 1);
  Plan plan;
  std::string dram;
  std::vector<std::uint64_t> shares;
  plan.settings.directory = default_directory();
  line.own().text("--dram", dram, "budget of DRAM for arrays (default: 96M)", "SIZE");
  line.own().directory(
      "--dir", plan.settings.directory,
      "where spill and swap files are made: on the disk to be measured; nothing stays there");
  line.own().numbers("--percent", shares,
                     "sizes of the arrays, in percent of the budget (default: 25,50,100,200,400)", 1, 10'000);
  line.own().number("--ranks", plan.settings.ranks, "processes", 2, 1024);
  line.own().number("--together", plan.settings.together, "steps a pass with temporal blocking", 2, 1000);
  line.own().number("--deadline", plan.settings.deadline_seconds, "seconds after which a run has failed", 1,
                    100'000);
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto made = [&] {
    plan.repetitions = line.repetitions();
    plan.systems = line.wanted("systems");
    for (const std::string& mpi : mpis_here())
      if (line.wants(mpi)) plan.mpis.push_back(mpi);
    if (plan.mpis.empty())
      throw std::runtime_error(
          "there are no Global Arrays programs here: build Kasane where Open MPI or "
          "MPICH and Global Arrays are installed (Debian: libglobalarrays-dev)");
    const auto budget = kasane::parse_bytes(!dram.empty() ? dram : line.quick() ? "16M" : "96M");
    if (!budget) throw std::runtime_error("--dram: " + budget.error().message);
    plan.settings.budget = *budget;
    if (shares.empty())
      shares = line.quick() ? std::vector<std::uint64_t>{25, 400}
                            : std::vector<std::uint64_t>{25, 50, 100, 200, 400};
    std::vector<std::string> works;
    for (const char* name : {"dgemm", "stencil", "stencil-tb"})
      if (line.wants(name)) works.emplace_back(name);
    std::vector<double> parts;
    for (const std::uint64_t share : shares) parts.push_back(static_cast<double>(share) / 100);
    plan.works = works_for(plan.settings, works, parts);
    return 0;
  };
  if (const int status = kasane::bench::or_told(kName, made)) return status;
  std::vector<std::string> players;
  for (const char* name : {"calls", "patches"})
    if (line.wants(name)) players.emplace_back(name);
  const int status = kasane::bench::run_guarded(kName, [&] { return bench(plan, players, line.json()); });
  MemoryGroup::remove_left_behind(name_prefix(::getpid()));
  SwapFile::remove_left_behind(plan.settings.directory, name_prefix(::getpid()));
  return status;
}
