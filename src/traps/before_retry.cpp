// SPDX-License-Identifier: Apache-2.0
#include "traps/before_retry.h"

#include <ucontext.h>

#include <cerrno>
#include <cstring>

#include "traps/signal_dispatch.h"

extern "C" {
void kasane_before_retry();
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern constinit thread_local std::uint64_t kasane_retry_address;
/// Of the access that runs again.
constinit thread_local std::uint64_t kasane_retry_address = 0;
[[gnu::visibility("hidden")]] void kasane_before_retry_here() noexcept;
}

namespace kasane::traps {
namespace {

// Between the handler's end and kasane_before_retry_here() the OS thread runs nothing but handlers of the
// program's signals, which do not come here.
struct Called {
  BeforeRetry function;
  void* context;
  std::uint64_t argument;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Called called{};

[[nodiscard]] greg_t* registers() noexcept {
  return static_cast<ucontext_t*>(const_cast<void*>(faulting_context()))->uc_mcontext.gregs;
}

/// Has the thread state that kasane_before_retry does not keep? The kernel's frame says what is in use.
bool keeps_all() noexcept {
  const auto* const area = reinterpret_cast<const std::byte*>(
      static_cast<const ucontext_t*>(faulting_context())->uc_mcontext.fpregs);
  constexpr std::size_t kSoftware = 464, kHeader = 512;  // asm/sigcontext.h: struct _fpx_sw_bytes
  constexpr std::uint32_t kExtended = 0x46505853;
  constexpr std::uint64_t kKept = 0xe7, kOfTheOsThread = 0x200;  // protection keys
  std::uint32_t magic = 0;
  std::uint64_t in_use = 0;
  if (area == nullptr) return false;
  std::memcpy(&magic, area + kSoftware, sizeof magic);
  if (magic != kExtended) return true;
  std::memcpy(&in_use, area + kHeader, sizeof in_use);
  return (in_use & ~(kKept | kOfTheOsThread)) == 0;
}

}  // namespace

FaultingCode faulting_code() noexcept {
  const greg_t* const r = registers();
  return {static_cast<std::uintptr_t>(r[REG_RIP]), static_cast<std::uintptr_t>(r[REG_RSP])};
}

bool call_before_retry(BeforeRetry function, void* context, std::uint64_t argument) noexcept {
  if (!keeps_all()) return false;
  called = {function, context, argument};
  greg_t* const r = registers();
  kasane_retry_address = static_cast<std::uint64_t>(r[REG_RIP]);
  r[REG_RIP] = reinterpret_cast<greg_t>(&kasane_before_retry);
  return true;
}

}  // namespace kasane::traps

void kasane_before_retry_here() noexcept {
  const kasane::traps::Called now = kasane::traps::called;
  const int error = errno;
  now.function(now.context, now.argument);
  // The OS thread is the same, so its errno's address is, too.
  errno = error;
}
