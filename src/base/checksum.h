// SPDX-License-Identifier: Apache-2.0
// XXH3 of xxHash, 64 bits: whether bytes are what they were. No protection from who wants to deceive, unless he does not know the seed.
// Thread safety: a pure function; allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane {

[[nodiscard]] std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t seed = 0) noexcept;

}  // namespace kasane
