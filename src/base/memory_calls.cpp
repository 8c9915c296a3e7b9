// SPDX-License-Identifier: Apache-2.0
// mmap and its like for Kasane's own code: the system calls themselves. A library of an MPI (UCX) patches
// libc's functions, before any of our code runs, by ones that take locks: a fault handler must not wait for a
// lock that the thread that it interrupts may hold. Hidden, so all other code goes on calling libc's. A
// sanitizer has its own.
//
// Thread safety: as the functions that are replaced; async-signal-safe.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

#include "base/raw_call.h"

namespace {

template <class... T>
long call(long number, T... arguments) noexcept {
  return kasane::as_libc(kasane::raw_call(number, arguments...));
}
long word(const void* p) noexcept { return reinterpret_cast<long>(p); }

}  // namespace

#define KASANE_OWN extern "C" [[gnu::visibility("hidden")]]

KASANE_OWN void* mmap(void* at, std::size_t bytes, int access, int flags, int fd, off_t offset) noexcept {
  return reinterpret_cast<void*>(
      call(SYS_mmap, word(at), static_cast<long>(bytes), access, flags, fd, offset));
}
KASANE_OWN int munmap(void* at, std::size_t bytes) noexcept {
  return static_cast<int>(call(SYS_munmap, word(at), static_cast<long>(bytes)));
}
KASANE_OWN int madvise(void* at, std::size_t bytes, int advice) noexcept {
  return static_cast<int>(call(SYS_madvise, word(at), static_cast<long>(bytes), advice));
}
KASANE_OWN void* mremap(void* at, std::size_t before, std::size_t after, int flags, ...) noexcept {
  std::va_list rest;
  va_start(rest, flags);
  void* const to = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  return reinterpret_cast<void*>(
      call(SYS_mremap, word(at), static_cast<long>(before), static_cast<long>(after), flags, word(to)));
}

#undef KASANE_OWN

#endif
