// SPDX-License-Identifier: Apache-2.0
// The pages of the space: which page a byte lies in, where a page lies and how long it is. Each segment of
// the space has its own page size, a power of two from 4 KiB to 2 MiB; together the segments cover the space.
//
//   offset   0 ───────────────── a ──────────────────── b ───────────────── bytes
//   pages    64 KiB each         4 KiB each             2 MiB each
//   PageId   0, 1, …             a/64K, a/64K + 1, …    …                   count()
//
// Page numbers are dense and ascend with the offset. So a table with an entry a page is as long as there are
// pages, and the pages of a range are consecutive.
//
// Thread safety: constant after create(). A value: each layer may keep a copy.
// Invariants: a page begins at a multiple of its size and lies within one segment; so a block (4 KiB) lies
// within one page.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "mem/space.h"

namespace kasane::mem {

inline constexpr std::uint64_t kSmallestPageBytes = kBlockBytes;
inline constexpr std::uint64_t kLargestPageBytes = 2 * 1024 * 1024;
inline constexpr std::uint64_t kMostBlocksOfAPage = kLargestPageBytes / kBlockBytes;

/// Consecutive pages, for `for (PageId page : range)`.
struct PageRange {
  struct Iterator {
    std::uint64_t at;
    PageId operator*() const noexcept { return PageId{at}; }
    Iterator& operator++() noexcept {
      ++at;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;
  };
  std::uint64_t first = 0, last = 0;  ///< numbers [first, last)

  [[nodiscard]] Iterator begin() const noexcept { return {first}; }
  [[nodiscard]] Iterator end() const noexcept { return {last}; }
  [[nodiscard]] std::uint64_t size() const noexcept { return last - first; }
};

class Pages {
 public:
  /// A segment reaches to the next one's offset, the last one to the end of the space.
  struct Segment {
    std::uint64_t offset = 0;
    std::uint64_t page_bytes = kPageBytes;
  };
  static constexpr std::size_t kMostSegments = 8;

  /// The segments in the order of their offsets, the first at 0. Each begins and ends at a multiple of its
  /// page size.
  static Result<Pages> create(std::uint64_t space_bytes, std::span<const Segment>);

  /// One segment.
  static Result<Pages> uniform(std::uint64_t space_bytes, std::uint64_t page_bytes = kPageBytes);

  /// Pages of the space.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] bool contains(PageId page) const noexcept { return raw(page) < count(); }

  /// The page of a byte, and where the page ends.
  struct PageEnd {
    PageId page;
    std::uint64_t end;
  };
  /// Beyond the space: a number that no page has.
  [[nodiscard]] PageEnd place_of(std::uint64_t offset) const noexcept {
    const Row& row = row_of(offset);
    const std::uint64_t before = (offset - row.offset) >> row.shift;
    return {PageId{row.first_page + before}, row.offset + ((before + 1) << row.shift)};
  }
  [[nodiscard]] PageId page_of(std::uint64_t offset) const noexcept { return place_of(offset).page; }
  [[nodiscard]] PageId page_of(BlockId b) const noexcept { return page_of(mem::offset_of(b)); }

  [[nodiscard]] std::uint64_t offset_of(PageId page) const noexcept {
    const Row& row = row_of(page);
    return row.offset + ((raw(page) - row.first_page) << row.shift);
  }
  [[nodiscard]] std::uint64_t bytes_of(PageId page) const noexcept {
    return std::uint64_t{1} << row_of(page).shift;
  }
  [[nodiscard]] std::uint64_t end_of(PageId page) const noexcept { return offset_of(page) + bytes_of(page); }
  /// The page size of the segment in which the byte lies.
  [[nodiscard]] std::uint64_t page_bytes_at(std::uint64_t offset) const noexcept {
    return std::uint64_t{1} << row_of(offset).shift;
  }
  [[nodiscard]] BlockRange blocks_of(PageId page) const noexcept {
    return {block_of(offset_of(page)), bytes_of(page) / kBlockBytes};
  }

  /// The pages that have a byte of [offset, offset + bytes), which lies in the space.
  [[nodiscard]] PageRange in(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (bytes == 0) return {};
    return {raw(page_of(offset)), raw(page_of(offset + bytes - 1)) + 1};
  }
  /// Does the range consist of whole pages?
  [[nodiscard]] bool whole(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return bytes == 0 ||
           (offset_of(page_of(offset)) == offset && place_of(offset + bytes - 1).end == offset + bytes);
  }

 private:
  struct Row {
    std::uint64_t offset, first_page;  ///< where the segment begins
    unsigned shift;                    ///< a page has 1 << shift bytes
  };

  Pages() = default;
  // Searches from the last row, in which most memory and everything beyond the space lies; the first begins
  // at 0.
  [[nodiscard]] const Row& row_of(std::uint64_t offset) const noexcept {
    const Row* row = &rows_[rows_used_ - 1];
    while (offset < row->offset) --row;
    return *row;
  }
  [[nodiscard]] const Row& row_of(PageId page) const noexcept {
    const Row* row = &rows_[rows_used_ - 1];
    while (raw(page) < row->first_page) --row;
    return *row;
  }

  std::array<Row, kMostSegments> rows_{};
  std::size_t rows_used_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace kasane::mem
