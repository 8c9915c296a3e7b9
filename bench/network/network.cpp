// SPDX-License-Identifier: Apache-2.0
// kasane bench network: LogGP's parameters of what lies between two ranks, as kasane bench scale --network
// reads them (tests/support/sim/timing.h). A player measures times of whole operations, and they are solved
// for the parameters:
//
//   a read          2 o + 2 (L + g), by a processor at the other end 3 o + 2 (L + g)
//   o               what a call that posts a read takes
//   g, G            from many reads under way, of 8 bytes and of 64 KiB
//   a request       4 o' + 2 (L + g), o' being the overhead of what handlers take
//   wake            a request to a rank that sleeps, less one to a rank that polls
//   fault           a load's miss, less its one-sided operations
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.h"
#include "command_output.h"
#include "median.h"
#include "rows.h"

namespace {

using kasane::bench::Row;

struct Settings {
  std::string start, out;
  unsigned repetitions = 0, calls = 0;
};

using Figures = std::map<std::string, double>;

Figures measure(const Settings& s) {
  const std::string own = "'" + kasane::bench::kasane_command() +
                          "' run -n 2 --workers 1 --main all --debug relocate=off --log error";
  const std::string said = kasane::bench::command_output(
      (s.start.empty() ? own + " --" : s.start) + " '" + kasane::bench::own_folder() +
      "/kasane-network-player' " + std::to_string(s.repetitions) + " " + std::to_string(s.calls));
  std::map<std::string, std::vector<double>> samples;
  std::istringstream in(said);
  for (std::string line; std::getline(in, line);) {  // a launcher may say something, too
    std::istringstream words(line);
    std::string name;
    if (double value = 0; words >> name >> value) samples[name].push_back(value);
  }
  Figures figures;
  for (const char* const wanted : {"mapped", "target_works", "read", "request", "issue", "each", "large",
                                   "asleep", "miss", "operations"}) {
    if (samples[wanted].empty())
      throw std::runtime_error(std::string("the player has not said ") + wanted +
                               ": --start has to start it on two ranks, both with KASANE_MAIN=all");
    figures[wanted] = kasane::bench::median(samples[wanted]);
  }
  return figures;
}

struct Parameters {
  double latency, overhead, message_overhead, gap, per_byte, wake, fault;
  bool one_sided, mapped;
};

Parameters solve(Figures f) {
  Parameters p{};
  f["request"] = std::min(f["request"], f["asleep"]);  // where two that poll are in each other's way
  p.mapped = f["mapped"] != 0;
  p.one_sided = f["target_works"] == 0;
  p.overhead = std::min(f["issue"], f["read"] / 3);
  p.gap = std::min(f["each"], f["read"] / 2);
  p.per_byte = f["large"];
  const double ends = p.one_sided ? 2 : 3;
  p.latency = std::max(0.0, f["read"] / 2 - ends / 2 * p.overhead - p.gap);
  p.message_overhead = std::max(p.overhead, (f["request"] - 2 * (p.latency + p.gap)) / 4);
  p.wake = std::max(0.0, f["asleep"] - f["request"]);
  p.fault = std::max(0.0, f["miss"] - f["operations"] * f["read"]);
  return p;
}

/// The file as it is, with this link in place of what it had.
void put_into(const std::string& path, const Parameters& p) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (std::ifstream in(path); in) {
    json = nlohmann::ordered_json::parse(in, nullptr, false);
    if (!json.is_object()) throw std::runtime_error("--out: " + path + " is there, and is no JSON object");
  }
  const auto ns = [](double value) { return static_cast<std::uint64_t>(value + 0.5); };
  json[p.mapped ? "in_host" : "between_hosts"] = {{"latency_ns", ns(p.latency)},
                                                  {"overhead_ns", ns(p.overhead)},
                                                  {"message_overhead_ns", ns(p.message_overhead)},
                                                  {"gap_ns", ns(p.gap)},
                                                  {"ns_per_byte", p.per_byte}};
  if (!p.mapped || !json.contains("one_sided")) json["one_sided"] = p.one_sided;
  json["wake_ns"] = ns(p.wake);
  json["fault_ns"] = ns(p.fault);
  std::ofstream out(path);
  if (!(out << json.dump(2) << '\n').flush()) throw std::runtime_error("--out: " + path + " is not written");
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("network", "fewer calls: a second");
  line.names("parameters", {"latency", "overhead", "message-overhead", "gap", "byte", "wake", "fault"});
  line.repetitions(9, 3);
  Settings s;
  line.own().text("--out", s.out,
                  "the file for kasane bench scale --network. If it is there, this link takes the place of "
                  "its own: so a file gets both, that in a host and that between hosts",
                  "FILE");
  line.own().text("--start", s.start,
                  "what starts two ranks of a program, such as \"kasane run -n 2 --main all --transport ucx "
                  "--\" or an mpirun with KASANE_MAIN=all (default: kasane run)",
                  "TEXT");
  if (const auto status = line.parse(argc, argv)) return *status;
  s.repetitions = line.repetitions();
  s.calls = line.quick() ? 32 : 512;
  return kasane::bench::or_told("kasane bench network", [&] {
    const Parameters p = solve(measure(s));
    const std::string system = p.mapped ? "in a host" : "between hosts";
    std::vector<Row> rows;
    const auto add = [&](const char* name, double value) {
      if (line.wants(name)) rows.push_back({"network", name, system, 2, 2, 0, value, "ns", s.repetitions});
    };
    add("latency", p.latency);
    add("overhead", p.overhead);
    add("message-overhead", p.message_overhead);
    add("gap", p.gap);
    add("byte", p.per_byte);
    add("wake", p.wake);
    add("fault", p.fault);
    std::FILE* const table = kasane::bench::table_file(line.json());
    std::fprintf(table, "%s; one-sided operations by %s\n", system.c_str(),
                 p.one_sided ? "the network" : "the target's processor");
    for (const Row& row : rows)
      std::fputs(fmt::format("{:<18} {:>12.3f} ns\n", row.case_, row.value).c_str(), table);
    if (!s.out.empty()) put_into(s.out, p);
    write(line.json(), rows);
    return 0;
  });
}
