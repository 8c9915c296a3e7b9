// SPDX-License-Identifier: Apache-2.0
// See context.h.
#include "support/sim/context.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/assert.h"

#if defined(KASANE_SANITIZER_ADDRESS)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(KASANE_SANITIZER_THREAD)
#include <sanitizer/tsan_interface.h>
#endif

namespace kasane::comm::sim {
namespace {

constexpr std::size_t kGuardBytes = 4096;

}  // namespace

Context::Context() {
#if defined(KASANE_SANITIZER_THREAD)
  fiber_ = __tsan_get_current_fiber();
#endif
}

Context::Context(std::size_t stack_bytes, void (*entry)(void*), void* arg)
    : stack_bytes_((stack_bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes + kGuardBytes),
      entry_(entry),
      arg_(arg) {
  void* p = ::mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
  KASANE_CHECK(p != MAP_FAILED, "no memory for the stack of a simulated thread");
  stack_ = static_cast<std::byte*>(p);
  KASANE_CHECK(::mprotect(stack_, kGuardBytes, PROT_NONE) == 0);
  bottom_ = stack_ + kGuardBytes;
  bottom_bytes_ = stack_bytes_ - kGuardBytes;
  KASANE_CHECK(::getcontext(&context_) == 0);
  context_.uc_stack.ss_sp = stack_ + kGuardBytes;
  context_.uc_stack.ss_size = bottom_bytes_;
  context_.uc_link = nullptr;
  // makecontext passes ints: the pointer goes in two halves.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&context_, reinterpret_cast<void (*)()>(&Context::start), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#if defined(KASANE_SANITIZER_THREAD)
  fiber_ = __tsan_create_fiber(0);
#endif
}

Context::~Context() {
  if (stack_ == nullptr) return;
#if defined(KASANE_SANITIZER_THREAD)
  __tsan_destroy_fiber(fiber_);
#endif
  ::munmap(stack_, stack_bytes_);
}

void Context::start(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Context*>(std::uintptr_t{high} << 32 | low);
  self->arrived();
  self->entry_(self->arg_);
  KASANE_CHECK(false, "the entry of a simulated thread returned");
}

void Context::switch_to(Context& next, bool last) {
  next.came_from_ = this;
#if defined(KASANE_SANITIZER_ADDRESS)
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, next.bottom_, next.bottom_bytes_);
#endif
#if defined(KASANE_SANITIZER_THREAD)
  __tsan_switch_to_fiber(next.fiber_, 0);
#endif
  (void)last;
  KASANE_CHECK(::swapcontext(&context_, &next.context_) == 0);
  arrived();
}

/// On the new stack, after a switch to this context.
void Context::arrived() {
#if defined(KASANE_SANITIZER_ADDRESS)
  // Fills in the bounds of the OS thread's stack, which only the sanitizer knows.
  __sanitizer_finish_switch_fiber(fake_stack_, &came_from_->bottom_, &came_from_->bottom_bytes_);
#endif
}

}  // namespace kasane::comm::sim
