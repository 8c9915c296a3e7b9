// SPDX-License-Identifier: Apache-2.0
// The inaccessible page below a stack slot (rule 12).
//
// A guard that is a VMA splits the mapping of the stacks: after 32 753 of them mprotect fails for the whole
// process. So guards are markers in the page table (MADV_GUARD_INSTALL), which make no VMA (shared memory
// files: Linux ≥ 6.15). A marked page faults whatever the rights of its mapping, and stays marked through
// mprotect and MADV_DONTNEED. But an engine that itself shuts blocks out by markers (mem/uffd_engine.cpp)
// removes the guard when it gives rights again.
//
// Fallback: mprotect(PROT_NONE) of the page for the first kFallbackGuards guards of this process (two VMAs
// each, so a quarter of the default limit), none beyond. A protect() over the page undoes such a guard: leave
// the guard block out of the run. Where the engine never arms the block, it is a guard anyway: V starts
// without access, so the page below an armed slot is inaccessible, at the price of one split.
//
// Thread safety: any thread. The number of fallback guards is kept for the process, as the kernel's number of
// VMAs is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::mem {

inline constexpr std::uint32_t kFallbackGuards = 8192;

/// Does the kernel have guard markers for shared memory files? Probed once, on a page of its own.
[[nodiscard]] bool guards_available() noexcept;

/// Makes every access to the OS page fault; its bytes are lost to this view. False: there is no guard (beyond
/// the fallback's bound, or out of memory), and an overflow runs into what lies below. A fault there reaches
/// the range's handler like any other; the handler must answer false for guard blocks, since no access right
/// cures it.
[[nodiscard]] bool install_guard(std::byte* page) noexcept;

}  // namespace kasane::mem
