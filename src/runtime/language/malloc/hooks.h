// SPDX-License-Identifier: Apache-2.0
// The interface between libkasane_malloc.so (LD_PRELOAD) and the runtime, which is linked into the program:
// the runtime finds the library's one exported function by name and passes it this table. Plain C types,
// since the two are built apart.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::runtime {

struct MallocHooks {
  std::uintptr_t base, bytes;  ///< the space
  /// whether the caller runs user code on a user-level thread
  bool (*user_code)();
  bool (*code_of_program)(const void* code);  ///< also of a library of the system's
  void* (*allocate)(std::size_t bytes, std::size_t align, const void* site);  ///< null: no memory
  void (*release)(void*, const void* site);
  void* (*reallocate)(void*, std::size_t bytes, const void* site);
  std::size_t (*usable_size)(const void*);
};

/// Of the library's function kasane_malloc_attach; null removes the hooks.
using AttachMalloc = void (*)(const MallocHooks*);
inline constexpr const char* kAttachMallocName = "kasane_malloc_attach";
inline constexpr const char* kMallocLibrary = "libkasane_malloc.so";

}  // namespace kasane::runtime
