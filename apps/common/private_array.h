// SPDX-License-Identifier: Apache-2.0
// Memory of this process alone: what sequential elisions work on.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace apps {

template <class T>
class PrivateArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit PrivateArray(std::size_t n) : p_(static_cast<T*>(std::malloc(n * sizeof(T) + 1))) {
    if (!p_) throw std::bad_alloc();
  }
  PrivateArray(const T* from, std::size_t n) : PrivateArray(n) { std::memcpy(p_.get(), from, n * sizeof(T)); }
  [[nodiscard]] T* get() noexcept { return p_.get(); }

 private:
  struct Free {
    void operator()(T* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<T, Free> p_;
};

}  // namespace apps
