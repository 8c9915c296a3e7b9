// SPDX-License-Identifier: Apache-2.0
// kasane bench gas: what direct access to global memory costs beside the same operation of comm alone, and
// what it costs to bring a page here (figures 5.7 and 5.8 of W. Endo's thesis). A measurement of an inner
// layer: its limit stands beside it, no other system.
//
// Claims: over UCX a get of 8 bytes whose page is known costs at most 1.2 times comm's read, one that is not
// known at most 3 times; over shared memory at most comm's read and 10 ns. own of a page of 4 KiB with one
// other sharer costs at most 4 round trips of a message. Each case says how many one-sided operations it
// takes (where peers are mapped: none).
//
// Each system runs several times, in turn with the others; within a run the cases take turns, too. Reported
// are medians over all, and ratios to comm-read and am-round-trip of the same system, or to a message to a
// rank that computes (sent just before, in the same time of computing). The player checks what it read.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_table.h"
#include "command_line.h"
#include "median.h"
#include "rows.h"

namespace {

using kasane::bench::median, kasane::bench::Row;

struct System {
  const char* name;
  const char* environment;
  const char* transport;
  unsigned calls;  ///< of a case in a row: few, so that what else the machine does hits all cases alike
};
constexpr System kSystems[] = {{"kasane-shm", "", "shm", 1000},
                               {"kasane-ucx", "UCX_TLS=sm,self", "ucx", 20},
                               {"kasane-ucx-tcp", "UCX_TLS=tcp,self UCX_NET_DEVICES=lo", "ucx", 20}};
constexpr const char* kCases[] = {"comm-read",
                                  "get-hit",
                                  "get-uncached",
                                  "get-miss",
                                  "get-miss-third",
                                  "put-hit",
                                  "put-hit-fixed",
                                  "add-hit",
                                  "add-hit-fixed",
                                  "am-round-trip",
                                  "own",
                                  "own-64k",
                                  "am-target-computes",
                                  "own-target-computes"};

struct Samples {
  std::vector<double> us, operations;
};
using Cases = std::map<std::string, Samples>;

double at(std::vector<double> v, double part) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<std::size_t>(part * static_cast<double>(v.size())))];
}

/// The ratio of `values` to `beside`. Where each value was taken right after one of `beside`: the median of
/// their ratios, which a passing load does not move. Else the ratio of the medians.
double ratio(const std::vector<double>& values, const std::vector<double>& beside) {
  if (values.size() != beside.size()) return median(beside) != 0 ? median(values) / median(beside) : 0;
  std::vector<double> each;
  for (std::size_t i = 0; i < values.size(); ++i) each.push_back(values[i] / beside[i]);
  return median(std::move(each));
}

bool play(const System& system, const std::string& here, unsigned repetitions, Cases& cases) {
  const std::string command =
      std::string(system.environment) + " timeout 300 '" + kasane::bench::kasane_command() +
      "' run -n 3 --workers 1 --main all --debug relocate=off --transport " + system.transport + " -- '" +
      here + "/kasane-gas-player' " + std::to_string(repetitions) + " " + std::to_string(system.calls);
  std::FILE* in = ::popen(command.c_str(), "r");
  if (in == nullptr) return false;
  char name[32];
  double us, operations;
  while (std::fscanf(in, "%31s %lf %lf", name, &us, &operations) == 3) {
    cases[name].us.push_back(us);
    cases[name].operations.push_back(operations);
  }
  return ::pclose(in) == 0;
}

const kasane::TextTable kTable({-16, -20, 12, 12, 12, 30, 6});

void report(const System& system, const Cases& cases, std::vector<Row>& rows) {
  for (const char* name : kCases) {
    const auto found = cases.find(name);
    if (found == cases.end()) continue;
    const std::string_view what(name);
    const bool computes = what.ends_with("target-computes");
    const char* const beside = computes                                            ? "am-target-computes"
                               : what.starts_with("own") || what.starts_with("am") ? "am-round-trip"
                                                                                   : "comm-read";
    const auto base = cases.find(beside);
    const double value = median(found->second.us), operations = median(found->second.operations),
                 to_base = base != cases.end() ? ratio(found->second.us, base->second.us) : 0;
    const std::array<std::string, 7> cells{system.name,
                                           name,
                                           fmt::format("{:.4f}", value),
                                           fmt::format("{:.4f}", at(found->second.us, 0.25)),
                                           fmt::format("{:.4f}", at(found->second.us, 0.75)),
                                           fmt::format("{:.2f} x {:<18}", to_base, beside),
                                           fmt::format("{:.2f}", operations)};
    std::fputs(kTable.line(cells).c_str(), stdout);
    const std::uint64_t bytes = what == "own-64k" ? 65536 : what.starts_with("own") ? 4096 : 8;
    rows.push_back({"gas",
                    name,
                    system.name,
                    3,
                    1,
                    bytes,
                    value,
                    "us",
                    static_cast<unsigned>(found->second.us.size()),
                    {{"low", at(found->second.us, 0.25)},
                     {"high", at(found->second.us, 0.75)},
                     {"operations", operations},
                     {"ratio", to_base}}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  kasane::bench::CommandLine line("gas", "one turn of fewer calls: seconds instead of a minute");
  std::vector<std::string> names;
  for (const System& s : kSystems) names.emplace_back(s.name);
  line.names("systems", names);
  line.repetitions(4, 1);
  if (const auto status = line.parse(argc, argv)) return *status;

  const std::string here = kasane::bench::own_folder();
  std::map<std::string, Cases> samples;
  bool failed = false;
  for (unsigned turn = 0; turn < line.repetitions(); ++turn) {
    for (const System& system : kSystems) {
      if (!line.wants(system.name)) continue;
      std::fprintf(stderr, "%s, turn %u …\n", system.name, turn + 1);
      if (!play(system, here, line.quick() ? 8 : 32, samples[system.name])) {
        std::fprintf(stderr, "kasane bench gas: %s failed\n", system.name);
        failed = true;
      }
    }
  }
  std::vector<Row> rows;
  if (line.json() == "-") {  // the rows alone
    std::fflush(stdout);
    if (std::freopen("/dev/stderr", "w", stdout) == nullptr) return 1;
  }
  std::fputs(kTable
                 .line(std::array<std::string, 7>{"system", "case", "median us", "quartile", "quartile",
                                                  "ratio", "operations"})
                 .c_str(),
             stdout);
  for (const System& system : kSystems) {
    if (samples.count(system.name) != 0) report(system, samples[system.name], rows);
  }
  return kasane::bench::or_told("kasane bench gas", [&] {
    write(line.json(), rows);
    return failed ? 1 : 0;
  });
}
