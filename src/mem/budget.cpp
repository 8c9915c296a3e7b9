// SPDX-License-Identifier: Apache-2.0
#include "mem/budget.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/options.h"
#include "topo/cgroup.h"

namespace kasane::mem {

Result<std::uint64_t> budget_blocks(std::uint64_t asked_bytes, std::uint32_t ranks, std::uint64_t least_bytes) {
  std::uint64_t bytes = asked_bytes;
  if (bytes == 0) {
    const std::uint64_t machine = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    bytes = std::min(machine, topo::memory_limit().value_or(machine)) / 4 * 3;
  }
  const std::uint64_t block_bytes = kBlockBytes, least = (least_bytes + block_bytes - 1) / block_bytes * block_bytes * ranks;
  if (bytes < least) {
    const char* const whence = asked_bytes == 0 ? "; the default is 3/4 of what the machine or the control group allows" : "";
    return fail(Errc::invalid_argument,
                fmt::format("{} of DRAM are too few for {} ranks of this host, each of which pins {}: {} are needed (--dram, KASANE_DRAM{})",
                            bytes_text(bytes), ranks, bytes_text(least_bytes), bytes_text(least), whence));
  }
  return bytes / kBlockBytes;
}

}  // namespace kasane::mem
