// SPDX-License-Identifier: Apache-2.0
// Direct, uncached access to global memory: the owner's copy is read and changed one-sidedly through comm's
// engine. All calls are asynchronous: a call issues all its parts and returns; an Outstanding counts the
// parts that have not ended.
//
//   get, put … of a range ─ split at pages ─▶ location cached? ─ yes ─▶ engine: one operation a page
//                                (gas/address_cache.h)   └ no ─▶ all asked for together, two trips ─▶ engine
//   Pages whose locations are cached go first.
//
// An operation that changes a page is a *use* of its entry in the address cache until it has completed at the
// owner. Its completion ends the use, on whichever thread that runs. So the issuing thread may go on, or let
// its worker run other threads. Between beginning a use and the engine's accepting the operation a thread
// waits for nothing but room in a queue, so two movers cannot wait for each other through direct accesses.
//
// A read holds nothing, so its page may move meanwhile and its frame be punched: its completion checks
// whether the page stood. If it did not, or this is not known here, the read is repeated by the rank's
// service thread, or by the thread that waits for it (serve).
//
// **Local memory** is never touched by a callback or handler (rule 10). So memory in V is no target of a
// read, and no source without `copied`, except where every peer is mapped here: then the calling thread
// copies before the call returns, and holds nothing meanwhile.
//
// Thread safety: every call from any thread, given its own Blocking; its waiter must poll if memory is
// changed (it may hold a use). Not for fault handlers. Nothing allocates after create(). Mixing direct and
// coherent access of one datum needs a fence between.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/notes.h"
#include "base/result.h"
#include "comm/engine/cursor.h"
#include "comm/engine/engine.h"
#include "comm/index_pool.h"
#include "gas/address_cache.h"
#include "gas/auto_relocator.h"
#include "gas/outstanding.h"
#include "gas/staging.h"

namespace kasane::gas {

/// Computed with integers: for lists of pieces the base may be null.
[[nodiscard]] inline std::byte* plus(const std::byte* base, std::uint64_t bytes) noexcept {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + bytes);
}

/// copied: the bytes of the source are copied before the call returns. So the source may lie in V, and be
/// used again at once.
enum class Source : std::uint8_t { kept, copied };

class DirectAccess {
 public:
  using OwnCopies = AddressCache::OwnCopies;
  /// kFrames is attached through the engine, with `bytes` on every rank. base: the address that programs have
  /// for offset 0. The auto-relocator, if not null, counts uses of other ranks' pages.
  static Result<std::unique_ptr<DirectAccess>> create(comm::Engine&, AddressCache&, AutoRelocator*,
                                                      std::uint64_t bytes, const mem::AddressMap&);
  ~DirectAccess();  ///< after everything has completed
  DirectAccess(const DirectAccess&) = delete;
  DirectAccess& operator=(const DirectAccess&) = delete;

  // Each call issues its parts, counted by the Outstanding, which must live until it is done; so must local
  // memory, unless it is copied. Global places are offsets; a Cursor's pieces are relative to both. After an
  // error (nothing is allocated there, the range ends outside the space) the parts issued before are still
  // outstanding: await them all the same.

