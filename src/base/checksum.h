// SPDX-License-Identifier: Apache-2.0
// XXH3 of xxHash, 64 bits: tells whether bytes have changed. No protection against intent, unless the seed is
// secret.
// Thread safety: a pure function; allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane {

[[nodiscard]] std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t seed = 0) noexcept;

}  // namespace kasane
