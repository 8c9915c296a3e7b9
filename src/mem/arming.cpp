// SPDX-License-Identifier: Apache-2.0
#include "mem/arming.h"

#include <algorithm>
#include <utility>

namespace kasane::mem {

void Arming::arm(PageId page, std::uint32_t before) {
  if (!waiting_.insert(page)) return;
  if (before < kMany) return soon_.push_back(page);
  later_.push_back(page);
  if (later_.size() < before / 4) return;
  lay_going(going_.size());
  going_.swap(later_);
  std::sort(going_.begin(), going_.end());
  later_.clear();
  going_at_ = 0;
}

void Arming::lay_to_rest() {
  lay_all(soon_);
  lay_going((going_.size() + 7) / 8);
}

void Arming::before_look(PageId page) {
  if (!waiting_.contains(page)) return;
  lay_all(soon_);
  lay_going(going_.size());
  lay_all(later_);
}

void Arming::lay_all(std::vector<PageId>& pages) {
  std::sort(pages.begin(), pages.end());
  lay(pages);
  pages.clear();
}

void Arming::lay_going(std::size_t most) {
  const auto some = std::span<const PageId>(going_).subspan(going_at_);
  lay(some.first(std::min(most, some.size())));
  going_at_ += std::min(most, some.size());
}

void Arming::lay(std::span<const PageId> sorted) {
  rest_(sorted);
  for (const PageId page : sorted) waiting_.erase(page);
}

}  // namespace kasane::mem
