// SPDX-License-Identifier: Apache-2.0
// How the space is divided. The same numbers on every rank, computed from the options alone.
//
//   0            nothing: small offsets from the base are wild pointers
//   1/64         main's stack (rank 0)          grows down; what lies below it is not allocated
//   …            stacks of bound threads (process/bound_threads.h), in equal shares a rank
//   … 1/8        the first thread's stack, of main's size: it ends where the first of the stacks ends
//   1/8          stacks, ranks × --slots × --stack
//   1/4          heap in pages of 4 KiB     each heap in equal shares a rank
//   9/32         heap in pages of 2 MiB
//   1/2 … end    heap in pages of 64 KiB, the default; all that is no heap has such pages, too. Where a host
//                has several NUMA nodes, 3/4 … end are the pools of NUMA memory: heaps alike (numa_memory.h)
//   end …        the program's variables, in pages of 4 KiB: parts of V (mem/space.h)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "mem/pages.h"

namespace kasane::runtime {

struct Segments {
  std::uint64_t main_offset = 0, main_bytes = 0;
  std::uint64_t stacks_offset = 0, stack_bytes = 0, stacks_per_rank = 0;
  std::uint64_t bound_bytes = 0;        ///< a rank's share of the stacks of bound threads
  std::uint64_t first_stack_bytes = 0;  ///< of StackId 0, the first thread's: at least stack_bytes
  struct Heap {
    std::uint64_t offset = 0, bytes = 0, page_bytes = 0;
  };
  /// The first has pages of the default size.
  std::array<Heap, 3> heaps{};
  struct Pools {
    std::uint64_t offset = 0, bytes = 0;  ///< bytes of each
    std::uint32_t count = 0;
    [[nodiscard]] std::uint64_t end() const noexcept { return offset + bytes * count; }
    [[nodiscard]] bool contains(std::uint64_t at) const noexcept { return at - offset < bytes * count; }
  };
  Pools pools{};
  std::uint64_t variables_offset = 0;  ///< the end of the space's own range; the other parts follow

  /// All heaps lie in one range, [heaps_offset(), heaps_end()).
  [[nodiscard]] std::uint64_t heaps_offset() const noexcept { return heaps[1].offset; }
  [[nodiscard]] std::uint64_t heaps_end() const noexcept {
    return pools.count != 0 ? pools.end() : heaps[0].offset + heaps[0].bytes;
  }
  [[nodiscard]] std::uint64_t stack_end(StackId stack) const noexcept {
    return stacks_offset + (std::uint64_t{raw(stack)} + 1) * stack_bytes;
  }
  [[nodiscard]] std::uint64_t stack_offset(StackId stack) const noexcept {
    return stack_end(stack) - (raw(stack) == 0 ? first_stack_bytes : stack_bytes);
  }
  [[nodiscard]] std::uint64_t all_stacks_offset() const noexcept { return stack_offset(StackId{0}); }
  [[nodiscard]] std::uint64_t all_stacks_bytes(std::uint32_t ranks) const noexcept {
    return ranks * stacks_per_rank * stack_bytes + first_stack_bytes - stack_bytes;
  }
  [[nodiscard]] bool in_stacks(std::uint64_t offset, std::uint32_t ranks) const noexcept {
    return offset - all_stacks_offset() < all_stacks_bytes(ranks);
  }
  [[nodiscard]] std::uint64_t bound_offset(Rank rank) const noexcept {
    return main_offset + main_bytes + raw(rank) * bound_bytes;
  }
  [[nodiscard]] bool in_bound_stacks(std::uint64_t offset) const noexcept {
    return offset >= main_offset + main_bytes && offset < all_stacks_offset();
  }
  /// Of an offset in the stacks.
  [[nodiscard]] StackId stack_at(std::uint64_t offset) const noexcept {
    return StackId{
        offset < stacks_offset ? 0 : static_cast<std::uint32_t>((offset - stacks_offset) / stack_bytes)};
  }

