// SPDX-License-Identifier: Apache-2.0
// What a rank was told of: pages, in a set of marks (gas/page_marks.h), and a word a page beside it that says which of its parts have changed.
//
//   who tells     parts ─▶ leaf ─▶ branch ─▶ head       each when the one before has completed
//   who hears     head, branch, leaf ─▶ parts           takes and clears
//
// So the parts of an add that has returned are there when its page is found. Who hears may take them with another's notice; then it finds the page once more, with no parts: it has heard already.
//
// Thread safety: as PageMarks; take_parts() by who takes the pages.
#pragma once

#include <span>

#include "gas/page_marks.h"
#include "gas/page_parts.h"

namespace kasane::gas {

class PageNotices {
 public:
  struct Notice {
    Rank rank;   ///< who is told
    PageId page;
    PartMask parts;
  };
  static constexpr std::size_t kMostNotices = PageMarks::kMostNotices;
  [[nodiscard]] static constexpr std::size_t bytes(std::uint64_t pages) noexcept { return PageMarks::bytes(pages) + pages * sizeof(PartMask); }

  /// The same places in every rank's region; a table of bytes().
  PageNotices(const comm::RegionWords& words, Rank me, std::uint64_t pages, std::uint64_t head, std::uint64_t table) noexcept
      : words_(words), me_(me), parts_(table), marks_(words, me, pages, head, table + pages * sizeof(PartMask)) {}

  /// All at once (kMostNotices at most), in four trips.
  void add(comm::Blocking& io, std::span<const Notice>) const;
  void add_here(PageId page, PartMask parts) const noexcept;

  /// Calls f(page) for the pages that this rank was told of when the call began; what is added meanwhile may be among them. f may add.
  template <class F>
  void take(const F& f) const {
    marks_.take(f);
  }
  /// Of a page that was taken. None: they were taken before, with another notice.
  [[nodiscard]] PartMask take_parts(PageId page) const noexcept { return parts_of(page).exchange(0); }

  void begin() const noexcept { marks_.begin(); }
  void end() const noexcept { marks_.end(); }
  [[nodiscard]] bool idle() const noexcept { return marks_.idle(); }
  [[nodiscard]] bool may_hold(PageId page) const noexcept { return marks_.may_hold(page); }

 private:
  // seq_cst, as the marks.
  [[nodiscard]] std::atomic<PartMask>& parts_of(PageId page) const noexcept { return *words_.here(me_, parts_ + raw(page) * sizeof(PartMask)); }

  const comm::RegionWords& words_;
  Rank me_;
  std::uint64_t parts_;   ///< offset in the region
  PageMarks marks_;
};

}  // namespace kasane::gas
