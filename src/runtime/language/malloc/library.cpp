// SPDX-License-Identifier: Apache-2.0
// libkasane_malloc.so: malloc and the functions beside it for an unmodified program, from global memory
// (after ComEx-PM, which did so for Global Arrays). For C code whose memory threads of other ranks access;
// C++ programs have operator new (runtime/language/global_new.cpp).
//
// Calls by user code on a user-level thread get global memory. The runtime says whether a user-level thread
// runs; the return address says which code calls: the program, or a library that is not of the system. What
// libc, libstdc++ and others allocate for themselves (buffers of files, locales, thread descriptors) stays in
// the process (rule 10). Freeing decides by the address. Without the runtime, and in processes that are no
// Kasane programs, libc serves all calls.
//
// Thread safety: as malloc. libc's own functions are called by the names that glibc exports for this purpose,
// so no look-up is needed at the start.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstring>

#include "runtime/language/malloc/hooks.h"

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

using kasane::runtime::MallocHooks;

std::atomic<const MallocHooks*> g_hooks{nullptr};

/// User code: the addresses of the segments of the program and of its own libraries. Written once, before the
/// hooks are published.
struct Range {
  std::uintptr_t begin, end;
};
std::array<Range, 64> g_code;
std::size_t g_ranges = 0;

bool of_the_system(const char* name) noexcept {
  for (const char* folder : {"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "linux-vdso", "linux-gate"}) {
    if (std::strncmp(name, folder, std::strlen(folder)) == 0) return true;
  }
  return std::strstr(name, kasane::runtime::kMallocLibrary) != nullptr;
}

int add_object(dl_phdr_info* info, std::size_t, void* hooks) {
  const bool system =
      info->dlpi_name[0] != '\0' && of_the_system(info->dlpi_name);  // the program has no name
  for (int i = 0; i < info->dlpi_phnum && g_ranges < g_code.size(); ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (system && !static_cast<const MallocHooks*>(hooks)->code_of_program(reinterpret_cast<void*>(begin)))
      continue;
    g_code[g_ranges++] = {begin, begin + segment.p_memsz};
  }
  return 0;
}

/// The hooks if the call gets global memory.
const MallocHooks* wanted(const void* site) noexcept {
  // acquire: the ranges were written before
  const MallocHooks* hooks = g_hooks.load(std::memory_order_acquire);
  if (hooks == nullptr || !hooks->user_code()) return nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(site);
  for (std::size_t i = 0; i < g_ranges; ++i)
    if (at - g_code[i].begin < g_code[i].end - g_code[i].begin) return hooks;
  return nullptr;
}
/// The hooks if the address lies in global memory. acquire: what their functions use.
const MallocHooks* owner(const void* p) noexcept {
  const MallocHooks* hooks = g_hooks.load(std::memory_order_acquire);
  return hooks != nullptr && reinterpret_cast<std::uintptr_t>(p) - hooks->base < hooks->bytes ? hooks
                                                                                              : nullptr;
}

void* answer(void* p) noexcept {
  if (p == nullptr) errno = ENOMEM;
  return p;
}

void* aligned(std::size_t align, std::size_t bytes, const void* site) noexcept {
  if (const MallocHooks* hooks = wanted(site); hooks != nullptr && align <= 65536)
    return answer(hooks->allocate(bytes, align < 16 ? 16 : align, site));
  return __libc_memalign(align, bytes);
}

}  // namespace

#define KASANE_CALL_SITE __builtin_return_address(0)
#define KASANE_EXPORT extern "C" [[gnu::visibility("default")]]

KASANE_EXPORT void kasane_malloc_attach(const MallocHooks* hooks) {
  if (g_ranges == 0) ::dl_iterate_phdr(add_object, const_cast<MallocHooks*>(hooks));
  g_hooks.store(hooks, std::memory_order_release);  // release: after the ranges
}

KASANE_EXPORT void* malloc(std::size_t bytes) {
  if (const MallocHooks* hooks = wanted(KASANE_CALL_SITE))
    return answer(hooks->allocate(bytes, 16, KASANE_CALL_SITE));
  return __libc_malloc(bytes);
}

KASANE_EXPORT void free(void* p) {
  if (const MallocHooks* hooks = owner(p)) return hooks->release(p, KASANE_CALL_SITE);
  __libc_free(p);
}

KASANE_EXPORT void* calloc(std::size_t count, std::size_t bytes) {
  const MallocHooks* hooks = wanted(KASANE_CALL_SITE);
  if (hooks == nullptr) return __libc_calloc(count, bytes);
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return answer(nullptr);
  void* p = hooks->allocate(all, 16, KASANE_CALL_SITE);
  return p != nullptr ? std::memset(p, 0, all) : answer(nullptr);
}

KASANE_EXPORT void* realloc(void* p, std::size_t bytes) {
  if (const MallocHooks* hooks = owner(p)) {
    if (bytes != 0) return answer(hooks->reallocate(p, bytes, KASANE_CALL_SITE));
    hooks->release(p, KASANE_CALL_SITE);
    return nullptr;
  }
  if (p == nullptr) {
    if (const MallocHooks* hooks = wanted(KASANE_CALL_SITE))
      return answer(hooks->allocate(bytes, 16, KASANE_CALL_SITE));
  }
  return __libc_realloc(p, bytes);  // the process's own memory stays there
}

KASANE_EXPORT void* reallocarray(void* p, std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) return answer(nullptr);
  if (owner(p) == nullptr && p == nullptr) {
    if (const MallocHooks* hooks = wanted(KASANE_CALL_SITE))
      return answer(hooks->allocate(all, 16, KASANE_CALL_SITE));
  }
  return realloc(p, all);
}

KASANE_EXPORT int posix_memalign(void** out, std::size_t align, std::size_t bytes) {
  if (align < sizeof(void*) || (align & (align - 1)) != 0) return EINVAL;
  const int before = errno;
  void* p = aligned(align, bytes, KASANE_CALL_SITE);
  errno = before;  // posix_memalign returns the error instead
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}
KASANE_EXPORT void* aligned_alloc(std::size_t align, std::size_t bytes) {
  return aligned(align, bytes, KASANE_CALL_SITE);
}
KASANE_EXPORT void* memalign(std::size_t align, std::size_t bytes) {
  return aligned(align, bytes, KASANE_CALL_SITE);
}

KASANE_EXPORT std::size_t malloc_usable_size(void* p) {
  if (const MallocHooks* hooks = owner(p)) return hooks->usable_size(p);
  using Real = std::size_t (*)(void*);
  static const Real real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "malloc_usable_size"));
  return real(p);
}
