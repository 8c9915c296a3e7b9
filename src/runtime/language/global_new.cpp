// SPDX-License-Identifier: Apache-2.0
// operator new and exception objects from the space (rule 14): a user-level thread, and all threads to which
// it passes a pointer, reach what it allocates on every rank. In main, on OS threads of the program and
// inside the runtime libc's heap is used; delete decides by the address. Option: --new=space|local. Off in
// sanitizer builds, which have their own operator new.
//
// Exception objects: the Itanium C++ ABI lets a program define __cxa_allocate_exception and the functions
// beside it. The header that precedes the thrown object has 128 bytes in libstdc++ on 64-bit targets
// (__cxa_refcounted_exception), a dependent exception 112; both must be zeroed. Before the header is room for
// where it was thrown (base/throw_site.h).
//
// Thread safety: as operator new.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <kasane/error.hpp>
#include <new>
#include <optional>

#include "base/throw_site.h"
#include "runtime/language/program_memory.h"
#include "runtime/rank/process_state.h"
#include "runtime/rank/runtime.h"
#include "ult/pool.h"

namespace {

using kasane::runtime::Placement;
using kasane::runtime::Runtime;

bool wants_space(Runtime* runtime) noexcept {
  return runtime != nullptr && runtime->options().new_in_space && kasane::ult::Pool::in_program();
}

using Reason = std::optional<kasane::out_of_memory>;

/// Null where there is no memory; then *why says which memory, if it is the space's.
void* allocate(std::size_t bytes, std::size_t align, const void* site, Reason* why = nullptr) noexcept {
  Runtime* runtime = Runtime::current();
  if (wants_space(runtime)) {
    const auto p = kasane::runtime::program_allocate(*runtime, bytes, align, Placement::local, site);
    if (p) return *p;
    if (why != nullptr) why->emplace(p.error().message.c_str());
    return nullptr;
  }
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes != 0 ? bytes : 1);
  return std::aligned_alloc(align, (bytes + align - 1) / align * align);
}

[[gnu::cold, gnu::noinline]] void* allocate_after_handlers(std::size_t bytes, std::size_t align,
                                                           const void* site) {
  while (const std::new_handler handler = std::get_new_handler()) {
    handler();
    if (void* p = allocate(bytes, align, site)) return p;
  }
  Reason why;
  if (void* p = allocate(bytes, align, site, &why)) return p;
  if (why) throw *why;
  throw std::bad_alloc();
}

void* allocate_or_throw(std::size_t bytes, std::size_t align, const void* site) {
  if (void* p = allocate(bytes, align, site)) return p;
  return allocate_after_handlers(bytes, align, site);
}

void release(void* p, const void* site) noexcept {
  if (p == nullptr) return;
  Runtime* runtime = Runtime::current();
  if (runtime != nullptr && runtime->contains(p)) return kasane::runtime::program_free(*runtime, p, site);
  const Runtime* const parents = kasane::runtime::runtime_of_parent();
  if (parents != nullptr && parents->contains(p)) return;  // a child of fork(): it stays its parent's
  std::free(p);
}

/// Where the program called the function in whose body this stands.
#define KASANE_CALL_SITE __builtin_return_address(0)

constexpr std::size_t kDefaultAlign = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
constexpr std::size_t kDependentException = 112;

/// Zeroed memory for an exception; where there is none the program ends, and says so.
void* exception_memory(std::size_t bytes, const void* site) noexcept {
  Reason why;
  void* p = allocate(bytes, kDefaultAlign, site, &why);
  if (p == nullptr) {
    std::fprintf(stderr, "kasane: no memory is left for an exception, so the program ends: %s\n",
                 why ? why->what() : "malloc has none");
    std::terminate();
  }
  return std::memset(p, 0, bytes);
}

}  // namespace

void* operator new(std::size_t n) { return allocate_or_throw(n, kDefaultAlign, KASANE_CALL_SITE); }
void* operator new[](std::size_t n) { return allocate_or_throw(n, kDefaultAlign, KASANE_CALL_SITE); }
void* operator new(std::size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<std::size_t>(a), KASANE_CALL_SITE);
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<std::size_t>(a), KASANE_CALL_SITE);
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return allocate(n, kDefaultAlign, KASANE_CALL_SITE);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return allocate(n, kDefaultAlign, KASANE_CALL_SITE);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<std::size_t>(a), KASANE_CALL_SITE);
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<std::size_t>(a), KASANE_CALL_SITE);
}

void operator delete(void* p) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete[](void* p) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete(void* p, std::size_t) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete[](void* p, std::size_t) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete(void* p, std::align_val_t) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p, KASANE_CALL_SITE); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  release(p, KASANE_CALL_SITE);
}
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  release(p, KASANE_CALL_SITE);
}

namespace __cxxabiv1 {
extern "C" {

void* __cxa_allocate_exception(std::size_t thrown_size) noexcept {
  constexpr std::size_t kBefore = sizeof(kasane::ThrowSite) + kasane::kExceptionHeader;
  static_assert(kBefore % kDefaultAlign == 0);
  void* const memory = exception_memory(kBefore + thrown_size, KASANE_CALL_SITE);
  static_cast<kasane::ThrowSite*>(memory)->magic = kasane::ThrowSite::kMagic;
  return static_cast<char*>(memory) + kBefore;
}
void __cxa_free_exception(void* thrown) noexcept { release(kasane::throw_site_of(thrown), KASANE_CALL_SITE); }
abi::__cxa_dependent_exception* __cxa_allocate_dependent_exception() noexcept {
  return static_cast<abi::__cxa_dependent_exception*>(
      exception_memory(kDependentException, KASANE_CALL_SITE));
}
void __cxa_free_dependent_exception(abi::__cxa_dependent_exception* dependent) noexcept {
  release(dependent, KASANE_CALL_SITE);
}

}  // extern "C"
}  // namespace __cxxabiv1

#endif
