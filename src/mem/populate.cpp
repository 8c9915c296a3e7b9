// SPDX-License-Identifier: Apache-2.0
#include "mem/populate.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "mem/space.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kasane::mem {

void populate(std::byte* address, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(address) % kBlockBytes;
  const std::size_t whole = (before + bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  const int saved = errno;
  while (::madvise(address - before, whole, MADV_POPULATE_WRITE) != 0 && errno == EINTR) {
  }
  errno = saved;
}

}  // namespace kasane::mem
