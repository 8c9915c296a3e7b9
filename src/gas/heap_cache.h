// SPDX-License-Identifier: Apache-2.0
// The free objects that one worker keeps: for each rank and size class up to eight groups, each with a bit
// for each object (fewer groups of large objects: about 512 KiB for a rank and class at most). No other
// thread can allocate them, so they are put and taken without communication or fences.
//
// Thread safety: none; a cache belongs to one thread, or is used under a lock. In memory of the process,
// never in V.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>

#include "base/assert.h"
#include "base/ids.h"
#include "gas/heap_layout.h"

namespace kasane::gas {

inline constexpr std::uint64_t kNoObject = ~std::uint64_t{0};

/// Objects of one group.
struct Holding {
  std::uint64_t bits = 0;
  std::uint64_t group = kNoObject;
  std::uint64_t base = 0;  ///< offset of the group's first object in the space
};

/// 64 - log2(groups that are kept of a class).
inline constexpr auto kClassShift = [] {
  std::array<std::uint8_t, kSizeClasses> table{};
  for (unsigned c = 0; c < kSizeClasses; ++c)
    table[c] = slab_pages(c) == 1 ? 61 : slab_pages(c) == 2 ? 62 : 63;
  return table;
}();

struct HeapBin {
  static constexpr unsigned kHoldings = 8;
  std::array<Holding, kHoldings> holdings;
  unsigned current = 0;  ///< the one that objects are taken from at present
  StackHead known;       ///< the rank's stack of the class, as last seen

  /// The place of a group; a group has only one.
  [[nodiscard]] static constexpr unsigned place(std::uint64_t group, unsigned size_class) noexcept {
    return static_cast<unsigned>(group * 0x9E3779B97F4A7C15u >> (kClassShift[size_class]));
  }
  [[nodiscard]] std::uint64_t take(unsigned size_class) noexcept {
    Holding* h = &holdings[current];
    if (h->bits == 0) [[unlikely]] {
      for (unsigned i = 0; i < kHoldings && h->bits == 0; ++i)
        h = &holdings[current = (current + 1) % kHoldings];
      if (h->bits == 0) return kNoObject;
    }
    const auto bit = static_cast<unsigned>(std::countr_zero(h->bits));
    h->bits &= h->bits - 1;
    return h->base + std::uint64_t{bit} * kClassBytes[size_class];
  }
  /// False: the group has no place here, or the object is here already.
  [[nodiscard]] bool put(std::uint64_t group, unsigned bit, unsigned size_class) noexcept {
    Holding& h = holdings[place(group, size_class)];
    const std::uint64_t mask = std::uint64_t{1} << bit;
    if (h.group != group || (h.bits & mask) != 0) [[unlikely]]
      return false;
    h.bits |= mask;
    return true;
  }
};

/// Groups that had to leave their bins and belong to ranks over a network: they are returned together, so
/// that their round trips overlap. Until then they count as kept, like those in the bins.
struct HeapReturns {
  struct Group {
    Holding objects;
    Rank rank{};
    unsigned size_class = 0;
    [[nodiscard]] bool of(Rank r, unsigned c) const noexcept { return rank == r && size_class == c; }
  };
  static constexpr unsigned kMost = 16;
  /// before they are returned: large objects are not kept in numbers
  static constexpr std::uint64_t kMostBytes = 256 * 1024;
  std::array<Group, kMost> groups;
  unsigned count = 0;

  [[nodiscard]] std::span<Group> all() noexcept { return {groups.data(), count}; }
  /// Null: the group is not here.
  [[nodiscard]] Holding* find(Rank rank, std::uint64_t group) noexcept {
    for (Group& g : all()) {
      if (g.rank == rank && g.objects.group == group) return &g.objects;
    }
    return nullptr;
  }
  /// False: there is none of the class.
  [[nodiscard]] bool take(Rank rank, unsigned size_class, Holding& objects) noexcept {
    for (Group& g : all()) {
      if (!g.of(rank, size_class)) continue;
      objects = g.objects;
      g = groups[--count];
      return true;
    }
    return false;
  }
  /// False: there is no more room.
  [[nodiscard]] bool add(Rank rank, unsigned size_class, const Holding& objects) noexcept {
    groups[count++] = {objects, rank, size_class};
    std::uint64_t bytes = 0;
    for (const Group& g : all())
      bytes += static_cast<std::uint64_t>(std::popcount(g.objects.bits)) * kClassBytes[g.size_class];
    return count < kMost && bytes < kMostBytes;
  }
};

/// Bins of this rank's own share, and of any other's from their first use on.
struct alignas(64) HeapCache {
  using Bins = std::array<HeapBin, kSizeClasses>;
  Bins own;
  HeapReturns returns;
  Bins** others = nullptr;  ///< one a rank

  /// malloc: the allocator's own state must not come from an interposed operator new.
  template <class T>
  static T* make(std::size_t n) {
    T* all = static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64));
    KASANE_CHECK(all != nullptr, "no memory for the allocator's own state");
    for (std::size_t i = 0; i < n; ++i) new (&all[i]) T();
    return all;
  }
  Bins& of(Rank rank, Rank me, std::uint32_t ranks) {
    if (rank == me) return own;
    if (others == nullptr) others = make<Bins*>(ranks);
    if (others[raw(rank)] == nullptr) others[raw(rank)] = make<Bins>(1);
    return *others[raw(rank)];
  }
  void destroy(std::uint32_t ranks) noexcept {
    for (std::uint32_t r = 0; others != nullptr && r < ranks; ++r) std::free(others[r]);
    std::free(others);
  }
};

}  // namespace kasane::gas
