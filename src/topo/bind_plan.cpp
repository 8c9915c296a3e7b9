// SPDX-License-Identifier: Apache-2.0
#include "topo/bind_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "topo/number_list.h"

namespace kasane::topo {
namespace {

/// Cores by node or package, in the order of the numbers; of each the machine's order.
std::vector<std::vector<Core>> parts_of(const Machine& machine, BindTo::What what) {
  std::map<std::uint32_t, std::vector<Core>> parts;
  for (const Core& core : machine.cores())
    parts[what == BindTo::What::package ? core.package : core.numa_node].push_back(core);
  std::vector<std::vector<Core>> all;
  for (auto& [number, cores] : parts) all.push_back(std::move(cores));
  return all;
}

/// Empty: they are on several nodes, or there are none.
std::optional<std::uint32_t> common_node(const std::vector<Core>& cores) {
  if (cores.empty()) return std::nullopt;
  const std::uint32_t first = cores.front().numa_node;
  if (!std::ranges::all_of(cores, [first](const Core& core) { return core.numa_node == first; }))
    return std::nullopt;
  return first;
}

/// The first of each part, then the second of each …
std::vector<Core> dealt(std::vector<std::vector<Core>> parts) {
  std::vector<Core> cores;
  for (std::size_t i = 0, more = 1; more != 0; ++i) {
    more = 0;
    for (const auto& part : parts)
      if (i < part.size()) cores.push_back(part[i]), ++more;
  }
  return cores;
}

Result<std::vector<Core>> named(const Machine& machine, const std::vector<std::uint32_t>& cpus) {
  std::vector<Core> cores;
  for (const std::uint32_t cpu : cpus) {
    const auto found = std::ranges::find(machine.cores(), cpu, &Core::cpu);
    if (found == machine.cores().end()) {
      std::vector<std::uint32_t> all;
      for (const Core& core : machine.cores()) all.push_back(core.cpu);
      std::ranges::sort(all);
      return fail(Errc::invalid_argument,
                  fmt::format("this process may not use core {} (it has {})", cpu, fmt::join(all, ", ")));
    }
    cores.push_back(*found);
  }
  return cores;
}

RankPlan one_core_each(const std::vector<Core>& cores, std::uint32_t index, std::uint32_t ranks_here,
                       std::uint32_t workers) {
  RankPlan rank;
  for (std::uint32_t w = 0; w < workers; ++w)
    rank.workers.push_back({cores[(std::size_t{index} * workers + w) % cores.size()]});
  const std::size_t used = std::size_t{ranks_here} * workers;
  if (used < cores.size()) rank.others.assign(cores.begin() + static_cast<std::ptrdiff_t>(used), cores.end());
  return rank;
}

RankPlan parts_each(const std::vector<std::vector<Core>>& parts, bool scatter, std::uint32_t index,
                    std::uint32_t ranks_here, std::uint32_t workers) {
  const std::size_t n = parts.size();
  std::vector<std::size_t> mine;
  if (scatter) {
    for (std::size_t p = index % n; p < n; p += std::max<std::size_t>(ranks_here, 1)) mine.push_back(p);
  } else {
    const std::size_t first = index * n / ranks_here, last = (index + 1) * n / ranks_here;
    for (std::size_t p = first; p < std::max(last, first + 1); ++p) mine.push_back(p);
  }
  RankPlan rank;
  for (std::uint32_t w = 0; w < workers; ++w) {
    const std::size_t of = mine.size();
    rank.workers.push_back(parts[mine[scatter ? w % of : std::size_t{w} * of / workers]]);
  }
  for (const std::size_t p : mine) rank.others.insert(rank.others.end(), parts[p].begin(), parts[p].end());
  rank.node = common_node(rank.others);
  return rank;
}

}  // namespace

Result<BindTo> BindTo::parse(const std::string& text) {
  BindTo to;
  constexpr std::pair<const char*, What> words[] = {
      {"none", What::none}, {"core", What::core}, {"numa", What::numa}, {"package", What::package}};
  for (const auto& [word, what] : words) {
    if (text != word) continue;
    to.what = what;
    return to;
  }
  auto cpus = parse_list(text);
  if (!cpus)
    return fail(Errc::invalid_argument,
                fmt::format("\"{}\": none, core, numa, package, or cores such as 0-3,8", text));
  to.what = What::list;
  to.cpus = std::move(*cpus);
  return to;
}

Result<RankPlan> plan(const Machine& machine, const BindTo& to, std::uint32_t index, std::uint32_t ranks_here,
                      std::uint32_t workers) {
  switch (to.what) {
    case BindTo::What::none: break;
    case BindTo::What::core:
      return one_core_each(to.scatter ? dealt(parts_of(machine, BindTo::What::numa)) : machine.cores(), index,
                           ranks_here, workers);
    case BindTo::What::list: {
      const auto cores = named(machine, to.cpus);
      KASANE_TRY(cores);
      return one_core_each(*cores, index, ranks_here, workers);
    }
    case BindTo::What::numa:
    case BindTo::What::package:
      return parts_each(parts_of(machine, to.what), to.scatter, index, ranks_here, workers);
  }
  RankPlan anywhere;
  anywhere.workers.resize(workers);
  return anywhere;
}

std::vector<std::uint32_t> RankPlan::worker_nodes() const {
  std::vector<std::uint32_t> nodes;
  for (const auto& cores : workers)
    if (!cores.empty()) nodes.push_back(common_node(cores).value_or(kSeveralNodes));
  return nodes;
}

std::string cores_text(const std::vector<Core>& cores) {
  if (cores.empty()) return "any core";
  std::vector<std::uint32_t> cpus, nodes;
  for (const Core& core : cores) cpus.push_back(core.cpu), nodes.push_back(core.numa_node);
  const bool one = common_node(cores).has_value();
  return fmt::format("core{} {} (NUMA node{} {})", cores.size() == 1 ? "" : "s", list_text(std::move(cpus)),
                     one ? "" : "s", list_text(std::move(nodes)));
}

}  // namespace kasane::topo
