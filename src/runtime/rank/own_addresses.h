// SPDX-License-Identifier: Apache-2.0
// Private memory of a rank at addresses where other ranks have nothing, so that a pointer to it faults there
// and is reported (runtime/report/crash.h). Ranks are copies of one process: without this malloc would give
// the same addresses on each, and a load on another rank would find other bytes.
//
//   before    heap, by brk: the same addresses on all ranks; what is mapped: the highest free place, the same
//   after     no heap grows: libc maps what malloc needs; rank r finds the highest free place r steps lower,
//             below a reservation without access
//
// Invariant: what the library's constructors have allocated stays. Its addresses are the same on all ranks,
// and so are its bytes.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::runtime {

/// From now on the heap does not grow, and mmap gives addresses of this rank's own, as far as there are free
/// ones. To be called before the runtime starts threads, whose malloc maps arenas.
void take_own_addresses(Rank rank, std::uint32_t ranks) noexcept;
/// Takes what is free in the heap, so that malloc on the calling OS thread gives nothing of it. To be called
/// when the runtime is built.
void leave_common_heap(std::uint32_t ranks) noexcept;

}  // namespace kasane::runtime
