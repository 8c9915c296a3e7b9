// SPDX-License-Identifier: Apache-2.0
// Where every page of the space lives. The entry of page p is held by its manager, rank p mod ranks, in region
// kDirectory, and changed by anybody through one-sided atomics only (gas/relocation.h says how).
//
// Region layout: one header block (RankHeader), then the entries of the pages this rank manages, 32 bytes each.
//
// Thread safety: every call from any thread, given its own Blocking. Nothing allocates; usable in fault handlers.
#pragma once

#include <cstdint>

#include "comm/region_words.h"
#include "gas/regions.h"
#include "gas/relocation.h"
#include "mem/space.h"

namespace kasane::gas {

/// What others may want to know of a rank by one read.
struct RankHeader {
  std::atomic<std::uint64_t> dirty_blocks;   ///< blocks with a twin: changes that a release_all of this rank would send
};

class Directory {
 public:
  /// Bytes of each rank's directory region for a space of pages pages.
  static std::size_t region_bytes(std::uint64_t pages, std::uint32_t ranks) noexcept;

  /// After the region was attached.
  Directory(comm::Transport& transport, std::uint64_t pages);

  [[nodiscard]] Rank manager(PageId page) const noexcept { return Rank{static_cast<std::uint32_t>(raw(page) % ranks_)}; }
  [[nodiscard]] std::uint64_t pages() const noexcept { return pages_; }

  Location lookup(comm::Blocking&, PageId) const;
  /// Word 0 from `from` to `to`, if it still is `from`.
  bool replace(comm::Blocking&, PageId, Location from, Location to) const;
  /// Notes that this rank takes the page's location into its address cache.
  void add_holder(comm::Blocking&, PageId) const;
  /// Whom a move has to ask to forget it (holder_bit() of each), none of whom is noted any more.
  std::uint64_t take_holders(comm::Blocking&, PageId) const;
  /// Can the page's entry be read here by a plain load?
  [[nodiscard]] bool near(PageId page) const noexcept { return words_.is_direct(manager(page)); }

  /// Changed blocks of the rank that no release has sent yet.
  std::uint64_t dirty_blocks(comm::Blocking&, Rank) const;

 private:
  static constexpr std::uint64_t kHeaderBytes = 4096;
  static constexpr std::uint64_t kEntryBytes = 32;
  [[nodiscard]] std::uint64_t entry(PageId page, unsigned word) const noexcept {
    return kHeaderBytes + raw(page) / ranks_ * kEntryBytes + word * 8;
  }

  Rank rank_;
  std::uint32_t ranks_;
  std::uint64_t pages_;
  comm::RegionWords words_;
};

}  // namespace kasane::gas