  Result<void> read(comm::Blocking&, Outstanding&, std::uint64_t from, std::byte* to, comm::Cursor);
  Result<void> read(comm::Blocking&, Outstanding&, std::uint64_t from, void* to, std::size_t bytes);
  Result<void> write(comm::Blocking&, Outstanding&, std::uint64_t to, const std::byte* from, comm::Cursor,
                     Source = Source::kept);
  Result<void> write(comm::Blocking&, Outstanding&, std::uint64_t to, const void* from, std::size_t bytes,
                     Source = Source::kept);
  /// y += a · x (comm::AccumulateParams). An element must not lie across the border of two pages.
  Result<void> accumulate(comm::Blocking&, Outstanding&, comm::Element, std::complex<double> scale,
                          std::uint64_t to, const std::byte* from, comm::Cursor, Source = Source::kept);
  /// *result (may be null; not in V but on the running stack): the old value, zero-extended. The offset is a
  /// multiple of the width.
  Result<void> atomic(comm::Blocking&, Outstanding&, comm::AtomicOp, comm::Width, std::uint64_t at,
                      std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
                      OwnCopies = OwnCopies::outdated);
  /// Asks the owners of the walk's pages that other ranks have on SSD for about `most` of them, and waits for
  /// no disk. Returns how many such pages there are.
  std::size_t send_for(comm::Blocking&, std::uint64_t from, const comm::Cursor&, std::size_t most);
  /// Pages at the beginning of the walk that are on SSD, or whose place is not known here: as many as come
  /// together. Returns how many.
  using Pages = std::array<PageId, AddressCache::kMostLearnt>;
  [[nodiscard]] std::size_t absent(std::uint64_t from, const comm::Cursor&, bool changes, Pages&) const;
  /// Before an operation: these pages come into DRAM. The caller holds nothing.
  void page_in(comm::Blocking& io, std::span<const PageId> pages, bool changes) {
    addresses_.learn(io, pages, changes, AddressCache::PagesIn::all);
  }
  /// As write(). Of pages on SSD of which it replaces every byte the bytes are handed over to their owners:
  /// that is done when the call returns. The caller holds nothing. staging: of this rank's region kPending.
  Result<void> write_replacing(comm::Blocking&, Outstanding&, std::uint64_t to, const std::byte* from,
                               comm::Cursor, Source, Staging& staging);
  /// May a write of so much be one of write_replacing()?
  [[nodiscard]] bool may_replace(std::uint64_t to, std::uint64_t bytes) const noexcept {
    if (!addresses_.pages_leave() || to >= bytes_ || bytes > bytes_ - to) return false;
    const std::uint64_t first = pages_.offset_of(pages_.page_of(to)) == to ? to : pages_.place_of(to).end;
    return first < to + bytes && pages_.place_of(first).end <= to + bytes;
  }
  /// Between two places of global memory that do not overlap.
  Result<void> copy(comm::Blocking&, Outstanding&, std::uint64_t from, std::uint64_t to, std::size_t bytes);
  /// Ends when everything that this rank issued before has completed at its owner.
  void flush(comm::Blocking&, Outstanding&);
  /// Called by the service thread and by threads that wait for a read: repeats a read whose page may not have
  /// stood. True if there was something to do.
  bool serve(comm::Blocking&);
  [[nodiscard]] bool asked() const noexcept { return unverified_.any(); }

  [[nodiscard]] comm::Engine& engine() const noexcept { return engine_; }
  [[nodiscard]] const AddressCache& addresses() const noexcept { return addresses_; }
  [[nodiscard]] comm::Transport& transport() const noexcept { return engine_.transport(); }

  /// read() of bytes in one page, at once, if its owner's frame and the directory are mapped here; to: may
  /// lie in V. False: nothing happened.
  [[nodiscard]] bool read_near(void* to, std::uint64_t offset, std::size_t bytes) noexcept {
    if (offset >= bytes_) return false;
    const auto [page, end] = pages_.place_of(offset);
    if (bytes > end - offset) return false;
    const std::atomic<std::uint64_t>* word = addresses_.directory().near_word(page);
    if (word == nullptr) return false;
    for (;;) {
      const Location where = Location::of(word->load());
      if (!readable(where) || frames_[raw(where.owner)] == nullptr) return false;
      comm::copy_in(static_cast<std::byte*>(to), frames_[raw(where.owner)] + offset, bytes);
      note_use(page, where.owner);
      if (stood(where, Location::of(word->load()))) [[likely]]
        return true;
    }
  }

