// SPDX-License-Identifier: Apache-2.0
#include "mem/arming.h"

#include <algorithm>

namespace kasane::mem {

void Arming::arm(PageId page, std::uint32_t before) {
  if (!waiting_.insert(BlockId{raw(page)})) return;
  if (before < kMany) return soon_.push_back(page);
  later_.push_back(page);
  if (later_.size() >= before / 4) lay(later_);
}

void Arming::before_look(PageId page) {
  if (!waiting_.contains(BlockId{raw(page)})) return;
  lay(soon_);
  lay(later_);
}

void Arming::lay(std::vector<PageId>& pages) {
  std::sort(pages.begin(), pages.end());
  rest_(pages);
  for (const PageId page : pages) waiting_.erase(BlockId{raw(page)});
  pages.clear();
}

}  // namespace kasane::mem
