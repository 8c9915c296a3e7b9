// SPDX-License-Identifier: Apache-2.0
// The location of every page of the space. The entry of page p is held by its manager, rank p mod ranks, in
// region kDirectory, and is changed by any rank through one-sided atomics only (gas/relocation.h says how).
//
// Region layout: one header block (RankHeader); the two sets of pages whose heads it has (gas/page_marks.h,
// gas/page_notices.h: 8 bytes for each page of the space); then the entries of the pages that this rank
// manages, 32 bytes each. Words that no page has used are never written and cost no memory.
//
// Thread safety: every call from any thread, given its own Blocking. Nothing allocates; usable in fault
// handlers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/divisor.h"
#include "comm/region_words.h"
#include "gas/page_notices.h"
#include "gas/rank_code.h"
#include "gas/regions.h"
#include "gas/relocation.h"
#include "mem/pages.h"

namespace kasane::gas {

/// What other ranks may want to know of a rank by one read.
struct RankHeader {
  /// head of the pages that the next release examines. Also counts dirty blocks, and entries of pages here
  /// that do not name this rank yet. 0: a release has nothing to do
  std::atomic<std::uint64_t> unreleased;
  /// head of the pages that this rank has notices of. Also counts acquires at work. 0: an acquire has nothing
  /// to do
  std::atomic<std::uint64_t> notices;
  /// number of the rank's last release that has ended (dsm/rounds.h)
  std::atomic<std::uint64_t> released;
};

class Directory {
 public:
  /// Bytes of each rank's directory region.
  static std::size_t region_bytes(const mem::Pages& pages, std::uint32_t ranks) noexcept;

  /// After the region was attached.
  Directory(comm::Transport& transport, const mem::Pages& pages);

  [[nodiscard]] Rank manager(PageId page) const noexcept {
    return Rank{by_ranks_.divide(raw(page)).remainder};
  }
  /// The pages of the space; layers above the directory ask here.
  [[nodiscard]] const mem::Pages& pages() const noexcept { return pages_; }

  Location lookup(comm::Blocking&, PageId) const;
  /// Changes word 0 from `from` to `to`, if it still is `from`. Neither is busy (gas/page_lock.h).
  bool replace(comm::Blocking&, PageId, const Location& from, const Location& to) const;
  /// Word 3: uses of the page, for gas/relocation_policy.h.
  struct Usage {
    std::uint64_t word;
    Location where;
  };
  /// Both are read at once.
  Usage usage(comm::Blocking&, PageId) const;
  /// Changes it from `from` to `to`, if it still is `from`.
  void replace_usage(comm::Blocking&, PageId, std::uint64_t from, std::uint64_t to) const;

  /// Registers this rank as a holder of the page's location, and reads word 0: gas::registered() says whether
  /// the location may be kept.
  void add_holder(comm::Batch&, PageId, std::uint64_t* holders, std::uint64_t* where) const;

  /// How word 2 names holders, and word 1 readers: ranks that may have a copy of the page.
  [[nodiscard]] const RankCode& holder_code() const noexcept { return holder_code_; }
  [[nodiscard]] const RankCode& reader_code() const noexcept { return reader_code_; }

  void add_reader(comm::Batch&, PageId, std::uint64_t* before) const;
  void readers(comm::Batch&, PageId, std::uint64_t* word) const;
  /// This rank has no copy any more (RankCode::without()).
  void remove_reader(comm::Batch&, PageId, std::uint64_t* before) const;

  /// Can the page's entry be read here by a plain load?
  [[nodiscard]] bool near(PageId page) const noexcept { return words_.is_direct(manager(page)); }
  /// Word 0 for such a load; null if it is not near.
  [[nodiscard]] const std::atomic<std::uint64_t>* near_word(PageId page) const noexcept {
    const auto [row, manager] = by_ranks_.divide(raw(page));
    return words_.here(Rank{manager}, at_row(row, 0));
  }
  /// The owner by such a load; kNoRank: not allocated, or not near.
  [[nodiscard]] Rank near_owner(PageId page) const noexcept {
    const std::atomic<std::uint64_t>* word = near_word(page);
    return word != nullptr ? Location::of(word->load()).owner : kNoRank;
  }

