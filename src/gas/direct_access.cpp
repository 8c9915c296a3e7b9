// SPDX-License-Identifier: Apache-2.0
#include "gas/direct_access.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/assert.h"
#include "gas/pending.h"

namespace kasane::gas {
namespace {

constexpr std::size_t kStagingUnit = 4096;
constexpr std::uint32_t kStagingWords = 16;

/// Calls accepted() until the engine has taken the operation.
template <class F>
void post(comm::Blocking& io, const F& accepted) {
  bool done = false;
  io.waiter().until([&] { return done || (done = accepted()); });
}

[[nodiscard]] std::span<const comm::Piece> all(const comm::Piece* pieces, std::size_t count) noexcept {
  return {pieces, count};
}

}  // namespace

// ---- start -----------------------------------------------------------------------------------------------

Result<std::unique_ptr<DirectAccess>> DirectAccess::create(comm::Engine& engine, AddressCache& addresses,
                                                           AutoRelocator* auto_relocator, std::uint64_t bytes,
                                                           const mem::AddressMap& map) {
  auto store = Store::create();
  KASANE_TRY(store);
  return std::unique_ptr<DirectAccess>(
      new DirectAccess(engine, addresses, auto_relocator, bytes, map, std::move(*store)));
}

Result<DirectAccess::Store> DirectAccess::Store::create() {
  Store store;
  store.parts.reset(new (std::nothrow) Part[kParts]);
  store.reads.reset(new (std::nothrow) Read[kReads]);
  store.words.reset(new (std::nothrow) std::atomic<std::uint64_t>[kStagingWords]());
  constexpr std::size_t bytes = kStagingWords * Staging::kUnitsPerWord * kStagingUnit;
  // not written here: memory that no put uses costs nothing
  store.memory.reset(new (std::nothrow) std::byte[bytes]);
  if (store.parts == nullptr || store.reads == nullptr || store.words == nullptr || store.memory == nullptr) {
    return fail(Errc::out_of_memory, "no memory for " + std::to_string(kReads) + " gets and " +
                                         std::to_string(kParts) + " puts under way and " +
                                         std::to_string(bytes) + " bytes of their data");
  }
  return store;
}

DirectAccess::DirectAccess(comm::Engine& engine, AddressCache& addresses, AutoRelocator* auto_relocator,
                           std::uint64_t bytes, const mem::AddressMap& map, Store&& store)
    : engine_(engine),
      addresses_(addresses),
      auto_relocator_(auto_relocator),
      pages_(addresses.directory().pages()),
      rank_(engine.transport().rank()),
      bytes_(bytes),
      cpu_atomics_(engine.transport().facts().atomics_coherent_with_cpu),
      map_(map),
      frames_(std::make_unique<std::byte*[]>(engine.transport().ranks())),
      store_(std::move(store)),
      free_parts_(kParts),
      free_reads_(kReads),
      staging_(store_.words.get(), kStagingWords, store_.memory.get(), kStagingUnit) {
  for (std::uint32_t r = 0; r < engine.transport().ranks(); ++r)
    frames_[r] = engine.transport().mapped(Rank{r}, kFrames);
  for (std::uint32_t i = 0; i < kParts; ++i) {
    store_.parts[i].access = this;
    store_.parts[i].index = i;
  }
  for (std::uint32_t i = 0; i < kReads; ++i) {
    store_.reads[i].access = this;
    store_.reads[i].index = i;
  }
}

DirectAccess::~DirectAccess() = default;

// ---- splitting -------------------------------------------------------------------------------------------

Result<void> DirectAccess::check(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset <= bytes_ && bytes <= bytes_ - offset) return {};
  return fail(Errc::out_of_range,
              std::to_string(bytes) + " bytes at " + name(offset) + ": the range is not in global memory");
}

Result<void> DirectAccess::wild(std::uint64_t offset) const {
  return fail(Errc::out_of_range,
              name(offset) + " is not allocated: a wild pointer, or memory that was freed");
}

std::string DirectAccess::name(std::uint64_t offset) const {
  char text[32];
  std::snprintf(text, sizeof text, "%p", static_cast<const void*>(map_.address(offset)));
  return text;
}

