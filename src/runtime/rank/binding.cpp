// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/binding.h"

#include <algorithm>
#include <span>

#include "runtime/rank/warn.h"

namespace kasane::runtime {

namespace {

void keep_on(std::span<const topo::Core> cores) noexcept {
  if (cores.empty()) return;
  if (const auto bound = topo::pin(cores); !bound) {
    CrashText text;
    warn(text.add("kasane: --bind (KASANE_BIND): ")
             .add(bound.error().message.c_str())
             .add("; it runs where the kernel lets it\n"));
  }
}

}  // namespace

Result<Binding> Binding::create(const topo::BindTo& to, std::uint32_t index, std::uint32_t ranks_here,
                                std::uint32_t workers) {
  auto machine = topo::Machine::discover();
  KASANE_TRY(machine);
  if (machine->foreign())
    return fail(Errc::invalid_argument,
                "--bind (KASANE_BIND): HWLOC_SYNTHETIC or HWLOC_XMLFILE describes another machine than this "
                "one; threads can be planned there (kasane info --topology), not bound");
  auto plan = topo::plan(*machine, to, index, ranks_here, workers);
  if (!plan) return fail(plan.error().code, "--bind (KASANE_BIND): " + plan.error().message);
  Binding binding;
  binding.plan_ = std::move(*plan);
  return binding;
}

void Binding::bind_worker(std::uint32_t w) const noexcept {
  if (w < plan_.workers.size()) keep_on(plan_.workers[w]);
}

void Binding::bind_server() const noexcept { keep_on(plan_.others); }

cpu_set_t Binding::cpus_of_program() const noexcept {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  bool anywhere = plan_.workers.empty();
  const auto add = [&](std::span<const topo::Core> cores) {
    for (const topo::Core& core : cores) CPU_SET(core.cpu, &cpus);
  };
  for (const auto& cores : plan_.workers) anywhere |= cores.empty(), add(cores);
  add(plan_.others);
  if (anywhere) ::sched_getaffinity(0, sizeof cpus, &cpus);
  return cpus;
}

std::string where_this_thread_runs() {
  const auto cpus = topo::affinity();
  const auto machine = topo::Machine::discover();
  if (!cpus || !machine) return "unknown";
  std::vector<topo::Core> cores;
  for (const topo::Core& core : machine->cores())
    if (std::ranges::binary_search(*cpus, core.cpu)) cores.push_back(core);
  return topo::cores_text(cores);
}

}  // namespace kasane::runtime
