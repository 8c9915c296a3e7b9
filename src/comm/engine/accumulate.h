// SPDX-License-Identifier: Apache-2.0
// y += a · x on memory that this rank maps, atomic with respect to all others that do so: ranks of the host
// that map y, and the owner on behalf of ranks that do not. The locks therefore lie in a region of y's owner
// (kLockRegion), one for each 4 KiB of a region, hashed. With a lock the loop uses vector instructions: 1 MiB
// takes less than a fifth of the time that a compare-swap for each element takes, and 8 bytes take the same
// time (docs/design/comm_engine.md).
//
// Thread safety: everything from any thread. A lock is held for at most 4 KiB of arithmetic, never across a
// call.
#pragma once

#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>

#include "comm/operations.h"

namespace kasane::comm {

inline constexpr std::size_t kStripeBytes = 4096;
inline constexpr std::size_t kStripes = 512;

/// A line of its own, so that neighbours do not share one. Zeroed memory is free.
struct alignas(64) StripeLock {
  std::atomic<std::uint32_t> held;
};

/// [y, y + bytes) of the region that has these locks, at offset there. x and y are aligned to their parts;
/// bytes is a multiple of element_bytes.
void accumulate(Element, std::complex<double> scale, std::byte* y, const std::byte* x, std::size_t bytes,
                StripeLock* locks, RegionId region, std::uint64_t offset) noexcept;
/// out = a · x, which the owner of y will add.
void scale_elements(Element, std::complex<double> scale, std::byte* out, const std::byte* x,
                    std::size_t bytes) noexcept;

}  // namespace kasane::comm
