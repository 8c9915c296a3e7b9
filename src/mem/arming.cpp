// SPDX-License-Identifier: Apache-2.0
#include "mem/arming.h"

#include <algorithm>

namespace kasane::mem {

void Arming::arm(PageId page, std::uint32_t before) {
  if (!waiting_.insert(page)) return;
  if (before < kMany) return soon_.push_back(page);
  later_.push_back(page);
  if (later_.size() < before / 4) return;
  retire_some(retiring_.size());
  retiring_.swap(later_);
  std::sort(retiring_.begin(), retiring_.end());
  later_.clear();
  retired_ = 0;
}

void Arming::end_turn() {
  retire_all(soon_);
  retire_some((retiring_.size() + 7) / 8);
}

void Arming::before_look(PageId page) {
  if (!waiting_.contains(page)) return;
  retire_all(soon_);
  retire_some(retiring_.size());
  retire_all(later_);
}

void Arming::retire_all(std::vector<PageId>& pages) {
  std::sort(pages.begin(), pages.end());
  retire(pages);
  pages.clear();
}

void Arming::retire_some(std::size_t most) {
  const auto some = std::span<const PageId>(retiring_).subspan(retired_);
  retire(some.first(std::min(most, some.size())));
  retired_ += std::min(most, some.size());
}

void Arming::retire(std::span<const PageId> sorted) {
  retire_(sorted);
  for (const PageId page : sorted) waiting_.erase(page);
}

}  // namespace kasane::mem
