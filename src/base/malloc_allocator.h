// SPDX-License-Identifier: Apache-2.0
// An allocator for standard containers inside the runtime that always uses libc's heap, even where operator
// new allocates global memory (rule 7: the runtime's state never lies in V).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace kasane {

template <class T>
struct MallocAllocator {
  using value_type = T;
  MallocAllocator() = default;
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor): the standard asks for it
  MallocAllocator(const MallocAllocator<U>&) noexcept {}

  T* allocate(std::size_t n) {
    void* p = std::malloc(n * sizeof(T));
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t) noexcept { std::free(p); }
  friend bool operator==(const MallocAllocator&, const MallocAllocator&) { return true; }
};

}  // namespace kasane
