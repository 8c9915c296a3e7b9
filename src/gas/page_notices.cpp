// SPDX-License-Identifier: Apache-2.0
#include "gas/page_notices.h"

#include <array>

#include "base/assert.h"

namespace kasane::gas {

void PageNotices::add(comm::Blocking& io, std::span<const Notice> notices) const {
  std::array<std::uint64_t, kMostNotices> before;
  std::array<PageMarks::Notice, kMostNotices> marks;
  KASANE_CHECK_OP(notices.size(), <=, before.size());
  {
    comm::Batch batch(io);
    for (std::size_t i = 0; i < notices.size(); ++i) {
      words_.fetch_or(batch, notices[i].rank, parts_ + raw(notices[i].page) * sizeof(PartMask),
                      notices[i].parts, &before[i]);
      marks[i] = {notices[i].rank, notices[i].page};
    }
  }
  PageMarks::add(io, {marks.data(), notices.size()});
}

/// Parts that are set already need no atomic: a thread that takes them after this look knows what the caller
/// did, as of a mark (PageMarks::add_here).
void PageNotices::add_here(PageId page, PartMask parts) const noexcept {
  std::atomic<PartMask>& word = parts_of(page);
  if ((word.load() & parts) != parts) word.fetch_or(parts);
  PageMarks::add_here(page);
}

}  // namespace kasane::gas
