// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/suspended_stack.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "ult/context.h"

namespace kasane::runtime {

// Beyond the copy the mapping reads as zeros, which end a walk: it is as large as the largest stack.
SuspendedStack::SuspendedStack(std::size_t largest) noexcept : map_bytes_(kBelow + 2 * largest) {
  void* p =
      ::mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p != MAP_FAILED) map_ = static_cast<std::byte*>(p);
}
SuspendedStack::~SuspendedStack() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
}

bool SuspendedStack::copy(ult::Word sp, ult::Word stack_end) noexcept {
  bytes_ = 0;
  if (map_ == nullptr || sp % sizeof(ult::Word) != 0 || sp >= stack_end ||
      stack_end - sp > (map_bytes_ - kBelow) / 2)
    return false;
  ::madvise(map_, map_bytes_, MADV_DONTNEED);
  copy_ = map_ + kBelow + sp % kAlignment;
  const iovec local{copy_, stack_end - sp};
  const iovec remote{reinterpret_cast<void*>(sp), stack_end - sp};  // NOLINT: another thread's stack
  const ssize_t n = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (n <= 0) return false;
  sp_ = sp;
  bytes_ = static_cast<std::size_t>(n);
  return true;
}

bool SuspendedStack::waits_for(ult::WaitsFor& out) const noexcept {
  return bytes_ != 0 && ult::WaitNote::find(copy_, bytes_, sp_, out);
}

void SuspendedStack::unwind(Backtrace& out) noexcept {
  out.count = 0;
  if (bytes_ < 7 * sizeof(ult::Word)) return;
  // Frame pointers and saved registers that point into the stack point into the copy from now on.
  const auto moved = reinterpret_cast<ult::Word>(copy_) - sp_;
  for (std::size_t at = 0; at + sizeof(ult::Word) <= bytes_; at += sizeof(ult::Word)) {
    ult::Word word;
    std::memcpy(&word, copy_ + at, sizeof word);
    if (word - sp_ >= bytes_) continue;
    word += moved;
    std::memcpy(copy_ + at, &word, sizeof word);
  }
  // The thread may have run while its stack was copied, or since its stack pointer was noted.
  kasane_ult_visit(
      copy_, [](void* trace) { (void)try_unwind(nullptr, *static_cast<Backtrace*>(trace)); }, &out);
  leave_out_runtime(out);
}

}  // namespace kasane::runtime