/// Calls part(done so far, bytes, only what is known here) for each page of the range. Pages whose location
/// is known here go first, so that they are under way while the directory is asked for the others.
template <class F>
Result<void> DirectAccess::hits_first(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes,
                                      bool changes, const F& part) {
  constexpr unsigned window = 64;
  KASANE_TRY(check(offset, bytes));
  for (std::uint64_t done = 0; done < bytes;) {
    const auto each = [&](const auto& f) {
      std::uint64_t at = done;
      for (unsigned i = 0; i < window && at < bytes; ++i) {
        const std::uint64_t n = std::min(bytes - at, rest_of_page(offset + at));
        if (!f(i, at, n)) return ~std::uint64_t{0};
        at += n;
      }
      return at;
    };
    std::uint64_t missed = 0;
    const std::uint64_t end = each([&](unsigned i, std::uint64_t at, std::uint64_t n) {
      if (part(at, n, true) != Found::yes) missed |= std::uint64_t{1} << i;
      return true;
    });
    if ((missed & (missed - 1)) != 0) {  // more than one
      std::array<PageId, window> pages;
      std::size_t n = 0;
      each([&](unsigned i, std::uint64_t at, std::uint64_t) {
        if ((missed >> i & 1) != 0) pages[n++] = pages_.page_of(offset + at);
        return true;
      });
      addresses_.learn(io, std::span<const PageId>(pages.data(), n), changes, AddressCache::PagesIn::all);
    }
    std::uint64_t nowhere = 0;
    if (missed != 0 && each([&](unsigned i, std::uint64_t at, std::uint64_t n) {
                         nowhere = offset + at;
                         return (missed >> i & 1) == 0 || part(at, n, false) == Found::yes;
                       }) == ~std::uint64_t{0}) {
      return wild(nowhere);
    }
    done = end;
  }
  return {};
}

template <class F>
void DirectAccess::each_page(std::uint64_t base, comm::Cursor cursor, const F& f) const {
  while (!cursor.done()) {
    const comm::Piece piece = cursor.piece();
    const std::uint64_t at = base + piece.remote_offset;
    if (at >= bytes_) return;
    const std::uint64_t n = std::min(piece.bytes, pages_.place_of(at).end - at);
    if (!f(pages_.page_of(at), at, n)) return;
    cursor.consume(n);
  }
}

/// Has at most `most` of the walk's next pages that are on SSD paged in together: their reads overlap.
/// Returns after how many changes of the page the walk leaves them.
std::size_t DirectAccess::page_in_ahead(comm::Blocking& io, std::uint64_t base, const comm::Cursor& rest,
                                        bool changes, std::size_t most) {
  std::array<PageId, AddressCache::kMostLearnt> pages;
  std::size_t n = 0, passed = 0;
  PageId last = pages_.page_of(0);
  each_page(base, rest, [&](PageId page, std::uint64_t, std::uint64_t) {
    if (passed != 0 && page == last) return true;
    if (n == most) return false;
    ++passed;
    last = page;
    if (!addresses_.known_here(page, changes) &&
        std::find(pages.begin(), pages.begin() + n, page) == pages.begin() + n)
      pages[n++] = page;
    return true;
  });
  if (n > 1) addresses_.learn(io, {pages.data(), n}, changes, AddressCache::PagesIn::all);
  return passed;
}

std::size_t DirectAccess::send_for(comm::Blocking& io, std::uint64_t from, const comm::Cursor& cursor,
                                   std::size_t most) {
  std::array<PageId, AddressCache::kMostLearnt> wanted;
  std::size_t n = 0, absent = 0;
  const auto send = [&] {
    absent += addresses_.learn(io, {wanted.data(), n}, false, AddressCache::PagesIn::sent_for);
    n = 0;
    return absent < most;
  };
  PageId last = pages_.page_of(0);
  bool first = true;
  each_page(from, cursor, [&](PageId page, std::uint64_t, std::uint64_t) {
    if (!std::exchange(first, false) && page == last) return true;
    last = page;
    if (!addresses_.known_here(page, false)) wanted[n++] = page;
    return n != wanted.size() || send();
  });
  if (n != 0) send();
  return absent;
}

