// SPDX-License-Identifier: Apache-2.0
#include "core_apps.h"

#include <array>
#include <utility>

#include "median.h"
#include "run_app.h"

namespace kasane::bench {
std::vector<Row> core_apps(bool quick, std::optional<unsigned> asked, const std::string& command,
                           const std::string& apps) {
  const unsigned repetitions = asked.value_or(quick ? 1 : 5);
  const std::array<unsigned, 3> rank_counts{1, 2, 4};
  std::vector<Row> rows;
  for (const auto& [name, arguments] :
       {std::pair<std::string, std::string>{"cilksort", quick ? "--count 1000000" : "--count 10000000"},
        {"uts", quick ? "--depth 8" : ""}}) {
    std::array<std::vector<double>, 3> seconds;
    std::vector<double> serial;
    for (unsigned r = 0; r < repetitions; ++r) {  // interleaved, so that all see the same machine
      for (std::size_t i = 0; i < rank_counts.size(); ++i) {
        const auto figures =
            run_app(command + " run -n " + std::to_string(rank_counts[i]) + " --workers 1 -- " + apps + "/" +
                        name + " " + arguments + " --serial --json - 2>/dev/null",
                    {"/seconds", "/seconds_serial"});
        seconds[i].push_back(figures.at(0));
        serial.push_back(figures.at(1));
      }
    }
    rows.push_back(
        {"core", name, "serial", 1, 1, 0, median(serial), "s", static_cast<unsigned>(serial.size())});
    for (std::size_t i = 0; i < rank_counts.size(); ++i) {
      rows.push_back(
          {"core", name, "kasane", rank_counts[i], rank_counts[i], 0, median(seconds[i]), "s", repetitions});
    }
  }
  return rows;
}

std::vector<Row> core_steal(bool quick, std::optional<unsigned> asked, const std::string& command,
                            const std::string& players) {
  std::vector<double> rounds;
  for (unsigned turn = 0; turn < asked.value_or(1); ++turn) {
    const auto more =
        run_app(command + " run -n 2 --workers 1 -- " + players + "/player-steal " + (quick ? "200" : "2000"),
                {"/us"});
    rounds.insert(rounds.end(), more.begin(), more.end());
  }
  return {
      {"core", "steal", "kasane", 2, 1, 4096, median(rounds), "us", static_cast<unsigned>(rounds.size())}};
}

std::vector<Row> core_lock(bool quick, std::optional<unsigned> asked, const std::string& command,
                           const std::string& players) {
  struct Way {
    std::string argument, system;
    std::vector<double> us[2];
  };
  constexpr unsigned kPages[] = {0, 16};
  Way ways[] = {{"mutex", "kasane, mutex", {}}, {"value", "kasane, synchronized_value", {}}};
  for (unsigned turn = 0; turn < asked.value_or(quick ? 1 : 3); ++turn) {
    for (Way& way : ways) {
      for (std::size_t i = 0; i < std::size(kPages); ++i) {
        const auto rounds =
            run_app(command + " run -n 2 --workers 1 -- " + players + "/player-lock " + way.argument + " " +
                        std::to_string(kPages[i]) + (quick ? " 100" : " 1000"),
                    {"/us"});
        way.us[i].insert(way.us[i].end(), rounds.begin(), rounds.end());
      }
    }
  }
  std::vector<Row> rows;
  for (std::size_t i = 0; i < std::size(kPages); ++i) {
    for (const Way& way : ways)
      rows.push_back({"core", "lock", way.system, 2, 2, kPages[i] * std::uint64_t{65536}, median(way.us[i]),
                      "us", static_cast<unsigned>(way.us[i].size())});
  }
  return rows;
}

std::vector<Row> core_turns(bool quick, std::optional<unsigned> asked, const std::string& command,
                            const std::string& players) {
  struct Way {
    std::string system, command;
    unsigned ranks;
    std::vector<double> us = {}, create_us = {};
  };
  const std::string run = command + " run --workers 1 ", player = " -- " + players + "/player-turns";
  Way ways[] = {{"std::thread", players + "/player-turns-std", 1},
                {"kasane", run + "-n 1" + player, 1},
                {"kasane", run + "-n 2" + player, 2},
                {"kasane spread", run + "-n 2 --threads spread" + player, 2}};
  for (unsigned turn = 0; turn < asked.value_or(quick ? 1 : 3); ++turn) {
    for (Way& way : ways) {
      const auto rounds = run_app(way.command + (quick ? " 500" : " 5000"), {"/us", "/create_us"});
      const auto half = rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2);
      way.us.insert(way.us.end(), rounds.begin(), half);
      way.create_us.insert(way.create_us.end(), half, rounds.end());
    }
  }
  std::vector<Row> rows;
  const auto add = [&](const Way& way, const char* name, const std::vector<double>& us) {
    rows.push_back(
        {"core", name, way.system, way.ranks, 2, 0, median(us), "us", static_cast<unsigned>(us.size())});
  };
  for (const Way& way : ways) add(way, "turns", way.us);
  for (const Way& way : ways) add(way, "thread-create-join", way.create_us);
  return rows;
}

