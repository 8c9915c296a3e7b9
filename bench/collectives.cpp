// SPDX-License-Identifier: Apache-2.0
// kasane-bench-collectives: latency of collectives between ranks of one host, by messages
// (kasane-shm-messages) and through the collectives' region (kasane-shm), as jobs of a program on
// kasane::comm (collectives_player.cpp), beside Open MPI and MPICH where their programs
// (bench/peers/collectives_mpi.cpp) were built.
//
// Claim: at every size no collective takes longer than that of the better MPI. Reports microseconds per call,
// the median of repetitions; the systems take turns within one run. Every system checks what it computed.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collectives_cases.h"
#include "command_line.h"
#include "median.h"
#include "rows.h"

namespace {

using namespace kasane;
using bench::CollectiveCase;

struct Key {
  std::string name;
  std::size_t bytes;
  auto operator<=>(const Key&) const = default;
};
using Times = std::map<Key, double>;  ///< µs per call

/// Runs a system's program as a job: rank 0 prints a line "case bytes µs" for each case.
bool run_player(const std::string& command, Times& times) {
  std::FILE* in = ::popen(command.c_str(), "r");
  if (in == nullptr) return false;
  char name[32];
  std::size_t bytes;
  double us;
  while (std::fscanf(in, "%31s %zu %lf", name, &bytes, &us) == 3) times[{name, bytes}] = us;
  return ::pclose(in) == 0;
}

struct System {
  std::string name;
  std::function<bool(Times&)> run;
};

/// Those of the wanted ones that are here.
std::vector<System> systems(std::uint32_t ranks, const std::string& folder, const bench::CommandLine& line) {
  const std::string n = std::to_string(ranks);
  const std::string job = "timeout 120 " + bench::kasane_command() + " run -n " + n + " --transport shm -- " +
                          folder + "/player-collectives ";
  std::vector<System> all{{"kasane-shm", [=](Times& t) { return run_player(job + "region", t); }},
                          {"kasane-shm-messages", [=](Times& t) { return run_player(job + "messages", t); }}};
  const std::string ompi = folder + "/peer-collectives-openmpi", mpich = folder + "/peer-collectives-mpich";
  if (::access(ompi.c_str(), X_OK) == 0) {
    all.push_back({"openmpi", [=](Times& t) {
                     return run_player(
                         "timeout 120 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n " +
                             n + " " + ompi + " 2>/dev/null",
                         t);
                   }});
  }
  if (::access(mpich.c_str(), X_OK) == 0) {
    all.push_back({"mpich", [=](Times& t) {
                     return run_player("timeout 120 mpirun.mpich -n " + n + " " + mpich + " 2>/dev/null", t);
                   }});
  }
  std::erase_if(all, [&](const System& s) { return !line.wants(s.name); });
  return all;
}

void report(std::uint32_t ranks, const std::vector<System>& all,
            const std::map<std::string, std::map<Key, std::vector<double>>>& samples, unsigned repetitions,
            std::vector<bench::Row>& rows) {
  std::printf("\n%u ranks, µs per call (median of %u)\n%-10s %9s", ranks, repetitions, "case", "bytes");
  for (const System& s : all) std::printf(" %20s", s.name.c_str());
  std::printf("\n");
  for (const CollectiveCase& c : bench::kCollectiveCases) {
    std::printf("%-10s %9zu", c.name, c.bytes);
    for (const System& s : all) {
      const auto found = samples.at(s.name).find({c.name, c.bytes});
      const double us = found == samples.at(s.name).end() ? 0 : bench::median(found->second);
      std::printf(" %20.2f", us);
      rows.push_back({"collectives", c.name, s.name, ranks, ranks, c.bytes, us, "us", repetitions});
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bench::CommandLine line("collectives", "one repetition, on the first number of ranks: seconds");
  line.names("systems", {"kasane-shm", "kasane-shm-messages", "openmpi", "mpich"});
  line.repetitions(5, 1);
  std::vector<std::uint32_t> numbers{2, 4};
  line.own().numbers("--ranks", numbers, "numbers of ranks", 1, 64);
  if (const auto status = line.parse(argc, argv)) return *status;

  const unsigned repetitions = line.repetitions();
  if (line.quick()) numbers.resize(1);
  std::vector<bench::Row> rows;
  for (const std::uint32_t ranks : numbers) {
    const auto all = systems(ranks, bench::own_folder(), line);
    std::map<std::string, std::map<Key, std::vector<double>>> samples;
    for (unsigned i = 0; i < repetitions; ++i) {
      for (const System& s : all) {
        Times times;
        if (!s.run(times))
          std::fprintf(stderr, "kasane bench collectives: %s failed with %u ranks\n", s.name.c_str(), ranks);
        auto& mine = samples[s.name];
        for (const auto& [key, us] : times) mine[key].push_back(us);
      }
    }
    report(ranks, all, samples, repetitions, rows);
  }
  return bench::or_told("kasane bench collectives", [&] {
    write(line.json(), rows);
    return 0;
  });
}