std::size_t DirectAccess::absent(std::uint64_t from, const comm::Cursor& cursor, bool changes,
                                 Pages& pages) const {
  const std::size_t most = addresses_.most_together();
  std::size_t n = 0;
  each_page(from, cursor, [&](PageId page, std::uint64_t, std::uint64_t) {
    if (n == most) return false;
    const auto* const near = addresses_.directory().near_word(page);
    const bool here =
        near != nullptr ? readable(Location::of(near->load())) : addresses_.known_here(page, changes);
    if (!here && std::find(pages.begin(), pages.begin() + n, page) == pages.begin() + n) pages[n++] = page;
    return true;
  });
  return n;
}

/// Collects the pieces of a walk into batches of one page and calls flush(batch) for each.
template <class F>
Result<void> DirectAccess::each_batch(comm::Blocking& io, std::uint64_t remote, std::uintptr_t local,
                                      comm::Cursor cursor, bool changes, const F& flush) {
  Batch batch;
  const std::size_t together = addresses_.most_together();
  std::size_t ahead = 0;
  while (!cursor.done()) {
    const comm::Piece piece = cursor.piece();
    const std::uint64_t at = remote + piece.remote_offset;
    KASANE_TRY(check(at, piece.bytes));
    const PageId page = pages_.page_of(at);
    const std::uint64_t n = std::min(piece.bytes, rest_of_page(at));
    const bool other = batch.count == 0 || batch.page != page;
    if (batch.count != 0 && (other || batch.count == Batch::kMost || batch.bytes + n > kMostBytes)) {
      if (flush(batch) != Found::yes) return wild(batch.pieces[0].remote_offset);
      batch.count = 0;
    }
    if (other && together > 1 && ahead-- == 0)
      ahead = page_in_ahead(io, remote, cursor, changes, together) - 1;
    if (batch.count == 0) batch.bytes = 0;
    batch.page = page;
    batch.pieces[batch.count++] = {at, local + piece.local_offset, n};
    batch.bytes += n;
    cursor.consume(n);
  }
  if (batch.count != 0 && flush(batch) != Found::yes) return wild(batch.pieces[0].remote_offset);
  return {};
}

// ---- reads -----------------------------------------------------------------------------------------------

Result<void> DirectAccess::read(comm::Blocking& io, Outstanding& o, std::uint64_t from, std::byte* to,
                                comm::Cursor cursor) {
  if (cursor.single()) {
    const comm::Piece only = cursor.piece();
    return read(io, o, from + only.remote_offset, plus(to, only.local_offset), only.bytes);
  }
  return each_batch(io, from, reinterpret_cast<std::uintptr_t>(to), cursor, false,
                    [&](Batch& batch) { return read_batch(io, o, batch, false); });
}

Result<void> DirectAccess::read(comm::Blocking& io, Outstanding& o, std::uint64_t from, void* to,
                                std::size_t bytes) {
  return hits_first(io, from, bytes, false, [&](std::uint64_t done, std::uint64_t n, bool only_here) {
    Batch batch;
    batch.one(pages_.page_of(from + done), from + done, reinterpret_cast<std::uintptr_t>(to) + done, n);
    return read_batch(io, o, batch, only_here);
  });
}

DirectAccess::Found DirectAccess::read_batch(comm::Blocking& io, Outstanding& o, const Batch& batch,
                                             bool only_here) {
  const AddressCache::Found found =
      only_here ? addresses_.find_here(io, batch.page) : addresses_.find(io, batch.page);
  if (found.owner == kNoRank) return only_here ? Found::not_here : Found::nowhere;
  note_use(batch.page, found.owner);
  if (transport().facts().completes_inline) return read_in_place(io, o, batch, found);
  Read& read = take_read(io, o, found, batch, false);
  post_read(io, found.owner, read.batch, ends(read));
  return Found::yes;
}

void DirectAccess::post_read(comm::Blocking& io, Rank owner, const Batch& batch, comm::Callback ended) {
  io.count_round_trip({owner, kFrames, 0});
  post(io, [&] {
    const comm::Piece& p = batch.pieces[0];
    if (batch.count == 1) {
      return engine_.try_read_async({.from = {owner, kFrames, p.remote_offset},
                                     .to = {comm::kPrivateMemory, p.local_offset},
                                     .bytes = p.bytes,
                                     .on_complete = ended});
    }
    return engine_.try_read_vector_async({.rank = owner,
                                          .remote_region = kFrames,
                                          .local_region = comm::kPrivateMemory,
                                          .pieces = all(batch.pieces, batch.count),
                                          .on_complete = ended});
  });
}

