// SPDX-License-Identifier: Apache-2.0
// kasane bench containers: each operation of Kasane's containers, at the thread's rank, at another rank of
// the host, from all ranks at once, and over TCP, beside the structures of other libraries.
//
// Claim: near they cost what ordinary ones cost, and far little more than the access that they need
// (bars.h). A run of a player does all cases of one structure; within a repetition the systems take turns for
// each structure. A value is the median, a ratio the median of the repetitions' ratios. The players verify.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text_table.h"
#include "command_line.h"
#include "command_output.h"
#include "containers/bars.h"
#include "median.h"
#include "progress.h"
#include "rows.h"

namespace {

using kasane::bench::median, kasane::bench::Row;
using namespace kasane::bench::containers;

constexpr char kName[] = "kasane bench containers";
constexpr std::uint64_t kEntries = 1'000'000, kQuick = 4000;

struct System {
  const char *name, *player;
  const char* place;   ///< of containers of several ranks; else null
  const char* groups;  ///< the structures that it has
  bool shared;         ///< two threads may use one
  const char* needs = "";
  const char* starter = "";  ///< what starts its ranks; Kasane's are started by kasane run
  [[nodiscard]] bool ours() const { return player == std::string("kasane"); }
  [[nodiscard]] bool at(const char* where) const { return place != nullptr && place == std::string(where); }
  [[nodiscard]] unsigned ranks() const { return place == nullptr || at("near") ? 1 : 2; }
};
constexpr System kSystems[] = {{"kasane", "kasane", "near", "map set vector deque list", true},
                               {"kasane-far", "kasane", "far", "map set vector deque list", false},
                               {"kasane-all", "kasane", "all", "map vector deque list", true},
                               {"kasane-tcp", "kasane", "far", "map set vector deque list", false},
                               {"std", "std", nullptr, "map set vector deque list", false},
                               {"mimalloc", "mimalloc", nullptr, "map set list", false, "libmimalloc-dev"},
                               {"boost", "boost", nullptr, "map set", false, "Boost 1.81"},
                               {"boost-concurrent", "boost-concurrent", nullptr, "map", true, "Boost 1.83"},
                               {"tbb", "tbb", nullptr, "map vector deque", true},
                               {"cuckoo", "cuckoo", nullptr, "map", true, "libcuckoo-dev"},
                               {"acp", "acp", "far", "map vector deque list", false, "ACP 3", "timeout 300"},
                               {"bcl", "bcl", "all", "map", true, "BCL, Open MPI",
                                "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                                "timeout 300 mpirun.openmpi -n 2 --bind-to none --oversubscribe"}};
constexpr const char* kGroups[] = {"map", "set", "vector", "deque", "list"};

struct Plan {
  std::vector<std::string> groups;
  std::uint64_t entries = kEntries;
  unsigned repetitions = 1;
};

/// A system, by one thread or two.
struct Point {
  const System* system;
  unsigned threads;
};

struct Figures {
  std::map<Key, std::vector<double>> values;
  std::vector<std::string> order;  ///< of the cases

  [[nodiscard]] const std::vector<double>* find(const Key& key) const {
    const auto at = values.find(key);
    return at != values.end() && !at->second.empty() ? &at->second : nullptr;
  }
};

// ---- measuring --------------------------------------------------------------------------------------------

/// So few that a run takes seconds: over a network, and where two ranks compete for an end. ACP copies a
/// vector or deque that grows.
std::uint64_t operations(const Plan& plan, const std::string& system, const std::string& group) {
  if (system == "acp") return std::min<std::uint64_t>(plan.entries, group == "map" ? 100'000 : 5000);
  if (system == "kasane-tcp") return std::min<std::uint64_t>(plan.entries, 1000);
  if (system == "kasane-all" && group != "map") return std::min<std::uint64_t>(plan.entries, 40'000);
  if (system == "kasane-far" && group == "list") return std::min<std::uint64_t>(plan.entries, 100'000);
  return plan.entries;
}

std::string command(const Plan& plan, const Point& point, const std::string& group) {
  const System& s = *point.system;
  const std::string player = fmt::format("'{}/player-containers-{}'", kasane::bench::own_folder(), s.player);
  if (s.place == nullptr) return fmt::format("{} {} {} {}", player, group, point.threads, plan.entries);
  const std::uint64_t n = operations(plan, s.name, group);
  if (!s.ours())
    return fmt::format("{} {} {} {} {} {} {}", s.starter, player, group, point.threads, n, n, s.place);
  const bool tcp = s.name == std::string("kasane-tcp"), near = s.at("near");
  return fmt::format("{} timeout 300 '{}' run -n {} --workers {} --transport {} -- {} {} {} {} {} {}",
                     tcp ? "UCX_TLS=tcp,self UCX_NET_DEVICES=lo" : "", kasane::bench::kasane_command(),
                     near ? 1 : 2, near ? point.threads : 1, tcp ? "ucx" : "shm", player, group,
                     point.threads,
                     tcp && group == "map" ? std::min<std::uint64_t>(plan.entries, 100'000) : n, n, s.place);
}

/// All cases of a run. Throws std::runtime_error if it fails, or a result is wrong.
void play(const Plan& plan, const Point& point, const std::string& group, Figures& figures) {
  const std::string line = command(plan, point, group), text = kasane::bench::command_output(line);
  const auto object = nlohmann::ordered_json::parse(text.substr(std::min(text.find('{'), text.size())));
  if (!object.at("verified").get<bool>()) throw std::runtime_error(line + ": a result is wrong");
  for (const auto& [name, values] : object.items()) {
    if (name == "verified") continue;
    if (std::find(figures.order.begin(), figures.order.end(), name) == figures.order.end())
      figures.order.push_back(name);
    figures.values[{name, point.system->name, point.threads}].push_back(values.at(0).get<double>());
  }
}

std::vector<Point> points(const kasane::bench::CommandLine& line) {
  std::vector<Point> all;
  for (const System& s : kSystems) {
    if (!line.wants(s.name)) continue;
    const std::string player = kasane::bench::own_folder() + "/player-containers-" + s.player;
    if (::access(player.c_str(), X_OK) != 0) {
      std::fprintf(stderr, "%s was not here when Kasane was built (%s): left out\n", s.name, s.needs);
      continue;
    }
    if (!s.at("all")) all.push_back({&s, 1});
    if (s.shared) all.push_back({&s, 2});
  }
  return all;
}

/// False: a run failed; its system is left out of that structure.
bool measure(const Plan& plan, const std::vector<Point>& points, Figures& figures) {
  bool good = true;
  std::vector<std::pair<std::string, std::vector<Point>>> runs;
  std::size_t count = 0;
  for (const std::string& group : plan.groups) {
    runs.emplace_back(group, std::vector<Point>());
    for (const Point& p : points)
      if (std::string(p.system->groups).find(group) != std::string::npos) runs.back().second.push_back(p);
    count += runs.back().second.size() * plan.repetitions;
  }
  kasane::bench::Progress progress(count);
  for (unsigned r = 0; r < plan.repetitions; ++r) {
    for (auto& [group, turns] : runs) {
      for (std::size_t i = 0; i < turns.size(); ++i) {
        Point& point = turns[(i + r) % turns.size()];  // each repetition begins with another
        progress.begin(fmt::format("{}: {}, {} thread{}", group, point.system->name, point.threads,
                                   point.threads > 1 ? "s" : ""));
        if (point.threads == 0) continue;  // it failed
        try {
          play(plan, point, group, figures);
        } catch (const std::exception& e) {
          progress.pause();
          std::fprintf(stderr, "%s: %s\n", kName, e.what());
          point.threads = 0;
          good = false;
        }
      }
    }
  }
  return good;
}

// ---- reporting --------------------------------------------------------------------------------------------

/// The median of the repetitions' ratios.
double ratio(const std::vector<double>& one, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) ratios.push_back(one[i] / other[i]);
  return median(ratios);
}

Row row_of(const Figures& figures, const Key& key, const std::vector<double>& values) {
  const System& system = *std::find_if(std::begin(kSystems), std::end(kSystems),
                                       [&](const System& s) { return key.system == s.name; });
  Row row{"containers",
          key.name,
          key.system,
          system.ranks(),
          key.threads,
          0,
          median(values),
          key.name.ends_with("-bytes") && !key.name.starts_with("map-get") ? "bytes" : "ns",
          static_cast<unsigned>(values.size())};
  for (const System& s : kSystems) {
    const auto* const other = figures.find({key.name, s.name, key.threads});
    if (system.ours() && key.system != s.name && other != nullptr && (!s.ours() || s.at("near")))
      row.more.push_back({fmt::format("ratio_{}", s.name), ratio(values, *other)});
  }
  return row;
}

void print_table(const Figures& figures, const std::vector<Point>& points, std::FILE* table) {
  std::vector<const System*> systems;
  for (const Point& p : points)
    if (systems.empty() || systems.back() != p.system) systems.push_back(p.system);
  std::vector<int> widths{-32};
  std::vector<std::string> cells{"ns"};
  for (const System* s : systems) {
    widths.push_back(std::max(8, static_cast<int>(std::string(s->name).size()) + 1));
    cells.emplace_back(s->name);
  }
  const kasane::TextTable lines(widths);
  std::fputs(lines.line(cells).c_str(), table);
  for (const std::string& name : figures.order) {
    for (const unsigned threads : {1u, 2u}) {
      cells = {name + (threads > 1 ? ", 2 threads" : "")};
      bool any = false;
      for (const System* s : systems) {
        const auto* const values = figures.find({name, s->name, threads});
        any |= values != nullptr;
        cells.push_back(values == nullptr ? "" : fmt::format("{:.4g}", median(*values)));
      }
      if (any) std::fputs(lines.line(cells).c_str(), table);
    }
  }
}

std::string text_of(const Bar& bar) {
  const auto& [one, other] = std::tie(bar.one, bar.other);
  const std::string threads = one.threads > 1 ? ", 2 threads" : "";
  if (one.name == other.name)
    return fmt::format("{}: {} / {}{}", one.name, one.system, other.system, threads);
  if (one.system == other.system)
    return fmt::format("{}: {} / {}{}", one.system, one.name, other.name, threads);
  return fmt::format("{} of {} / {} of {}", one.name, one.system, other.name, other.system);
}

/// The ratios that have a bar, as rows too.
void report_bars(const Figures& figures, std::vector<Row>& rows, std::FILE* table) {
  const kasane::TextTable lines({-56, 8, -14});
  for (const Bar& bar : bars()) {
    const auto *const one = figures.find(bar.one), *const other = figures.find(bar.other);
    if (one == nullptr || other == nullptr) continue;
    const double value = ratio(*one, *other);
    const std::string text = text_of(bar);
    std::fputs(lines
                   .line(std::vector<std::string>{
                       text, fmt::format("{:.2f}", value),
                       fmt::format("at {} {}", bar.at_least ? "least" : "most", bar.limit)})
                   .c_str(),
               table);
    rows.push_back({"containers",
                    "bars",
                    text,
                    0,
                    0,
                    0,
                    value,
                    bar.at_least ? "x, at least" : "x, at most",
                    static_cast<unsigned>(one->size()),
                    {{"limit", bar.limit}}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("containers", "4000 entries, one repetition: seconds");
  line.names("structures", {std::begin(kGroups), std::end(kGroups)});
  std::vector<std::string> names;
  for (const System& s : kSystems) names.emplace_back(s.name);
  line.names("systems", names);
  line.repetitions(5, 1);
  Plan plan;
  line.own().number("--entries", plan.entries, "of a structure: 8 bytes, in maps and sets a key of 8", 1,
                    100'000'000);
  if (const auto status = line.parse(argc, argv)) return *status;
  plan.repetitions = line.repetitions();
  plan.groups = line.wanted("structures");
  if (line.quick()) plan.entries = std::min(plan.entries, kQuick);
  return kasane::bench::or_told(kName, [&] {
    Figures figures;
    const auto all = points(line);
    const bool good = measure(plan, all, figures);
    std::vector<Row> rows;
    for (const std::string& name : figures.order)
      for (const Point& p : all)
        if (const auto* const values = figures.find({name, p.system->name, p.threads}))
          rows.push_back(row_of(figures, {name, p.system->name, p.threads}, *values));
    std::FILE* const table = kasane::bench::table_file(line.json());
    print_table(figures, all, table);
    report_bars(figures, rows, table);
    write(line.json(), rows);
    return good ? 0 : 1;
  });
}
