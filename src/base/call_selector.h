// SPDX-License-Identifier: Apache-2.0
// Whether the system calls of the calling OS thread are caught: the byte that the kernel reads at each call
// of a thread for which catching is switched on (Syscall User Dispatch; mem/caught_calls.h). Elsewhere the
// byte has no effect.
//
//   caught   user code: a buffer may lie in global memory that is absent
//   passed   the runtime: workers' own loops, RuntimeSections, fault handlers. It never passes the kernel
//            addresses of V (rule 10), so `caught` here would be slow, not wrong
//
// Thread safety: each OS thread has its own byte. The accesses are assembly, since a compiler may keep the
// address of a thread_local over a switch that continues in another OS thread (rule 13). Async-signal-safe.
#pragma once

#include <cstdint>

extern "C" {
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local unsigned char kasane_call_selector;
}

namespace kasane {

/// The values are the kernel's: SYSCALL_DISPATCH_FILTER_ALLOW and _BLOCK.
enum class Calls : std::uint8_t { passed = 0, caught = 1 };

inline void set_calls(Calls calls) noexcept {
  std::uintptr_t at;
  asm volatile(
      "movq kasane_call_selector@gottpoff(%%rip), %0\n\t"
      "movb %b1, %%fs:(%0)"
      : "=&r"(at)
      : "q"(static_cast<std::uint8_t>(calls))
      : "memory");
}
[[nodiscard]] inline Calls calls() noexcept {
  std::uintptr_t at;
  std::uint8_t calls;
  asm volatile(
      "movq kasane_call_selector@gottpoff(%%rip), %0\n\t"
      "movb %%fs:(%0), %b1"
      : "=&r"(at), "=q"(calls)
      :
      : "memory");
  return Calls{calls};
}

/// The calls of a scope pass. The OS thread may be another one at its end.
class PassedCalls {
 public:
  PassedCalls() noexcept { set_calls(Calls::passed); }
  ~PassedCalls() { set_calls(before_); }
  PassedCalls(const PassedCalls&) = delete;
  PassedCalls& operator=(const PassedCalls&) = delete;

 private:
  const Calls before_ = calls();
};

}  // namespace kasane
