// SPDX-License-Identifier: Apache-2.0
// The disk under a spill directory, and the core on which the kernel completes its requests.
//
//   /sys/block/DISK/queue/rq_affinity   2: on the core that submitted the request (set by root). 1, the
//                                       default: on any that shares a cache with it, often that of the
//                                       disk's interrupt
//
// The completing core wakes the waiting thread, on or near itself: with 1, threads that read at random gather
// on the core that takes the disk's interrupts.
//
// Thread safety: plain functions over files.
#pragma once

#include <optional>
#include <string>

namespace kasane::mem {

struct SpillDisk {
  std::string setting;  ///< the file that sets where requests complete
  bool ends_where_asked;
};

/// Empty where no single disk of this host is known to hold the directory: memory, a network, several disks,
/// no such directory. The second argument is for tests.
[[nodiscard]] std::optional<SpillDisk> spill_disk(const std::string& directory,
                                                  const std::string& devices = "/sys/dev/block");

}  // namespace kasane::mem