/// Where all peers are mapped the target may lie in V, so only the calling thread may repeat the read.
DirectAccess::Found DirectAccess::read_in_place(comm::Blocking& io, Outstanding& o, const Batch& batch,
                                                AddressCache::Found found) {
  for (; found.owner != kNoRank; found = addresses_.find(io, batch.page)) {
    o.begin();
    post_read(io, found.owner, batch, ends(o));
    if (addresses_.stood(io, batch.page, found)) return Found::yes;
  }
  return Found::nowhere;
}

DirectAccess::Read& DirectAccess::take_read(comm::Blocking& io, Outstanding& o,
                                            const AddressCache::Found& found, const Batch& batch,
                                            bool copies) {
  // Reads end by completions and by the service thread, which starts none.
  Read& read = store_.reads[free_reads_.take(io.waiter())];
  o.begin();
  read.outstanding = &o;
  read.found = found;
  read.copies = copies;
  read.batch = batch;
  return read;
}

void DirectAccess::end(Read& read, comm::Status status) noexcept {
  if (status != comm::Status::ok || addresses_.stood_here(read.batch.page, read.found))
    return finish(read, status);
  KASANE_CHECK(unverified_.add(read.index), "there is room for every read");
  transport().wake(rank_, comm::Doorbell::messages);
}

void DirectAccess::finish(Read& read, comm::Status status) noexcept {
  Outstanding& o = *read.outstanding;
  free_reads_.put(read.index);
  o.end(status);
}

bool DirectAccess::serve(comm::Blocking& io) {
  std::uint32_t index = 0;
  if (!unverified_.take(index)) return false;
  Read& read = store_.reads[index];
  if (addresses_.stood(io, read.batch.page, read.found)) return finish(read, comm::Status::ok), true;
  io.count(&Counters::reads_again);
  read.found = addresses_.find(io, read.batch.page);
  if (read.found.owner == kNoRank) {  // it was freed during the read
    finish(read, comm::Status::peer_lost);
  } else if (!read.copies) {
    post_read(io, read.found.owner, read.batch, ends(read));
  } else if (post_copy(io, read) != Found::yes) {
    finish(read, comm::Status::peer_lost);
  }
  return true;
}

// ---- changes ---------------------------------------------------------------------------------------------

Result<void> DirectAccess::write(comm::Blocking& io, Outstanding& o, std::uint64_t to, const std::byte* from,
                                 comm::Cursor cursor, Source source) {
  if (cursor.single()) {
    const comm::Piece only = cursor.piece();
    return write(io, o, to + only.remote_offset, plus(from, only.local_offset), only.bytes, source);
  }
  return each_batch(io, to, reinterpret_cast<std::uintptr_t>(from), cursor, true,
                    [&](Batch& batch) { return write_batch(io, o, batch, source, false); });
}

Result<void> DirectAccess::write(comm::Blocking& io, Outstanding& o, std::uint64_t to, const void* from,
                                 std::size_t bytes, Source source) {
  return hits_first(io, to, bytes, true, [&](std::uint64_t done, std::uint64_t n, bool only_here) {
    Batch batch;
    batch.one(pages_.page_of(to + done), to + done, reinterpret_cast<std::uintptr_t>(from) + done, n);
    return write_batch(io, o, batch, source, only_here);
  });
}

/// Pages whose bytes are handed over together.
struct DirectAccess::HandOvers {
  static constexpr std::size_t kMost = 16;
  Staging& staging;
  std::size_t n = 0;
  std::array<PageIn::HandOver, kMost> pages{};
  std::array<Staging::Run, kMost> runs{};  ///< of the copies; units 0: none
  std::array<const std::byte*, kMost> from{};

  explicit HandOvers(Staging& s) noexcept : staging(s) {}
  HandOvers(const HandOvers&) = delete;
  HandOvers& operator=(const HandOvers&) = delete;

  ~HandOvers() { free(); }
  void free() noexcept {
    for (Staging::Run& run : runs)
      if (run.units != 0) staging.put(std::exchange(run, {}));
  }
};

