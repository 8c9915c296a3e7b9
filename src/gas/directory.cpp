// SPDX-License-Identifier: Apache-2.0
#include "gas/directory.h"

#include "base/assert.h"
#include "comm/batch.h"

namespace kasane::gas {

namespace {
[[nodiscard]] std::size_t set_bytes(const mem::Pages& pages) noexcept {
  return PageMarks::bytes(pages.count()) + PageNotices::bytes(pages.count());
}
}  // namespace

std::size_t Directory::region_bytes(const mem::Pages& pages, std::uint32_t ranks) noexcept {
  const std::size_t bytes = kHeaderBytes + set_bytes(pages) + (pages.count() / ranks + 1) * kEntryBytes;
  return (bytes + mem::kBlockBytes - 1) / mem::kBlockBytes * mem::kBlockBytes;
}

Directory::Directory(comm::Transport& transport, const mem::Pages& pages)
    : rank_(transport.rank()),
      ranks_(transport.ranks()),
      by_ranks_(ranks_),
      holder_code_(kHolderBits, ranks_),
      reader_code_(64, ranks_),
      pages_(pages),
      entries_at_(kHeaderBytes + set_bytes(pages)),
      words_(transport, kDirectory) {}

Location Directory::lookup(comm::Blocking& io, PageId page) const {
  return Location::of(words_.load(io, manager(page), entry(page, 0)));
}

bool Directory::replace(comm::Blocking& io, PageId page, const Location& from, const Location& to) const {
  KASANE_CHECK(!from.busy && !to.busy, "only a page's lock sets busy");
  return words_.compare_swap(io, manager(page), entry(page, 0), from.word(), to.word()) == from.word();
}

void Directory::add_holder(comm::Batch& batch, PageId page, std::uint64_t* holders,
                           std::uint64_t* where) const {
  // first: the stamp wraps (gas::registered)
  words_.fetch_or(batch, manager(page), entry(page, 2), holder_code_.of(rank_), holders);
  words_.load(batch, manager(page), entry(page, 0), where);
}

Directory::Usage Directory::usage(comm::Blocking& io, PageId page) const {
  std::uint64_t where = 0;
  Usage usage{};
  comm::Batch batch(io);
  words_.load(batch, manager(page), entry(page, 3), &usage.word);
  words_.load(batch, manager(page), entry(page, 0), &where);
  batch.await();
  usage.where = Location::of(where);
  return usage;
}

void Directory::replace_usage(comm::Blocking& io, PageId page, std::uint64_t from, std::uint64_t to) const {
  words_.compare_swap(io, manager(page), entry(page, 3), from, to);
}

template <class F>
void Directory::for_managers(PageId first, std::uint64_t pages, const F& f) const {
  std::uint64_t place = 0;
  for (std::uint64_t r = 0; r < ranks_ && r < pages; ++r) {
    const PageId page{raw(first) + r};
    const std::uint64_t words = (pages - r + ranks_ - 1) / ranks_ * kEntryBytes / 8;
    f(manager(page), entry(page, 0), words, place);
    place += words;
  }
}

void Directory::write_entries(comm::Blocking& io, PageId first, std::uint64_t pages,
                              const Entries& entries) const {
  comm::Batch batch(io);
  for_managers(first, pages, [&](Rank manager, std::uint64_t at, std::uint64_t words, std::uint64_t place) {
    if (!words_.is_direct(manager)) return batch.write({manager, kDirectory, at}, &entries[place], words * 8);
    for (std::uint64_t i = 0; i < words; ++i) words_.store(io, manager, at + i * 8, entries[place + i]);
  });
}

void Directory::read_entries(comm::Blocking& io, PageId first, std::uint64_t pages, Entries& entries) const {
  comm::Batch batch(io);
  for_managers(first, pages, [&](Rank manager, std::uint64_t at, std::uint64_t words, std::uint64_t place) {
    if (!words_.is_direct(manager)) return batch.read({manager, kDirectory, at}, &entries[place], words * 8);
    for (std::uint64_t i = 0; i < words; ++i) entries[place + i] = words_.load(io, manager, at + i * 8);
  });
}

void Directory::add_reader(comm::Batch& batch, PageId page, std::uint64_t* before) const {
  words_.fetch_or(batch, manager(page), entry(page, 1), reader_code_.of(rank_), before);
}

void Directory::readers(comm::Batch& batch, PageId page, std::uint64_t* word) const {
  words_.load(batch, manager(page), entry(page, 1), word);
}

void Directory::remove_reader(comm::Batch& batch, PageId page, std::uint64_t* before) const {
  const std::uint64_t ours = reader_code_.of(rank_);
  if (reader_code_.exact()) return words_.fetch_and(batch, manager(page), entry(page, 1), ~ours, before);
  // the word is this rank's alone, or others would leave with it
  if (!reader_code_.shared()) words_.compare_swap(batch, manager(page), entry(page, 1), ours, 0, before);
}

}  // namespace kasane::gas
