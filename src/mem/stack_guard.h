// SPDX-License-Identifier: Apache-2.0
// The inaccessible page below a stack slot (rule 12).
//
// A guard of its own VMA splits the map of the stacks; 32 753 of them and mprotect fails for the whole process. So: MADV_GUARD_INSTALL, which
// marks the page table entry and makes no VMA (shared memory files: Linux ≥ 6.15). A marked page faults whatever the rights of its map are, and stays
// marked through mprotect and MADV_DONTNEED; but an engine that shuts out by markers itself (mem/uffd_engine.cpp) takes it away when it gives rights again.
//
// Fallback: mprotect(PROT_NONE) of the page for the first kFallbackGuards guards of this process (two VMAs each, so a quarter of the default
// limit), none beyond. Such a guard is undone by a protect() over the page: leave the guard block out of the run, as one does where the engine never
// arms it anyway (V starts without access, so the page below an armed slot is a guard by itself, at the price of one split).
//
// Thread safety: any thread. The number of fallback guards is kept per process, as the kernel keeps its number of VMAs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::mem {

inline constexpr std::uint32_t kFallbackGuards = 8192;

/// Whether the kernel has guard markers for shared memory files; probed once, on a page of its own.
[[nodiscard]] bool guards_available() noexcept;

/// Makes every access to the OS page fault, whose bytes are given up as far as this view goes. False: no guard there (beyond the fallback's bound, or out
/// of memory); an overflow then runs into whatever lies below. A fault there reaches the range's handler like any other: it must
/// answer false for guard blocks, since no access right will cure it.
[[nodiscard]] bool install_guard(std::byte* page) noexcept;

}  // namespace kasane::mem
