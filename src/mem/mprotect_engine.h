// SPDX-License-Identifier: Apache-2.0
// The fault engine that works on any kernel: SIGSEGV in place, mprotect on V.
//
// Every change of access rights inside a run splits a mapping (VMA), and the kernel allows vm.max_map_count of them in a process; beyond
// that mprotect fails. The engine bounds them from outside: a run adds two boundaries at most, so a count of those is an upper bound that costs one
// atomic; only where it reaches the limit /proc/self/maps is read for the true number (mappings merge again unseen).
//
// Thread safety: protect() and crowded() from any thread and in fault handlers; start() and stop() from one.
#pragma once

#include <cstdint>
#include <memory>

#include "mem/fault_engine.h"

namespace kasane::mem {

/// The engine of this space; the space's maps must outlive it. mapping_limit: how many mappings of the process count as crowded; 0: half of
/// vm.max_map_count. Threads that touch V need an alternate signal stack (AltStack).
std::unique_ptr<FaultEngine> make_mprotect_engine(const Space& space, std::uint64_t mapping_limit = 0);

/// The mappings of this process right now, by reading /proc/self/maps; ~0 where that cannot be read. Async-signal-safe; takes
/// about a µs a mapping.
[[nodiscard]] std::uint64_t count_mappings() noexcept;

}  // namespace kasane::mem
