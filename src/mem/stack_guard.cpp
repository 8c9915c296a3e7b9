// SPDX-License-Identifier: Apache-2.0
#include "mem/stack_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "base/assert.h"
#include "base/memory_file.h"
#include "mem/madvise.h"
#include "mem/space.h"

namespace kasane::mem {
namespace {

// The VMAs that guards of the fallback have used; a resource of the process, like its signal actions.
constinit std::atomic<std::uint32_t> fallback_guards{0};

bool mark(std::byte* page) { return advise(page, kBlockBytes, MADV_GUARD_INSTALL); }

bool probe() {
  const int fd = memory_file("kasane-probe", kBlockBytes).value_or(-1);
  if (fd < 0) return false;
  bool marked = false;
  void* page = ::mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) {
    marked = mark(static_cast<std::byte*>(page));
    ::munmap(page, kBlockBytes);
  }
  ::close(fd);
  return marked;
}

}  // namespace

bool guards_available() noexcept {
  static const bool available = probe();
  return available;
}

bool install_guard(std::byte* page) noexcept {
  KASANE_CHECK(reinterpret_cast<std::uintptr_t>(page) % kBlockBytes == 0);
  if (guards_available()) return mark(page);
  // relaxed: a number; it orders nothing.
  if (fallback_guards.fetch_add(1, std::memory_order_relaxed) >= kFallbackGuards) {
    fallback_guards.fetch_sub(1, std::memory_order_relaxed);  // so that it can never wrap
    return false;
  }
  return ::mprotect(page, kBlockBytes, PROT_NONE) == 0;
}

}  // namespace kasane::mem
