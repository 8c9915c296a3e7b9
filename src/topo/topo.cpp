// SPDX-License-Identifier: Apache-2.0
#include "topo/topo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <hwloc/memattrs.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "base/options.h"
#include "topo/cgroup.h"
#include "topo/threads.h"

namespace kasane::topo {
namespace {

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

// An affinity mask of any number of cores: the kernel refuses a mask that is too small with EINVAL.
class CpuSet {
 public:
  explicit CpuSet(std::size_t cpus) : bytes_(CPU_ALLOC_SIZE(cpus)), set_(CPU_ALLOC(cpus)) {
    CPU_ZERO_S(bytes_, set_);
  }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;
  ~CpuSet() { CPU_FREE(set_); }

  [[nodiscard]] cpu_set_t* get() noexcept { return set_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  void add(std::uint32_t cpu) noexcept { CPU_SET_S(cpu, bytes_, set_); }
  [[nodiscard]] std::vector<std::uint32_t> members() const {
    std::vector<std::uint32_t> cpus;
    for (std::uint32_t cpu = 0; cpu < bytes_ * 8; ++cpu)
      if (CPU_ISSET_S(cpu, bytes_, set_)) cpus.push_back(cpu);
    return cpus;
  }

 private:
  std::size_t bytes_;
  cpu_set_t* set_;
};

constexpr std::size_t kMostCpus = 1 << 16;

Result<Topology> load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail_errno(Errc::out_of_memory, "hwloc_topology_init");
  Topology topology(raw, hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0)
    return fail_errno(Errc::unsupported, "hwloc cannot read this machine's topology");
  return topology;
}

std::uint32_t physical_of(hwloc_topology_t topology, hwloc_obj_t pu) {
  hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
  return core != nullptr ? core->logical_index : pu->logical_index;
}

// Distances as the firmware gives them (SLIT), in the nodes' order.
void find_distances(hwloc_topology_t topology, std::span<const hwloc_obj_t> objects,
                    std::vector<NumaNode>& nodes) {
  hwloc_distances_s* found = nullptr;
  unsigned count = 1;
  if (hwloc_distances_get_by_name(topology, "NUMALatency", &count, &found, 0) != 0 || count == 0) return;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const hwloc_obj_t to : objects) {
      hwloc_uint64_t forth = 0, back = 0;
      if (hwloc_distances_obj_pair_values(found, objects[i], to, &forth, &back) == 0)
        nodes[i].distances.push_back(static_cast<std::uint32_t>(forth));
    }
  }
  hwloc_distances_release(topology, found);
}

std::uint64_t best(hwloc_topology_t topology, hwloc_memattr_id_e attribute, hwloc_obj_t node) {
  hwloc_uint64_t value = 0;
  hwloc_location initiator{};
  return hwloc_memattr_get_best_initiator(topology, attribute, node, 0, &initiator, &value) == 0 ? value : 0;
}

std::vector<NumaNode> find_numa_nodes(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    objects.push_back(node);
  std::ranges::sort(objects, {}, [](hwloc_obj_t node) { return node->os_index; });
  std::vector<NumaNode> nodes;
  for (const hwloc_obj_t node : objects)
    nodes.push_back({.number = node->os_index,
                     .bytes = node->attr->numanode.local_memory,
                     .mib_per_s = best(topology, HWLOC_MEMATTR_ID_BANDWIDTH, node),
                     .latency_ns = best(topology, HWLOC_MEMATTR_ID_LATENCY, node)});
  find_distances(topology, objects, nodes);
  return nodes;
}

std::uint32_t numa_node_of(hwloc_topology_t topology, hwloc_obj_t pu) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    if (hwloc_bitmap_isset(node->cpuset, pu->os_index)) return node->os_index;
  return 0;
}

std::uint32_t package_of(hwloc_topology_t topology, hwloc_obj_t pu) {
  hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pu);
  return package != nullptr ? package->logical_index : 0;
}

/// usable: empty: all.
std::vector<Core> find_cores(hwloc_topology_t topology, const std::vector<std::uint32_t>& usable) {
  std::vector<Core> cores;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;)
    if (usable.empty() || std::binary_search(usable.begin(), usable.end(), pu->os_index))
      cores.push_back(
          {pu->os_index, physical_of(topology, pu), numa_node_of(topology, pu), package_of(topology, pu)});
  return cores;
}

// First threads of physical cores before second ones; within that by NUMA node, so that neighbouring workers
// share one.
void order_for_workers(std::vector<Core>& cores) {
  std::map<std::uint32_t, unsigned> seen;
  std::vector<std::tuple<unsigned, std::uint32_t, std::size_t>> keys;
  keys.reserve(cores.size());
  for (std::size_t i = 0; i < cores.size(); ++i)
    keys.emplace_back(seen[cores[i].physical]++, cores[i].numa_node, i);
  std::sort(keys.begin(), keys.end());
  std::vector<Core> ordered;
  ordered.reserve(cores.size());
  for (const auto& key : keys) ordered.push_back(cores[std::get<2>(key)]);
  cores = std::move(ordered);
}

