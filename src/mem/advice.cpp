// SPDX-License-Identifier: Apache-2.0
#include "mem/advice.h"

#include <sys/mman.h>

#include <utility>

#include "base/assert.h"
#include "base/memory_file.h"

namespace kasane::mem {

Result<AdviceTable> AdviceTable::create(std::uint64_t pages) {
  // Zeros that cost no memory until they are written: no advice was given.
  auto got = map_sparse(pages * sizeof(Word), "what programs say of pages");
  KASANE_TRY(got);
  return AdviceTable(reinterpret_cast<Word*>(*got), pages);
}

AdviceTable::AdviceTable(AdviceTable&& o) noexcept
    : words_(std::exchange(o.words_, nullptr)), pages_(std::exchange(o.pages_, 0)) {}

AdviceTable::~AdviceTable() {
  if (words_ != nullptr) ::munmap(words_, pages_ * sizeof *words_);
}

void AdviceTable::use(PageRange range, Usage usage) noexcept {
  for (const PageId page : range) {
    Word& word = words_[raw(page)];
    std::uint16_t old = word.load(std::memory_order_relaxed);
    // relaxed, here and below: see usage().
    while (!word.compare_exchange_weak(
        old, static_cast<std::uint16_t>((old & ~kUsage) | static_cast<std::uint16_t>(usage)),
        std::memory_order_relaxed)) {
    }
  }
}

void AdviceTable::hold(PageRange range) noexcept {
  for (const PageId page : range) {
    const std::uint16_t old = words_[raw(page)].fetch_add(kHold, std::memory_order_relaxed);
    KASANE_CHECK(old / kHold < kMostHolds, "a page of global memory has more than 16383 pins at once");
  }
}

void AdviceTable::end_hold(PageRange range) noexcept {
  for (const PageId page : range) {
    const std::uint16_t old = words_[raw(page)].fetch_sub(kHold, std::memory_order_relaxed);
    KASANE_CHECK(old >= kHold, "a pin of global memory ends that there is not");
  }
}

}  // namespace kasane::mem
