// SPDX-License-Identifier: Apache-2.0
#include "gas/directory.h"

namespace kasane::gas {

std::size_t Directory::region_bytes(std::uint64_t pages, std::uint32_t ranks) noexcept {
  const std::size_t bytes = kHeaderBytes + (pages / ranks + 1) * kEntryBytes;
  return (bytes + mem::kBlockBytes - 1) / mem::kBlockBytes * mem::kBlockBytes;
}

Directory::Directory(comm::Transport& transport, std::uint64_t pages)
    : ranks_(transport.ranks()), pages_(pages), words_(transport, kDirectory) {}

Location Directory::lookup(comm::Blocking& io, PageId page) const {
  return Location::of(words_.load(io, manager(page), entry(page, 0)));
}

bool Directory::replace(comm::Blocking& io, PageId page, Location from, Location to) const {
  return words_.compare_swap(io, manager(page), entry(page, 0), from.word(), to.word()) == from.word();
}

std::uint64_t Directory::add_puts(comm::Blocking& io, PageId page, std::int64_t delta) const {
  return words_.fetch_add(io, manager(page), entry(page, 3), static_cast<std::uint64_t>(delta));
}

std::uint64_t Directory::puts_in_flight(comm::Blocking& io, PageId page) const {
  return words_.load(io, manager(page), entry(page, 3));
}

Rank Directory::begin_put(comm::Blocking& io, PageId page) const {
  for (;;) {
    add_puts(io, page, +1);
    const Location where = lookup(io, page);
    switch (gas::begin_put(where)) {
      case PutVerdict::go: return where.owner;
      case PutVerdict::not_allocated: add_puts(io, page, -1); return kNoRank;
      case PutVerdict::give_way: add_puts(io, page, -1); break;
    }
    io.waiter().pause();
  }
}

void Directory::end_put(comm::Blocking& io, PageId page) const { add_puts(io, page, -1); }

std::uint64_t Directory::dirty_blocks(comm::Blocking& io, Rank rank) const { return words_.load(io, rank, 0); }

}  // namespace kasane::gas
