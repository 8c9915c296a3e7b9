// SPDX-License-Identifier: Apache-2.0
// A function of libc's, or of another library, that one of ours hides:
//
//   static constinit Hidden<int (*)(const char*)> libcs("system");
//   return libcs.get()(command);
//
// No guard: another rank's thread might hold one, and signal handlers call such functions.
//
// Thread safety: every call from any thread, also in a handler after the first.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace kasane::runtime {

template <class Function>
class Hidden {
 public:
  constexpr explicit Hidden(const char* symbol) noexcept : symbol_(symbol) {}
  [[nodiscard]] Function get() noexcept {
    // relaxed: a pointer to code, nothing is published with it. A second look-up does no harm.
    Function f = found_.load(std::memory_order_relaxed);
    if (f == nullptr) {
      f = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, symbol_));
      // none follows: a library that needs ours was preloaded, or the program names libc before ours
      if (f == nullptr) f = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, symbol_));
      found_.store(f, std::memory_order_relaxed);
    }
    return f;
  }

 private:
  const char* symbol_;
  std::atomic<Function> found_{nullptr};
};

}  // namespace kasane::runtime