Result<void> DirectAccess::write_replacing(comm::Blocking& io, Outstanding& o, std::uint64_t to,
                                           const std::byte* from, comm::Cursor cursor, Source source,
                                           Staging& staging) {
  HandOvers handed(staging);
  while (!cursor.done()) {
    const comm::Piece piece = cursor.piece();
    const std::uint64_t at = to + piece.remote_offset;
    const std::byte* const bytes = plus(from, piece.local_offset);
    KASANE_TRY(check(at, piece.bytes));
    std::uint64_t written = 0;
    for (std::uint64_t done = 0; done < piece.bytes;) {
      const auto [page, end] = pages_.place_of(at + done);
      const std::uint64_t n = std::min(piece.bytes - done, end - at - done);
      if (whole_page(page, at + done, n) && add(io, handed, page, bytes + done, source)) {
        if (written != done) KASANE_TRY(write(io, o, at + written, bytes + written, done - written, source));
        written = done + n;
        if (handed.n == HandOvers::kMost) KASANE_TRY(finish(io, o, handed, source));
      }
      done += n;
    }
    if (written != piece.bytes)
      KASANE_TRY(write(io, o, at + written, bytes + written, piece.bytes - written, source));
    cursor.consume(piece.bytes);
  }
  return finish(io, o, handed, source);
}

/// False: the page is not on SSD, or there is no room for its bytes.
bool DirectAccess::add(comm::Blocking& io, HandOvers& handed, PageId page, const std::byte* from,
                       Source source) {
  if (addresses_.known_here(page, true)) return false;
  const Location where = addresses_.directory().lookup(io, page);
  if (!hands_over(where, true)) return false;
  PageIn::HandOver& h = handed.pages[handed.n] = {page, where.owner, from};
  Staging::Run& run = handed.runs[handed.n];
  if (where.owner != rank_ || source == Source::copied) {
    run = handed.staging.take(pages_.bytes_of(page));
    if (run.units == 0) return false;
    std::byte* const copy = handed.staging.at(run);
    std::memcpy(copy, from, pages_.bytes_of(page));
    h.bytes = copy;
    h.at = PendingTable::staging_at(run);
  }
  handed.from[handed.n++] = from;
  note_use(page, where.owner);
  return true;
}

/// Pages that had left the SSD meanwhile, or were moving, are written as usual.
Result<void> DirectAccess::finish(comm::Blocking& io, Outstanding& o, HandOvers& handed, Source source) {
  if (handed.n == 0) return {};
  addresses_.hand_over(io, {handed.pages.data(), handed.n});
  handed.free();
  const std::size_t n = std::exchange(handed.n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const PageId page = handed.pages[i].page;
    if (!handed.pages[i].taken)
      KASANE_TRY(write(io, o, pages_.offset_of(page), handed.from[i], pages_.bytes_of(page), source));
  }
  return {};
}

DirectAccess::Found DirectAccess::write_batch(comm::Blocking& io, Outstanding& o, Batch& batch, Source source,
                                              bool only_here) {
  Part& part = take_part(io, o);
  if (source == Source::copied) stage(io, part, batch);
  Rank owner{};
  const Found found = use(io, part, batch.page, parts(batch), only_here, owner);
  if (found != Found::yes) return drop(part), found;
  io.count_round_trip({owner, kFrames, 0});
  post(io, [&] {
    const comm::Piece& p = batch.pieces[0];
    if (batch.count == 1) {
      return engine_.try_write_async({.to = {owner, kFrames, p.remote_offset},
                                      .from = {comm::kPrivateMemory, p.local_offset},
                                      .bytes = p.bytes,
                                      .on_complete = ends(part)});
    }
    return engine_.try_write_vector_async({.rank = owner,
                                           .remote_region = kFrames,
                                           .local_region = comm::kPrivateMemory,
                                           .pieces = all(batch.pieces, batch.count),
                                           .on_complete = ends(part)});
  });
  return Found::yes;
}

