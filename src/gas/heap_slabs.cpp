// SPDX-License-Identifier: Apache-2.0
#include "gas/heap_slabs.h"

#include <array>
#include <map>

namespace kasane::gas {
namespace {

constexpr std::array<std::uint64_t, 2 * kGroupsPerPage> kZeros{};

/// The groups of one class that were on their stack.
class Collection {
 public:
  Collection(HeapAccess& at, unsigned size_class, StackHead known) : at_(at), class_(size_class) {
    TakingAll all = TakingAll::begin(known);
    at.drive(all, head(), true);
    top_ = all.head.changed(0);
    for (std::uint64_t top = all.top; top != 0;) {
      order_.push_back(top - 1);
      top = meet(top - 1);
    }
  }

  /// Puts back the groups of all slabs that are not wholly free, and calls found(first page) for the others.
  template <class F>
  void part(const F& found) {
    if (order_.empty()) return;
    std::uint64_t first = 0, last = 0;  // + 1: of what goes back
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (free(order_[i])) continue;
      if (first == 0) first = order_[i] + 1;
      // The chain must be written anew only where groups in between are left out.
      else if (free(order_[i - 1]))
        at_.store(at_.layout().group(last - 1) + 8, order_[i] + 1);
      last = order_[i] + 1;
    }
    for (const auto& [page, slab] : slabs_) {
      if (slab.whole == groups_of(class_)) found(page);
    }
    if (first == 0) return;
    Giving giving = Giving::chain(first - 1, last - 1, top_);
    at_.drive(giving, head(), true);
  }

 private:
  struct Slab {
    std::uint64_t whole = 0;  ///< groups of which all objects are free, and which were taken
    std::size_t records = 0;  ///< in records_
  };

  [[nodiscard]] std::uint64_t head() const noexcept { return HeapLayout::group_head(class_); }
  [[nodiscard]] bool free(std::uint64_t group) const {
    return slabs_.at(group / kGroupsPerPage).whole == groups_of(class_);
  }

  /// Counts a group. Returns the next one, + 1. A slab's records are read once: groups that were taken are
  /// linked already, and bits that are set later only keep a slab.
  std::uint64_t meet(std::uint64_t group) {
    const std::uint64_t page = group / kGroupsPerPage, number = group % kGroupsPerPage;
    const auto [slab, fresh] = slabs_.try_emplace(page);
    if (fresh) {
      slab->second.records = records_.size();
      records_.resize(records_.size() + 2 * groups_of(class_));
      at_.read(at_.layout().group(page * kGroupsPerPage), records_.data() + slab->second.records,
               2 * groups_of(class_));
    }
    const std::uint64_t* record = records_.data() + slab->second.records + 2 * number;
    if (record[0] == all_bits(class_, number)) ++slab->second.whole;
    return record[1];
  }

  HeapAccess& at_;
  unsigned class_;
  StackHead top_;
  std::vector<std::uint64_t, MallocAllocator<std::uint64_t>> order_, records_;
  /// by first page
  std::map<std::uint64_t, Slab, std::less<>, MallocAllocator<std::pair<const std::uint64_t, Slab>>> slabs_;
};

}  // namespace

std::vector<FreeSlab, MallocAllocator<FreeSlab>> collect_slabs(HeapAccess& at) {
  std::vector<FreeSlab, MallocAllocator<FreeSlab>> all;
  std::array<std::uint64_t, kSizeClasses> heads;
  // maybe old: groups that were pushed since stay where they are
  at.read(HeapLayout::group_head(0), heads.data(), heads.size());
  for (unsigned c = 0; c < kSizeClasses; ++c) {
    Collection(at, c, StackHead::of(heads[c])).part([&](std::uint64_t page) {
      // Every rank forgets what the pages were, before other objects can be allocated there.
      at.write_everywhere(at.layout().known(at.rank(), page), kZeros.data(),
                          slab_pages(c) * HeapLayout::kKnownBytes);
      at.write(at.layout().group(page * kGroupsPerPage), kZeros.data(), 2 * groups_of(c));
      at.write(at.layout().page(page), kZeros.data(), 2 * slab_pages(c));
      all.push_back({page, slab_pages(c)});
    });
  }
  return all;
}

}  // namespace kasane::gas
