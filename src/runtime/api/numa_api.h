// SPDX-License-Identifier: Apache-2.0
// What programs ask for by placements that name NUMA nodes (kasane/numa.h).
// Thread safety: every call from any thread that runs the program's code.
#pragma once

#include <kasane/kasane.h>
#include <cstddef>
#include <cstdint>

#include "runtime/rank/numa_memory.h"
#include "runtime/rank/runtime.h"

namespace kasane::runtime {

/// Kind none: the placement names no nodes.
[[nodiscard]] NumaRequest numa_request_of(kasane_placement_t, std::uint64_t argument) noexcept;

/// Touches each OS page of new memory, and asks the kernel where it lies. Errc::out_of_memory: some lie
/// elsewhere.
Result<void> check_on_nodes(Runtime&, void* p, std::size_t bytes, const topo::NodeSet&);

}  // namespace kasane::runtime
