// SPDX-License-Identifier: Apache-2.0
// Write notices of a rank: a set of pages (gas/page_marks.h), and a word for each page that says which of its
// parts have changed.
//
//   sender      parts ─▶ leaf ─▶ branch ─▶ head       each when the one before has completed
//   receiver    head, branch, leaf ─▶ parts           takes and clears
//
// So the parts of an add that has returned are there when its page is found. The receiver may take them with
// another notice; then it finds the page once more, without parts: it has dealt with it already.
//
// Thread safety: as PageMarks; take_parts() by the thread that takes the pages.
#pragma once

#include <span>

#include "gas/page_marks.h"
#include "gas/page_parts.h"

namespace kasane::gas {

class PageNotices : private PageMarks {
 public:
  struct Notice {
    Rank rank;  ///< the receiver
    PageId page;
    PartMask parts;
  };
  using PageMarks::begin, PageMarks::end, PageMarks::idle, PageMarks::may_hold, PageMarks::word;
  /// Pages of which this rank has notices. Their parts are taken one by one.
  using PageMarks::kMostNotices;
  using PageMarks::take;
  [[nodiscard]] static constexpr std::size_t bytes(std::uint64_t pages) noexcept {
    return PageMarks::bytes(pages) + pages * sizeof(PartMask);
  }

  /// head, table: offsets in the region, equal on every rank. The table has bytes(pages) bytes.
  PageNotices(const comm::RegionWords& words, Rank me, std::uint64_t pages, std::uint64_t head,
              std::uint64_t table) noexcept
      : PageMarks(words, me, pages, head, table + pages * sizeof(PartMask)), parts_(table) {}

  /// Adds all at once (kMostNotices at most), in four round trips.
  void add(comm::Blocking& io, std::span<const Notice>) const;
  void add_here(PageId page, PartMask parts) const noexcept;
  /// Takes the parts of a page that was taken. 0: they were taken before, with another notice.
  [[nodiscard]] PartMask take_parts(PageId page) const noexcept { return parts_of(page).exchange(0); }

 private:
  // seq_cst, as the marks.
  [[nodiscard]] std::atomic<PartMask>& parts_of(PageId page) const noexcept {
    return here(parts_ + raw(page) * sizeof(PartMask));
  }

  std::uint64_t parts_;  ///< offset in the region
};

}  // namespace kasane::gas
