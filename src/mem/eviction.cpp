// SPDX-License-Identifier: Apache-2.0
// Policies over PageLists. All of them: fifo; clock (second chance); 2q, after T. Johnson and D. Shasha, "2Q: a low overhead high performance buffer management
// replacement algorithm"; s3-fifo, after J. Yang et al., "FIFO queues are all you need for cache eviction"; steady, which is s3-fifo with a main list that is
// filled first and ages.
#include "mem/eviction.h"

#include <algorithm>

#include "mem/page_lists.h"

namespace kasane::mem {
namespace {

/// What all share: lists, of which one may remember pages that are out.
class Listed : public EvictionPolicy {
 public:
  Listed(std::uint32_t pages, std::uint32_t remembered, PageProbe& probe) : lists_(pages + remembered), probe_(probe) {}

  void leave(PageId page) noexcept override {
    if (lists_.list_of(page) != PageLists::kNone) lists_.remove(page);
  }

 protected:
  /// Of the pages that are looked at round by round.
  void arm(PageId page) noexcept { arm(page, lists_.size(lists_.list_of(page)) - 1); }
  void arm(PageId page, std::uint32_t before) noexcept {
    lists_.set_armed(page, true);
    probe_.arm(page, before);
  }
  /// The oldest of the list, after those that were touched, or not armed yet, got another round, armed; after so many looks, or a whole round, whatever is the oldest then: a program
  /// may touch pages faster than they are looked at.
  PageId oldest_untouched(PageLists::List list) noexcept { return oldest_untouched(list, lists_.size(list)); }
  PageId oldest_untouched(PageLists::List list, std::uint32_t looks) noexcept {
    for (; looks != 0; --looks) {
      const PageId page = lists_.oldest(list);
      if (lists_.armed(page) && !probe_.touched(page)) return page;
      lists_.move(page, list);
      arm(page);
    }
    return lists_.oldest(list);
  }

  PageLists lists_;
  PageProbe& probe_;
  std::uint32_t kept_ = 0;   ///< pages that were named since one came in, and could not go: once it is all of a main list, others are named before its pages are named again
};

/// One list. fifo: as they came, for pages that are used once, and to compare with. clock: second chance.
class OneList final : public Listed {
 public:
  OneList(std::uint32_t pages, PageProbe& probe, bool second_chance) : Listed(pages, 0, probe), second_chance_(second_chance) {}

  void enter(PageId page) noexcept override { lists_.add(0, page); }
  void keep(PageId page) noexcept override { lists_.add(0, page); }
  std::optional<PageId> evict() noexcept override {
    if (lists_.size(0) == 0) return {};
    const PageId page = second_chance_ ? oldest_untouched(0) : lists_.oldest(0);
    lists_.remove(page);
    return page;
  }

 private:
  const bool second_chance_;
};

/// New pages pass through a quarter of memory; those that come back soon after they left are kept by second chance.
class TwoQueues final : public Listed {
 public:
  TwoQueues(std::uint32_t pages, PageProbe& probe) : Listed(pages, pages, probe) {}

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
    const PageId page = oldest_untouched(kMain);
    lists_.remove(page);
    return page;
  }

 private:
  static constexpr PageLists::List kIn = 0, kMain = 1, kOut = 2;
};

/// New pages pass through a tenth of memory, where they are armed halfway: those touched after that, and those that come back soon after they
/// left, are kept by second chance.
///
/// steady: three changes, for sweeps over more than fits, again and again, where whatever keeps recent pages keeps none until its next use.
/// (1) The main list is filled with what comes as long as it has room: nothing drives those pages out, and each sweep finds them.
/// (2) A page that came back takes the place of the main list's oldest only if that one was not touched.
/// (3) Now and then evictions look at that one, too, so that pages of a phase that is over make room.
/// (4) Whoever makes room lets many pages go at once, now more, now fewer: as many as went count as if they were still on trial, and the main list is left alone until those are half as
///     many as there should be, and is looked at a few times for each then.
class S3Fifo final : public Listed {
 public:
  S3Fifo(std::uint32_t pages, PageProbe& probe, bool steady) : Listed(pages, pages, probe), steady_(steady) {}

