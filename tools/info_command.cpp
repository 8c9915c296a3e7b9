// SPDX-License-Identifier: Apache-2.0
// kasane info: what this machine offers, and what is missing and why. Everything is probed; no version is
// compared. As lines, or as JSON (report.h).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/membarrier.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kasane/version.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/helper_folder.h"
#include "base/options.h"
#include "comm/bootstrap/job.h"
#include "comm/shm/shm_transport.h"
#include "comm/ucx/ucx_transport.h"
#include "commands.h"
#include "execute.h"
#include "ga.h"
#include "mem/budget.h"
#include "mem/engines.h"
#include "mem/large_frames.h"
#include "mem/page_tables.h"
#include "mem/spill_disk.h"
#include "mem/spill_engine.h"
#include "mem/stack_guard.h"
#include "mpirun.h"
#include "program_file.h"
#include "read_word.h"
#include "report.h"
#include "runtime/rank/options.h"
#include "spread.h"
#include "topo/cgroup.h"
#include "topo/topo.h"
#include "topology.h"

namespace kasane::tools {
namespace {

/// The number that text is, else null.
Json number(const std::string& text) {
  const auto value = parse_count(text);
  return value ? Json(*value) : Json();
}

std::optional<std::uint64_t> memory_bytes(const char* name) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  while (file >> key) {
    if (key == name && file >> kib) return kib << 10;
  }
  return std::nullopt;
}

std::string mib_text(const std::optional<std::uint64_t>& bytes) {
  return bytes ? fmt::format("{} MiB", *bytes >> 20) : "unknown";
}
Json or_null(const std::optional<std::uint64_t>& value) { return value ? Json(*value) : Json(); }

/// A line about a limit of this process; explanation: how much of it is needed.
void limit_line(Report& report, std::string_view name, const std::string& key, int resource,
                std::string_view explanation = {}) {
  rlimit limit = {};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0)
    return report.line(name, "unknown", {{key, Json()}});
  const auto text = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value);
  };
  const auto json = [](rlim_t value) { return value == RLIM_INFINITY ? Json() : Json(value); };
  report.line(
      name,
      fmt::format("{} (may be raised to {}){}", text(limit.rlim_cur), text(limit.rlim_max), explanation),
      {{key, {{"now", json(limit.rlim_cur)}, {"at_most", json(limit.rlim_max)}}}});
}

std::vector<std::uint32_t> cores_of(const topo::Machine& machine, std::uint32_t numa_node) {
  std::vector<std::uint32_t> cores;
  for (const topo::Core& core : machine.cores()) {
    if (core.numa_node == numa_node) cores.push_back(core.cpu);
  }
  return cores;
}

void say_machine(Report& report) {
  utsname kernel = {};
  ::uname(&kernel);
  report.section("machine", "machine");
  report.line("kernel", fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine),
              {{"kernel", kernel.release}, {"architecture", kernel.machine}});
  const auto total = memory_bytes("MemTotal:"), available = memory_bytes("MemAvailable:");
  report.line("memory", mib_text(total) + ", available " + mib_text(available),
              {{"memory_bytes", or_null(total)}, {"memory_available_bytes", or_null(available)}});
  const auto machine = topo::Machine::discover();
  if (!machine) return report.line("topology", "unknown: " + machine.error().message, {{"topology", Json()}});
  report.line("topology", machine->describe(),
              {{"topology", machine->describe()}, {"cores", machine->cores().size()}});
  Json nodes = Json::array();
  for (const topo::NumaNode& node : machine->numa_nodes()) {
    const auto cores = cores_of(*machine, node.number);
    report.line(fmt::format("NUMA node {}", node.number),
                fmt::format("{} MiB, cores {}", node.bytes >> 20,
                            cores.empty() ? "none" : fmt::format("{}", fmt::join(cores, " "))));
    nodes.push_back({{"number", node.number}, {"memory_bytes", node.bytes}, {"cores", cores}});
  }
  report.facts({{"numa_nodes", nodes}});
}

