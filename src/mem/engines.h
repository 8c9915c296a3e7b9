// SPDX-License-Identifier: Apache-2.0
// Which fault engines there are, why one cannot be had here, and the one that a job uses (--faults, KASANE_FAULTS).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "mem/fault_engine.h"

namespace kasane::mem {

struct EngineInfo {
  std::string_view name;
  bool available;
  std::string reason;   ///< one line: how it works, or what is missing
};

/// All engines for programs with real pointers, in the order in which auto would take them, then the one that it never takes. Probes the kernel; not for fault handlers.
[[nodiscard]] std::vector<EngineInfo> engines();

/// What may be asked for: "auto", then the engines' names.
[[nodiscard]] std::vector<std::string> engine_choices();

/// Which of them a job would take that asks for `name`: "auto" takes the first that can be had, but never uffd-thread. Errc::unsupported says what the kernel lacks for the
/// one that was asked for. Probes the kernel, as engines() does.
Result<std::string_view> engine_for(std::string_view name);

/// The engine of this space, whose maps must outlive it, by its name, as engine_for() says.
Result<std::unique_ptr<FaultEngine>> make_fault_engine(const Space& space, std::string_view name);

}  // namespace kasane::mem
