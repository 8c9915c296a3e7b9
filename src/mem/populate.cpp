// SPDX-License-Identifier: Apache-2.0
#include "mem/populate.h"

#include <cstdint>

#include "mem/madvise.h"
#include "mem/space.h"

namespace kasane::mem {

void populate(std::byte* address, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(address) % kBlockBytes;
  const std::size_t whole = (before + bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  advise(address - before, whole, MADV_POPULATE_WRITE);
}

}  // namespace kasane::mem
