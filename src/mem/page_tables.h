// SPDX-License-Identifier: Apache-2.0
// What a large space costs beside its frames, counted: the kernel's page tables, and this rank's own tables
// with an entry a block or page.
//
//   a range of 4 MiB is used and was not known   note()       at once: kPresumed blocks for page tables and
//                                                             one of the block table; once in 16 MiB also
//                                                             the entries that stay
//   the pager, at intervals                     measure()    the kernel's number replaces the presumed one
//   nothing of a range is here any more          give_back()  no longer known. The caller frees its tables,
//                                                             and charges them until
//                                                             wait_until_tables_are_freed()
//
// A range is what a page of the block table describes. Page tables are the process's (VmPTE), less those that
// it had at the start: tables of V, A, T, other ranks' M, and the program's own memory. Mappings are those of
// the mprotect engine. Presumed is what a range has at once; the next measurement finds what comes later
// (twins, other ranks' frames).
//
// Entries that stay: the uffd engine's rights, 4 KiB for 16 MiB; sets of blocks; the address cache and other
// tables with an entry a page. Measured: 11 KiB for 16 MiB in pages of 64 KiB, and 20 to 28 KiB in pages of 4
// KiB. Each page of such a table is committed when the first of its blocks is used.
//
// Thread safety: note() from any thread, fault handlers too; measure() and give_back() by one thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "mem/block_table.h"
#include "mem/budget.h"
#include "mem/pages.h"
#include "mem/space.h"

namespace kasane::mem {

/// Bytes of this process's page tables, by /proc/self/status; 0 where that cannot be read. Async-signal-safe;
/// takes 20 to 60 µs.
[[nodiscard]] std::uint64_t page_table_bytes() noexcept;

/// Does this kernel free a page table with the last of its translations (MADV_DONTNEED of its whole range,
/// Linux 6.14 with CONFIG_PT_RECLAIM)? Tries it on memory of its own.
[[nodiscard]] bool page_tables_go_back() noexcept;

/// Drops the translations of the range, which faults make again; private memory starts again as zeros. Where
/// page_tables_go_back(), the tables of whole ranges are freed, too. False: nothing was changed (the program
/// has locked its memory).
bool drop_translations(std::byte* address, std::size_t bytes) noexcept;

/// The kernel frees a table when no core can be walking it any more (a grace period of RCU): after 10 to 20
/// ms, on a busy machine seconds. Until then control groups count it. This function waits for the tables that
/// have gone so far. It returns at once where the kernel cannot tell (no membarrier; cores without ticks).
void wait_until_tables_are_freed() noexcept;

class PageTables {
 public:
  static constexpr std::uint64_t kTableBytes = 2 * 1024 * 1024;  ///< what one table covers
  static constexpr std::uint64_t kRangeBytes = kBlockBytes / sizeof(std::uint32_t) * kBlockBytes,
                                 kRangeBlocks = kRangeBytes / kBlockBytes;
  static constexpr std::uint64_t kPresumed = 2 * kRangeBytes / kTableBytes;  ///< of V and of A
  static constexpr std::uint64_t kRegionBytes = 16 * 1024 * 1024, kRegionRanges = kRegionBytes / kRangeBytes;

  static Result<PageTables> create(std::uint64_t space_bytes, const Pages&);
  PageTables(PageTables&&) noexcept;

  /// Blocks of the budget that the caller has to charge.
  struct Fresh {
    std::uint64_t tables = 0, entries = 0;
  };
  Fresh note(BlockRange) noexcept;

  /// Measures the tables. Tables that are noted meanwhile stay presumed.
  Measured measure() noexcept;

  /// Calls f(BlockRange) for each known range; true: its tables, with the page of the block table, have gone.
  /// Returns the number of these; a block of entries each is not charged any more.
  template <class F>
  std::uint64_t give_back(const F& f) {
    std::uint64_t gone = 0;
    for (std::uint64_t r = known_.next(0); r < whole_ranges_; r = known_.next(r + 1)) {
      known_.erase(r);  // before f: a thread that uses the range from now on notes it anew
      if (f(BlockRange{BlockId{r * kRangeBlocks}, kRangeBlocks}) || !known_.insert(r)) ++gone;
    }
    entries_.fetch_sub(gone, std::memory_order_relaxed);
    return gone;
  }

  /// Blocks that were noted since the last measurement.
  // relaxed, as all of these: numbers.
  [[nodiscard]] std::uint64_t presumed() const noexcept { return presumed_.load(std::memory_order_relaxed); }
  /// Blocks that are charged for tables, and for entries.
  [[nodiscard]] std::uint64_t tables() const noexcept { return measured() + presumed(); }
  [[nodiscard]] std::uint64_t measured() const noexcept { return measured_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t entries() const noexcept { return entries_.load(std::memory_order_relaxed); }

 private:
  PageTables(std::uint64_t space_bytes, const Pages&, NumberSet known, NumberSet met) noexcept;
  [[nodiscard]] std::uint64_t entries_that_stay(std::uint64_t region) const noexcept;
  /// The mappings, if that is due: a count takes long where there are many.
  void count() noexcept;
  [[nodiscard]] std::uint64_t taken() noexcept;

  const std::uint64_t space_bytes_, whole_ranges_;
  const Pages pages_;
  NumberSet known_, met_;  ///< ranges that may have tables; regions that were ever used here
  std::uint64_t at_start_ = 0;
  std::uint64_t mappings_ = 0, mappings_at_start_ = 0, count_again_ns_ = 0;
  std::atomic<std::uint64_t> measured_{0}, presumed_{0}, entries_{0};
};

}  // namespace kasane::mem
