// SPDX-License-Identifier: Apache-2.0
// kasane-bench-collectives: latency of collectives between ranks of one host, by messages (kasane-shm-messages) and through the collectives' region (kasane-shm), beside
// Open MPI and MPICH where their programs (bench/peers/collectives_mpi.cpp) were built.
//
// Claim: at every size no collective takes longer than that of the better MPI. Reports microseconds per call, the median of repetitions; the systems take turns within one run. Every system
// checks what it computed.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/bootstrap/job.h"
#include "comm/collectives.h"
#include "comm/shm/shm_transport.h"
#include "collectives_cases.h"
#include "command_line.h"
#include "median.h"
#include "rows.h"

namespace {

using namespace kasane;
using namespace kasane::comm;
using bench::CollectiveCase;

struct Key {
  std::string name;
  std::size_t bytes;
  auto operator<=>(const Key&) const = default;
};
using Times = std::map<Key, double>;   ///< µs per call

void call(Group& g, const CollectiveCase& c, std::vector<double>& a, std::vector<double>& b) {
  const std::size_t n = c.bytes / sizeof(double);
  const auto in = std::as_writable_bytes(std::span(a).first(std::max<std::size_t>(n, 1)));
  if (std::strcmp(c.name, "barrier") == 0) g.barrier();
  else if (std::strcmp(c.name, "broadcast") == 0) g.broadcast(0, in);
  else if (std::strcmp(c.name, "allreduce") == 0) g.allreduce(Reduce::sum, std::span(b).first(n));
  else g.alltoall(std::as_bytes(std::span(a).first(n * g.size())), std::as_writable_bytes(std::span(b).first(n * g.size())));
}

/// What a rank measures; the same loop as the peers'.
double measure(Group& g, const CollectiveCase& c) {
  const std::size_t n = std::max<std::size_t>(c.bytes / sizeof(double), 1) * g.size();
  std::vector<double> a(n, 1.0), b(n, 1.0);
  for (int i = 0; i < c.calls / 10 + 1; ++i) call(g, c, a, b);
  std::fill(b.begin(), b.end(), 0.0);
  if (std::strcmp(c.name, "allreduce") == 0) std::fill(b.begin(), b.end(), 1.0);
  call(g, c, a, b);
  const double expected = std::strcmp(c.name, "allreduce") == 0 ? g.size() : std::strcmp(c.name, "alltoall") == 0 ? 1.0 : 0.0;
  if (b[0] != expected) {
    std::fprintf(stderr, "kasane bench collectives: %s of %zu bytes gave %g, not %g\n", c.name, c.bytes, b[0], expected);
    std::abort();
  }
  std::fill(b.begin(), b.end(), 0.0);
  g.barrier();
  const std::uint64_t begin = now_ns();
  for (int i = 0; i < c.calls; ++i) call(g, c, a, b);
  return static_cast<double>(now_ns() - begin) / 1e3 / c.calls;
}

/// Runs all cases once in a job of forked ranks; rank 0's times come back through a pipe.
bool run_kasane(std::uint32_t ranks, bool region, Times& times) {
  auto job = create_job(ranks, shm::job_bytes(ranks));
  int ends[2];
  if (!job || ::pipe(ends) != 0) return false;
  std::vector<pid_t> children;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    job->rank = Rank{r};
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::alarm(120);
    auto transport = shm::create(*job);
    if (!transport) ::_exit(1);
    PollWaiter waiter(**transport);
    Collectives all(**transport, waiter);
    if (region && !all.attach()) ::_exit(1);
    for (const CollectiveCase& c : bench::kCollectiveCases) {
      const double us = measure(all.world(), c);
      if (r == 0) ::dprintf(ends[1], "%s %zu %.4f\n", c.name, c.bytes, us);
    }
    all.barrier();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::FILE* in = ::fdopen(ends[0], "r");
  char name[32];
  std::size_t bytes;
  double us;
  while (std::fscanf(in, "%31s %zu %lf", name, &bytes, &us) == 3) times[{name, bytes}] = us;
  std::fclose(in);
  ::close(job->shared_fd);
  for (const auto& box : job->sockets) {
    ::close(box.in);
    ::close(box.out);
  }
  bool ok = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ok = ok && status == 0;
  }
  return ok;
}

/// Runs a peer's program under its mpirun, which prints the same lines.
bool run_peer(const std::string& command, Times& times) {
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
  std::vector<System> all{{"kasane-shm", [=](Times& t) { return run_kasane(ranks, true, t); }},
                          {"kasane-shm-messages", [=](Times& t) { return run_kasane(ranks, false, t); }}};
  const std::string n = std::to_string(ranks);
  const std::string ompi = folder + "/peer-collectives-openmpi", mpich = folder + "/peer-collectives-mpich";
  if (::access(ompi.c_str(), X_OK) == 0) {
    all.push_back({"openmpi", [=](Times& t) {
      return run_peer("timeout 120 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n " + n + " " + ompi + " 2>/dev/null", t);
    }});
  }
  if (::access(mpich.c_str(), X_OK) == 0) {
    all.push_back({"mpich", [=](Times& t) { return run_peer("timeout 120 mpirun.mpich -n " + n + " " + mpich + " 2>/dev/null", t); }});
  }
  std::erase_if(all, [&](const System& s) { return !line.wants(s.name); });
  return all;
}

void report(std::uint32_t ranks, const std::vector<System>& all, const std::map<std::string, std::map<Key, std::vector<double>>>& samples, unsigned repetitions,
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
        if (!s.run(times)) std::fprintf(stderr, "kasane bench collectives: %s failed with %u ranks\n", s.name.c_str(), ranks);
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
