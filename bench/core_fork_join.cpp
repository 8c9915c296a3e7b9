// SPDX-License-Identifier: Apache-2.0
#include "core_fork_join.h"

#include <unistd.h>

#include "median.h"
#include "run_app.h"

namespace kasane::bench {
namespace {

constexpr unsigned kRunsOfATurn = 3;  ///< timed runs of a player each time it is started

struct System {
  const char* name;
  bool slow;  ///< ten times slower or more: a smaller recursion gives the same cost per node
};
constexpr System kSystems[] = {{"call", false},           {"kasane", false}, {"libfork", false},
                               {"citor", false},          {"chili", false},  {"tmc", false},
                               {"massivethreads", false}, {"tbb", true},     {"openmp", true}};

struct Recursion {
  const char* case_;
  const char* argument;
  unsigned size, quick_size;
};
constexpr Recursion kRecursions[] = {{"fork-join", "fib", 32, 24}, {"fork-join-tree", "tree", 21, 14}};

struct Point {
  const System* system;
  unsigned workers;
  std::string command;  ///< but for the arguments that play() takes
  std::vector<double> ns = {};
};

std::vector<Point> points(const std::string& command, const std::string& players) {
  std::vector<Point> all;
  for (const System& system : kSystems) {
    const std::string player = players + "/player-fork-join-" + system.name;
    if (::access(player.c_str(), X_OK) != 0) continue;  // its system was not found when this was built
    for (const unsigned workers : {1u, 2u}) {
      if (std::string("call") == system.name && workers > 1) continue;
      const bool job = std::string("kasane") == system.name;
      all.push_back(
          {&system, workers,
           job ? command + " run -n 1 --workers " + std::to_string(workers) + " -- " + player : player});
    }
  }
  return all;
}

}  // namespace

std::vector<Row> core_fork_join(bool quick, std::optional<unsigned> asked, const std::string& command,
                                const std::string& players) {
  const unsigned turns = asked.value_or(quick ? 1 : 5);
  std::vector<Row> rows;
  for (const Recursion& recursion : kRecursions) {
    std::vector<Point> all = points(command, players);
    for (unsigned turn = 0; turn < turns; ++turn) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        Point& point = all[(i + turn) % all.size()];  // each turn begins with another
        const unsigned size = (quick ? recursion.quick_size : recursion.size) - (point.system->slow ? 4 : 0);
        const auto ns = run_app(point.command + " " + recursion.argument + " " + std::to_string(size) + " " +
                                    std::to_string(point.workers) + " " + std::to_string(kRunsOfATurn),
                                {"/ns"});
        point.ns.insert(point.ns.end(), ns.begin(), ns.end());
      }
    }
    for (const Point& point : all) {
      rows.push_back({"core", recursion.case_, point.system->name, 1, point.workers, 0, median(point.ns),
                      "ns", static_cast<unsigned>(point.ns.size())});
    }
  }
  return rows;
}

}  // namespace kasane::bench