  void enter(PageId page) noexcept override {
    gone_ -= std::min(gone_, 1u), spares_new_ = false, kept_ = 0;
    const bool back = lists_.list_of(page) == kOut;
    if (back) lists_.remove(page);
    if (steady_ ? lists_.size(kMain) < std::max(1u, (all() + 1) * 17 / 20) || (back && make_room()) : back) {
      lists_.add(kMain, page);
    } else {
      lists_.add(kYoung, page);
      while (lists_.size(kYoung) > std::max(1u, all() / 20)) {
        const PageId half_way = lists_.oldest(kYoung);
        lists_.move(half_way, kOld);
        arm(half_way, 0);   // at once: whether it is touched from here on decides, and read-ahead may be no further ahead
      }
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
    const std::uint32_t gone = steady_ ? gone_ : 0;
    gone_ = std::min(gone_ + 1, all() / 8);
    if (steady_ && ++evictions_ % kLooksOfEvictions == 0 && lists_.size(kMain) != 0) {
      const PageId page = lists_.oldest(kMain);
      if (make_room()) return forget(page);
    }
    const std::uint32_t least = (all() + gone) / (steady_ ? 20 : 10);
    while (on_trial() != 0 && ((!spares_new_ && on_trial() + gone > least) || kept_ >= lists_.size(kMain))) {
      const bool tested = lists_.size(kOld) != 0;
      const PageId page = lists_.oldest(tested ? kOld : kYoung);
      if (!tested || !probe_.touched(page)) return forget(page);
      lists_.move(page, kMain);
      arm(page);
    }
    const PageId page = steady_ ? oldest_untouched(kMain, std::min(kMostLooks, lists_.size(kMain))) : oldest_untouched(kMain);
    lists_.remove(page);
    return page;
  }

 private:
  static constexpr PageLists::List kYoung = 0, kOld = 1, kMain = 2, kOut = 3;
  // A look at the main list's oldest comes every so many evictions. Fewer: pages of a phase that is over stay longer. More: a page is looked at before its next use comes, in a loop
  // over several times memory, and most at the turn of a sweep to and fro.
  static constexpr std::uint32_t kLooksOfEvictions = 16;
  static constexpr std::uint32_t kMostLooks = 16;   ///< each but the last arms a page, which takes as long as letting one go

  [[nodiscard]] std::uint32_t on_trial() const noexcept { return lists_.size(kYoung) + lists_.size(kOld); }
  [[nodiscard]] std::uint32_t all() const noexcept { return on_trial() + lists_.size(kMain); }
  void stay(PageLists::List list, PageId page) noexcept {
    leave(page);
    lists_.add(list, page);
    gone_ -= std::min(gone_, 1u);
  }
  /// The main list's oldest leaves it, if it was not touched.
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

  const bool steady_;
  std::uint32_t evictions_ = 0;
  std::uint32_t gone_ = 0;     ///< and nothing came in their place yet: what lists lack of being full, as far as whoever makes room lets go at once
  bool spares_new_ = false;   ///< those that came last were named, and stay
};

}  // namespace

std::vector<std::string_view> eviction_policies() { return {"s3-fifo", "steady", "2q", "clock", "fifo"}; }

std::unique_ptr<EvictionPolicy> make_eviction_policy(std::string_view name, std::uint32_t pages, PageProbe& probe) {
  if (name == "steady" || name == "s3-fifo") return std::make_unique<S3Fifo>(pages, probe, name == "steady");
  if (name == "2q") return std::make_unique<TwoQueues>(pages, probe);
  if (name == "clock" || name == "fifo") return std::make_unique<OneList>(pages, probe, name == "clock");
  return nullptr;
}

}  // namespace kasane::mem