void say_transport(Report& report, const comm::Facts& f, std::string_view use) {
  const char* const target = f.puts_need_target ? "always" : f.target_cpu_needed ? "for atomics" : "never";
  report.line(f.name,
              fmt::format("{}; {}, atomics {} with the CPU's, {}{}{}", use,
                          f.puts_need_target    ? "the target's CPU takes part"
                          : f.target_cpu_needed ? "one-sided but for atomics"
                                                : "one-sided",
                          f.atomics_coherent_with_cpu ? "coherent" : "not coherent",
                          f.completes_inline ? "completes at once" : "completes later",
                          f.ordered ? ", ordered" : "", f.pins_memory ? ", pins memory" : ""),
              {{std::string(f.name),
                {{"available", true},
                 {"use", use},
                 {"target_takes_part", target},
                 {"atomics_coherent_with_cpu", f.atomics_coherent_with_cpu},
                 {"completes_at_once", f.completes_inline},
                 {"ordered", f.ordered},
                 {"pins_memory", f.pins_memory},
                 {"detail", f.detail.empty() ? Json() : Json(f.detail)}}}});
  if (!f.detail.empty()) report.line("", f.detail);
}

void say_missing(Report& report, const std::string& name, const std::string& key, const std::string& why) {
  report.line(name, "not available: " + why, {{key, {{"available", false}, {"reason", why}}}});
}

/// The exchange of a job of one rank.
class Alone final : public comm::OutOfBand {
 public:
  Rank rank() const noexcept override { return Rank{0}; }
  std::uint32_t ranks() const noexcept override { return 1; }
  Result<std::vector<std::string>> allgather(std::string_view mine) override {
    return std::vector<std::string>{std::string(mine)};
  }
};

void say_ucx(Report& report) {
  if (const auto here = comm::ucx::available(); !here)
    return say_missing(report, "ucx", "ucx", here.error().message);
  Alone alone;
  comm::Bells bells{};
  if (const auto ucx = comm::ucx::create(alone, bells, {.tls = {}, .within_hosts = false}); !ucx) {
    say_missing(report, "ucx", "ucx", "between hosts: " + ucx.error().message);
  } else {
    say_transport(report, (*ucx)->facts(), "between hosts (--transport ucx: everywhere)");
  }
  if (const auto ucx = comm::ucx::create(alone, bells); !ucx) {
    say_missing(report, "", "ucx_on_one_host", "on one host: " + ucx.error().message);
  } else {
    const std::string use((*ucx)->facts().detail);
    report.line("", use, {{"ucx_on_one_host", {{"available", true}, {"use", use}}}});
  }
}

/// Starts no MPI: only its mpirun may.
void say_mpi(Report& report) {
  for (const char* known : kMpis) {
    const MpiLauncher mpi = mpi_launcher(known);
    const std::string name = "mpi (" + mpi.mpi + ")", key = "mpi_" + mpi.mpi,
                      module = "kasane-mpi-" + mpi.mpi + ".so";
    if (find_helper(module).empty()) {
      say_missing(report, name, key,
                  "no " + module + "; build Kasane where this MPI's development package is installed");
    } else if (mpi.path.empty()) {
      say_missing(report, name, key, "its mpirun is not in the PATH; install the package " + mpi.package);
    } else {
      const std::string use = "between hosts without UCX (--transport mpi: everywhere)";
      report.line(name, use + "; started by " + mpi.path,
                  {{key, {{"available", true}, {"use", use}, {"mpirun", mpi.path}}}});
    }
  }
}

void say_pmix(Report& report) {
  if (find_helper("kasane-pmix.so").empty())
    return say_missing(report, "pmix", "pmix",
                       "no kasane-pmix.so; build Kasane where libpmix's development package is installed");
  const std::string use = "joins ranks that srun --mpi=pmix or prterun starts, without an MPI";
  report.line("pmix", use, {{"pmix", {{"available", true}, {"use", use}}}});
}

void say_transports(Report& report) {
  report.section("transports", "transports");
  const auto job = comm::create_job(1, comm::shm::job_bytes(1));
  if (!job) {
    say_missing(report, "shm", "shm", job.error().message);
  } else if (const auto shm = comm::shm::create(*job); !shm) {
    say_missing(report, "shm", "shm", shm.error().message);
  } else {
    say_transport(report, (*shm)->facts(), "between ranks of one host (the default)");
  }
  say_ucx(report);
  say_mpi(report);
  say_pmix(report);
}

/// A line for each way, and the list of them in order of preference.
void say_engines(Report& report, const std::vector<mem::EngineInfo>& engines) {
  Json list = Json::array();
  for (const mem::EngineInfo& e : engines) {
    report.line(e.name, (e.available ? "available: " : "not available: ") + e.reason);
    list.push_back({{"name", e.name}, {"available", e.available}, {"reason", e.reason}});
  }
  report.facts({{"engines", list}});
}

