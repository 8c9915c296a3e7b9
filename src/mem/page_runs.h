// SPDX-License-Identifier: Apache-2.0
// Pages that lie beside each other, as runs of blocks: for system calls that take ranges.
// Thread safety: none needed.
#pragma once

#include <cstdint>
#include <span>

#include "mem/pages.h"

namespace kasane::mem {

/// Calls f(BlockRange) for neighbours among the pages, which are sorted. A run gets no further page once it has `most` blocks.
template <class F>
void for_each_page_run(const Pages& pages, std::span<const PageId> sorted, std::uint64_t most, const F& f) {
  for (std::size_t i = 0; i < sorted.size();) {
    BlockRange run = pages.blocks_of(sorted[i]);
    for (++i; i < sorted.size() && run.count < most && raw(pages.blocks_of(sorted[i]).first) == raw(run.first) + run.count; ++i) run.count += pages.blocks_of(sorted[i]).count;
    f(run);
  }
}

}  // namespace kasane::mem
