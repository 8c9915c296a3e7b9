// SPDX-License-Identifier: Apache-2.0
// Lists of pages for eviction policies. A page is in one list or in none, and is found by its number. The
// constructor allocates all memory.
//
//   index: page ─▶ node        nodes: page, list, neighbours, armed        lists: newest ⇄ … ⇄ oldest
//
// Thread safety: none.
// Invariants: a node is in the free list or in exactly one list and the index; the index is at most half
// full.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "base/ids.h"
#include "base/malloc_allocator.h"

namespace kasane::mem {

class PageLists {
 public:
  using List = std::uint32_t;
  static constexpr List kLists = 4, kNone = kLists;

  explicit PageLists(std::uint32_t pages)
      : nodes_(pages + kLists), index_(std::bit_ceil(2 * (std::uint64_t{pages} + 1)), 0) {
    // A list's own node joins its ends
    for (std::uint32_t l = 0; l < kLists; ++l) nodes_[l].newer = nodes_[l].older = l;
    for (std::uint32_t n = kLists; n < nodes_.size(); ++n) nodes_[n].older = n + 1;
  }

  [[nodiscard]] std::uint32_t size(List l) const noexcept { return sizes_[l]; }
  [[nodiscard]] bool full() const noexcept { return free_ == nodes_.size(); }
  [[nodiscard]] List list_of(PageId page) const noexcept {
    const std::uint32_t n = index_[place_of(page)];
    return n != 0 ? nodes_[n].list : kNone;
  }
  /// The list is not empty.
  [[nodiscard]] PageId oldest(List l) const noexcept { return nodes_[nodes_[l].newer].page; }
  [[nodiscard]] bool armed(PageId page) const noexcept { return nodes_[index_[place_of(page)]].armed; }
  void set_armed(PageId page, bool armed) noexcept { nodes_[index_[place_of(page)]].armed = armed; }

  /// Adds the page to l as its newest, not armed. The page is in no list, and there is room.
  void add(List l, PageId page) noexcept {
    KASANE_ASSERT(!full() && list_of(page) == kNone);
    const std::uint32_t n = free_;
    free_ = nodes_[n].older;
    nodes_[n].page = page;
    nodes_[n].armed = false;
    index_[place_of(page)] = n;
    link(l, n);
  }
  /// From its list to the newest end of l.
  void move(PageId page, List l) noexcept {
    const std::uint32_t n = index_[place_of(page)];
    unlink(n);
    link(l, n);
  }
  /// The page is in a list.
  void remove(PageId page) noexcept {
    const std::uint64_t place = place_of(page);
    const std::uint32_t n = index_[place];
    unlink(n);
    nodes_[n].older = free_;
    free_ = n;
    close_gap(place);
  }

 private:
  struct Node {
    PageId page{};
    std::uint32_t newer = 0, older = 0;
    List list = kNone;
    bool armed = false;
  };

  void link(List l, std::uint32_t n) noexcept {
    Node& node = nodes_[n];
    node.list = l;
    node.newer = l, node.older = nodes_[l].older;  // next to the list's own node is the newest
    nodes_[node.older].newer = n;
    nodes_[l].older = n;
    ++sizes_[l];
  }
  void unlink(std::uint32_t n) noexcept {
    const Node& node = nodes_[n];
    nodes_[node.newer].older = node.older;
    nodes_[node.older].newer = node.newer;
    --sizes_[node.list];
  }
  [[nodiscard]] std::uint64_t first_place_of(PageId page) const noexcept {
    return (raw(page) * 0x9E3779B97F4A7C15u) >> (64 - std::bit_width(index_.size() - 1));
  }
  // The page's place in the index, or the place where it would be.
  [[nodiscard]] std::uint64_t place_of(PageId page) const noexcept {
    std::uint64_t i = first_place_of(page);
    while (index_[i] != 0 && nodes_[index_[i]].page != page) i = (i + 1) & (index_.size() - 1);
    return i;
  }
  // Moves entries behind the gap up, as far as a search finds them there: no tombstones.
  void close_gap(std::uint64_t gap) noexcept {
    const std::uint64_t mask = index_.size() - 1;
    for (std::uint64_t i = (gap + 1) & mask; index_[i] != 0; i = (i + 1) & mask) {
      const std::uint64_t first = first_place_of(nodes_[index_[i]].page);
      if (((i - first) & mask) < ((i - gap) & mask)) continue;
      index_[gap] = index_[i];
      gap = i;
    }
    index_[gap] = 0;
  }

  std::vector<Node, MallocAllocator<Node>> nodes_;  // the first nodes are the lists' own, so 0 is no page's
  std::vector<std::uint32_t, MallocAllocator<std::uint32_t>> index_;
  std::array<std::uint32_t, kLists> sizes_{};
  std::uint32_t free_ = kLists;
};

}  // namespace kasane::mem
