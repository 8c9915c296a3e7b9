// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>

#include "dsm/blocks.h"
#include "dsm/windows.h"
#include "mem/pages.h"

namespace kasane::dsm {

using BlocksOfAPage = std::bitset<mem::kMostBlocksOfAPage>;

/// Which blocks of a page of this rank's V allows from now on: those that it allowed before, that have
/// frames, or that are about to be used: so many, those for which is_used(block) is true. For the others the
/// engine would make frames of zeros, though no thread may ever touch them: they are retired, and the first
/// access opens them.
template <class IsUsed>
[[nodiscard]] BlocksOfAPage opened(const mem::Space& space, const Blocks& blocks, mem::BlockRange page,
                                   std::uint64_t used, const IsUsed& is_used) noexcept {
  BlocksOfAPage open;
  if (used == page.count || !blocks.engine().makes_frames(page.first)) return open.set();
  std::array<unsigned char, mem::kMostBlocksOfAPage> has;
  mem::look_for_frames(space.a(mem::offset_of(page.first)), std::span(has).first(page.count));
  for (std::uint64_t i = 0; i < page.count; ++i) {
    const BlockId b = block_at(page.first, i);
    open[i] = (has[i] & 1) != 0 || is_used(b) || blocks.state(b).access != Access::none;
  }
  return open;
}

}  // namespace kasane::dsm
