// SPDX-License-Identifier: Apache-2.0
// The limits of control groups for this process. A container with "half a core" still has every core in its
// affinity mask.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kasane::topo {

/// Processor time that the process may use, in cores: the least quota on the path from its group to the root,
/// or nothing where there is none (or no control groups). Versions 1 and 2. The arguments are for tests.
std::optional<double> cpu_quota(const std::string& groups_file = "/proc/self/cgroup",
                                const std::string& mount = "/sys/fs/cgroup");

/// Bytes of memory that the process may use: the least limit on that path, or nothing. Of version 2 also
/// memory.high, from which the process is slowed down.
std::optional<std::uint64_t> memory_limit(const std::string& groups_file = "/proc/self/cgroup",
                                          const std::string& mount = "/sys/fs/cgroup");

/// Bytes that the process can still take at this moment (the kernel gives up files that are not in use): the
/// least of the groups on that path, or nothing where none is limited.
std::optional<std::uint64_t> memory_room(const std::string& groups_file = "/proc/self/cgroup",
                                         const std::string& mount = "/sys/fs/cgroup");

/// Processes and threads of a control group that limits them.
struct GroupProcesses {
  std::uint64_t most = 0, taken = 0;
  std::string file;  ///< the file that has the limit
  [[nodiscard]] std::uint64_t room() const noexcept { return most > taken ? most - taken : 0; }
  friend bool operator<(const GroupProcesses& a, const GroupProcesses& b) noexcept {
    return a.room() < b.room();
  }
};
/// The group on that path with the least room for further processes and threads, or nothing where none is
/// limited.
std::optional<GroupProcesses> process_limit(const std::string& groups_file = "/proc/self/cgroup",
                                            const std::string& mount = "/sys/fs/cgroup");

}  // namespace kasane::topo
