// SPDX-License-Identifier: Apache-2.0
// The allocator of global memory (after the data library of ACP: memory at any rank, allocated and freed by
// any rank without that rank's help). Each rank has a share of the heap segment; the state of it that ranks
// share lies in region kHeap, outside V (rule 7). Design: docs/design/heap.md.
//
//   small (≤ 32 KiB): slabs of one size class, cut into groups of up to 64 objects. A thread that needs
//                     objects takes a whole group. A thread that frees objects keeps them, group by group,
//                     and hands them out again or returns them when it has no room for another group: over
//                     a network several groups at once
//   large           : runs of pages (gas/heap_runs.h)
//
// Thread safety: every call from any thread; a cache index belongs to one OS thread at a time (kShared: under
// a lock that is not held across communication).
// Errors: a double free, or a pointer that no allocation returned, ends the program with a message that names
// the address.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "base/result.h"
#include "gas/heap_cache.h"
#include "gas/heap_hooks.h"
#include "gas/heap_runs.h"
#include "gas/mover.h"
#include "gas/placement.h"

namespace kasane::gas {

/// The contents of a rank's share. Objects in a worker's cache count as used.
struct HeapStatistics {
  std::uint64_t share_bytes = 0;                                 ///< all of it
  std::uint64_t touched_bytes = 0;                               ///< was handed out at some time
  std::uint64_t slabs = 0, slab_bytes = 0, slab_free_bytes = 0;  ///< bytes of objects
  std::uint64_t runs = 0, run_bytes = 0;
  std::uint64_t free_runs = 0, free_run_bytes = 0;

  HeapStatistics& operator+=(const HeapStatistics& o) noexcept {
    share_bytes += o.share_bytes, touched_bytes += o.touched_bytes;
    slabs += o.slabs, slab_bytes += o.slab_bytes, slab_free_bytes += o.slab_free_bytes;
    runs += o.runs, run_bytes += o.run_bytes;
    free_runs += o.free_runs, free_run_bytes += o.free_run_bytes;
    return *this;
  }
};

class Heap {
 public:
  /// The heap segment [offset, offset + bytes) of the space, divided equally among the ranks; caches: number
  /// of cache indices (workers). A job may have several heaps, each in a segment of one page size and with
  /// its own region, or its part of one.
  struct Config {
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t caches = 1;
    std::uintptr_t space = 0;  ///< the address of offset 0, for messages
    comm::RegionId region = kHeap;
    std::uint64_t region_offset = 0;  ///< a multiple of 8
  };
  static constexpr std::uint32_t kShared = ~std::uint32_t{0};
  static std::size_t region_bytes(const Config&, std::uint32_t ranks) noexcept;

  /// After its region was attached, zeroed.
  Heap(comm::Transport&, const Config&, Directory&, Mover&, HeapHooks&);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// align: a power of two up to 64 KiB. Returns the offset in the space. Small objects share pages, if no
  /// placement keeps that from being so (rank_of_small()); others begin at a page.
  Result<std::uint64_t> allocate(comm::Blocking& io, std::uint32_t cache, std::size_t bytes,
                                 std::size_t align, Placement placement) {
    if (placement.kind == Placement::Kind::local && !placement.fixed && align <= 16 &&
        bytes <= kLargestSmall && cache != kShared) [[likely]] {
      const unsigned c = kClassTable[(bytes + (bytes == 0) + 15) / 16];
      const std::uint64_t offset = caches_[cache].own[c].take(c);
      if (offset != kNoObject) [[likely]]
        return offset;
    }
    return allocate_slowly(io, cache, bytes, align, placement);
  }
  /// As allocate(). fresh: set if its pages were never used, so that every byte is 0.
  Result<std::uint64_t> allocate(comm::Blocking& io, std::uint32_t cache, std::size_t bytes,
                                 std::size_t align, Placement placement, bool& fresh) {
    return allocate_slowly(io, cache, bytes, align, placement, &fresh);
  }
  void free(comm::Blocking& io, std::uint32_t cache, std::uint64_t offset) {
    const std::uint64_t page = (offset - config_.offset) / kHeapPageBytes;
    // constant while any object of the slab is allocated; it is read for nothing else
    const std::uint16_t known = known_[page].load(std::memory_order_relaxed);
    if (known != 0 && cache != kShared && page - first_own_page_ < layout_.pages) [[likely]] {
      const Object object = object_of(offset, page - first_own_page_, known);
      discard(io, offset, object);
      if (caches_[cache].own[object.size_class].put(object.group, object.bit, object.size_class)) [[likely]]
        return;
    }
    free_slowly(io, cache, offset);
  }
  /// Makes an allocation larger or smaller in place, if that is possible and sensible.
  bool resize(comm::Blocking&, std::uint64_t offset, std::size_t bytes);
  /// Bytes that may be used from offset on.
  std::size_t usable_size(comm::Blocking&, std::uint64_t offset);
  [[nodiscard]] bool contains(std::uint64_t offset) const noexcept {
    return offset - config_.offset < config_.bytes;
  }
  /// The rank at which the memory was allocated.
  [[nodiscard]] Rank share_of(std::uint64_t offset) const noexcept {
    return Rank{static_cast<std::uint32_t>((offset - config_.offset) / kHeapPageBytes / layout_.pages)};
  }

