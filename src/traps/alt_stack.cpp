// SPDX-License-Identifier: Apache-2.0
#include "traps/alt_stack.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <utility>

#include "traps/caught_calls.h"

namespace kasane::traps {
namespace {

constexpr std::size_t kGuardBytes = 4096;

// initial-exec: read in handlers. Used on one OS thread, within functions that do not switch.
[[gnu::tls_model("initial-exec")]] constinit thread_local AltStack::OfThread g_here;
[[gnu::tls_model("initial-exec")]] constinit thread_local stack_t g_programs{};  ///< size 0: none

// Stacks of threads that have ended. A new one costs two calls and faults, and a program may begin many
// threads.
constinit std::mutex g_kept_lock;
constinit std::byte* g_kept = nullptr;

std::byte** next_kept(std::byte* map) noexcept { return reinterpret_cast<std::byte**>(map + kGuardBytes); }

/// Null: there is none. A child of fork() may never get the lock.
std::byte* take_kept() noexcept {
  const std::unique_lock lock(g_kept_lock, std::try_to_lock);
  if (!lock || g_kept == nullptr) return nullptr;
  return std::exchange(g_kept, *next_kept(g_kept));
}

void give_back(const AltStack::OfThread& stack) noexcept {
  const std::unique_lock lock(g_kept_lock, std::try_to_lock);
  if (!lock || stack.bytes != AltStack::kBytes) {
    ::munmap(stack.map, stack.bytes + kGuardBytes);
    return;
  }
  *next_kept(stack.map) = g_kept;
  g_kept = stack.map;
}

/// libc's is the program's, which comes to of_program().
long tell_kernel(const stack_t* stack, stack_t* before) noexcept {
  return issue_call(SYS_sigaltstack, {reinterpret_cast<long>(stack), reinterpret_cast<long>(before)});
}

stack_t as_kernel_has(const AltStack::OfThread& stack) noexcept {
  return {.ss_sp = stack.map + kGuardBytes, .ss_flags = 0, .ss_size = stack.bytes};
}

}  // namespace

// The guard needs no protection beyond PROT_NONE: a thread has one alternate stack, so their number is
// bounded.
Result<AltStack> AltStack::create(std::size_t bytes) {
  AltStack s;
  bytes = (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
  s.mine_ = {bytes == kBytes ? take_kept() : nullptr, bytes};
  if (s.mine_.map == nullptr) {
    void* got =
        ::mmap(nullptr, bytes + kGuardBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
      return fail_errno(Errc::out_of_memory,
                        "cannot map a signal stack of " + std::to_string(bytes) + " bytes");
    s.mine_.map = static_cast<std::byte*>(got);
  }
  const stack_t mine = as_kernel_has(s.mine_);
  stack_t before{};
  long error = ::mprotect(s.mine_.map, kGuardBytes, PROT_NONE) != 0 ? -errno : 0;
  if (error == 0) error = tell_kernel(&mine, &before);
  if (error != 0) {
    ::munmap(std::exchange(s.mine_.map, nullptr), bytes + kGuardBytes);
    return fail_errno(Errc::limit, "cannot use a signal stack of " + std::to_string(bytes) + " bytes",
                      static_cast<int>(-error));
  }
  s.previous_ = before;
  s.outer_ = std::exchange(g_here, s.mine_);
  if (s.outer_.map == nullptr) g_programs = before;
  return s;
}

AltStack::AltStack(AltStack&& o) noexcept
    : mine_(std::exchange(o.mine_, {})), outer_(o.outer_), previous_(o.previous_) {}

AltStack::~AltStack() {
  if (mine_.map == nullptr) return;
  g_here = outer_;
  stack_t before = previous_;
  before.ss_flags &= SS_DISABLE;  // SS_ONSTACK is a state, not a request
  tell_kernel(&before, nullptr);
  give_back(mine_);
}

std::optional<int> AltStack::of_program(const stack_t* wanted, stack_t* old, std::uintptr_t sp) noexcept {
  constexpr int kAutoDisarm = 1 << 31;  // as in the kernel's headers
  constexpr std::size_t kSmallest = 2048;
  if (g_here.map == nullptr) return std::nullopt;
  const stack_t ours = as_kernel_has(g_here);
  const bool in_handler = sp - reinterpret_cast<std::uintptr_t>(ours.ss_sp) < ours.ss_size;
  stack_t now = g_programs;
  if (now.ss_size == 0)
    now = in_handler ? ours : stack_t{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  if (in_handler) now.ss_flags |= SS_ONSTACK;
  if (wanted != nullptr) {
    const int mode = wanted->ss_flags & ~kAutoDisarm;
    if (mode != 0 && mode != SS_ONSTACK && mode != SS_DISABLE) return -EINVAL;
    if (mode != SS_DISABLE && wanted->ss_size < kSmallest) return -ENOMEM;
    g_programs = mode == SS_DISABLE ? stack_t{} : *wanted;
    g_programs.ss_flags &= kAutoDisarm;
  }
  if (old != nullptr) *old = now;
  return 0;
}

}  // namespace kasane::traps
