// SPDX-License-Identifier: Apache-2.0
// The fault engines: which there are, why one is not available here, and the one that a job uses (--faults,
// KASANE_FAULTS).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "mem/fault_engine.h"

namespace kasane::mem {

/// What a user may want to know of a fault engine or a spill engine (mem/spill_engine.h).
struct EngineInfo {
  std::string_view name;
  bool available;
  std::string reason;  ///< one line: how it works, or what is missing
};

/// All engines for programs with real pointers, in the order in which auto takes them; the last is never
/// taken by auto. Probes the kernel; not for fault handlers.
[[nodiscard]] std::vector<EngineInfo> engines();

/// What a user may ask for: "auto", then the engines' names.
[[nodiscard]] std::vector<std::string> engine_choices();

/// The engine that a job takes which asks for `name`: "auto" takes the first available one, and uffd-thread
/// only where system calls cannot be caught (traps/caught_calls.h). Errc::unsupported says what the kernel
/// lacks for the engine asked for. Probes the kernel, as engines() does.
Result<std::string_view> engine_for(std::string_view name);

/// The engine of this space, whose maps must outlive it, by a name as in engine_for().
Result<std::unique_ptr<FaultEngine>> make_fault_engine(const Space& space, std::string_view name);

}  // namespace kasane::mem
