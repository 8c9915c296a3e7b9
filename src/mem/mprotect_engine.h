// SPDX-License-Identifier: Apache-2.0
// The fault engine for any kernel: SIGSEGV in place, mprotect on V.
//
// Every change of access rights inside a run splits a mapping. The engine bounds the number of mappings
// (mem/mappings.h): a caller that obeys crowded() never meets the kernel's limit.
//
// Thread safety: protect() and crowded() from any thread and in fault handlers; start() and stop() from one.
#pragma once

#include <cstdint>
#include <memory>

#include "mem/fault_engine.h"

namespace kasane::mem {

/// The engine of this space, whose maps must outlive it. mapping_limit: from this number of mappings on the
/// process is crowded; 0: half of vm.max_map_count. Threads that touch V need an alternate signal stack
/// (traps::AltStack).
std::unique_ptr<FaultEngine> make_mprotect_engine(const Space& space, std::uint64_t mapping_limit = 0);

}  // namespace kasane::mem
