// SPDX-License-Identifier: Apache-2.0
// Which fault engines there are, and why one cannot be had here: for `kasane info` and for messages about KASANE_FAULTS.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kasane::mem {

struct EngineInfo {
  std::string_view name;
  bool available;
  std::string reason;   ///< one line: what it needs, or what is missing
};

/// All engines for programs with real pointers, the preferred one first. Probes the kernel; not for fault handlers.
[[nodiscard]] std::vector<EngineInfo> engines();

}  // namespace kasane::mem