std::vector<Row> core_touch(bool quick, std::optional<unsigned> asked, const std::string& command,
                            const std::string& players) {
  struct Way {
    std::string system, command;
    unsigned ranks;
    std::array<std::vector<double>, 4> values = {};
  };
  constexpr std::array<std::pair<const char*, const char*>, 4> kCases{{{"touch-row", "us"},
                                                                       {"touch-rows-memory", "MiB"},
                                                                       {"touch-in-order", "us"},
                                                                       {"touch-at-random", "us"}}};
  const std::string run = command + " run --workers 1 -n ";
  Way ways[] = {{"kernel", players + "/player-touch-std", 1},
                {"kasane", run + "1 -- " + players + "/player-touch", 1},
                {"kasane", run + "2 -- " + players + "/player-touch", 2}};
  const unsigned repetitions = asked.value_or(quick ? 1 : 5);
  const std::uint64_t mebibytes = quick ? 16 : 256;
  for (unsigned turn = 0; turn < repetitions; ++turn) {
    for (Way& way : ways) {
      const auto values = run_app(way.command + " " + std::to_string(mebibytes),
                                  {"/row", "/rows_mib", "/in_order", "/at_random"});
      for (std::size_t i = 0; i < kCases.size(); ++i) way.values[i].push_back(values.at(i));
    }
  }
  std::vector<Row> rows;
  for (std::size_t i = 0; i < kCases.size(); ++i)
    for (const Way& way : ways)
      rows.push_back({"core", kCases[i].first, way.system, way.ranks, 1, mebibytes << 20,
                      median(way.values[i]), kCases[i].second, repetitions});
  return rows;
}

std::vector<Row> core_calls(bool quick, std::optional<unsigned> asked, const std::string& command,
                            const std::string& players) {
  struct Way {
    std::string system, argument;
    unsigned ranks, bytes;
    std::vector<double> ns = {};
  };
  Way ways[] = {{"kernel", "private", 1, 64},          {"kernel, let pass", "passed", 1, 64},
                {"kasane, private", "private", 2, 64}, {"kasane, global", "global", 2, 64},
                {"kernel", "private", 1, 65536},       {"kasane, global", "global", 2, 65536}};
  for (unsigned turn = 0; turn < asked.value_or(quick ? 1 : 5); ++turn) {
    for (Way& way : ways) {
      const auto rounds = run_app(command + " run -n " + std::to_string(way.ranks) + " --workers 1 -- " +
                                      players + "/player-calls " + way.argument + " " +
                                      std::to_string(way.bytes) + (quick ? " 500" : " 5000"),
                                  {"/ns"});
      way.ns.insert(way.ns.end(), rounds.begin(), rounds.end());
    }
  }
  std::vector<Row> rows;
  for (const Way& way : ways)
    rows.push_back({"core", "call", way.system, way.ranks, way.ranks, way.bytes, median(way.ns), "ns",
                    static_cast<unsigned>(way.ns.size())});
  return rows;
}

std::vector<Row> core_atomics(bool quick, std::optional<unsigned> asked, const std::string& command,
                              const std::string& players) {
  struct Way {
    std::string arguments, name, system;
    std::vector<double> ns;
  };
  Way ways[] = {
      {"alone add", "atomic-add", "kasane", {}},         {"inline add", "atomic-add", "inline", {}},
      {"alone load", "atomic-load", "kasane", {}},       {"inline load", "atomic-load", "inline", {}},
      {"alone compare", "atomic-compare", "kasane", {}}, {"inline compare", "atomic-compare", "inline", {}},
      {"both count", "atomic-count", "kasane", {}},      {"both add", "atomic-count-ordered", "kasane", {}}};
  for (unsigned turn = 0; turn < asked.value_or(quick ? 1 : 3); ++turn) {
    for (Way& way : ways) {
      const auto rounds = run_app(
          command + " run -n 2 --workers 1 -- " + players + "/player-atomics " + way.arguments, {"/ns"});
      way.ns.insert(way.ns.end(), rounds.begin(), rounds.end());
    }
  }
  std::vector<Row> rows;
  for (const Way& way : ways)
    rows.push_back(
        {"core", way.name, way.system, 2, 1, 4, median(way.ns), "ns", static_cast<unsigned>(way.ns.size())});
  return rows;
}

}  // namespace kasane::bench
