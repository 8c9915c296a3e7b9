// SPDX-License-Identifier: Apache-2.0
// madvise(2), with the advice that the headers of Debian 12 may lack.
// Thread safety: any thread; async-signal-safe.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18: also where the program has locked its memory
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102  // Linux 6.15 for memory files
#define MADV_GUARD_REMOVE 103
#endif

namespace kasane::mem {

/// Repeats the call where the kernel was interrupted or asks for it. Returns 0, or the errno with which the
/// kernel refuses. Keeps errno.
inline int try_advise(std::byte* address, std::size_t bytes, int advice) noexcept {
  const int saved = errno;
  int result;
  while ((result = ::madvise(address, bytes, advice) == 0 ? 0 : errno) == EINTR || result == EAGAIN) {
  }
  errno = saved;
  return result;
}
/// The same. False: the kernel refuses.
inline bool advise(std::byte* address, std::size_t bytes, int advice) noexcept {
  return try_advise(address, bytes, advice) == 0;
}

}  // namespace kasane::mem