void say_fault_engines(Report& report) {
  report.section("fault engines, the preferred one first", "faults");
  say_engines(report, mem::engines());
  const auto none = [&](const Error& e) {
    report.line("a job would take", "none: " + e.message, {{"job_takes", Json()}, {"reason", e.message}});
  };
  const auto options = runtime::options_from_environment();  // as the ranks of a job read them
  if (!options) return none(options.error());
  const auto engine = mem::engine_for(options->faults);
  if (!engine) return none(engine.error());
  report.line("a job would take", fmt::format("{} (KASANE_FAULTS={})", *engine, options->faults),
              {{"job_takes", *engine}});
}

void say_spill_engines(Report& report) {
  report.section("ways to a spill file, the preferred one first", "spill");
  say_engines(report, mem::spill_engines());
}

void say_frames(Report& report) {
  const std::uint64_t bytes = mem::large_frame_bytes();
  const Json facts = {{"frame_bytes", bytes != 0 ? bytes : mem::kBlockBytes}};
  if (bytes != 0)
    return report.line(
        "frames", fmt::format("{} KiB, so paging takes less than half of the processor time", bytes >> 10),
        facts);
  const std::string setting = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled";
  std::error_code error;
  if (!std::filesystem::exists(setting, error))
    return report.line("frames", "4 KiB; larger ones need Linux 6.10", facts);
  report.line("frames",
              "4 KiB; paging takes less than half of the processor time with 64 KiB, until the next boot by "
              "root: echo advise > " +
                  setting,
              facts);
}

/// A line for each directory that a job would spill to and whose disk is known.
void say_spill_disks(Report& report) {
  const auto options = runtime::options_from_environment();
  if (!options) return;  // reported before
  Json disks = Json::array();
  std::istringstream directories(runtime::spill_directories(options->spill));
  for (std::string directory; std::getline(directories, directory, ':');) {
    const auto disk = mem::spill_disk(directory);
    if (!disk) continue;
    report.line("reads from " + directory,
                disk->ends_where_asked
                    ? "end on the core that asked for them (" + disk->setting + ")"
                    : "end on any core: threads that read at random gather on that of the disk's interrupts, "
                      "and are a tenth slower than with, until the next boot by root: echo 2 > " +
                          disk->setting);
    disks.push_back({{"directory", directory},
                     {"reads_end_where_asked", disk->ends_where_asked},
                     {"setting", disk->setting}});
  }
  report.facts({{"spill_disks", disks}});
}

void say_membarrier(Report& report) {
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  const bool expedited = commands >= 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0;
  report.line("membarrier",
              expedited      ? "available (global expedited): forks need no fence for sleeping ranks"
              : commands < 0 ? "not available: the kernel refuses membarrier(2)"
                             : "not available: no global expedited membarrier",
              {{"membarrier", expedited}});
}

void say_limits(Report& report) {
  report.section("limits", "limits");
  const std::string mappings = read_word("/proc/sys/vm/max_map_count"),
                    overcommit = read_word("/proc/sys/vm/overcommit_memory");
  report.line("vm.max_map_count", mappings + " mappings a process", {{"max_map_count", number(mappings)}});
  report.line("vm.overcommit_memory", overcommit, {{"overcommit_memory", number(overcommit)}});
  report.line("default workers", fmt::format("{} a job, shared by its ranks", topo::usable_cores()),
              {{"default_workers", topo::usable_cores()}});
  const std::uint64_t dram = mem::default_budget(mem::machine_memory(), topo::memory_limit(), 1);
  report.line(
      "default --dram",
      fmt::format(
          "{} MiB a host, three quarters of its memory or control group; what is more goes to --spill",
          dram >> 20),
      {{"default_dram_bytes", dram}});
  const bool guards = mem::guards_available(), tables = mem::page_tables_go_back();
  report.line("stack guards",
              guards
                  ? "MADV_GUARD_INSTALL: none of them costs a mapping"
                  : fmt::format("mprotect (no MADV_GUARD_INSTALL for shared memory, Linux 6.15): {} at most",
                                mem::kFallbackGuards),
              {{"stack_guards_at_most", guards ? Json() : Json(mem::kFallbackGuards)}});
  report.line("page tables",
              tables ? "the kernel frees those that are not used any more: --dram can be far less than what "
                       "is used of the space"
                     : "stay until the job ends (Linux 6.14 with CONFIG_PT_RECLAIM frees them): up to 4 MiB "
                       "of --dram for each GiB that is used of the space",
              {{"page_tables_go_back", tables}});
  say_frames(report);
  say_spill_disks(report);
  say_membarrier(report);
  limit_line(report, "file descriptors", "file_descriptors", RLIMIT_NOFILE, "; 8 a rank and 128 are needed");
  limit_line(report, "processes", "processes", RLIMIT_NPROC);
  limit_line(
      report, "address space", "address_space_bytes", RLIMIT_AS,
      "; ranks x --space is 64 TiB at most: without --space 1 TiB, or what they hold for more ranks than 64");
}