std::vector<std::uint64_t> find_caches(hwloc_topology_t topology) {
  std::vector<std::uint64_t> bytes;
  for (auto type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    std::uint64_t largest = 0;
    for (hwloc_obj_t cache = nullptr; (cache = hwloc_get_next_obj_by_type(topology, type, cache)) != nullptr;)
      largest = std::max<std::uint64_t>(largest, cache->attr->cache.size);
    bytes.push_back(largest);
  }
  return bytes;
}

std::string plural(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

Result<std::vector<std::uint32_t>> affinity() {
  CpuSet set(kMostCpus);
  if (::sched_getaffinity(0, set.bytes(), set.get()) != 0)
    return fail_errno(Errc::unsupported, "sched_getaffinity");
  return set.members();
}

std::uint32_t usable_cores() {
  const auto mask = affinity();
  std::uint32_t cores = mask ? static_cast<std::uint32_t>(mask->size()) : 1;
  if (const auto quota = cpu_quota())
    cores = std::min(cores, static_cast<std::uint32_t>(std::ceil(std::min(*quota, 1e6))));
  return std::max(1u, cores);
}

std::optional<std::uint32_t> only_numa_node() {
  // "0" on a machine of one node, else a list like "0-1".
  std::ifstream online("/sys/devices/system/node/online");
  std::uint32_t number = 0;
  if (online >> number && (online >> std::ws).eof()) return number;
  const auto machine = Machine::discover();
  if (!machine || machine->cores().empty()) return std::nullopt;
  const std::uint32_t first = machine->cores().front().numa_node;
  if (!std::ranges::all_of(machine->cores(), [&](const Core& core) { return core.numa_node == first; }))
    return std::nullopt;
  return first;
}

Result<Machine> Machine::discover() {
  auto topology = load_topology();
  KASANE_TRY(topology);
  const auto usable = affinity();
  KASANE_TRY(usable);
  Machine machine;
  machine.foreign_ = hwloc_topology_is_thissystem(topology->get()) == 0;
  machine.cores_ = find_cores(topology->get(), machine.foreign_ ? std::vector<std::uint32_t>() : *usable);
  machine.numa_nodes_ = find_numa_nodes(topology->get());
  machine.cache_bytes_ = find_caches(topology->get());
  if (machine.cores_.empty())
    return fail(Errc::unsupported, "hwloc names none of the cores that this process may use");
  order_for_workers(machine.cores_);
  return machine;
}

std::string Machine::describe() const {
  std::set<std::uint32_t> physical, packages;
  for (const Core& core : cores_) physical.insert(core.physical), packages.insert(core.package);
  std::string text = fmt::format("{} ({} physical), {}, {}", plural(cores_.size(), "core"), physical.size(),
                                 plural(packages.size(), "package"), plural(numa_nodes_.size(), "NUMA node"));
  for (std::size_t level = 1; level < cache_bytes_.size(); ++level)  // level 1 says nothing
    if (cache_bytes_[level] != 0) text += fmt::format(", L{} {}", level + 1, bytes_text(cache_bytes_[level]));
  double bytes = 0;
  for (const NumaNode& node : numa_nodes_) bytes += static_cast<double>(node.bytes);
  if (bytes > 0) text += fmt::format(", {:.1f} GiB", bytes / (1 << 30));
  if (const auto quota = cpu_quota(); quota && !foreign_)
    text += fmt::format(", control group: {:.3g} cores", *quota);
  return text;
}

Result<> pin(std::span<const Core> cores) {
  std::vector<std::uint32_t> wanted;
  for (const Core& core : cores) wanted.push_back(core.cpu);
  std::sort(wanted.begin(), wanted.end());
  CpuSet set(std::max<std::size_t>(kMostCpus, wanted.back() + 1));
  for (const std::uint32_t cpu : wanted) set.add(cpu);
  const std::string named =
      fmt::format("{} {}", wanted.size() == 1 ? "core" : "cores", fmt::join(wanted, ", "));
  if (::sched_setaffinity(0, set.bytes(), set.get()) != 0)
    return fail_errno(Errc::limit, "cannot keep this thread on " + named);
  // Checked: a control group's cpuset may cut the mask without an error.
  const auto now = affinity();
  KASANE_TRY(now);
  if (*now != wanted)
    return fail(Errc::limit,
                fmt::format("this thread was to stay on {}, but the kernel gave it others", named));
  return {};
}

}  // namespace kasane::topo