  /// Threads of a rank that may wait to be joined: their control blocks outlive their stacks, and are small.
  [[nodiscard]] std::uint32_t slots_per_rank(std::uint32_t ranks) const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(16 * stacks_per_rank, (raw(kNoSlot) - 1) / ranks));
  }

  /// The page sizes of all its parts. all_bytes: other parts included.
  [[nodiscard]] Result<mem::Pages> pages(std::uint64_t all_bytes) const {
    const auto& [usual, small, large] = heaps;
    const std::array parts{mem::Pages::Segment{0, usual.page_bytes},
                           mem::Pages::Segment{small.offset, small.page_bytes},
                           mem::Pages::Segment{large.offset, large.page_bytes},
                           mem::Pages::Segment{usual.offset, usual.page_bytes},
                           mem::Pages::Segment{variables_offset, mem::kSmallestPageBytes}};
    const std::size_t used = all_bytes > variables_offset ? parts.size() : parts.size() - 1;
    return mem::Pages::create(all_bytes, std::span(parts).first(used));
  }

  /// slots 0: as many as an eighth of the space holds, at most 65536 a rank. pools: none where the space is
  /// too small for a page of each at each rank.
  static Result<Segments> divide(std::uint64_t space_bytes, std::uint32_t ranks, std::uint64_t stack_bytes,
                                 std::uint64_t slots, std::uint64_t main_bytes, std::uint32_t pools = 0) {
    constexpr std::uint64_t page = mem::kPageBytes;
    if (stack_bytes < page || stack_bytes % page != 0) {
      return fail(Errc::invalid_argument, "--stack " + std::to_string(stack_bytes) +
                                              " (KASANE_STACK): a multiple of 65536 is needed");
    }
    if (space_bytes % page != 0 || space_bytes < (64ull << 20)) {
      return fail(Errc::invalid_argument,
                  "--space " + std::to_string(space_bytes) +
                      " (KASANE_SPACE): a multiple of 64 KiB, at least 64 MiB, is needed");
    }
    Segments s;
    s.variables_offset = space_bytes;
    const auto page_up = [](std::uint64_t n) { return (n + page - 1) / page * page; };
    s.main_offset = page_up(space_bytes / 64);
    s.main_bytes = std::min(page_up(main_bytes), page_up(space_bytes / 16));
    s.stack_bytes = stack_bytes;
    s.stacks_offset = page_up(space_bytes / 8);
    s.first_stack_bytes =
        std::max(stack_bytes, std::min(s.main_bytes, s.stacks_offset - s.main_offset - s.main_bytes));
    s.bound_bytes = (s.all_stacks_offset() - s.main_offset - s.main_bytes) / (ranks * page) * page;
    const std::uint64_t room = space_bytes / 8 / (ranks * stack_bytes);
    s.stacks_per_rank = slots != 0 ? slots : std::min<std::uint64_t>(room, 65536);
    if (s.stacks_per_rank == 0 || s.stacks_per_rank > room) {
      return fail(Errc::limit, "--slots " + std::to_string(slots) + " (KASANE_SLOTS) with --stack " +
                                   std::to_string(stack_bytes) + ": an eighth of --space holds " +
                                   std::to_string(room) + " stacks a rank; raise --space");
    }
    const auto large_page_up = [](std::uint64_t n) {
      return (n + mem::kLargestPageBytes - 1) / mem::kLargestPageBytes * mem::kLargestPageBytes;
    };
    const auto heap = [ranks](std::uint64_t begin, std::uint64_t end, std::uint64_t page_bytes) {
      const std::uint64_t share = ranks * (page_bytes < page ? page : page_bytes);
      return Heap{begin, (end - begin) / share * share, page_bytes};
    };
    const std::uint64_t small = large_page_up(space_bytes / 4), large = large_page_up(space_bytes / 32 * 9),
                        usual = large_page_up(space_bytes / 2);
    const std::uint64_t usual_end = pools == 0 ? space_bytes : large_page_up(space_bytes / 4 * 3);
    if (pools != 0) {
      const Heap pool = heap(usual_end, usual_end + (space_bytes - usual_end) / pools, page);
      if (pool.bytes != 0) s.pools = {pool.offset, pool.bytes, pools};
    }
    s.heaps = {heap(usual, usual_end, page), heap(small, large, mem::kSmallestPageBytes),
               heap(large, usual, mem::kLargestPageBytes)};
    return s;
  }
};

}  // namespace kasane::runtime
