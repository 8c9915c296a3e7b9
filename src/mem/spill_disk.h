// SPDX-License-Identifier: Apache-2.0
// The disk under a spill directory, and on which core the kernel ends its requests.
//
//   /sys/block/DISK/queue/rq_affinity    2: on that one which asked (Linux; by root; the kernel's default, 1, is any that shares a cache with it: that of the disk's interrupt, often)
//
// Who waits for a read is woken by who ends it, and near him: with 1, threads that read at random gather on the core that takes the disk's interrupts.
//
// Thread safety: plain functions over files.
#pragma once

#include <optional>
#include <string>

namespace kasane::mem {

struct SpillDisk {
  std::string setting;      ///< the file that says where its requests end
  bool ends_where_asked;
};

/// None where no disk of this host is known to be there: memory, a network, several disks, no such directory. The second argument is for tests.
[[nodiscard]] std::optional<SpillDisk> spill_disk(const std::string& directory, const std::string& devices = "/sys/dev/block");

}  // namespace kasane::mem