  /// Returns what the cache keeps, and pages that were taken for future slabs. Called by the cache's thread,
  /// or when that has ended.
  void flush(comm::Blocking&, std::uint32_t cache);
  /// Looks through a rank's share: exact while no thread allocates or frees.
  HeapStatistics statistics(comm::Blocking&, Rank);
  /// Calls live(offset, bytes) for everything that is allocated in this rank's share and was not returned to
  /// it.
  template <class F>
  void for_each_live(comm::Blocking& io, const F& live) {
    walk(
        io,
        [](void* f, std::uint64_t offset, std::size_t bytes) { (*static_cast<const F*>(f))(offset, bytes); },
        const_cast<F*>(&live));
  }

 private:
  struct Object {
    std::uint64_t page;  ///< the slab's first, in its share
    unsigned size_class;
    std::uint64_t group;
    unsigned bit;
  };
  enum class Trips { allocate, free };

  [[nodiscard]] HeapAccess access(comm::Blocking& io, Rank rank, Trips why) const noexcept;
  [[nodiscard]] std::uint64_t offset_of(Rank rank, std::uint64_t page) const noexcept {
    return config_.offset + (raw(rank) * layout_.pages + page) * kHeapPageBytes;
  }
  [[nodiscard]] std::uint64_t offset_of(Rank rank, unsigned size_class, std::uint64_t group) const noexcept {
    return offset_of(rank, group / kGroupsPerPage) + group % kGroupsPerPage * 64 * kClassBytes[size_class];
  }
  /// Decodes an entry of `known_`; ends the program if no object begins at the address.
  Object object_of(std::uint64_t offset, std::uint64_t page, std::uint16_t known) const {
    const auto c = static_cast<unsigned>(known & 0xFF) - 1;
    const std::uint64_t delta = known >> 8, in_slab = delta * kHeapPageBytes + offset % kHeapPageBytes,
                        number = object_at(in_slab, c);
    if (number * kClassBytes[c] != in_slab || in_slab + kClassBytes[c] > slab_pages(c) * kHeapPageBytes)
        [[unlikely]]
      misuse(offset, "is not the start of an allocation");
    return {page - delta, c, (page - delta) * kGroupsPerPage + number / 64,
            static_cast<unsigned>(number % 64)};
  }
  [[noreturn, gnu::cold, gnu::noinline]] void misuse(std::uint64_t offset, const char* what) const;

