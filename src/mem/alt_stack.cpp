// SPDX-License-Identifier: Apache-2.0
#include "mem/alt_stack.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "mem/space.h"

namespace kasane::mem {

// The guard needs no protection beyond PROT_NONE: a thread has one alternate stack, so their number is
// bounded.
Result<AltStack> AltStack::create(std::size_t bytes) {
  AltStack s;
  bytes = (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  void* got =
      ::mmap(nullptr, bytes + kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED)
    return fail_errno(Errc::out_of_memory,
                      "cannot map a signal stack of " + std::to_string(bytes) + " bytes");
  s.map_ = static_cast<std::byte*>(got);
  s.bytes_ = bytes;
  stack_t mine{};
  mine.ss_sp = s.map_ + kBlockBytes;
  mine.ss_size = bytes;
  stack_t before{};
  if (::mprotect(s.map_, kBlockBytes, PROT_NONE) != 0 || ::sigaltstack(&mine, &before) != 0) {
    const int number = errno;
    ::munmap(std::exchange(s.map_, nullptr), bytes + kBlockBytes);
    return fail_errno(Errc::limit, "cannot use a signal stack of " + std::to_string(bytes) + " bytes",
                      number);
  }
  s.previous_ = before;
  return s;
}

AltStack::AltStack(AltStack&& o) noexcept
    : map_(std::exchange(o.map_, nullptr)), bytes_(std::exchange(o.bytes_, 0)), previous_(o.previous_) {}

AltStack::~AltStack() {
  if (!map_) return;
  stack_t before = previous_;
  before.ss_flags &= SS_DISABLE;  // SS_ONSTACK is a state, not a request
  ::sigaltstack(&before, nullptr);
  ::munmap(map_, bytes_ + kBlockBytes);
}

}  // namespace kasane::mem
