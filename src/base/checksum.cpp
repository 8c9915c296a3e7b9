// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#define XXH_INLINE_ALL  // no further library, which all ranks would have to load alike (rule 14)
#include <xxhash.h>

namespace kasane {

std::uint64_t checksum(const void* bytes, std::size_t count, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes, count, seed);
}

}  // namespace kasane
