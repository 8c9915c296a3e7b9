// SPDX-License-Identifier: Apache-2.0
// The layout of region kHeap of a rank: everything about that rank's share of the heap, which all ranks read
// and change by one-sided operations.
//
//   header            where never used pages begin, heads of stacks
//   page records      16 bytes a page: what it is; the next run on its stack
//   group records     16 bytes for each 64 objects of a slab (64 a page: objects have 16 bytes at least)
//   known pages       2 bytes for each page of all shares: what this rank knows of it; other ranks only
//                     write 0 there, when a slab becomes pages again
//
// Zeroed at start, which means that nothing was ever allocated. Memory behind it is populated as pages are
// used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "gas/heap_protocol.h"
#include "gas/size_classes.h"

namespace kasane::gas {

/// unit in which the heap hands out memory, whatever the page size of the directory
inline constexpr std::uint64_t kHeapPageBytes = 64 * 1024;
inline constexpr std::uint64_t kGroupsPerPage = kHeapPageBytes / 16 / 64;

struct HeapHeader {
  std::atomic<std::uint64_t> used;     ///< pages from here on were never handed out
  std::atomic<std::uint64_t> mark;     ///< free runs are joined before `used` grows beyond
  std::atomic<std::uint64_t> joining;  ///< 1 while a thread joins them
  /// threads that may hold free runs at the moment: how often one began 32 | how many there are 32
  std::atomic<std::uint64_t> run_holders;
  std::atomic<std::uint64_t> runs[kRunClasses];     ///< StackHead: free runs, by run_class()
  std::atomic<std::uint64_t> groups[kSizeClasses];  ///< StackHead: groups with free objects, by size class
};

struct HeapPage {
  std::atomic<std::uint64_t> header;  ///< PageHeader
  std::atomic<std::uint64_t> next;    ///< of a free run: the next one on its stack
};

struct HeapGroup {
  std::atomic<std::uint64_t> bits;
  std::atomic<std::uint64_t> next;
};
static_assert(sizeof(HeapPage) == 16 && sizeof(HeapGroup) == 16);

/// The first word of a page's record. A slab's record stays until all of its objects are free. Of a run only
/// the first page's record is valid; pages inside say unused or free.
struct PageHeader {
  enum class Kind : std::uint8_t { unused = 0, slab = 1, large = 2, free = 3 };
  Kind kind = Kind::unused;
  std::uint32_t size_class = 0;  ///< of a slab
  std::uint32_t delta = 0;       ///< pages from the slab's first one
  std::uint64_t pages = 0;       ///< of a run

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return static_cast<std::uint64_t>(kind) |
           (kind == Kind::slab ? std::uint64_t{size_class} << 8 | std::uint64_t{delta} << 16 : pages << 8);
  }
  [[nodiscard]] static constexpr PageHeader of(std::uint64_t word) noexcept {
    const auto kind = static_cast<Kind>(word & 3);
    if (kind == Kind::slab)
      return {kind, static_cast<std::uint32_t>(word >> 8 & 0xFF),
              static_cast<std::uint32_t>(word >> 16 & 0xFF), 0};
    return {kind, 0, 0, word >> 8};
  }
};

struct HeapLayout {
  static constexpr std::uint64_t kHeaderBytes = 4096;
  static_assert(sizeof(HeapHeader) <= kHeaderBytes);
  static constexpr std::uint64_t kKnownBytes = 2;
  std::uint64_t pages;      ///< of a rank's share
  std::uint64_t all_pages;  ///< of the segment

  [[nodiscard]] constexpr std::uint64_t page(std::uint64_t index) const noexcept {
    return kHeaderBytes + index * sizeof(HeapPage);
  }
  [[nodiscard]] constexpr std::uint64_t group(std::uint64_t number) const noexcept {
    return page(pages) + number * sizeof(HeapGroup);
  }
  /// Page 0 of the segment; page `page` of a rank's share.
  [[nodiscard]] constexpr std::uint64_t known() const noexcept { return group(pages * kGroupsPerPage); }
  [[nodiscard]] constexpr std::uint64_t known(Rank rank, std::uint64_t page) const noexcept {
    return known() + (raw(rank) * pages + page) * kKnownBytes;
  }
  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept { return known() + all_pages * kKnownBytes; }
  [[nodiscard]] static constexpr std::uint64_t run_head(unsigned c) noexcept {
    return offsetof(HeapHeader, runs) + std::uint64_t{c} * 8;
  }
  [[nodiscard]] static constexpr std::uint64_t group_head(unsigned c) noexcept {
    return offsetof(HeapHeader, groups) + std::uint64_t{c} * 8;
  }
};

}  // namespace kasane::gas
