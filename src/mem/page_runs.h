// SPDX-License-Identifier: Apache-2.0
// Neighbouring pages as runs of blocks, for system calls that take ranges.
#pragma once

#include <cstdint>
#include <span>

#include "mem/pages.h"

namespace kasane::mem {

/// Calls f(BlockRange) for runs of neighbours among the pages, which are sorted. A run ends when it has
/// `most` blocks or more.
template <class F>
void for_each_page_run(const Pages& pages, std::span<const PageId> sorted, std::uint64_t most, const F& f) {
  for (std::size_t i = 0; i < sorted.size();) {
    BlockRange run = pages.blocks_of(sorted[i]);
    for (++i; i < sorted.size() && run.count < most &&
              raw(pages.blocks_of(sorted[i]).first) == raw(run.first) + run.count;
         ++i)
      run.count += pages.blocks_of(sorted[i]).count;
    f(run);
  }
}

}  // namespace kasane::mem