  /// Names the owners of `count` pages from `first` on that were never allocated: one write for each manager,
  /// all outstanding at once. No rank looks at these pages before.
  template <class Owner>
  void name_fresh(comm::Blocking& io, PageId first, std::uint64_t count, const Owner& owner,
                  bool untouched = false, Tier tier = Tier::dram, bool fixed = false) const {
    for_chunks(first, count, [&](PageId begin, std::uint64_t pages, Entries& entries) {
      each_entry(begin, pages, [&](PageId page, std::uint64_t at) {
        entries[at * 4] = Location{true, owner(page), tier, false, 1, untouched, fixed}.word();
        entries[at * 4 + 2] = unheld(1);
        entries[at * 4 + 1] = entries[at * 4 + 3] = 0;
      });
      write_entries(io, begin, pages, entries);
    });
  }
  /// Calls see(page, location) for `count` pages from `first` on, with the location that the page had at some
  /// time during the call. One read for each manager, all outstanding at once.
  template <class See>
  void look_at(comm::Blocking& io, PageId first, std::uint64_t count, const See& see) const {
    for_chunks(first, count, [&](PageId begin, std::uint64_t pages, Entries& entries) {
      read_entries(io, begin, pages, entries);
      each_entry(begin, pages,
                 [&](PageId page, std::uint64_t at) { see(page, Location::of(entries[at * 4])); });
    });
  }

  /// What a rank has to release (0: nothing), and the number of its last release.
  void releases(comm::Batch& batch, Rank rank, std::uint64_t* unreleased, std::uint64_t* ended) const {
    words_.load(batch, rank, offsetof(RankHeader, unreleased), unreleased);
    words_.load(batch, rank, offsetof(RankHeader, released), ended);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& released() const noexcept {
    return *words_.here(rank_, offsetof(RankHeader, released));
  }
  [[nodiscard]] PageMarks unreleased() const noexcept {
    return {words_, rank_, pages_.count(), offsetof(RankHeader, unreleased), kHeaderBytes};
  }
  [[nodiscard]] PageNotices notices() const noexcept {
    return {words_, rank_, pages_.count(), offsetof(RankHeader, notices),
            kHeaderBytes + PageMarks::bytes(pages_.count())};
  }

 private:
  friend class PageLock;
  static constexpr std::uint64_t kHeaderBytes = 4096;
  static constexpr std::uint64_t kEntryBytes = 32;
  [[nodiscard]] std::uint64_t entry(PageId page, unsigned word) const noexcept {
    return at_row(by_ranks_.divide(raw(page)).quotient, word);
  }
  [[nodiscard]] std::uint64_t at_row(std::uint64_t row, unsigned word) const noexcept {
    return entries_at_ + row * kEntryBytes + word * 8;
  }
  // Entries of consecutive pages of one manager are neighbours: a chunk of pages is ordered by manager.
  static constexpr std::uint64_t kChunk = 64;
  using Entries = std::array<std::uint64_t, kChunk * kEntryBytes / 8>;
  template <class F>
  void for_chunks(PageId first, std::uint64_t count, const F& chunk) const {
    Entries entries;
    for (std::uint64_t done = 0; done < count; done += kChunk)
      chunk(PageId{raw(first) + done}, std::min(kChunk, count - done), entries);
  }
  /// Calls f(page, its place in the chunk).
  template <class F>
  void each_entry(PageId first, std::uint64_t pages, const F& f) const {
    std::uint64_t place = 0;
    for (std::uint64_t r = 0; r < ranks_ && r < pages; ++r)
      for (std::uint64_t i = r; i < pages; i += ranks_) f(PageId{raw(first) + i}, place++);
  }
  /// Calls f(manager, where its entries of these pages begin in its region, how many words they have, their
  /// place in the chunk).
  template <class F>
  void for_managers(PageId first, std::uint64_t pages, const F&) const;
  void write_entries(comm::Blocking&, PageId first, std::uint64_t pages, const Entries&) const;
  void read_entries(comm::Blocking&, PageId first, std::uint64_t pages, Entries&) const;

  Rank rank_;
  std::uint32_t ranks_;
  Divisor by_ranks_;
  RankCode holder_code_, reader_code_;
  mem::Pages pages_;
  std::uint64_t entries_at_;  ///< offset in the region
  comm::RegionWords words_;
};

}  // namespace kasane::gas
