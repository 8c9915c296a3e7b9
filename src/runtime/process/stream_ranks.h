// SPDX-License-Identifier: Apache-2.0
// Which rank a stream (FILE*, DIR*) belongs to: its address says so, as a descriptor's number says whose the
// descriptor is (runtime/rank/descriptors.h). libc keeps the object in its rank's private heap, where another
// rank's object may have the same address. So a rank opens streams until one has an address of its own.
//
// Thread safety: constant.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace kasane::runtime {

/// Of a job of `ranks`. Any allocator's addresses are spread evenly over the ranks.
[[nodiscard]] constexpr Rank rank_of_stream(std::uint64_t address, std::uint32_t ranks) noexcept {
  const std::uint64_t mixed = (address >> 4) * 0x9E3779B97F4A7C15u >> 32;
  return Rank{static_cast<std::uint32_t>(mixed * ranks >> 32)};
}

}  // namespace kasane::runtime
