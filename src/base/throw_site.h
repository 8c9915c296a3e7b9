// SPDX-License-Identifier: Apache-2.0
// Where an exception was thrown that leaves its thread: the thread's frames are gone when somebody finds that
// nobody catches it. Lies before the header of the exception (runtime/language/global_new.cpp); noted when
// the search for a handler comes to the thread's first frame (ult/leaves_thread.h); read by the report of an
// abort. Thread safety: as the exception.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane {

struct ThrowSite {
  static constexpr std::uint64_t kMagic = 0x6b6173616e654574;
  static constexpr std::size_t kMost = 22;
  std::uint64_t magic, count;  ///< 0: not noted
  std::uintptr_t frames[kMost];
};
inline constexpr std::size_t kExceptionHeader = 128;  ///< before the object (__cxa_refcounted_exception)

/// Of a thrown object that global_new.cpp has made room for, as magic says.
inline ThrowSite* throw_site_of(void* thrown) noexcept {
  return reinterpret_cast<ThrowSite*>(static_cast<char*>(thrown) - kExceptionHeader - sizeof(ThrowSite));
}

}  // namespace kasane
