// SPDX-License-Identifier: Apache-2.0
// kasane info: what this machine offers, and what is missing and why. Everything is probed, nothing assumed from versions.
#include <fmt/core.h>
#include <linux/membarrier.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <kasane/version.h>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "execute.h"
#include "mpirun.h"
#include "base/helper_folder.h"
#include "base/options.h"
#include "comm/bootstrap/job.h"
#include "comm/shm/shm_transport.h"
#include "comm/sim/sim.h"
#include "comm/ucx/ucx_transport.h"
#include "mem/budget.h"
#include "mem/engines.h"
#include "mem/large_frames.h"
#include "mem/page_tables.h"
#include "mem/spill_disk.h"
#include "mem/spill_engine.h"
#include "mem/stack_guard.h"
#include "runtime/options.h"
#include "topo/cgroup.h"
#include "topo/topo.h"

namespace kasane::tools {
namespace {

void line(std::string_view name, std::string_view text) { fmt::print("  {:<24} {}\n", name, text); }

/// The first word of a file of /proc, or "unknown".
std::string read_word(const char* path) {
  std::ifstream file(path);
  std::string word;
  return file >> word ? word : "unknown";
}

std::string memory_line(const char* name) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  while (file >> key) {
    if (key == name && file >> kib) return fmt::format("{} MiB", kib >> 10);
  }
  return "unknown";
}

std::string limit_text(int resource) {
  rlimit limit = {};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return "unknown";
  const auto text = [](rlim_t value) { return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value); };
  return text(limit.rlim_cur) + " (may be raised to " + text(limit.rlim_max) + ")";
}

std::string cores_of(const topo::Machine& machine, std::uint32_t numa_node) {
  std::string text;
  for (const topo::Core& core : machine.cores()) {
    if (core.numa_node == numa_node) text += (text.empty() ? "" : " ") + std::to_string(core.cpu);
  }
  return text.empty() ? "none" : text;
}

void print_machine() {
  utsname kernel = {};
  ::uname(&kernel);
  fmt::print("machine\n");
  line("kernel", fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine));
  line("memory", memory_line("MemTotal:") + ", available " + memory_line("MemAvailable:"));
  const auto machine = topo::Machine::discover();
  if (!machine) return line("topology", "unknown: " + machine.error().message);
  line("topology", machine->describe());
  for (const topo::NumaNode& node : machine->numa_nodes()) {
    line(fmt::format("NUMA node {}", node.number), fmt::format("{} MiB, cores {}", node.bytes >> 20, cores_of(*machine, node.number)));
  }
}

void print_facts(const comm::Facts& f, std::string_view use) {
  line(f.name, fmt::format("{}; {}, atomics {} with the CPU's, {}{}{}", use,
                           f.puts_need_target ? "the target's CPU takes part" : f.target_cpu_needed ? "one-sided but for atomics" : "one-sided",
                           f.atomics_coherent_with_cpu ? "coherent" : "not coherent", f.completes_inline ? "completes at once" : "completes later",
                           f.ordered ? ", ordered" : "", f.pins_memory ? ", pins memory" : ""));
  if (!f.detail.empty()) line("", f.detail);
}

/// What a job of one rank tells itself.
class Alone final : public comm::OutOfBand {
 public:
  Rank rank() const noexcept override { return Rank{0}; }
  std::uint32_t ranks() const noexcept override { return 1; }
  Result<std::vector<std::string>> allgather(std::string_view mine) override { return std::vector<std::string>{std::string(mine)}; }
};

void print_ucx() {
  if (const auto here = comm::ucx::available(); !here) return line("ucx", "not available: " + here.error().message);
  Alone alone;
  comm::Bells bells{};
  if (const auto ucx = comm::ucx::create(alone, bells, {.tls = {}, .within_hosts = false}); !ucx) {
    line("ucx", "not available between hosts: " + ucx.error().message);
  } else {
    print_facts((*ucx)->facts(), "between hosts (--transport ucx: everywhere)");
  }
  if (const auto ucx = comm::ucx::create(alone, bells); !ucx) {
    line("", "not available on one host: " + ucx.error().message);
  } else {
    line("", std::string((*ucx)->facts().detail));
  }
}

/// Without starting one: an MPI may only be started by its mpirun.
void print_mpi() {
  for (const MpiLauncher& mpi : mpi_launchers()) {
    const std::string name = "mpi (" + mpi.mpi + ")", module = "kasane-mpi-" + mpi.mpi + ".so";
    if (find_helper(module).empty()) {
      line(name, "not available: no " + module + "; build Kasane where this MPI's development package is installed");
    } else if (mpi.path.empty()) {
      line(name, "not available: its mpirun is not in the PATH; install the package " + mpi.package);
    } else {
      line(name, "between hosts without UCX (--transport mpi: everywhere); started by " + mpi.path);
    }
  }
}

