// SPDX-License-Identifier: Apache-2.0
#include "systems.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>

namespace kasane::bench {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// A row of the table: empty launch: not over this.
struct Known {
  std::string name;
  const char* player;    ///< the program that must be there
  const char* launcher;  ///< and the one that starts it, or null
  const char* description;
  bool ours, limit, one_sided;
  std::array<bool, 2> target_works;  ///< over memory, over tcp
  std::function<Launch(const std::string& player, Over over)> launch;
};

const Variables kUcxMemory{{"UCX_TLS", "sm,self"}};
const Variables kUcxTcp{{"UCX_TLS", "tcp,self"}, {"UCX_NET_DEVICES", "lo"}};
const Variables& ucx_variables(Over over) { return over == Over::memory ? kUcxMemory : kUcxTcp; }

/// Its own shared memory, if it was built with that, would bypass TCP.
const Variables kLciMemory{{"LCI_ATTR_BACKEND", "ofi"}, {"LCI_ATTR_OFI_PROVIDER_NAME", "shm"}};
const Variables kLciTcp{{"LCI_ATTR_BACKEND", "ofi"},
                        {"LCI_ATTR_OFI_PROVIDER_NAME", "tcp;ofi_rxm"},
                        {"LCI_ATTR_SHM_ENABLE", "0"},
                        {"FI_TCP_IFACE", "lo"}};
const Variables& lci_variables(Over over) { return over == Over::memory ? kLciMemory : kLciTcp; }

Launch twice(std::vector<std::string> command, Variables variables) {
  return {std::move(command), false, std::move(variables)};
}

using Words = std::vector<std::string>;

const Variables kOpenmpiAsRoot{{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};

Launch openmpi(const std::string& player, const Words& how, Over over) {
  Launch launch{{"mpirun.openmpi", "-n", "2", "--bind-to", "none", "--oversubscribe"}, true, kOpenmpiAsRoot};
  if (over == Over::tcp) {
    for (const char* word :
         {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"})
      launch.command.emplace_back(word);
  }
  launch.command.push_back(player);
  launch.command.insert(launch.command.end(), how.begin(), how.end());
  return launch;
}

Launch mpich(const std::string& player, const Words& how, Over over) {
  Launch launch{{"mpirun.mpich", "-n", "2", "-bind-to", "none", player}, true, {}};
  launch.command.insert(launch.command.end(), how.begin(), how.end());
  if (over == Over::tcp) {
    launch.environment = kUcxTcp;
    launch.environment.emplace_back("MPIR_CVAR_NOLOCAL", "1");  // as if the ranks were on two hosts
  }
  return launch;
}

/// A player that becomes its two ranks itself.
Launch forked(const std::string& player, const Variables& variables) { return {{player}, true, variables}; }

/// Kasane's player: comm::launch() finds in the environment what `kasane run -n 2 --transport NAME` would put
/// there.
Launch job(const std::string& player, const char* transport, Variables variables) {
  variables.insert(variables.end(), {{"KASANE_RANKS", "2"}, {"KASANE_TRANSPORT", transport}});
  return forked(player, variables);
}

/// The same, started by an mpirun.
Launch job_of_mpi(Launch launch, const char* mpi) {
  launch.environment.insert(launch.environment.end(), {{"KASANE_TRANSPORT", "mpi"}, {"KASANE_MPI", mpi}});
  return launch;
}

/// Kasane's rows once for each mode of its engine; the others as they are.
std::vector<Known> in_each_mode(const std::vector<Known>& rows) {
  const struct {
    const char *suffix, *mode, *description;
  } modes[] = {{"", "direct", nullptr}, {"-offload", "offload", "… its engine in offload mode"}};
  std::vector<Known> all;
  for (const Known& row : rows) {
    if (!row.ours) {
      all.push_back(row);
      continue;
    }
    for (const auto& m : modes) {
      Known& one = all.emplace_back(row);
      one.name += m.suffix;
      if (m.description != nullptr) one.description = m.description;
      one.launch = [launch = row.launch, mode = m.mode](const std::string& player, Over over) {
        Launch in_mode = launch(player, over);
        in_mode.environment.emplace_back("KASANE_ISSUE", mode);
        return in_mode;
      };
    }
  }
  return all;
}

const std::vector<Known>& known() {
  static const std::vector<Known> table = in_each_mode({
      {"kasane-shm",
       "kasane",
       nullptr,
       "Kasane over the host's memory",
       true,
       false,
       true,
       {false, false},
       [](const std::string& p, Over over) { return over == Over::memory ? job(p, "shm", {}) : Launch{}; }},
      {"kasane-ucx",
       "kasane",
       nullptr,
       "Kasane over UCX",
       true,
       false,
       true,
       {true, true},
       [](const std::string& p, Over over) { return job(p, "ucx", ucx_variables(over)); }},
      {"kasane-mpi",
       "kasane",
       "mpirun.openmpi",
       "Kasane over Open MPI",
       true,
       false,
       true,
       {true, true},
       [](const std::string& p, Over over) { return job_of_mpi(openmpi(p, {}, over), "openmpi"); }},
      {"kasane-mpich",
       "kasane",
       "mpirun.mpich",
       "Kasane over MPICH",
       true,
       false,
       true,
       {true, true},
       [](const std::string& p, Over over) { return job_of_mpi(mpich(p, {}, over), "mpich"); }},
      {"raw",
       "raw",
       nullptr,
       "loads, stores and memcpy on shared memory: the limit",
       false,
       true,
       true,
       {false, false},
       [](const std::string& p, Over over) { return over == Over::memory ? twice({p}, {}) : Launch{}; }},
      {"ucx",
       "ucx",
       nullptr,
       "UCX with a ucp_worker for each thread; put, fence, put",
       false,
       false,
       true,
       {false, true},
       [](const std::string& p, Over over) { return twice({p}, ucx_variables(over)); }},
      {"ucx-multi",
       "ucx",
       nullptr,
       "UCX with one MULTI worker for all threads",
       false,
       false,
       true,
       {false, true},
       [](const std::string& p, Over over) { return twice({p, "--multi"}, ucx_variables(over)); }},
      {"ucx-own",
       "ucx",
       nullptr,
       "as ucx, on memory that the program brought, as Kasane's is",
       false,
       false,
       true,
       {true, true},
       [](const std::string& p, Over over) { return twice({p, "--own"}, ucx_variables(over)); }},
      {"ucx-pointer",
       "ucx",
       nullptr,
       "loads and stores by UCX's ucp_rkey_ptr",
       false,
       false,
       true,
       {false, false},
       [](const std::string& p, Over over) {
         return over == Over::memory ? twice({p, "--pointer"}, kUcxMemory) : Launch{};
       }},
      {"openmpi-p2p",
       "openmpi",
       "mpirun.openmpi",
       "Open MPI, send and receive",
       false,
       false,
       false,
       {true, true},
       [](const std::string& p, Over over) { return openmpi(p, {"--p2p"}, over); }},
      {"openmpi-put",
       "openmpi",
       "mpirun.openmpi",
       "Open MPI, MPI-3 passive target (put, get, fetch-and-op)",
       false,
       false,
       true,
       {false, false},
       // On one host its windows are shared memory whatever the messages use, and without that it has none
       // for several threads over TCP.
       [](const std::string& p, Over over) {
         return over == Over::memory ? openmpi(p, {"--put"}, over) : Launch{};
       }},
      {"openmpi-own",
       "openmpi",
       "mpirun.openmpi",
       "as openmpi-put, on memory that the program brought, as Kasane's is (MPI_Win_create)",
       false,
       false,
       true,
       {false, false},
       [](const std::string& p, Over over) {
         return over == Over::memory ? openmpi(p, {"--own"}, over) : Launch{};
       }},
      {"mpich-p2p",
       "mpich",
       "mpirun.mpich",
       "MPICH, send and receive",
       false,
       false,
       false,
       {true, true},
       [](const std::string& p, Over over) { return mpich(p, {"--p2p"}, over); }},
      {"mpich-put",
       "mpich",
       "mpirun.mpich",
       "MPICH, MPI-3 passive target (put, get, fetch-and-op)",
       false,
       false,
       true,
       {true, true},
       [](const std::string& p, Over over) { return mpich(p, {"--put"}, over); }},
      {"mpich-own",
       "mpich",
       "mpirun.mpich",
       "as mpich-put, on memory that the program brought, as Kasane's is (MPI_Win_create)",
       false,
       false,
       true,
       {true, true},
       [](const std::string& p, Over over) { return mpich(p, {"--own"}, over); }},
      {"openshmem",
       "openshmem",
       "oshrun",
       "OpenSHMEM (Open MPI's), a context for each thread; put, fence, put",
       false,
       false,
       true,
       {false, true},
       [](const std::string& p, Over over) {
         Launch launch{
             {"oshrun", "-n", "2", "--bind-to", "none", "--oversubscribe", p}, true, kOpenmpiAsRoot};
         // Its name before version 1.4 of the specification, and since.
         for (const char* name : {"SHMEM_SYMMETRIC_HEAP_SIZE", "SHMEM_SYMMETRIC_SIZE"})
           launch.environment.emplace_back(name, "512M");
         for (const auto& variable : ucx_variables(over)) launch.environment.push_back(variable);
         return launch;
       }},
      {"gasnet",
       "gasnet",
       nullptr,
       "GASNet-EX, smp conduit: put, then put",
       false,
       false,
       true,
       {false, false},
       [](const std::string& p, Over over) {
         return over == Over::memory ? forked(p, {{"GASNET_PSHM_NODES", "2"},
                                                  {"GASNET_MAX_SEGSIZE", "512M/P"},
                                                  {"GASNET_QUIET", "1"}})
                                     : Launch{};
       }},
      {"gpi2",
       "gpi2",
       nullptr,
       "GPI-2 (GASPI), TCP device, a queue for each thread: write_notify",
       false,
       false,
       false,
       {false, false},
       [](const std::string& p, Over over) { return over == Over::tcp ? twice({p}, {}) : Launch{}; }},
      {"lci",
       "lci",
       nullptr,
       "LCI 2 on libfabric, a device for each thread: active messages; put, get",
       false,
       false,
       false,
       {true, true},
       [](const std::string& p, Over over) { return twice({p}, lci_variables(over)); }},
      {"lci-put",
       "lci",
       nullptr,
       "LCI 2, put with signal",
       false,
       false,
       false,
       {true, true},
       [](const std::string& p, Over over) { return twice({p, "--put"}, lci_variables(over)); }},
  });
  return table;
}

bool on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace

std::vector<System> installed_systems(const std::string& bin, Over over) {
  std::vector<System> systems;
  for (const Known& row : known()) {
    const std::string player = bin + "kasane-player-" + row.player;
    if (::access(player.c_str(), X_OK) != 0 || (row.launcher != nullptr && !on_path(row.launcher))) continue;
    Launch launch = row.launch(player, over);
    if (launch.command.empty()) continue;
    systems.push_back({row.name, row.description, std::move(launch), row.ours, row.limit, row.one_sided,
                       row.target_works[over == Over::tcp ? 1 : 0]});
  }
  return systems;
}

std::vector<System> installed_systems(const std::string& bin) {
  std::vector<System> systems = installed_systems(bin, Over::memory);
  for (System& system : installed_systems(bin, Over::tcp)) {
    if (std::none_of(systems.begin(), systems.end(), [&](const System& s) { return s.name == system.name; }))
      systems.push_back(std::move(system));
  }
  return systems;
}

std::vector<std::string> all_system_names() {
  std::vector<std::string> names;
  for (const Known& row : known()) names.emplace_back(row.name);
  return names;
}

std::vector<System> choose(std::vector<System> systems, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return systems;
  for (const auto& name : wanted) {
    if (std::none_of(systems.begin(), systems.end(), [&](const System& s) { return s.name == name; })) {
      throw std::runtime_error("the system " + name +
                               " is not built or not installed here (--list says what is)");
    }
  }
  systems.erase(std::remove_if(systems.begin(), systems.end(),
                               [&](const System& s) {
                                 return std::find(wanted.begin(), wanted.end(), s.name) == wanted.end();
                               }),
                systems.end());
  return systems;
}

}  // namespace kasane::bench
