// SPDX-License-Identifier: Apache-2.0
#include "runtime/start/launch.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/memory_file.h"
#include "base/process.h"
#include "comm/bootstrap/signals_for_main.h"
#include "comm/bootstrap/supervisor.h"
#include "comm/shm/shm_transport.h"
#include "mem/space.h"
#include "runtime/process/output.h"
#include "runtime/process/streams.h"
#include "traps/signal_dispatch.h"

namespace kasane::runtime {
namespace {

/// DRAM that a rank needs before the program has allocated anything
constexpr std::uint64_t kRankBytes = 16ull << 20;

std::string tebibytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g TiB", static_cast<double>(bytes) / static_cast<double>(1ull << 40));
  return text;
}

std::uint64_t available_memory() {
  std::uint64_t kib = ~std::uint64_t{0} >> 10;
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return kib << 10;
  char line[128];
  unsigned long long value = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %llu kB", &value) == 1) kib = value;
  }
  std::fclose(file);
  return kib << 10;
}

/// Raises the soft limit of descriptors where that is needed and allowed. The `here` ranks of this host need
/// descriptors each; ranks of other hosts may need some for a network.
Result<void> reserve_descriptors(std::uint64_t ranks, std::uint64_t here) {
  // Two for the sockets, four for tagged output, the rest while regions are attached.
  const rlim_t needed = 8 * here + 128, wanted = 8 * ranks + 128;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return {};
  if (limit.rlim_max < needed) {
    return fail(Errc::limit, std::to_string(here) + " ranks need " + std::to_string(needed) +
                                 " file descriptors a process, the limit is " +
                                 std::to_string(limit.rlim_max) + "; raise it with ulimit -n");
  }
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(wanted, limit.rlim_max));
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return fail_errno(Errc::limit,
                      "raising the limit of file descriptors to " + std::to_string(limit.rlim_cur));
  return {};
}

Result<Launched> prepare(Options options, comm::Launcher launcher) {
  KASANE_TRY(check_job_size(options.ranks, options.ranks, options.space_bytes));
  if (options.space_bytes == 0) options.space_bytes = usual_space(options.ranks);
  const auto ranks = static_cast<std::uint32_t>(options.ranks);
  auto job = comm::create_job(ranks, comm::shm::job_bytes(ranks));
  KASANE_TRY(job);
  job->launcher = launcher;
  auto base = mem::reserve_space(options.space_bytes);
  KASANE_TRY(base);
  return Launched{.options = std::move(options), .job = std::move(*job), .space_base = *base};
}

void become(const Launched& launched, Rank rank, const diagnostics::JobStatus* status) {
  set_process_rank(rank);
  set_process({.rank = rank,
               .ranks = launched.job.ranks,
               .main_here = raw(rank) == 0 || launched.options.main_in_every_rank,
               .status = status != nullptr ? &status->of(rank) : nullptr,
               .threads = status != nullptr ? status->all_threads() : nullptr,
               .space_base = launched.space_base,
               .space_bytes = launched.options.space_bytes});
  if (raw(rank) != 0 && !launched.options.main_in_every_rank) standard_stream_is_at(0, Rank{0});
  order_output(launched.job.ranks,
               launched.options.tag_output && status != nullptr ? &status->of(rank) : nullptr);
}

}  // namespace

void let_user_signals_pass(bool yes) {
  for (const int s : {SIGUSR1, SIGUSR2}) {
    struct sigaction now = {};
    if (traps::raw_sigaction(s, nullptr, &now) != 0) continue;
    // Else the program has a handler of its own (from a static object's constructor).
    if (yes ? now.sa_handler != SIG_DFL : !comm::is_action_for_main(now)) continue;
    constexpr struct sigaction kDefault = {};
    const struct sigaction next = yes ? comm::action_for_main() : kDefault;
    traps::raw_sigaction(s, &next, nullptr);
  }
}

Result<void> check_job_size(std::uint64_t ranks, std::uint64_t here, std::uint64_t space_bytes) {
  const std::string n = std::to_string(ranks);
  if (ranks == 0 || ranks > kMaxRanks) {
    return fail(Errc::invalid_argument,
                "-n " + n + " (KASANE_RANKS): a job has 1 to " + std::to_string(kMaxRanks) + " ranks");
  }
  if (space_bytes > kMaxAddressBytes / ranks) {
    return fail(Errc::limit, "-n " + n + " with --space " + tebibytes(space_bytes) +
                                 ": ranks x space may be 64 TiB at most (47 address bits hold " +
                                 "every rank's memory), which is " + tebibytes(kMaxAddressBytes / ranks) +
                                 " of space for " + n + " ranks");
  }
  KASANE_TRY(check_file_limit("the memory of a rank (--space)", space_bytes));
  const std::uint64_t available = available_memory();
  if (here * kRankBytes > available) {
    return fail(Errc::out_of_memory, "-n " + n + ": " + std::to_string(here) + " ranks on this host need " +
                                         std::to_string(here * kRankBytes >> 20) +
                                         " MiB before the program starts, " +
                                         std::to_string(available >> 20) + " MiB are available");
  }
  return reserve_descriptors(ranks, here);
}

Result<Launched> launch_alone(Options options) {
  options.ranks = 1;
  auto launched = prepare(std::move(options), comm::Launcher::alone);
  KASANE_TRY(launched);
  become(*launched, Rank{0}, nullptr);
  return launched;
}

Result<Launched> launch_by_mpi(Options options, const comm::mpi::Place& place) {
  options.ranks = place.ranks != 0 ? place.ranks : 1;
  KASANE_TRY(check_job_size(options.ranks, place.local_ranks, options.space_bytes));
  Launched launched{.options = std::move(options), .job = {}, .space_base = nullptr};
  launched.job.ranks = place.ranks;
  launched.job.rank = place.rank;
  launched.job.launcher = comm::Launcher::mpi;
  launched.job.agent = place.agent;
  become(launched, place.rank, nullptr);
  let_user_signals_pass(true);
  return launched;
}

Result<Launched> launch_ranks(Options options) {
  auto launched = prepare(std::move(options), comm::Launcher::fork);
  KASANE_TRY(launched);
  auto supervisor = comm::Supervisor::create(launched->job.ranks,
                                             {.tag_output = launched->options.tag_output,
                                              .main_in_every_rank = launched->options.main_in_every_rank,
                                              .deadlock_ns = launched->options.deadlock_s * 1'000'000'000});
  KASANE_TRY(supervisor);
  const auto rank = supervisor->fork_ranks();
  KASANE_TRY(rank);
  // _exit: handlers that libraries registered for exit() belong to the program, which runs in the ranks.
  if (*rank == kNoRank) ::_exit(supervisor->run());
  launched->job.rank = *rank;
  become(*launched, *rank, &supervisor->status());
  return launched;
}

}  // namespace kasane::runtime