  /// write() of bytes in one page, at once, if its owner is known here and mapped; from: not in V. False:
  /// nothing happened.
  [[nodiscard]] bool write_near(comm::Blocking& io, std::uint64_t offset, const void* from,
                                std::size_t bytes) {
    if (offset >= bytes_) return false;
    const auto [page, end] = pages_.place_of(offset);
    if (bytes > end - offset) return false;
    AddressCache::Put put(addresses_, io, page, AddressCache::kOnlyHere);
    if (put.owner() == kNoRank || frames_[raw(put.owner())] == nullptr) return false;
    put.within(parts(page, offset, bytes));
    comm::copy_out(frames_[raw(put.owner())] + offset, static_cast<const std::byte*>(from), bytes);
    note_use(page, put.owner());
    return true;
  }
  /// accumulate() at once, under the conditions of write_near(); no element lies across the page's end. False
  /// also: one is not aligned.
  [[nodiscard]] bool accumulate_near(comm::Blocking& io, comm::Element element, std::complex<double> scale,
                                     std::uint64_t offset, const void* from, std::size_t bytes) {
    if (offset >= bytes_ || !elements(element, offset, from, bytes)) return false;
    const auto [page, end] = pages_.place_of(offset);
    if (bytes > end - offset) return false;
    AddressCache::Put put(addresses_, io, page, AddressCache::kOnlyHere);
    const Rank owner = put.owner();
    if (owner == kNoRank || frames_[raw(owner)] == nullptr) return false;
    put.within(parts(page, offset, bytes));
    if (!engine_.accumulate_here({owner, kFrames, offset}, frames_[raw(owner)] + offset,
                                 static_cast<const std::byte*>(from), bytes, element, scale))
      return false;
    note_use(page, owner);
    return true;
  }
  // What is left of a walk, as the three above, page by page. Local memory of changes: not in V. False:
  // something is left, from the cursor on.
  [[nodiscard]] bool read_near(std::uint64_t from, std::byte* to, comm::Cursor& cursor) noexcept {
    while (!cursor.done()) {
      const comm::Piece piece = cursor.piece();
      const std::uint64_t at = from + piece.remote_offset;
      if (at >= bytes_) return false;
      const std::uint64_t n = std::min(piece.bytes, pages_.place_of(at).end - at);
      if (!read_near(plus(to, piece.local_offset), at, n)) return false;
      cursor.consume(n);
    }
    return true;
  }
  [[nodiscard]] bool write_near(comm::Blocking& io, std::uint64_t to, const std::byte* from,
                                comm::Cursor& cursor) {
    return change_near(io, to, cursor, [&](Rank owner, std::uint64_t at, std::uint64_t local, std::size_t n) {
      comm::copy_out(frames_[raw(owner)] + at, plus(from, local), n);
      return true;
    });
  }
  /// The sizes and strides of the walk are those of whole elements, or it stops.
  [[nodiscard]] bool accumulate_near(comm::Blocking& io, comm::Element element, std::complex<double> scale,
                                     std::uint64_t to, const std::byte* from, comm::Cursor& cursor) {
    return change_near(io, to, cursor, [&](Rank owner, std::uint64_t at, std::uint64_t local, std::size_t n) {
      const std::byte* x = plus(from, local);
      return elements(element, at, x, n) &&
             engine_.accumulate_here({owner, kFrames, at}, frames_[raw(owner)] + at, x, n, element, scale);
    });
  }
  /// Bytes from the offset to the end of its page.
  [[nodiscard]] std::uint64_t to_page_end(std::uint64_t offset) const noexcept {
    return rest_of_page(offset);
  }
  /// atomic() at once, under the conditions of write_near(), where the CPU's atomics are the transport's.
  [[nodiscard]] bool atomic_near(comm::Blocking& io, comm::AtomicOp op, comm::Width width, std::uint64_t at,
                                 std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
                                 OwnCopies copies = OwnCopies::outdated) {
    if (!cpu_atomics_ || at >= bytes_ || at % static_cast<std::uint64_t>(width) != 0) return false;
    const PageId page = pages_.page_of(at);
    std::uint64_t old;
    {
      AddressCache::Put put(addresses_, io, page, AddressCache::kOnlyHere);
      if (put.owner() == kNoRank || frames_[raw(put.owner())] == nullptr) return false;
      put.within(parts(page, at, 1), copies);
      old = comm::cpu_atomic(op, width, frames_[raw(put.owner())] + at, operand, compare);
      note_use(page, put.owner());
    }
    if (result != nullptr) *result = old;  // after the use: it may lie in V, and fault
    return true;
  }

 private:
  struct Read;
  /// One outstanding operation that changes a page.
  struct Part {
    DirectAccess* access;
    Outstanding* outstanding;
    Read* source;  ///< of a copy, else null
    PageId page;
    PartMask parts;  ///< the parts of the page that change
    std::uint32_t index;
    bool counted;  ///< as a use of the page's entry
    OwnCopies copies;
    Staging::Run staged;
    std::atomic<std::uint32_t> left;  ///< outstanding operations of the engine
    std::atomic<bool> failed;
    static constexpr std::size_t kInline = 128;
    alignas(16) std::byte data[kInline];
  };
  /// Pieces of one page that become one operation.
  struct Batch {
    static constexpr std::size_t kMost = 64;
    PageId page{};
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    comm::Piece pieces[kMost];  ///< of absolute offsets and addresses

