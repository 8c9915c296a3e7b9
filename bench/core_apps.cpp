// SPDX-License-Identifier: Apache-2.0
#include "core_apps.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace kasane::bench {
namespace {

/// The JSON object that the program writes with --json -, after whatever else it says.
nlohmann::json run(const std::string& line) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(line.c_str(), "r"), ::pclose);
  if (!pipe) throw std::runtime_error("cannot run " + line);
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe.get())) text.append(part.data(), n);
  if (::pclose(pipe.release()) != 0) throw std::runtime_error(line + " failed");
  auto object = nlohmann::json::parse(text.substr(text.find('{')));
  if (!object.at("verified").get<bool>()) throw std::runtime_error(line + ": the result is wrong");
  return object;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<Row> core_apps(bool quick, const std::string& command, const std::string& apps) {
  const unsigned repetitions = quick ? 1 : 5;
  const std::array<unsigned, 3> rank_counts{1, 2, 4};
  std::vector<Row> rows;
  for (const auto& [name, arguments] : {std::pair<std::string, std::string>{"cilksort", quick ? "--count 1000000" : "--count 10000000"},
                                        {"uts", quick ? "--depth 8" : ""}}) {
    std::array<std::vector<double>, 3> seconds;
    std::vector<double> serial;
    for (unsigned r = 0; r < repetitions; ++r) {   // interleaved, so that all see the same machine
      for (std::size_t i = 0; i < rank_counts.size(); ++i) {
        const auto object = run(command + " run -n " + std::to_string(rank_counts[i]) + " --workers 1 -- " + apps + "/" + name + " " + arguments +
                                " --serial --json - 2>/dev/null");
        seconds[i].push_back(object.at("seconds").get<double>());
        serial.push_back(object.at("seconds_serial").get<double>());
      }
    }
    rows.push_back({"core", name, "serial", 1, 1, 0, median(serial), "s", static_cast<unsigned>(serial.size())});
    for (std::size_t i = 0; i < rank_counts.size(); ++i) {
      rows.push_back({"core", name, "kasane", rank_counts[i], rank_counts[i], 0, median(seconds[i]), "s", repetitions});
    }
  }
  return rows;
}

std::vector<Row> core_steal(bool quick, const std::string& command, const std::string& players) {
  const auto object = run(command + " run -n 2 --workers 1 -- " + players + "/player-steal " + (quick ? "200" : "2000"));
  const auto rounds = object.at("us").get<std::vector<double>>();
  return {{"core", "steal", "kasane", 2, 1, 4096, median(rounds), "us", static_cast<unsigned>(rounds.size())}};
}

}  // namespace kasane::bench
