// SPDX-License-Identifier: Apache-2.0
#include "topo/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace kasane::topo {
namespace {

// Version 2: "max 100000" or "50000 100000", microseconds of time in a period.
std::optional<double> read_cpu_max(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double time = 0, period = 0;
  if (!(file >> time >> period) || period <= 0) return {};  // "max" is no number
  return time / period;
}

// Version 1: two files, -1 for no quota.
std::optional<double> read_cfs_quota(const std::string& folder) {
  std::ifstream time_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double time = 0, period = 0;
  if (!(time_file >> time) || !(period_file >> period) || time <= 0 || period <= 0) return {};
  return time / period;
}

template <class T>
std::optional<T> least(std::optional<T> a, std::optional<T> b) {
  return !a ? b : !b ? a : std::min(*a, *b);
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return {};  // "max" is no number
  return number;
}

// Version 2.
std::optional<std::uint64_t> read_memory_max(const std::string& folder) {
  return least(read_number(folder + "/memory.max"), read_number(folder + "/memory.high"));
}

// Version 1: without a limit it says the largest number of pages there can be.
std::optional<std::uint64_t> read_memory_limit(const std::string& folder) {
  const auto bytes = read_number(folder + "/memory.limit_in_bytes");
  return bytes && *bytes < std::uint64_t{1} << 62 ? bytes : std::nullopt;
}

// What the kernel takes back first, files that are not in use, counts as room.
std::optional<std::uint64_t> read_memory_room(const std::string& folder, std::optional<std::uint64_t> limit,
                                              const char* used_file, std::string_view unused_files) {
  const auto used = read_number(folder + used_file);
  if (!limit || !used) return {};
  std::uint64_t unused = 0, number = 0;
  std::ifstream file(folder + "/memory.stat");
  for (std::string name; file >> name >> number;)
    if (name == unused_files) unused = number;
  const std::uint64_t taken = *used - std::min(*used, unused);
  return *limit - std::min(*limit, taken);
}
std::optional<std::uint64_t> read_memory_room_two(const std::string& folder) {
  return read_memory_room(folder, read_memory_max(folder), "/memory.current", "inactive_file");
}
std::optional<std::uint64_t> read_memory_room_one(const std::string& folder) {
  return read_memory_room(folder, read_memory_limit(folder), "/memory.usage_in_bytes", "total_inactive_file");
}

// Both versions. "max" is no number.
std::optional<GroupProcesses> read_pids(const std::string& folder) {
  const std::string limit = folder + "/pids.max";
  const auto most = read_number(limit), taken = read_number(folder + "/pids.current");
  if (!most || !taken) return {};
  return GroupProcesses{*most, *taken, limit};
}

// The least value of the group and of those that contain it. Inside a container the path may name folders
// that are not mounted; the mount is then the container's own group.
template <class T>
std::optional<T> least_upwards(const std::string& mount, std::string group,
                               std::optional<T> (*read)(const std::string&)) {
  std::optional<T> value = read(mount);
  while (!group.empty() && group != "/") {
    value = least(value, read(mount + group));
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  return value;
}

// The least value over the groups of a controller: by read_two in version 2, by read_one below its own mount
// in version 1.
template <class T>
std::optional<T> least_of(const std::string& controller, const std::string& groups_file,
                          const std::string& mount, std::optional<T> (*read_two)(const std::string&),
                          std::optional<T> (*read_one)(const std::string&)) {
  std::ifstream groups(groups_file);
  std::optional<T> value;
  // A line is "id:controllers:path"; version 2 has id 0 and no controllers.
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty())
      value = least(value, least_upwards(mount, path, read_two));
    else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos)
      value = least(value, least_upwards(mount + "/" + controller, path, read_one));
  }
  return value;
}

}  // namespace

std::optional<double> cpu_quota(const std::string& groups_file, const std::string& mount) {
  return least_of("cpu", groups_file, mount, read_cpu_max, read_cfs_quota);
}

std::optional<std::uint64_t> memory_limit(const std::string& groups_file, const std::string& mount) {
  return least_of("memory", groups_file, mount, read_memory_max, read_memory_limit);
}

std::optional<std::uint64_t> memory_room(const std::string& groups_file, const std::string& mount) {
  return least_of("memory", groups_file, mount, read_memory_room_two, read_memory_room_one);
}

std::optional<GroupProcesses> process_limit(const std::string& groups_file, const std::string& mount) {
  return least_of("pids", groups_file, mount, read_pids, read_pids);
}

}  // namespace kasane::topo