    Batch() = default;
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch& b) noexcept {
      page = b.page;
      count = b.count;
      bytes = b.bytes;
      std::copy_n(b.pieces, b.count, pieces);
      return *this;
    }
    void one(PageId of, std::uint64_t offset, std::uintptr_t address, std::uint64_t n) noexcept {
      page = of;
      count = 1;
      bytes = n;
      pieces[0] = {offset, address, n};
    }
  };
  /// One outstanding read of a page, or copy from it, until it is known that the bytes were the page's.
  struct Read {
    DirectAccess* access;
    Outstanding* outstanding;
    AddressCache::Found found;
    std::uint32_t index;
    bool copies;  ///< local offsets are global ones
    Batch batch;
  };
  enum class Found : std::uint8_t { yes, not_here, nowhere };

  static constexpr std::uint32_t kParts = 1024, kReads = 1024;
  static constexpr std::uint64_t kMostBytes = 64 * 1024;  ///< of one operation

  struct Store {
    std::unique_ptr<Part[]> parts;
    std::unique_ptr<Read[]> reads;
    std::unique_ptr<std::atomic<std::uint64_t>[]> words;
    std::unique_ptr<std::byte[]> memory;
    static Result<Store> create();
  };

  DirectAccess(comm::Engine&, AddressCache&, AutoRelocator*, std::uint64_t bytes, const mem::AddressMap&,
               Store&&);
  [[nodiscard]] Result<void> check(std::uint64_t offset, std::uint64_t bytes) const;
  [[nodiscard]] Result<void> wild(std::uint64_t offset) const;
  [[nodiscard]] std::string name(std::uint64_t offset) const;
  /// Bytes from here to the page's end, at most as many as one operation takes.
  [[nodiscard]] std::uint64_t rest_of_page(std::uint64_t offset) const noexcept {
    return std::min(kMostBytes, pages_.place_of(offset).end - offset);
  }
  /// Called for each operation; automatic relocation depends on it.
  void note_use(PageId page, Rank owner) noexcept {
    if (auto_relocator_ != nullptr && owner != rank_) auto_relocator_->used(page);
  }
  /// Whether these are whole elements, aligned to their parts on both sides.
  [[nodiscard]] static bool elements(comm::Element element, std::uint64_t offset, const void* local,
                                     std::size_t bytes) noexcept {
    const std::size_t size = comm::element_bytes(element), part = comm::part_bytes(element);
    return ((offset | reinterpret_cast<std::uintptr_t>(local)) & (part - 1)) == 0 && bytes % size == 0;
  }
  /// change(owner, offset, local offset, bytes) for each piece of the walk, within a use of its page; pieces
  /// that lie in one page share it. Stops where change() is false, or the page's location is not known here.
  template <class Change>
  bool change_near(comm::Blocking& io, std::uint64_t base, comm::Cursor& cursor, const Change& change) {
    while (!cursor.done()) {
      comm::Piece piece = cursor.piece();
      std::uint64_t at = base + piece.remote_offset;
      if (at >= bytes_) return false;
      const auto [page, end] = pages_.place_of(at);
      AddressCache::Put put(addresses_, io, page, AddressCache::kOnlyHere);
      const Rank owner = put.owner();
      if (owner == kNoRank || frames_[raw(owner)] == nullptr) return false;
      note_use(page, owner);
      // once a page, not once a row
      const mem::BlockRange blocks = pages_.blocks_of(page);
      const std::uint64_t begin = mem::offset_of(blocks.first);
      PartMask changed = 0;
      bool done = true;
      do {
        const std::uint64_t n = std::min(piece.bytes, end - at);
        changed |= parts_of(blocks, mem::block_of(at), mem::block_of(at + n - 1));
        put.within(changed);
        if (!(done = change(owner, at, piece.local_offset, n))) break;
        cursor.consume(n);
        if (cursor.done()) break;
        piece = cursor.piece();
        at = base + piece.remote_offset;
      } while (at >= begin && at < end);
      if (!done) return false;
    }
    return true;
  }
  template <class F>
  Result<void> each_batch(comm::Blocking&, std::uint64_t remote, std::uintptr_t local, comm::Cursor,
                          bool changes, const F& flush);
  /// f(page, its first byte in the walk, bytes there) for each stretch of the walk that lies in one page.
  /// Ends where f is false, or outside the space.
  template <class F>
  void each_page(std::uint64_t base, comm::Cursor, const F& f) const;
  std::size_t page_in_ahead(comm::Blocking&, std::uint64_t base, const comm::Cursor& rest, bool changes,
                            std::size_t most);
  /// Is the stretch a whole page, which one operation can change?
  [[nodiscard]] bool whole_page(PageId page, std::uint64_t at, std::uint64_t bytes) const noexcept {
    return bytes <= kMostBytes && at == pages_.offset_of(page) && bytes == pages_.bytes_of(page);
  }
  template <class F>
  Result<void> hits_first(comm::Blocking&, std::uint64_t offset, std::uint64_t bytes, bool changes,
                          const F& part);

  Found read_batch(comm::Blocking&, Outstanding&, const Batch&, bool only_here);
  Found write_batch(comm::Blocking&, Outstanding&, Batch&, Source, bool only_here);
  Found accumulate_batch(comm::Blocking&, Outstanding&, comm::Element, std::complex<double>, Batch&, Source);
  struct HandOvers;
  bool add(comm::Blocking&, HandOvers&, PageId, const std::byte* from, Source);
  Result<void> finish(comm::Blocking&, Outstanding&, HandOvers&, Source);
  void stage(comm::Blocking&, Part&, Batch&);
  Part& take_part(comm::Blocking&, Outstanding&);
  /// Begins a use for the part, which changes these parts of its page; sets the page's owner.
  Found use(comm::Blocking&, Part&, PageId, PartMask, bool only_here, Rank& owner);
  /// The parts in which the bytes lie, at least one.
  [[nodiscard]] PartMask parts(PageId page, std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return parts_of(pages_.blocks_of(page), mem::block_of(offset),
                    mem::block_of(offset + std::max<std::uint64_t>(bytes, 1) - 1));
  }
  [[nodiscard]] PartMask parts(const Batch& batch) const noexcept {
    PartMask all = 0;
    for (std::size_t i = 0; i < batch.count; ++i)
      all |= parts(batch.page, batch.pieces[i].remote_offset, batch.pieces[i].bytes);
    return all;
  }
  void drop(Part&) noexcept;
  Read& take_read(comm::Blocking&, Outstanding&, const AddressCache::Found&, const Batch&, bool copies);
  void post_read(comm::Blocking&, Rank owner, const Batch&, comm::Callback);
  Found read_in_place(comm::Blocking&, Outstanding&, const Batch&, AddressCache::Found);
  Found post_copy(comm::Blocking&, Read&);
  void finish(Read&, comm::Status) noexcept;
  template <class Record>
  static comm::Callback ends(Record&) noexcept;
  void end(Part&, comm::Status) noexcept;
  void end(Read&, comm::Status) noexcept;

  comm::Engine& engine_;
  AddressCache& addresses_;
  AutoRelocator* auto_relocator_;  ///< may be null
  const mem::Pages& pages_;
  Rank rank_;
  std::uint64_t bytes_;
  bool cpu_atomics_;
  const mem::AddressMap map_;             ///< for messages
  std::unique_ptr<std::byte*[]> frames_;  ///< of each rank, null where they are not mapped
  Store store_;
  comm::IndexPool<> free_parts_, free_reads_;
  Notes<std::uint32_t, kReads> unverified_;  ///< reads to be looked at again
  Staging staging_;
};