  Result<std::uint64_t> allocate_slowly(comm::Blocking&, std::uint32_t cache, std::size_t bytes,
                                        std::size_t align, Placement, bool* fresh = nullptr);
  std::optional<Rank> rank_of_small(std::size_t bytes, Placement) noexcept;
  Result<std::uint64_t> allocate_small(comm::Blocking&, std::uint32_t cache, Rank, unsigned size_class,
                                       std::size_t align);
  std::uint64_t allocate_larger(comm::Blocking&, std::uint32_t cache, Rank, unsigned size_class,
                                std::size_t align);
  Result<std::uint64_t> allocate_large(comm::Blocking&, std::size_t bytes, Placement, bool* fresh);
  /// Heap pages for so many bytes, in whole pages of the segment.
  [[nodiscard]] std::uint64_t pages_for(std::size_t bytes) const noexcept {
    const std::uint64_t unit_bytes = unit_ * kHeapPageBytes;
    return (bytes / unit_bytes + (bytes % unit_bytes != 0 ? 1 : 0)) * unit_;
  }
  Result<bool> refill(comm::Blocking&, std::uint32_t cache, HeapBin&, Rank, unsigned size_class, bool grow);
  Result<Holding> new_slab(HeapAccess&, unsigned size_class, StackHead& known);
  Result<std::uint64_t> slab_space(HeapAccess&, std::uint64_t pages);
  enum class Use : std::uint8_t { large, slabs };
  Result<void> own(HeapAccess&, const HeapRun&, std::uint64_t pages, std::uint64_t asked_bytes, Placement,
                   Use);
  void free_slowly(comm::Blocking&, std::uint32_t cache, std::uint64_t offset);
  void free_large(comm::Blocking&, std::uint64_t offset, PageHeader);
  void drop(comm::Blocking&, const Holding&, unsigned size_class);
  /// Rule 7: before the object can be allocated again. The freeing thread's rank has synchronised with all
  /// ranks that used it.
  void discard(comm::Blocking& io, std::uint64_t offset, const Object& object) {
    if (!alone_) hooks_.discard(io, offset, kClassBytes[object.size_class]);
  }
  /// As discard(), for a run of pages.
  void discard_run(comm::Blocking&, std::uint64_t offset, std::uint64_t bytes);
  void give_back(comm::Blocking&, std::uint32_t cache, Rank, unsigned size_class, const Holding&);
  void give_back_together(comm::Blocking&, std::uint32_t cache, std::span<HeapReturns::Group>);
  bool give_back_all(comm::Blocking&, std::uint32_t cache);
  void step(comm::Blocking&, std::span<const HeapReturns::Group>, std::span<Giving>);
  void check_given(const Giving&, const Holding&, unsigned size_class) const;
  PageHeader learn(comm::Blocking&, std::uint64_t offset, Trips why);
  HeapCache& cache_of(std::uint32_t cache) noexcept {
    return caches_[cache == kShared ? config_.caches : cache];
  }
  HeapBin& bin(std::uint32_t cache, Rank rank, unsigned size_class) {
    return cache_of(cache).of(rank, transport_.rank(), ranks_)[size_class];
  }
  /// Holds the lock of the shared cache, if `cache` is that one.
  std::unique_lock<std::mutex> lock(std::uint32_t cache) {
    return cache == kShared ? std::unique_lock(shared_mutex_) : std::unique_lock<std::mutex>();
  }
  void walk(comm::Blocking&, void (*live)(void*, std::uint64_t offset, std::size_t bytes), void* context);

  /// Pages for slabs at a rank, taken in larger pieces.
  struct Extent {
    std::uint64_t next = 0, end = 0;
  };

  comm::Transport& transport_;
  Config config_;
  Directory& directory_;
  Mover& mover_;
  HeapHooks& hooks_;
  comm::RegionWords words_;
  std::uint32_t ranks_;
  std::uint64_t page_bytes_;  ///< of the segment
  /// heap pages in a page of the segment, at least 1: runs are multiples of it, and begin at one
  std::uint64_t unit_;
  HeapLayout layout_;
  std::uint64_t first_own_page_;
  bool alone_;  ///< the job has one rank: nothing is cached, nothing to drop or discard
  /// One for each page of the heap segment: 0, or size class + 1 | pages from the slab's first << 8. It lies
  /// in the region: a rank that turns a slab into pages clears it everywhere.
  std::atomic<std::uint16_t>* known_;
  HeapCache* caches_;                          ///< config_.caches + 1 of them
  Extent* extents_;                            ///< one a rank, under extent_mutex_
  std::mutex extent_mutex_;                    ///< held for a few instructions
  std::atomic<std::uint64_t> dealt_bytes_{0};  ///< of small objects that are dealt out in turn
  std::mutex shared_mutex_;  ///< the cache of threads that are no workers; held for a few instructions
};

}  // namespace kasane::gas
