// SPDX-License-Identifier: Apache-2.0
#include "mem/arrivals.h"

#include <sys/mman.h>

#include <utility>

#include "base/memory_file.h"

namespace kasane::mem {

Result<Arrivals> Arrivals::create(std::uint64_t pages) {
  auto noted = PageSet::create(pages);
  KASANE_TRY(noted);
  auto got = map_sparse(pages * sizeof(Tick), "when pages came");
  KASANE_TRY(got);
  return Arrivals(std::move(*noted), reinterpret_cast<std::atomic<Tick>*>(*got), pages);
}

Arrivals::Arrivals(Arrivals&& o) noexcept
    : noted_(std::move(o.noted_)),
      ticks_(std::exchange(o.ticks_, nullptr)),
      pages_(std::exchange(o.pages_, 0)),
      taken_(std::move(o.taken_)) {}

Arrivals::~Arrivals() {
  if (ticks_ != nullptr) ::munmap(ticks_, pages_ * sizeof *ticks_);
}

}  // namespace kasane::mem
