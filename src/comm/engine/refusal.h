// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of operations before anything is sent, and records for explain_refusal() what was
// wrong: as plain numbers, since a refusal must not allocate; explain_refusal() makes the text. Thread
// safety: the record is thread-local.
#pragma once

#include <cstdint>
#include <string>

#include "comm/operations.h"

namespace kasane::comm {

/// The facts that the checks need.
struct Bounds {
  std::uint32_t ranks;
  /// Bytes of a region (the same on all ranks), 0: not attached.
  std::uint64_t (*region_bytes)(const void* engine, RegionId) noexcept;
  const void* engine;
};

/// Each returns whether the arguments are valid; if not it has recorded why.
[[nodiscard]] bool valid_rank(const Bounds&, Rank) noexcept;
[[nodiscard]] bool valid_range(const Bounds&, RemoteAddr, std::uint64_t bytes) noexcept;
[[nodiscard]] bool valid_range(const Bounds&, LocalAddr, std::uint64_t bytes) noexcept;
[[nodiscard]] bool valid_alignment(std::uint64_t offset, std::uint64_t alignment) noexcept;
/// Sets the bytes that a patch spans on either side, from its first to its last.
[[nodiscard]] bool valid_shape(const Strides&, std::uint64_t* remote_span,
                               std::uint64_t* local_span) noexcept;
[[nodiscard]] bool valid_message(const Bounds&, Rank, HandlerId, std::uint64_t bytes,
                                 std::uint64_t most) noexcept;
/// Accumulate: rows and strides in whole parts, both ends aligned; an integer's scale within 64 bits.
[[nodiscard]] bool valid_elements(const AccumulateParams&) noexcept;

[[nodiscard]] const std::string& refusal_text() noexcept;

}  // namespace kasane::comm
