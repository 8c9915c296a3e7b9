// SPDX-License-Identifier: Apache-2.0
// Global memory as programs ask for it: kasane_malloc and its kin, operator new, the malloc library. With --check heap each allocation has a record in front
// (size, call site) and a mark behind, which the caller's thread writes and checks by ordinary stores and loads (docs/design/heap.md, "Heap check").
//
// Thread safety: every call from any thread, outside the runtime's own sections: records lie in V, and touching them may fault.
// Errors: Result, or for misuse the end of the program with address, size and call site.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "runtime/runtime.h"

namespace kasane::runtime {

/// site: the return address of the program's call.
Result<void*> program_allocate(Runtime&, std::size_t bytes, std::size_t align, Placement, const void* site);
void program_free(Runtime&, void*, const void* site);
/// The same rank's memory where it has to move.
Result<void*> program_reallocate(Runtime&, void*, std::size_t bytes, const void* site);
std::size_t program_usable_size(Runtime&, const void*);

// ---- for the report at the end ----

inline constexpr std::size_t kRecordBytes = 32;
struct AllocationRecord {
  std::uint64_t bytes = 0;
  const void* site = nullptr;
};
/// Where in an allocation of the heap the record lies, by its first 16 bytes.
std::uint64_t record_offset(std::uint64_t block_address, const void* first_16_bytes) noexcept;
/// The record that was read there, from `address`; empty if it is none.
std::optional<AllocationRecord> record_of(std::uint64_t address, const void* record_bytes) noexcept;
/// "function (program+0x123)", as far as is known.
std::string site_text(const void* site);

}  // namespace kasane::runtime
