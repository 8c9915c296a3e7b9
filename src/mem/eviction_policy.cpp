// SPDX-License-Identifier: Apache-2.0
#include "mem/eviction_policy.h"

#include <algorithm>

namespace kasane::mem {

PageId ListPolicy::oldest_untouched(PageLists::List list, std::uint32_t looks) noexcept {
  for (; looks != 0; --looks) {
    const PageId page = lists_.oldest(list);
    if (lists_.armed(page) && !probe_.touched(page)) return page;
    lists_.move(page, list);
    arm(page);
  }
  return lists_.oldest(list);
}

std::optional<PageId> Fifo::evict() noexcept {
  if (lists_.size(0) == 0) return {};
  const PageId page = lists_.oldest(0);
  lists_.remove(page);
  return page;
}

void S3Fifo::enter(PageId page) noexcept {
  spares_new_ = false, kept_ = 0;
  if (lists_.list_of(page) == kOut) {
    lists_.remove(page);
    lists_.add(kMain, page);
    return;
  }
  lists_.add(kYoung, page);
  while (lists_.size(kYoung) > std::max(1u, all() / 20)) {
    const PageId half_way = lists_.oldest(kYoung);
    lists_.move(half_way, kOld);
    arm(half_way, 0);  // at once: a touch from here on decides, and read-ahead may be no further ahead
  }
}

void S3Fifo::keep(PageId page) noexcept {
  leave(page);
  lists_.add(kMain, page);
  ++kept_;
}

void S3Fifo::put_back(PageId page) noexcept {
  leave(page);
  lists_.add(kYoung, page);
  spares_new_ = true;
}

std::optional<PageId> S3Fifo::evict() noexcept {
  if (all() == 0) return {};
  while (on_trial() != 0 && ((!spares_new_ && on_trial() > all() / 10) || kept_ >= lists_.size(kMain))) {
    const bool tested = lists_.size(kOld) != 0;
    const PageId page = lists_.oldest(tested ? kOld : kYoung);
    if (tested && probe_.touched(page)) {
      lists_.move(page, kMain);
      arm(page);
      continue;
    }
    lists_.move(page, kOut);
    if (lists_.size(kOut) > all()) lists_.remove(lists_.oldest(kOut));
    return page;
  }
  const PageId page = oldest_untouched(kMain, lists_.size(kMain));
  lists_.remove(page);
  return page;
}

}  // namespace kasane::mem
