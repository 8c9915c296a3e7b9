// SPDX-License-Identifier: Apache-2.0
// Populates memory ahead of its first touch: a fresh page of a memory file costs microseconds, in batches a
// fraction of that.
//
// Thread safety: any thread, also together with accesses; no state.
#pragma once

#include <cstddef>

namespace kasane::mem {

/// Gives every OS page of [address, address+bytes) a frame and a writable translation in this view, without
/// changing any byte. Best effort: where the range does not allow stores (V not armed for writing), the
/// kernel is older than 5.14, or memory is short, the rest comes at its first touch. The ends are extended to
/// whole OS pages.
void populate(std::byte* address, std::size_t bytes) noexcept;

}  // namespace kasane::mem
