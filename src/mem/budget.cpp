// SPDX-License-Identifier: Apache-2.0
#include "mem/budget.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/options.h"
#include "topo/cgroup.h"

namespace kasane::mem {

std::uint64_t machine_memory() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t default_budget(std::uint64_t machine, std::optional<std::uint64_t> group,
                             std::uint32_t ranks) noexcept {
  if (!group || *group >= machine) return machine / 4 * 3;
  return std::min(*group / 4 * 3, *group - std::min(*group, ranks * kSlackBytes));
}

Result<std::uint64_t> budget_blocks(std::uint64_t asked_bytes, std::uint32_t ranks,
                                    std::uint64_t least_bytes) {
  const std::uint64_t bytes =
      asked_bytes != 0 ? asked_bytes : default_budget(machine_memory(), topo::memory_limit(), ranks);
  const std::uint64_t block_bytes = kBlockBytes,
                      least = (least_bytes + block_bytes - 1) / block_bytes * block_bytes * ranks;
  if (bytes < least) {
    const char* const whence = asked_bytes == 0 ? "; the default is 3/4 of what the machine or the control "
                                                  "group allows, and leaves each rank 12 MiB of a group's"
                                                : "";
    return fail(Errc::invalid_argument,
                fmt::format("{} of DRAM are too few for {} ranks of this host, each of which pins {}: {} are "
                            "needed (--dram, KASANE_DRAM{})",
                            bytes_text(bytes), ranks, bytes_text(least_bytes), bytes_text(least), whence));
  }
  return bytes / kBlockBytes;
}

}  // namespace kasane::mem