void print_transports() {
  fmt::print("transports\n");
  const auto job = comm::create_job(1, comm::shm::job_bytes(1));
  if (!job) {
    line("shm", "not available: " + job.error().message);
  } else if (const auto shm = comm::shm::create(*job); !shm) {
    line("shm", "not available: " + shm.error().message);
  } else {
    print_facts((*shm)->facts(), "between ranks of one host (the default)");
  }
  print_ucx();
  print_mpi();
  comm::sim::World world(1, 1);
  print_facts(world.transport(Rank{0}).facts(), "simulated ranks in one process, for tests");
}

void print_engines() {
  fmt::print("fault engines, the preferred one first\n");
  for (const mem::EngineInfo& e : mem::engines()) line(e.name, (e.available ? "available: " : "not available: ") + e.reason);
  const auto options = runtime::options_from_environment();   // as a job's ranks read them
  if (!options) return line("a job would take", "none: " + options.error().message);
  const auto engine = mem::engine_for(options->faults);
  line("a job would take", engine ? fmt::format("{} (KASANE_FAULTS={})", *engine, options->faults) : "none: " + engine.error().message);
}

void print_spill_engines() {
  fmt::print("ways to a spill file, the preferred one first\n");
  for (const mem::SpillEngineInfo& e : mem::spill_engines()) line(e.name, (e.available ? "available: " : "not available: ") + e.reason);
}

std::string frames_text() {
  if (const std::uint64_t bytes = mem::large_frame_bytes(); bytes != 0) return fmt::format("{} KiB, so paging takes less than half of the processor time", bytes >> 10);
  const std::string setting = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled";
  std::error_code error;
  if (!std::filesystem::exists(setting, error)) return "4 KiB; larger ones need Linux 6.10";
  return "4 KiB; paging takes less than half of the processor time with 64 KiB, until the next boot by root: echo advise > " + setting;
}

/// Of each directory that a job would spill to and whose disk is known.
void print_spill_disks() {
  const auto options = runtime::options_from_environment();
  if (!options) return;   // said before
  std::istringstream directories(runtime::spill_directories(options->spill));
  for (std::string directory; std::getline(directories, directory, ':');) {
    const auto disk = mem::spill_disk(directory);
    if (!disk) continue;
    line("reads from " + directory, disk->ends_where_asked ? "end on the core that asked for them (" + disk->setting + ")"
                                                           : "end on any core: threads that read at random gather on that of the disk's interrupts, and are a tenth slower than with, until the next boot by root: echo 2 > " + disk->setting);
  }
}

std::string membarrier_text() {
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0) return "not available: the kernel refuses membarrier(2)";
  const bool expedited = (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
  return expedited ? "available (global expedited): forks need no fence for sleeping ranks" : "not available: no global expedited membarrier";
}

void print_limits() {
  fmt::print("limits\n");
  line("vm.max_map_count", read_word("/proc/sys/vm/max_map_count") + " mappings a process");
  line("vm.overcommit_memory", read_word("/proc/sys/vm/overcommit_memory"));
  line("default workers", fmt::format("{} a job, shared by its ranks", topo::usable_cores()));
  line("default --dram", fmt::format("{} MiB a host, three quarters of its memory or control group; what is more goes to --spill", mem::default_budget(mem::machine_memory(), topo::memory_limit(), 1) >> 20));
  line("stack guards", mem::guards_available() ? "MADV_GUARD_INSTALL: none of them costs a mapping"
                                               : fmt::format("mprotect (no MADV_GUARD_INSTALL for shared memory, Linux 6.15): {} at most", mem::kFallbackGuards));
  line("page tables", mem::page_tables_go_back() ? "the kernel frees those that are not used any more: --dram can be far less than what is used of the space"
                                                  : "stay until the job ends (Linux 6.14 with CONFIG_PT_RECLAIM frees them): up to 4 MiB of --dram for each GiB that is used of the space");
  line("frames", frames_text());
  print_spill_disks();
  line("membarrier", membarrier_text());
  line("file descriptors", limit_text(RLIMIT_NOFILE) + "; 8 a rank and 128 are needed");
  line("processes", limit_text(RLIMIT_NPROC));
  line("address space", limit_text(RLIMIT_AS) + "; ranks x --space is 64 TiB at most: 64 ranks with the default of 1 TiB");
}

int info() {
  fmt::print("kasane {}\n", kasane_version());
  print_machine();
  print_transports();
  print_engines();
  print_spill_engines();
  print_limits();
  return 0;
}

}  // namespace

Command make_info(CLI::App& kasane) {
  CLI::App* app = kasane.add_subcommand("info", "Say what this machine offers: cores, transports, fault engines, limits");
  return {app, info};
}

}  // namespace kasane::tools
