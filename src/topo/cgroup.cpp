// SPDX-License-Identifier: Apache-2.0
#include "topo/cgroup.h"

#include <algorithm>
#include <fstream>

namespace kasane::topo {
namespace {

using Quota = std::optional<double>;

// Version 2: "max 100000" or "50000 100000", microseconds of time in a period.
Quota read_cpu_max(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double time = 0, period = 0;
  if (!(file >> time >> period) || period <= 0) return {};  // "max" is no number
  return time / period;
}

// Version 1: two files, -1 for no quota.
Quota read_cfs_quota(const std::string& folder) {
  std::ifstream time_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double time = 0, period = 0;
  if (!(time_file >> time) || !(period_file >> period) || time <= 0 || period <= 0) return {};
  return time / period;
}

Quota least(Quota a, Quota b) { return !a ? b : !b ? a : std::min(*a, *b); }

// The group's own quota and those of the groups that contain it. Inside a container the path may name folders that are not
// mounted; the mount is then the container's own group.
Quota least_upwards(const std::string& mount, std::string group, Quota (*read)(const std::string&)) {
  Quota quota = read(mount);
  while (!group.empty() && group != "/") {
    quota = least(quota, read(mount + group));
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  return quota;
}

bool lists_cpu(const std::string& controllers) { return ("," + controllers + ",").find(",cpu,") != std::string::npos; }

}  // namespace

std::optional<double> cpu_quota(const std::string& groups_file, const std::string& mount) {
  std::ifstream groups(groups_file);
  Quota quota;
  // A line is "id:controllers:path"; version 2 has id 0 and no controllers.
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty())
      quota = least(quota, least_upwards(mount, path, read_cpu_max));
    else if (lists_cpu(controllers))
      quota = least(quota, least_upwards(mount + "/cpu", path, read_cfs_quota));
  }
  return quota;
}

}  // namespace kasane::topo
