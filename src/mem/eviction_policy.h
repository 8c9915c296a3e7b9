// SPDX-License-Identifier: Apache-2.0
// Which page leaves DRAM next. A policy knows page numbers and nothing else. What it learns of accesses is
// what a rank can observe at little cost:
//
//   a page comes in          a fault, or its first touch            enter()
//   was it touched since …   arm(): V's translations are dropped;   touched(), when the page is examined
//                            the next access faults and maps again
//
// Examining a page that is in use costs one soft fault, and nothing otherwise. Between arm() and touched(),
// one touch or a million are the same. A page that was just brought in is mapped, not armed: the accesses
// that follow at once belong to the fault and carry no information.
//
// S3Fifo is for the pages of a program. Fifo is for pages that are used once. bench/eviction.cpp compares
// them with other policies.
//
// Thread safety: none; one lock, or one thread, a policy.
// Invariants: evict() names a page that is in, which is out from then on. A policy allocates the memory for
// `pages` pages and as many remembered ones when it is made, and none later.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "mem/page_lists.h"

namespace kasane::mem {

/// What a policy asks of the rank. Called inside enter() and evict().
class PageProbe {
 public:
  /// The page's next touch is to be noted. `before`: at least so many other pages are examined before this
  /// one.
  virtual void arm(PageId, std::uint32_t before) noexcept = 0;
  /// Was it touched since it was armed?
  [[nodiscard]] virtual bool touched(PageId) noexcept = 0;

 protected:
  ~PageProbe() = default;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// The page has come in. Before that there were fewer than `pages` of them.
  virtual void enter(PageId) noexcept = 0;
  /// The page has left without evict(): freed, or moved to another rank. No effect on a page that is not in.
  virtual void leave(PageId) noexcept = 0;
  /// The page to evict, which is out from now on; empty: no page is in.
  virtual std::optional<PageId> evict() noexcept = 0;
  /// The page that evict() named cannot leave (pinned, busy): it is in again, as a page that is in use.
  virtual void keep(PageId) noexcept = 0;
  /// The page that evict() named has just come in and stays for now: it is in again, as new as it was. Until
  /// another page enters, evict() names older pages first, where the policy tells them apart.
  virtual void put_back(PageId page) noexcept { keep(page); }
};

/// What the policies share: lists, of which one may remember pages that are out.
class ListPolicy : public EvictionPolicy {
 public:
  void leave(PageId page) noexcept override {
    if (lists_.list_of(page) != PageLists::kNone) lists_.remove(page);
  }

 protected:
  ListPolicy(std::uint32_t pages, std::uint32_t remembered, PageProbe& probe)
      : lists_(pages + remembered), probe_(probe) {}

  /// For a page of a list that is examined round by round.
  void arm(PageId page) noexcept { arm(page, lists_.size(lists_.list_of(page)) - 1); }
  void arm(PageId page, std::uint32_t before) noexcept {
    lists_.set_armed(page, true);
    probe_.arm(page, before);
  }
  /// The oldest page of the list that was not touched since it was armed. Pages that were touched, or not
  /// armed yet, are armed and get another round. After `looks` pages: the page that is the oldest then, since
  /// a program may touch pages faster than they are examined.
  PageId oldest_untouched(PageLists::List list, std::uint32_t looks) noexcept;

  PageLists lists_;
  PageProbe& probe_;
  /// Pages that evict() named since a page entered, and that could not leave. Once they are all of a main
  /// list, other lists' pages are named before them.
  std::uint32_t kept_ = 0;
};

/// In the order in which pages came, for pages that are used once.
class Fifo final : public ListPolicy {
 public:
  Fifo(std::uint32_t pages, PageProbe& probe) : ListPolicy(pages, 0, probe) {}

  void enter(PageId page) noexcept override { lists_.add(0, page); }
  void keep(PageId page) noexcept override { lists_.add(0, page); }
  std::optional<PageId> evict() noexcept override;
};

/// After J. Yang et al., "FIFO queues are all you need for cache eviction". New pages pass through a tenth of
/// memory, where they are armed halfway. Pages that are touched after that, and pages that come back soon
/// after they left, enter the main list, which has second chance.
class S3Fifo final : public ListPolicy {
 public:
  S3Fifo(std::uint32_t pages, PageProbe& probe) : ListPolicy(pages, pages, probe) {}

  void enter(PageId) noexcept override;
  void keep(PageId) noexcept override;
  void put_back(PageId) noexcept override;
  std::optional<PageId> evict() noexcept override;

 private:
  static constexpr PageLists::List kYoung = 0, kOld = 1, kMain = 2, kOut = 3;

  [[nodiscard]] std::uint32_t on_trial() const noexcept { return lists_.size(kYoung) + lists_.size(kOld); }
  [[nodiscard]] std::uint32_t all() const noexcept { return on_trial() + lists_.size(kMain); }

  bool spares_new_ = false;  ///< the newest pages were named, and stay
};

}  // namespace kasane::mem
