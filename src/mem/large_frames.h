// SPDX-License-Identifier: Apache-2.0
// Frames that are larger than an OS page. Where the administrator allows them for shared memory, 16 OS pages
// are made, mapped and punched as one, at a quarter of the cost.
//
//   /sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled   advise
//
// (Linux ≥ 6.10; set by root; the kernel's default is never.)
//
// Thread safety: plain functions over system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kasane::mem {

/// The largest of the sizes that a mapping gets if it asks for them, or 0. The argument is for tests.
[[nodiscard]] std::uint64_t large_frame_bytes(
    const std::string& folder = "/sys/kernel/mm/transparent_hugepage");

/// Asks for large frames in [address, address + bytes), which maps pages of page_bytes each of a memory file
/// from `offset` on; not where a frame could be larger than a page, as punching a page would then leave
/// memory in use. Best effort.
void ask_for_large_frames(std::byte* address, std::uint64_t offset, std::uint64_t bytes,
                          std::uint64_t page_bytes, std::uint64_t frame_bytes) noexcept;

}  // namespace kasane::mem
