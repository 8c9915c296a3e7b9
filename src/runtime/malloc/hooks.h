// SPDX-License-Identifier: Apache-2.0
// Between libkasane_malloc.so (LD_PRELOAD) and the runtime, which is linked into the program: the runtime finds the library's one exported function by
// name and gives it this table. Plain C types: the two are built by themselves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::runtime {

struct MallocHooks {
  std::uintptr_t base, bytes;                                     ///< the space
  bool (*user_code)();                                            ///< does the caller run user code on a user-level thread?
  void* (*allocate)(std::size_t bytes, std::size_t align, const void* site);   ///< null: no memory
  void (*release)(void*, const void* site);
  void* (*reallocate)(void*, std::size_t bytes, const void* site);
  std::size_t (*usable_size)(const void*);
};

/// Its signature; null takes the hooks away.
using AttachMalloc = void (*)(const MallocHooks*);
inline constexpr const char* kAttachMallocName = "kasane_malloc_attach";
inline constexpr const char* kMallocLibrary = "libkasane_malloc.so";

}  // namespace kasane::runtime
