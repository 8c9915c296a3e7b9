// SPDX-License-Identifier: Apache-2.0
// The allocator of global memory. Each rank has a share of the heap segment; a rank allocates from its own share, and
// any rank frees anything by one-sided atomics, without that rank's help. All state lies in region kHeap, outside V (rule 7).
//
//   small (≤ 32 KiB): 64 KiB pages of one size class, a bitmap of free objects in the page's descriptor. A worker takes a
//                     whole word of the bitmap at a time (64 objects) and hands them out from its own cache.
//   large           : runs of pages from the rank's list of free runs
//
// Freeing sets a bit (or pushes the run on the owner rank's list of freed runs). A page whose bitmap was seen empty is `full`; who frees
// into it moves it to `listed` and pushes it on the rank's stack for that class, from where allocation takes it again.
//
// Thread safety: allocate and free from any thread; a cache index belongs to one OS thread at a time (kShared: under a lock).
// Errors: a double free or a pointer that was never allocated is a check failure that names the address.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/malloc_allocator.h"
#include "base/result.h"
#include "gas/heap_hooks.h"
#include "gas/mover.h"
#include "gas/placement.h"

namespace kasane::gas {

class Heap {
 public:
  /// The heap segment [offset, offset + bytes) of the space, shared out equally; caches: number of cache indices (workers).
  struct Config {
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t caches = 1;
  };
  static constexpr std::uint32_t kShared = ~std::uint32_t{0};
  static std::size_t region_bytes(const Config&, std::uint32_t ranks) noexcept;

  /// After region kHeap was attached, zeroed.
  Heap(comm::Transport&, const Config&, Directory&, Mover&, HeapHooks&);
  ~Heap();

  /// align: a power of two up to 64 KiB. Returns the offset in the space. Placements other than local start at a page.
  Result<std::uint64_t> allocate(comm::Blocking&, std::uint32_t cache, std::size_t bytes, std::size_t align, Placement);
  void free(comm::Blocking&, std::uint64_t offset);
  /// Bytes that may be used from offset on.
  std::size_t usable_size(comm::Blocking&, std::uint64_t offset) const;
  [[nodiscard]] bool contains(std::uint64_t offset) const noexcept { return offset - config_.offset < config_.bytes; }

 private:
  struct PageDescriptor;
  struct RankHeap;
  struct Cache;
  struct Object;   // where an offset lies
  using Runs = std::map<std::uint64_t, std::uint64_t, std::less<>, MallocAllocator<std::pair<const std::uint64_t, std::uint64_t>>>;

  [[nodiscard]] std::uint64_t descriptor(std::uint64_t index) const noexcept;   ///< region offset of a page's descriptor
  [[nodiscard]] PageDescriptor& local(std::uint64_t index) const noexcept;
  [[nodiscard]] std::uint64_t page_offset(Rank rank, std::uint64_t index) const noexcept;
  [[nodiscard]] std::uint64_t load(comm::Blocking&, Rank, std::uint64_t index, std::uint64_t field) const;
  [[nodiscard]] Object find(comm::Blocking&, std::uint64_t offset) const;

  Result<std::uint64_t> allocate_small(comm::Blocking&, Cache&, unsigned size_class);
  Result<void> refill(comm::Blocking&, Cache&, unsigned size_class);
  bool take_word(Cache&, unsigned size_class);
  bool retire(Cache&, unsigned size_class);
  Result<std::uint64_t> fresh_page(comm::Blocking&);
  std::uint64_t pop_listed(comm::Blocking&, unsigned size_class);
  void push(comm::Blocking&, Rank, std::uint64_t head, std::uint64_t index);
  Result<std::uint64_t> allocate_large(comm::Blocking&, std::size_t bytes, Placement);
  Result<std::uint64_t> take_run(comm::Blocking&, std::uint64_t pages);
  void collect_freed_runs(comm::Blocking&);
  void give_run(std::uint64_t first, std::uint64_t pages);

  comm::Transport& transport_;
  Config config_;
  Directory& directory_;
  Mover& mover_;
  HeapHooks& hooks_;
  comm::RegionWords words_;
  std::byte* region_;                 ///< ours
  std::uint64_t pages_per_rank_;
  std::mutex runs_mutex_;             ///< held for list operations only, never across communication
  Runs free_runs_;                    ///< first page index → pages
  std::uint64_t never_used_ = 0;      ///< pages from here on were never handed out (under runs_mutex_)
  std::uint64_t extent_next_ = 0, extent_end_ = 0;   ///< armed pages for small objects (under extent_mutex_)
  std::mutex extent_mutex_;           ///< held for a few instructions
  std::mutex shared_mutex_;           ///< the cache of threads that are no workers
  Cache* caches_;                     ///< config_.caches + 1 of them
};

}  // namespace kasane::gas
