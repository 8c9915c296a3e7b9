// SPDX-License-Identifier: Apache-2.0
// Slabs of which every object is free become pages again (docs/design/heap.md). A thread that joins runs
// first takes all groups off the stacks, keeps the slabs that are wholly among them, and puts the other
// groups back.
//
// Thread safety: one collector of a share at a time (the word `joining` ensures it); other threads take and
// give groups meanwhile.
#pragma once

#include <vector>

#include "base/malloc_allocator.h"
#include "gas/heap_access.h"

namespace kasane::gas {

/// How many objects, and how many groups, a slab has.
[[nodiscard]] constexpr std::uint64_t objects_of(unsigned size_class) noexcept {
  return slab_pages(size_class) * kHeapPageBytes / class_bytes(size_class);
}
[[nodiscard]] constexpr std::uint64_t groups_of(unsigned size_class) noexcept {
  return (objects_of(size_class) + 63) / 64;
}
/// All bits of a slab's group: its number in the slab.
[[nodiscard]] constexpr std::uint64_t all_bits(unsigned size_class, std::uint64_t group) noexcept {
  const std::uint64_t objects = objects_of(size_class) - group * 64;
  return objects >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << objects) - 1;
}

struct FreeSlab {
  std::uint64_t first = 0, pages = 0;
};

/// Takes the slabs that are wholly free off the stacks of a share. Their pages belong to the caller; for no
/// rank they are a slab any more.
std::vector<FreeSlab, MallocAllocator<FreeSlab>> collect_slabs(HeapAccess&);

}  // namespace kasane::gas
