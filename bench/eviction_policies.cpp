// SPDX-License-Identifier: Apache-2.0
// clock: second chance. 2q: after T. Johnson and D. Shasha, "2Q: a low overhead high performance buffer
// management replacement algorithm". steady: s3-fifo with a main list that is filled first and ages.
#include "eviction_policies.h"

#include <algorithm>

namespace kasane::bench {
namespace {

using mem::ListPolicy, mem::PageLists, mem::PageProbe;

/// One list with second chance.
class Clock final : public ListPolicy {
 public:
  Clock(std::uint32_t pages, PageProbe& probe) : ListPolicy(pages, 0, probe) {}

  void enter(PageId page) noexcept override { lists_.add(0, page); }
  void keep(PageId page) noexcept override { lists_.add(0, page); }
  std::optional<PageId> evict() noexcept override {
    if (lists_.size(0) == 0) return {};
    const PageId page = oldest_untouched(0, lists_.size(0));
    lists_.remove(page);
    return page;
  }
};

/// New pages pass through a quarter of memory. Those that come back soon after they left are kept by second
/// chance.
class TwoQueues final : public ListPolicy {
 public:
  TwoQueues(std::uint32_t pages, PageProbe& probe) : ListPolicy(pages, pages, probe) {}

  void enter(PageId page) noexcept override {
    kept_ = 0;
    if (lists_.list_of(page) == kOut)
      lists_.move(page, kMain), lists_.set_armed(page, false);
    else
      lists_.add(kIn, page);
  }
  void keep(PageId page) noexcept override {
    leave(page);
    lists_.add(kMain, page);
    ++kept_;
  }
  std::optional<PageId> evict() noexcept override {
    const std::uint32_t all = lists_.size(kIn) + lists_.size(kMain);
    if (all == 0) return {};
    if (lists_.size(kIn) > all / 4 || (lists_.size(kIn) != 0 && kept_ >= lists_.size(kMain))) {
      const PageId page = lists_.oldest(kIn);
      lists_.move(page, kOut);
      if (lists_.size(kOut) > all / 2) lists_.remove(lists_.oldest(kOut));
      return page;
    }
    const PageId page = oldest_untouched(kMain, lists_.size(kMain));
    lists_.remove(page);
    return page;
  }

 private:
  static constexpr PageLists::List kIn = 0, kMain = 1, kOut = 2;
};

/// s3-fifo with four changes, for repeated sweeps over more data than fits, where a policy that keeps recent
/// pages keeps none until its next use.
/// (1) The main list is filled with new pages as long as it has room: nothing drives those pages out, and
///     each sweep finds them.
/// (2) A page that came back takes the place of the main list's oldest only if that one was not touched.
/// (3) Every few evictions examine that oldest page, too, so that pages of a phase that is over make room.
/// (4) The rank evicts many pages at once, now more, now fewer. As many as left count as if they were still
///     on trial. The main list is left alone until those are half as many as they should be; then each
///     eviction examines a few of its pages.
class Steady final : public ListPolicy {
 public:
  Steady(std::uint32_t pages, PageProbe& probe) : ListPolicy(pages, pages, probe) {}

  void enter(PageId page) noexcept override {
    gone_ -= std::min(gone_, 1u), spares_new_ = false, kept_ = 0;
    const bool back = lists_.list_of(page) == kOut;
    if (back) lists_.remove(page);
    if (lists_.size(kMain) < std::max(1u, (all() + 1) * 17 / 20) || (back && make_room())) {
      lists_.add(kMain, page);
      return;
    }
    lists_.add(kYoung, page);
    while (lists_.size(kYoung) > std::max(1u, all() / 20)) {
      const PageId half_way = lists_.oldest(kYoung);
      lists_.move(half_way, kOld);
      arm(half_way, 0);
    }
  }
  void keep(PageId page) noexcept override {
    stay(kMain, page);
    ++kept_;
  }
  void put_back(PageId page) noexcept override {
    stay(kYoung, page);
    spares_new_ = true;
  }
  std::optional<PageId> evict() noexcept override {
    if (all() == 0) return {};
    const std::uint32_t gone = gone_;
    gone_ = std::min(gone_ + 1, all() / 8);
    if (++evictions_ % kLooksOfEvictions == 0 && lists_.size(kMain) != 0) {
      const PageId page = lists_.oldest(kMain);
      if (make_room()) return forget(page);
    }
    const std::uint32_t least = (all() + gone) / 20;
    while (on_trial() != 0 && ((!spares_new_ && on_trial() + gone > least) || kept_ >= lists_.size(kMain))) {
      const bool tested = lists_.size(kOld) != 0;
      const PageId page = lists_.oldest(tested ? kOld : kYoung);
      if (!tested || !probe_.touched(page)) return forget(page);
      lists_.move(page, kMain);
      arm(page);
    }
    const PageId page = oldest_untouched(kMain, std::min(kMostLooks, lists_.size(kMain)));
    lists_.remove(page);
    return page;
  }

 private:
  static constexpr PageLists::List kYoung = 0, kOld = 1, kMain = 2, kOut = 3;
  // One eviction of so many examines the main list's oldest page. Fewer: pages of a phase that is over stay
  // longer. More: a page is examined before its next use comes, in a loop over several times memory, and most
  // at the turn of a sweep to and fro.
  static constexpr std::uint32_t kLooksOfEvictions = 16;
  /// Each but the last arms a page, which costs as much as an eviction
  static constexpr std::uint32_t kMostLooks = 16;

  [[nodiscard]] std::uint32_t on_trial() const noexcept { return lists_.size(kYoung) + lists_.size(kOld); }
  [[nodiscard]] std::uint32_t all() const noexcept { return on_trial() + lists_.size(kMain); }
  void stay(PageLists::List list, PageId page) noexcept {
    leave(page);
    lists_.add(list, page);
    gone_ -= std::min(gone_, 1u);
  }
  /// The main list's oldest page leaves it, if it was not touched.
  bool make_room() noexcept {
    const PageId page = lists_.oldest(kMain);
    const bool idle = lists_.armed(page) && !probe_.touched(page);
    lists_.move(page, idle ? kOld : kMain);
    if (!idle) arm(page);
    return idle;
  }
  PageId forget(PageId page) noexcept {
    lists_.move(page, kOut);
    if (lists_.size(kOut) > all()) lists_.remove(lists_.oldest(kOut));
    return page;
  }

  std::uint32_t evictions_ = 0;
  /// Pages that left, and whose places no page has taken yet: what the lists lack of being full
  std::uint32_t gone_ = 0;
  bool spares_new_ = false;
};

}  // namespace

std::vector<std::string_view> eviction_policies() { return {"s3-fifo", "steady", "2q", "clock", "fifo"}; }

std::unique_ptr<mem::EvictionPolicy> make_eviction_policy(std::string_view name, std::uint32_t pages,
                                                          PageProbe& probe) {
  if (name == "s3-fifo") return std::make_unique<mem::S3Fifo>(pages, probe);
  if (name == "fifo") return std::make_unique<mem::Fifo>(pages, probe);
  if (name == "steady") return std::make_unique<Steady>(pages, probe);
  if (name == "2q") return std::make_unique<TwoQueues>(pages, probe);
  if (name == "clock") return std::make_unique<Clock>(pages, probe);
  return nullptr;
}

}  // namespace kasane::bench
