// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/job_status.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace kasane::diagnostics {

void RankStatus::append(std::string_view more) noexcept {
  // relaxed: one writer; the supervisor reads after waitpid(), which orders it.
  const std::uint32_t used = report_bytes.load(std::memory_order_relaxed);
  const std::size_t taken = std::min(more.size(), sizeof report - used);
  std::memcpy(report + used, more.data(), taken);
  // release: after a crash inside the crash report the length must not cover bytes that were not stored.
  report_bytes.store(used + static_cast<std::uint32_t>(taken), std::memory_order_release);
}

std::string_view RankStatus::text() const noexcept {
  // acquire: pairs with append()
  return {report, std::min<std::size_t>(report_bytes.load(std::memory_order_acquire), sizeof report)};
}

Result<JobStatus> JobStatus::create(std::uint32_t ranks) {
  const std::size_t bytes = ranks * (sizeof(RankStatus) + sizeof(ThreadReport));
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return fail_errno(Errc::out_of_memory, "mapping " + std::to_string(bytes) + " bytes for the status of " +
                                               std::to_string(ranks) + " ranks");
  }
  auto* const status = static_cast<RankStatus*>(memory);
  return JobStatus(status, reinterpret_cast<ThreadReport*>(status + ranks));
}

}  // namespace kasane::diagnostics
