// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#define XXH_INLINE_ALL   // no other object to load, which ranks would have to have in common (rule 14)
#include <xxhash.h>

namespace kasane {

std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t seed) noexcept { return XXH3_64bits_withSeed(bytes, count, seed); }

}  // namespace kasane
