// SPDX-License-Identifier: Apache-2.0
// Who counts a frame in, and who counts it out (docs/design/tiers.md), for the layer that fills frames. Where
// memory has no limit every answer is that of a rank with room, and nothing is counted.
//
//   in    dsm, by the holder of the block's bit, before the frame is touched: fill(), fill_staged()
//   in    gas::Tiers, for pages that it pages in as a whole: as above, through the page's bits
//   out   mem::Residency::empty(), and nothing else: called by Blocks' evictions here with the bits held, and
//         by gas::Tiers while it keeps the page busy
//
// Thread safety: every call from any thread; fill…() by the holder of the bits.
#pragma once

#include "dsm/held.h"
#include "mem/residency.h"

namespace kasane::dsm {

class Frames {
 public:
  /// null: memory has no limit.
  explicit Frames(mem::Residency* residency) noexcept : residency_(residency) {}

  [[nodiscard]] bool limited() const noexcept { return residency_ != nullptr; }
  /// Only where memory is limited.
  [[nodiscard]] mem::Residency& residency() const noexcept { return *residency_; }
  /// May the page's frames leave DRAM?
  [[nodiscard]] bool counts(PageId page) const noexcept {
    return residency_ != nullptr && residency_->counts(page);
  }
  [[nodiscard]] bool admitted(std::uint64_t blocks) const noexcept {
    return residency_ == nullptr || residency_->admitted(blocks);
  }
  /// Is so much room left, beside what the pager keeps free?
  [[nodiscard]] bool fits(std::uint64_t blocks) const noexcept {
    return residency_ == nullptr || residency_->admitted(blocks + residency_->low());
  }

  void fill(mem::BlockRange run) const noexcept {
    if (residency_ != nullptr) residency_->fill(run);
  }
  void fill(const Held& held) const noexcept {
    if (residency_ != nullptr) held.for_each_run([&](mem::BlockRange run) { residency_->fill(run); });
  }
  /// Blocks that will probably be read from SSD through a bounce buffer.
  void fill_staged(mem::BlockRange run) const noexcept {
    if (residency_ != nullptr) residency_->fill_staged(run);
  }
  void fill_staged(const Held& held) const noexcept {
    if (residency_ != nullptr) held.for_each_run([&](mem::BlockRange run) { residency_->fill_staged(run); });
  }
  /// Blocks that were counted as staged and will not be; called before they are touched.
  void fill_otherwise(mem::BlockRange run) const noexcept {
    if (residency_ != nullptr && residency_->large_frames()) residency_->fill(run);
  }
  void fill_otherwise(const Held& held) const noexcept {
    if (residency_ != nullptr && residency_->large_frames()) fill(held);
  }
  void fill_twin(BlockId b) const noexcept {
    if (residency_ != nullptr) residency_->fill_twin(b);
  }

 private:
  mem::Residency* const residency_;
};

}  // namespace kasane::dsm