Result<void> DirectAccess::accumulate(comm::Blocking& io, Outstanding& o, comm::Element element,
                                      std::complex<double> scale, std::uint64_t to, const std::byte* from,
                                      comm::Cursor cursor, Source source) {
  const std::size_t size = comm::element_bytes(element), part = comm::part_bytes(element);
  Result<void> wrong;
  auto issued = each_batch(io, to, reinterpret_cast<std::uintptr_t>(from), cursor, true, [&](Batch& batch) {
    for (std::size_t i = 0; i < batch.count && wrong; ++i) {
      const comm::Piece& p = batch.pieces[i];
      if (p.remote_offset % part != 0 || p.local_offset % part != 0) {
        wrong = fail(Errc::invalid_argument, "accumulate at " + name(p.remote_offset) +
                                                 ": both sides must be multiples of " + std::to_string(part) +
                                                 " bytes");
      } else if (p.bytes % size != 0) {
        wrong = fail(Errc::invalid_argument, "accumulate at " + name(p.remote_offset) +
                                                 ": rows must be whole elements of " + std::to_string(size) +
                                                 " bytes, none of them across the border of two pages");
      }
    }
    return wrong ? accumulate_batch(io, o, element, scale, batch, source) : Found::nowhere;
  });
  return wrong ? issued : wrong;
}

DirectAccess::Found DirectAccess::accumulate_batch(comm::Blocking& io, Outstanding& o, comm::Element element,
                                                   std::complex<double> scale, Batch& batch, Source source) {
  Part& part = take_part(io, o);
  if (source == Source::copied) stage(io, part, batch);
  Rank owner{};
  if (use(io, part, batch.page, parts(batch), false, owner) != Found::yes) return drop(part), Found::nowhere;
  io.count_round_trip({owner, kFrames, 0});
  for (const comm::Piece& p : all(batch.pieces, batch.count)) {
    part.left.fetch_add(1, std::memory_order_relaxed);  // relaxed: this thread's own count keeps it above 0
    post(io, [&] {
      return engine_.try_accumulate_async({.to = {owner, kFrames, p.remote_offset},
                                           .from = {comm::kPrivateMemory, p.local_offset},
                                           .element = element,
                                           .scale = scale,
                                           .shape = {.dimensions = 1, .count = {p.bytes}},
                                           .on_complete = ends(part)});
    });
  }
  end(part, comm::Status::ok);
  return Found::yes;
}

Result<void> DirectAccess::atomic(comm::Blocking& io, Outstanding& o, comm::AtomicOp op, comm::Width width,
                                  std::uint64_t at, std::uint64_t operand, std::uint64_t compare,
                                  std::uint64_t* result, OwnCopies copies) {
  const auto bytes = static_cast<std::uint64_t>(width);
  KASANE_TRY(check(at, bytes));
  if (at % bytes != 0) {
    return fail(Errc::invalid_argument, "an atomic of " + std::to_string(bytes) + " bytes at " + name(at) +
                                            ": the address must be a multiple of " + std::to_string(bytes));
  }
  Part& part = take_part(io, o);
  Rank owner{};
  const PageId page = pages_.page_of(at);
  if (use(io, part, page, parts(page, at, bytes), false, owner) != Found::yes) return drop(part), wild(at);
  part.copies = copies;
  io.count_round_trip({owner, kFrames, 0});
  post(io, [&] {
    return engine_.try_atomic_async({.op = op,
                                     .width = width,
                                     .at = {owner, kFrames, at},
                                     .operand = operand,
                                     .compare = compare,
                                     .result = result,
                                     .on_complete = ends(part)});
  });
  return {};
}

Result<void> DirectAccess::copy(comm::Blocking& io, Outstanding& o, std::uint64_t from, std::uint64_t to,
                                std::size_t bytes) {
  KASANE_TRY(check(from, bytes));
  KASANE_TRY(check(to, bytes));
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t here = from + done, there = to + done;
    const std::uint64_t n = std::min({bytes - done, rest_of_page(here), rest_of_page(there)});
    Batch batch;
    batch.one(pages_.page_of(here), here, there, n);
    const AddressCache::Found found = addresses_.find(io, batch.page);
    if (found.owner == kNoRank) return wild(here);
    note_use(batch.page, found.owner);
    Read& read = take_read(io, o, found, batch, true);
    if (post_copy(io, read) != Found::yes) return finish(read, comm::Status::ok), wild(there);
    done += n;
  }
  return {};
}