/// Waits until the issued operations have ended. by_polling: repeats reads.
inline void await(comm::Blocking& io, comm::Blocking& by_polling, DirectAccess& access,
                  const Outstanding& o) {
  for (;; access.serve(by_polling)) {
    io.waiter().until([&] { return o.done() || access.asked(); });
    if (o.done()) return;
  }
}

/// Awaits what `issue` (called with an Outstanding) issues, by the waiter of io, which polls.
template <class Issue>
Result<void> await(comm::Blocking& io, DirectAccess& access, const Issue& issue) {
  Outstanding outstanding;
  auto issued = issue(outstanding);
  await(io, io, access, outstanding);
  if (issued && outstanding.failed()) return fail(Errc::peer_lost, "a peer was lost before it answered");
  return issued;
}

/// The blocking forms, for callers that wait by polling.
inline Result<void> get(comm::Blocking& io, DirectAccess& access, void* local, std::uint64_t offset,
                        std::size_t bytes) {
  return await(io, access, [&](Outstanding& o) { return access.read(io, o, offset, local, bytes); });
}
inline Result<void> put(comm::Blocking& io, DirectAccess& access, std::uint64_t offset, const void* local,
                        std::size_t bytes) {
  return await(io, access, [&](Outstanding& o) { return access.write(io, o, offset, local, bytes); });
}

}  // namespace kasane::gas