int print(const Report& report, bool json) {
  if (!json) {
    report.print_text();
    return 0;
  }
  if (const auto written = write_json_file("-", report.json()); !written)
    throw std::runtime_error(written.error().message);
  return 0;
}

/// Of a program that was not built for Kasane: whether it can run on several ranks all the same. False: it
/// cannot.
bool say_installed(Report& report, const std::string& name) {
  const Spread spread = may_spread(name);
  if (spread.file.empty()) throw std::runtime_error(name + ": no such program");
  const bool can = spread.refusal.empty();
  report.section("program", "program");
  report.line("file", spread.file, {{"file", spread.file}});
  report.line("several ranks",
              !can ? "no: " + spread.refusal
              : spread.examined.empty()
                  ? "not known: nothing in its file forbids it, but it was not examined "
                    "for races that x86 hides (kasane run --preload=unchecked)"
                  : "yes: " + spread.examined + " was examined (kasane run --preload)",
              {{"spreads", can},
               {"examined", spread.examined.empty() ? Json() : Json(spread.examined)},
               {"reason", can ? Json() : Json(spread.refusal)}});
  return can;
}

/// How a program of Kasane's was compiled.
void say_built(Report& report, const std::string& name, const std::string& built) {
  report.section("program", "program");
  report.line("file", find_program(name), {{"file", find_program(name)}});
  const bool calls = built.find('c') != std::string::npos, inlined = built.find('i') != std::string::npos;
  const char* const between =
      inlined ? "std::atomic and shared_ptr hold within a rank alone: part of it was compiled without "
                "-fno-inline-atomics (GCC has it; Clang has no such option)"
      : calls ? "std::atomic and shared_ptr hold between ranks (compiled with -fno-inline-atomics)"
              : "not known: no part of it includes a header of Kasane";
  report.line("atomics", between,
              {{"atomics_between_ranks", inlined ? Json(false)
                                         : calls ? Json(true)
                                                 : Json()}});
}

int topology(bool json, const PlannedJob& job) {
  Report report;
  say_topology(report, job);
  return print(report, json);
}

int info(bool json, const std::string& program) {
  Report report;
  report.line("kasane", kasane_version(), {{"version", kasane_version()}});
  if (!program.empty()) {
    const auto built = built_with(program);
    const bool can = built || say_installed(report, program);
    if (built) say_built(report, program, *built);
    const int status = print(report, json);
    return can ? status : 1;
  }
  say_machine(report);
  say_transports(report);
  say_fault_engines(report);
  say_spill_engines(report);
  say_limits(report);
  return print(report, json);
}

}  // namespace

Command make_info(CLI::App& kasane) {
  CLI::App* app =
      kasane.add_subcommand("info", "Say what this machine offers: cores, transports, fault engines, limits");
  auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "print the same as JSON, for programs");
  auto program = std::make_shared<std::string>();
  app->add_option(
      "PROGRAM", *program,
      "say instead how this program was compiled, or, where it was not built for Kasane, whether it can "
      "run on several ranks; status 1: it cannot");
  auto mpi = std::make_shared<std::string>();
  app->add_option(
         "--ga", *mpi,
         "print the variables, for eval in a shell, with which Global Arrays programs of this MPI (openmpi, "
         "mpich) are linked and run on Kasane")
      ->type_name("MPI");
  auto with_topology = std::make_shared<bool>(false);
  auto job = std::make_shared<PlannedJob>();
  auto map = std::make_shared<std::string>("compact");
  CLI::Option* const flag = app->add_flag("--topology", *with_topology,
                                          "say instead which NUMA nodes there are, what may be used of "
                                          "them, and, with -n, where a job's threads and memory would go");
  app->add_option("-n,--ranks", job->ranks, "plan for so many ranks on this host")->needs(flag);
  app->add_option("--workers", job->workers, "workers of each; default: cores / ranks")->needs(flag);
  app->add_option("--bind", job->bind, "as of kasane run; default: core")->needs(flag);
  app->add_option("--map", *map, "as of kasane run")
      ->check(CLI::IsMember({"compact", "scatter"}))
      ->needs(flag);
  return {app, [=] {
            if (!mpi->empty()) return print_ga_variables(*mpi);
            if (!*with_topology) return info(*json, *program);
            job->scatter = *map == "scatter";
            return topology(*json, *job);
          }};
}

}  // namespace kasane::tools
