// SPDX-License-Identifier: Apache-2.0
// Allocations of global memory by programs: kasane_malloc and its variants, operator new, the malloc library.
// With --check heap each allocation has a record in front (size, call site) and a mark behind, which the
// caller's thread writes and checks by ordinary stores and loads (docs/design/heap.md, "Heap check").
//
// Thread safety: every call from any thread, outside the runtime's own sections: records lie in V, and
// touching them may fault.
// Errors: Result. Misuse ends the program with a message that has address, size and call site.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "runtime/rank/runtime.h"

namespace kasane::runtime {

/// site: the return address of the program's call.
Result<void*> program_allocate(Runtime&, std::size_t bytes, std::size_t align, Placement, const void* site,
                               InitialBytes = InitialBytes::unspecified);
void program_free(Runtime&, void*, const void* site);
/// Where the allocation has to move, its new memory is of the same rank.
Result<void*> program_reallocate(Runtime&, void*, std::size_t bytes, const void* site);
std::size_t program_usable_size(Runtime&, const void*);

// ---- for the report at the end ----

inline constexpr std::size_t kRecordBytes = 32;
struct AllocationRecord {
  std::uint64_t bytes = 0;
  const void* site = nullptr;
};
/// The offset of the record in an allocation of the heap, from the allocation's first 16 bytes.
std::uint64_t record_offset(std::uint64_t block_address, const void* first_16_bytes) noexcept;
/// The record in the bytes that were read from `address`; empty if they are none.
std::optional<AllocationRecord> record_of(std::uint64_t address, const void* record_bytes) noexcept;
/// "function (program+0x123)", as far as is known.
std::string site_text(const void* site);

}  // namespace kasane::runtime
