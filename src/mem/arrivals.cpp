// SPDX-License-Identifier: Apache-2.0
#include "mem/arrivals.h"

#include <sys/mman.h>

#include <string>
#include <utility>

namespace kasane::mem {

Result<Arrivals> Arrivals::create(std::uint64_t pages) {
  auto noted = BlockSet::create(pages);
  KASANE_TRY(noted);
  void* const got = ::mmap(nullptr, pages * sizeof(Tick), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return fail_errno(Errc::out_of_memory, "cannot map " + std::to_string(pages * sizeof(Tick)) + " bytes for when pages came");
  ::madvise(got, pages * sizeof(Tick), MADV_NOHUGEPAGE);
  return Arrivals(std::move(*noted), static_cast<std::atomic<Tick>*>(got), pages);
}

Arrivals::Arrivals(Arrivals&& o) noexcept
    : noted_(std::move(o.noted_)), ticks_(std::exchange(o.ticks_, nullptr)), pages_(std::exchange(o.pages_, 0)), taken_(std::move(o.taken_)) {}

Arrivals::~Arrivals() {
  if (ticks_ != nullptr) ::munmap(ticks_, pages_ * sizeof *ticks_);
}

}  // namespace kasane::mem
