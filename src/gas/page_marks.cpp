// SPDX-License-Identifier: Apache-2.0
#include "gas/page_marks.h"

#include <array>

#include "base/assert.h"

namespace kasane::gas {

/// A bit that is set already needs no atomic: if a take clears it after this look, it does so after what the
/// caller did, and knows of that. The levels above are looked at afterwards, so that a take which had passed
/// them before finds them set again.
void PageMarks::add_here(PageId page) const noexcept {
  const auto set = [this](std::uint64_t offset, std::uint64_t bit) {
    std::atomic<std::uint64_t>& word = here(offset);
    if ((word.load() & bit) == 0) word.fetch_or(bit);
  };
  const MarkPlace at = MarkPlace::of(page);
  set(leaf_ + at.leaf * 8, at.leaf_bit);
  set(branch_ + at.branch * 8, at.branch_bit);
  set(head_, at.head_bit);
}

void PageMarks::add(comm::Blocking& io, std::span<const Notice> notices) const {
  std::array<std::uint64_t, kMostNotices> before;
  KASANE_CHECK_OP(notices.size(), <=, before.size());
  comm::Batch batch(io);
  const auto level = [&](const auto& offset_of, const auto& bit_of) {
    for (std::size_t i = 0; i < notices.size(); ++i) {
      const MarkPlace at = MarkPlace::of(notices[i].page);
      words_.fetch_or(batch, notices[i].rank, offset_of(at), bit_of(at), &before[i]);
    }
    batch.await();
  };
  level([this](const MarkPlace& at) { return leaf_ + at.leaf * 8; },
        [](const MarkPlace& at) { return at.leaf_bit; });
  level([this](const MarkPlace& at) { return branch_ + at.branch * 8; },
        [](const MarkPlace& at) { return at.branch_bit; });
  level([this](const MarkPlace&) { return head_; }, [](const MarkPlace& at) { return at.head_bit; });
}

}  // namespace kasane::gas
