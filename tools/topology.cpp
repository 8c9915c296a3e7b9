// SPDX-License-Identifier: Apache-2.0
#include "topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "read_word.h"
#include "topo/bind_plan.h"
#include "topo/cgroup.h"
#include "topo/numa.h"
#include "topo/number_list.h"

namespace kasane::tools {
namespace {

void say_nodes(Report& report, const topo::Machine& machine) {
  Json nodes = Json::array();
  for (const topo::NumaNode& node : machine.numa_nodes()) {
    std::vector<topo::Core> cores;
    for (const topo::Core& core : machine.cores())
      if (core.numa_node == node.number) cores.push_back(core);
    std::string text = node.bytes != 0 ? fmt::format("{} MiB, ", node.bytes >> 20) : "unknown memory, ";
    text += cores.empty() ? "no cores" : topo::cores_text(cores);
    if (!node.distances.empty()) text += fmt::format(", distances {}", fmt::join(node.distances, " "));
    if (node.mib_per_s != 0) text += fmt::format(", {} MiB/s", node.mib_per_s);
    if (node.latency_ns != 0) text += fmt::format(", {} ns", node.latency_ns);
    report.line(fmt::format("NUMA node {}", node.number), text);
    nodes.push_back({{"number", node.number},
                     {"memory_bytes", node.bytes},
                     {"distances", node.distances},
                     {"mib_per_s", node.mib_per_s != 0 ? Json(node.mib_per_s) : Json()},
                     {"latency_ns", node.latency_ns != 0 ? Json(node.latency_ns) : Json()}});
  }
  report.facts({{"numa_nodes", nodes}});
}

/// Whether the kernel lets this process bind a page of its own.
std::string policies_text(const topo::NodeSet& nodes) {
  alignas(4096) static std::byte page[4096];
  std::uint32_t first = 0;
  while (!nodes[first]) ++first;
  const auto bound = topo::set_memory_policy(page, sizeof page, topo::NumaPolicy::on(first));
  if (!bound) return "refused: " + bound.error().message;
  const auto weighted = topo::set_memory_policy(page, sizeof page, {topo::NumaPolicy::Kind::weighted, nodes});
  (void)topo::set_memory_policy(page, sizeof page, {});
  return weighted ? "available: node, interleave, weighted interleave"
                  : "available: node, interleave (weighted interleave needs Linux 6.9)";
}

void say_allowed(Report& report) {
  const auto cpus = topo::affinity();
  const topo::NodeSet usable = topo::memory_nodes();
  const std::string nodes = topo::nodes_text(usable);
  report.line("this process",
              fmt::format("may use cores {} and memory of nodes {}",
                          cpus ? topo::list_text(*cpus) : "unknown", nodes),
              {{"allowed_nodes", nodes}});
  if (const auto quota = topo::cpu_quota())
    report.line("control group", fmt::format("{:.3g} cores", *quota), {{"cpu_quota", *quota}});
  const std::string policies = policies_text(usable),
                    balancing = read_word("/proc/sys/kernel/numa_balancing"),
                    demotion = read_word("/sys/kernel/mm/numa/demotion_enabled");
  report.line("memory policies", policies, {{"policies", policies}});
  report.line("numa_balancing",
              balancing == "0" || balancing == "unknown"
                  ? balancing + ": pages stay where they are"
                  : balancing +
                        ": the kernel moves pages to where they are used, against policies that "
                        "are preferences; as root: echo 0 > /proc/sys/kernel/numa_balancing",
              {{"numa_balancing", balancing}});
  report.line("demotion",
              demotion == "true"
                  ? "on: the kernel moves cold pages to slower nodes instead of reclaiming them"
                  : demotion,
              {{"demotion", demotion}});
}

void say_plan(Report& report, const topo::Machine& machine, const PlannedJob& job) {
  auto to = topo::BindTo::parse(job.bind);
  if (!to) throw std::runtime_error("--bind: " + to.error().message);
  to->scatter = job.scatter;
  const auto cores = static_cast<std::uint32_t>(machine.cores().size());
  const std::uint32_t workers = job.workers != 0 ? job.workers : std::max(1u, cores / job.ranks);
  report.section(
      fmt::format("plan: {} rank{} x {} worker{}, --bind {}{}", job.ranks, job.ranks == 1 ? "" : "s", workers,
                  workers == 1 ? "" : "s", job.bind, job.scatter ? " --map scatter" : ""),
      "plan");
  Json ranks = Json::array();
  for (std::uint32_t r = 0; r < job.ranks; ++r) {
    const auto plan = topo::plan(machine, *to, r, job.ranks, workers);
    if (!plan) throw std::runtime_error("--bind: " + plan.error().message);
    Json where = Json::array();
    for (std::uint32_t w = 0; w < workers; ++w) {
      const std::string text = topo::cores_text(plan->workers[w]);
      report.line(fmt::format("rank {}, worker {}", r, w), text);
      where.push_back(text);
    }
    if (plan->node) report.line(fmt::format("rank {}, memory", r), fmt::format("NUMA node {}", *plan->node));
    ranks.push_back({{"workers", where}, {"node", plan->node ? Json(*plan->node) : Json()}});
  }
  report.facts({{"ranks", ranks}});
  const std::size_t nodes = machine.numa_nodes().size();
  if (job.ranks < nodes) report.line("", fmt::format("one rank a node is better: -n {} --bind numa", nodes));
}

}  // namespace

void say_topology(Report& report, const PlannedJob& job) {
  const auto machine = topo::Machine::discover();
  if (!machine) throw std::runtime_error(machine.error().message);
  report.section("topology", "topology");
  report.line("machine", machine->describe(), {{"machine", machine->describe()}});
  if (machine->foreign())
    report.line("", "described by HWLOC_SYNTHETIC or HWLOC_XMLFILE: for plans; no job runs so here");
  say_nodes(report, *machine);
  if (!machine->foreign()) say_allowed(report);
  if (job.ranks != 0) say_plan(report, *machine, job);
}

}  // namespace kasane::tools
