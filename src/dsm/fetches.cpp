// SPDX-License-Identifier: Apache-2.0
#include "dsm/fetches.h"

#include <cstring>
#include <optional>

#include "base/trace.h"
#include "comm/batch.h"
#include "dsm/last_seen.h"
#include "dsm/word_at.h"

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

/// Drives the machine for one page. locate() says whether another rank, found.owner, has the bytes;
/// read(owner) reads them; dropped(): has an acquire begun since locate()?
template <class Locate, class Read, class Dropped>
FetchState Fetches::read_as_reader(comm::Blocking& io, PageId page, gas::AddressCache::Found& found,
                                   const Locate& locate, const Read& read, const Dropped& dropped) const {
  gas::ReaderState reader;
  for (FetchState state = FetchState::locate;;) {
    FetchEvent event = FetchEvent::done;
    switch (state) {
      case FetchState::locate: event = locate() ? FetchEvent::found : FetchEvent::not_found; break;
      case FetchState::join: reader = p_.sharing.join(io, page, found.owner); break;
      case FetchState::read: read(found.owner); break;
      case FetchState::check:
        event = !p_.addresses.stood(io, page, found) ? FetchEvent::moved
                : dropped()                          ? FetchEvent::dropped
                                                     : FetchEvent::stood;
        break;
      case FetchState::fetched:
      case FetchState::elsewhere: return state;
    }
    const FetchStep step = next(state, event);
    if (step.is_reader) p_.sharing.joined(page, reader);
    state = step.state;
  }
}

Fetched Fetches::locate(comm::Blocking& io, PageId page, gas::AddressCache::Found& found) const {
  for (;;) {
    found = p_.addresses.look(io, page);
    if (found.by_entry && found.owner != p_.me()) return Fetched::yes;
    gas::Location where = gas::Location::of(found.word);
    // A cached location does not say whether the page is leaving: the owner may have been asked to yield
    // before its entry was recalled.
    if (found.by_entry && (where = p_.directory().lookup(io, page)).owner != found.owner) continue;
    found = {where.owner, false, where.word()};
    return fetch_source(where, p_.me());
  }
}

Fetched Fetches::fetch(ThreadContext& ctx, BlockId b, const Held& held, bool bytes_too,
                       gas::AddressCache::Found& found) const {
  const std::uint64_t offset = mem::offset_of(b);
  const PageId page = pages_.page_of(b);
  const bool counts = bytes_too && p_.auto_relocator != nullptr && p_.auto_relocator->may_relocate(page);
  std::optional<LastSeen> last_seen;  // of b
  std::uint64_t drops = 0;
  Fetched where = Fetched::yes;
  const auto locate_it = [&] {
    drops = drops_.load();
    where = locate(ctx.io, page, found);
    if (where == Fetched::yes && counts && !last_seen)
      last_seen.emplace(p_.space.a(offset), frame_of(found.owner, offset));
    return where == Fetched::yes;
  };
  const auto read = [&](Rank owner) {
    frames_.fill_otherwise(held);
    if (!bytes_too) return;
    const std::uint64_t blocks = held.count();
    const Traced traced(&ctx.counters, TraceKind::fetch, blocks * kBlockBytes);
    comm::Batch batch(ctx.io);
    held.for_each_run([&](BlockRange run) {
      const std::uint64_t at = mem::offset_of(run.first);
      batch.read({owner, gas::kFrames, at}, p_.space.a(at), run.count * kBlockBytes);
    });
    batch.await();
    count(ctx.counters.blocks_fetched, blocks);
    count(ctx.counters.bytes_fetched, blocks * kBlockBytes);
  };
  const auto dropped = [&] { return drops_.load() != drops; };
  if (read_as_reader(ctx.io, page, found, locate_it, read, dropped) == FetchState::fetched && counts)
    p_.auto_relocator->used(page, last_seen->changed());
  return where;
}

/// For a block that is here: an acquire that begins meanwhile waits for its bit. What is read becomes the
/// twin, so it must be what the page will have when changes are put to it: an untouched page has no bytes,
/// and is touched first.
template <class Read>
Fetches::Again Fetches::read_again(comm::Blocking& io, PageId page, Untouched untouched_page,
                                   const Read& read) const {
  gas::AddressCache::Found found;
  Again again = Again::same;
  const auto locate_it = [&] {
    for (;;) {
      found = p_.addresses.look(io, page);
      const bool untouched = gas::AddressCache::is_untouched(found);
      again = found.owner == kNoRank || found.owner == p_.me()    ? Again::own
              : !untouched && gas::AddressCache::is_on_ssd(found) ? Again::absent
                                                                  : Again::same;
      if (again != Again::same || (untouched && untouched_page == Untouched::left)) return false;
      if (!untouched) return true;
      if (gas::Location::of(found.word).busy)
        io.waiter().pause();
      else
        p_.addresses.touch(io, page, gas::Location::of(found.word));
    }
  };
  read_as_reader(io, page, found, locate_it, read, [] { return false; });
  return again;
}

Fetches::Again Fetches::stay_reader(comm::Blocking& io, PageId page) const {
  return read_again(io, page, Untouched::touched, [](Rank) {});
}

void Fetches::become_reader(comm::Blocking& io, PageId page) const {
  while (read_again(io, page, Untouched::left, [](Rank) {}) == Again::absent) page_in(io, page);
}

void Fetches::page_in(comm::Blocking& io, PageId page) const {
  const gas::Location where = p_.directory().lookup(io, page);
  if (fetch_source(where, p_.me()) == Fetched::on_ssd_elsewhere)
    p_.addresses.page_in(io, page, where.owner, where.word());
}

Fetches::Again Fetches::refresh(comm::Blocking& io, BlockId b, bool twin) const {
  const Again again = refresh(io, mem::offset_of(b), kBlockBytes, twin);
  const PageId page = pages_.page_of(b);
  if (again != Again::absent && p_.auto_relocator != nullptr && p_.auto_relocator->may_relocate(page))
    p_.auto_relocator->used(page, again == Again::changed);
  return again;
}

Fetches::Again Fetches::refresh(comm::Blocking& io, std::uint64_t offset, std::size_t bytes,
                                bool twin) const {
  alignas(8) std::byte fresh[kBlockBytes];
  const Again again = read_again(io, pages_.page_of(mem::block_of(offset)), Untouched::touched,
                                 [&](Rank owner) { io.read({owner, gas::kFrames, offset}, fresh, bytes); });
  if (again != Again::same) return again;
  std::byte* mine = p_.space.a(offset);
  std::byte* base = twin ? p_.space.t(offset) : mine;
  bool changed = false;
  const auto merge = [&](std::size_t i, std::uint64_t theirs, std::uint64_t which) {
    changed = true;
    store_bytes(mine + i, theirs, which);
    if (twin) store_bytes(base + i, theirs, which);
  };
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    while (bytes - i >= 64 && std::memcmp(fresh + i, base + i, 64) == 0) i += 64;
    if (i + 8 > bytes) break;
    const std::uint64_t theirs = word_at(fresh + i);
    if (const std::uint64_t which = differing_bytes(theirs, word_at(base + i)); which != 0)
      merge(i, theirs, which);
  }
  for (; i < bytes; ++i) {  // of a range that is not whole words
    if (fresh[i] == base[i]) continue;
    changed = true;
    mine[i] = fresh[i];
    base[i] = fresh[i];
  }
  return changed ? Again::changed : Again::same;
}

}  // namespace kasane::dsm