/// Begins a new use each time: no use is held while the source is looked up.
DirectAccess::Found DirectAccess::post_copy(comm::Blocking& io, Read& read) {
  const comm::Piece piece = read.batch.pieces[0];
  const Rank source = read.found.owner;
  Part& part = take_part(io, *read.outstanding);
  Rank owner{};
  const PageId page = pages_.page_of(piece.local_offset);
  if (use(io, part, page, parts(page, piece.local_offset, piece.bytes), false, owner) != Found::yes)
    return drop(part), Found::nowhere;
  part.source = &read;
  io.count_round_trip({owner, kFrames, 0});
  post(io, [&] {
    return engine_.try_copy_async({.from = {source, kFrames, piece.remote_offset},
                                   .to = {owner, kFrames, piece.local_offset},
                                   .bytes = piece.bytes,
                                   .on_complete = ends(part)});
  });
  return Found::yes;
}

void DirectAccess::flush(comm::Blocking& io, Outstanding& o) {
  o.begin();
  post(io, [&] { return engine_.try_flush_async({.rank = kNoRank, .on_complete = ends(o)}); });
}

// ---- parts -----------------------------------------------------------------------------------------------

DirectAccess::Part& DirectAccess::take_part(comm::Blocking& io, Outstanding& o) {
  // Parts end without help: their uses wait for no thread.
  Part& part = store_.parts[free_parts_.take(io.waiter())];
  o.begin();
  part.outstanding = &o;
  part.source = nullptr;
  part.counted = false;
  part.copies = OwnCopies::outdated;
  part.staged = {};
  // relaxed, both: the part belongs to this thread until it is posted.
  part.left.store(1, std::memory_order_relaxed);
  part.failed.store(false, std::memory_order_relaxed);
  return part;
}

/// Copies the sources aside; then the pieces' local addresses are those of the copies. Before the use begins:
/// a source in V may fault, and a fault may wait for the mover of that page.
void DirectAccess::stage(comm::Blocking& io, Part& part, Batch& batch) {
  std::byte* to = part.data;
  if (batch.bytes > Part::kInline) {
    io.waiter().until(
        [&] { return part.staged.units != 0 || (part.staged = staging_.take(batch.bytes)).units != 0; });
    to = staging_.at(part.staged);
  }
  for (std::size_t i = 0; i < batch.count; ++i) {
    comm::Piece& p = batch.pieces[i];
    std::memcpy(to, reinterpret_cast<const std::byte*>(p.local_offset), p.bytes);
    p.local_offset = reinterpret_cast<std::uintptr_t>(to);
    to += p.bytes;
  }
}

DirectAccess::Found DirectAccess::use(comm::Blocking& io, Part& part, PageId page, PartMask parts,
                                      bool only_here, Rank& owner) {
  part.page = page;
  part.parts = parts;
  if (only_here) {
    AddressCache::Put put(addresses_, io, page, AddressCache::kOnlyHere);
    owner = put.owner();
    part.counted = put.hand_over();
  } else {
    AddressCache::Put put(addresses_, io, page);
    owner = put.owner();
    part.counted = put.hand_over();
  }
  if (owner == kNoRank) return only_here ? Found::not_here : Found::nowhere;
  note_use(page, owner);
  return Found::yes;
}

/// Nothing was posted for it.
void DirectAccess::drop(Part& part) noexcept { end(part, comm::Status::ok); }

void DirectAccess::end(Part& part, comm::Status status) noexcept {
  // relaxed: published by left
  if (status != comm::Status::ok) part.failed.store(true, std::memory_order_relaxed);
  // acq_rel: the thread that ends the last operation of the part has the bytes of all.
  if (part.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (part.counted) addresses_.end_put(part.page, part.parts, part.copies);
  if (part.staged.units != 0) staging_.put(part.staged);
  Outstanding& o = *part.outstanding;
  Read* const source = part.source;
  // relaxed: ordered by left
  const comm::Status worst =
      part.failed.load(std::memory_order_relaxed) ? comm::Status::peer_lost : comm::Status::ok;
  free_parts_.put(part.index);
  o.end(worst);
  if (source != nullptr) end(*source, worst);  // which has a count of its own
}

template <class Record>
comm::Callback DirectAccess::ends(Record& record) noexcept {
  return {.fn =
              [](void* p, comm::Status status) noexcept {
                auto& ended = *static_cast<Record*>(p);
                KASANE_CHECK(status != comm::Status::refused, "arguments were checked before");
                if constexpr (std::is_same_v<Record, Outstanding>) {
                  ended.end(status);
                } else {
                  ended.access->end(ended, status);
                }
              },
          .context = &record};
}

}  // namespace kasane::gas
