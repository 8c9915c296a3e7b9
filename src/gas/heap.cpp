// SPDX-License-Identifier: Apache-2.0
#include "gas/heap.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>

#include "base/assert.h"
#include "gas/size_classes.h"

namespace kasane::gas {

using mem::kPageBytes;

namespace {

/// What a page of the heap is. `small` pages move active → full → listed → active; only `full` is left by a compare-swap of others.
enum class PageState : std::uint64_t { unused = 0, active = 1, full = 2, listed = 3, large = 4 };

constexpr std::uint64_t kBitmapWords = kPageBytes / 16 / 64;
constexpr std::uint64_t kExtentPages = 16;   // fresh pages for small objects come in extents: one protection change and fault window each

}  // namespace

/// Its words are changed by any rank, by offset.
struct Heap::PageDescriptor {
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> next;         ///< index + 1 of the next page on the same stack
  std::atomic<std::uint64_t> size_class;   ///< small: the class; large: the number of pages of the run
  std::atomic<std::uint64_t> spare;
  std::array<std::atomic<std::uint64_t>, kBitmapWords> free;   ///< small: a bit an object; large: bit 0 of word 0 once freed
};

/// Heads of the rank's stacks: tag 32 | index + 1 32; the tag grows with every change, against ABA.
struct Heap::RankHeap {
  std::atomic<std::uint64_t> freed_runs;
  std::array<std::atomic<std::uint64_t>, kSizeClasses> listed;
};

struct Heap::Cache {
  struct Bin {
    std::uint64_t available = 0;    ///< bits taken from word `word` of page `page`
    std::uint64_t page = 0;         ///< index + 1
    std::uint32_t word = 0;         ///< the word `available` came from
    std::uint32_t words = 0;        ///< words of the page's bitmap in use
  };
  std::array<Bin, kSizeClasses> bins;
};

struct Heap::Object {
  Rank rank;
  std::uint64_t index;       ///< of its page (a large run's first)
  std::uint64_t in_page;     ///< bytes from the page's start
};

namespace {
constexpr std::uint64_t kHeaderBytes = 4096;
}

std::size_t Heap::region_bytes(const Config& config, std::uint32_t ranks) noexcept {
  const std::uint64_t pages = config.bytes / kPageBytes / ranks;
  return (kHeaderBytes + pages * sizeof(PageDescriptor) + mem::kBlockBytes - 1) / mem::kBlockBytes * mem::kBlockBytes;
}

Heap::Heap(comm::Transport& transport, const Config& config, Directory& directory, Mover& mover, HeapHooks& hooks)
    : transport_(transport), config_(config), directory_(directory), mover_(mover), hooks_(hooks), words_(transport, kHeap),
      region_(transport.mapped(transport.rank(), kHeap)), pages_per_rank_(config.bytes / kPageBytes / transport.ranks()) {
  static_assert(sizeof(RankHeap) <= kHeaderBytes);
  // malloc: an interposed operator new must not be asked for the allocator's own state.
  caches_ = static_cast<Cache*>(std::malloc((config.caches + 1) * sizeof(Cache)));
  KASANE_CHECK(caches_ != nullptr);
  for (std::uint32_t i = 0; i <= config.caches; ++i) new (&caches_[i]) Cache();
}

Heap::~Heap() { std::free(caches_); }

std::uint64_t Heap::descriptor(std::uint64_t index) const noexcept { return kHeaderBytes + index * sizeof(PageDescriptor); }

Heap::PageDescriptor& Heap::local(std::uint64_t index) const noexcept {
  return *reinterpret_cast<PageDescriptor*>(region_ + descriptor(index));
}

std::uint64_t Heap::page_offset(Rank rank, std::uint64_t index) const noexcept {
  return config_.offset + (raw(rank) * pages_per_rank_ + index) * kPageBytes;
}

std::uint64_t Heap::load(comm::Blocking& io, Rank rank, std::uint64_t index, std::uint64_t field) const {
  return words_.load(io, rank, descriptor(index) + field);
}

Heap::Object Heap::find(comm::Blocking& io, std::uint64_t offset) const {
  const std::uint64_t page = (offset - config_.offset) / kPageBytes;
  const Object object{Rank{static_cast<std::uint32_t>(page / pages_per_rank_)}, page % pages_per_rank_, offset % kPageBytes};
  const auto state = PageState{load(io, object.rank, object.index, offsetof(PageDescriptor, state))};
  KASANE_CHECK(state != PageState::unused, "a pointer into global memory that no allocation returned");
  return object;
}

Result<std::uint64_t> Heap::allocate(comm::Blocking& io, std::uint32_t cache, std::size_t bytes, std::size_t align, Placement placement) {
  if (!std::has_single_bit(align) || align > kPageBytes) {
    return fail(Errc::invalid_argument, "allocate: alignment " + std::to_string(align) + " is not a power of two up to 65536");
  }
  if (bytes == 0) bytes = 1;
  if (placement != Placement::local || bytes > kLargestSmall || align > kLargestSmall) return allocate_large(io, bytes, placement);
  unsigned c = align <= 16 ? kClassTable[(bytes + 15) / 16] : class_of(bytes, align);
  if (cache != kShared) return allocate_small(io, caches_[cache], c);
  const std::lock_guard lock(shared_mutex_);
  return allocate_small(io, caches_[config_.caches], c);
}

// ---- small objects ------------------------------------------------------------------------------------------------

Result<std::uint64_t> Heap::allocate_small(comm::Blocking& io, Cache& cache, unsigned size_class) {
  auto& bin = cache.bins[size_class];
  if (bin.available == 0) KASANE_TRY(refill(io, cache, size_class));
  const auto bit = static_cast<unsigned>(std::countr_zero(bin.available));
  bin.available &= bin.available - 1;
  const std::uint64_t object = bin.word * 64 + bit;
  const std::uint64_t offset = page_offset(transport_.rank(), bin.page - 1) + object * class_bytes(size_class);
  hooks_.take(io, offset, class_bytes(size_class));   // nothing to do unless the page was moved away
  return offset;
}

/// Takes the next non-empty word of the active page, all of it. False at the page's end.
bool Heap::take_word(Cache& cache, unsigned size_class) {
  auto& bin = cache.bins[size_class];
  if (bin.page == 0) return false;
  auto& page = local(bin.page - 1);
  for (std::uint32_t w = bin.word; w < bin.words; ++w) {
    // seq_cst with the loads and stores of state in retire(): a free that set its bit before `full` was stored is seen here.
    const std::uint64_t bits = page.free[w].exchange(0);
    if (bits == 0) continue;
    bin.available = bits;
    bin.word = w;
    return true;
  }
  return false;
}

/// The active page has nothing left: gives it up as full. True if a free came in between and the page stays active.
bool Heap::retire(Cache& cache, unsigned size_class) {
  auto& bin = cache.bins[size_class];
  if (bin.page == 0) return false;
  auto& page = local(bin.page - 1);
  page.state.store(static_cast<std::uint64_t>(PageState::full));
  bin.word = 0;
  // Dekker: the freeing side sets its bit, then reads state; we store full, then read the bits. One of us sees the other.
  const bool freed = std::any_of(page.free.begin(), page.free.begin() + bin.words, [](const auto& word) { return word.load() != 0; });
  auto expected = static_cast<std::uint64_t>(PageState::full);
  if (freed && page.state.compare_exchange_strong(expected, static_cast<std::uint64_t>(PageState::active))) return true;
  bin.page = 0;   // full, or listed by whoever freed
  return false;
}

Result<void> Heap::refill(comm::Blocking& io, Cache& cache, unsigned size_class) {
  auto& bin = cache.bins[size_class];
  for (;;) {
    if (take_word(cache, size_class)) return {};
    if (retire(cache, size_class)) continue;
    if (const std::uint64_t listed = pop_listed(io, size_class); listed != 0) {
      local(listed - 1).state.store(static_cast<std::uint64_t>(PageState::active));
      bin.page = listed;
    } else {
      const auto fresh = fresh_page(io);
      if (!fresh) return tl::unexpected<Error>(fresh.error());
      auto& page = local(*fresh);
      const std::uint64_t objects = kPageBytes / class_bytes(size_class);
      for (std::uint64_t i = 0; i < objects; i += 64) {
        const std::uint64_t n = std::min<std::uint64_t>(64, objects - i);
        page.free[i / 64].store(n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1);
      }
      page.size_class.store(size_class);
      page.state.store(static_cast<std::uint64_t>(PageState::active));
      bin.page = *fresh + 1;
    }
    bin.word = 0;
    bin.words = static_cast<std::uint32_t>((kPageBytes / class_bytes(size_class) + 63) / 64);
  }
}

Result<std::uint64_t> Heap::fresh_page(comm::Blocking& io) {
  {
    const std::lock_guard lock(extent_mutex_);
    if (extent_next_ != extent_end_) return extent_next_++;
  }
  // Made ready without the lock, since that communicates (rule 11); if two workers do so at once, one run goes back.
  const auto run = take_run(io, kExtentPages);
  if (!run) return tl::unexpected<Error>(run.error());
  const Rank me = transport_.rank();
  for (std::uint64_t i = 0; i < kExtentPages; ++i) KASANE_TRY(mover_.assign(io, mem::page_of(page_offset(me, *run + i)), me));
  hooks_.arm_owned(io, page_offset(me, *run), kExtentPages * kPageBytes);

  const std::lock_guard lock(extent_mutex_);
  if (extent_next_ != extent_end_) {
    const std::lock_guard runs_lock(runs_mutex_);
    give_run(*run, kExtentPages);
  } else {
    extent_next_ = *run;
    extent_end_ = *run + kExtentPages;
  }
  return extent_next_++;
}

/// Pushes page index on the stack at header offset `head` of rank's heap.
void Heap::push(comm::Blocking& io, Rank rank, std::uint64_t head, std::uint64_t index) {
  for (;;) {
    const std::uint64_t old = words_.load(io, rank, head);
    words_.store(io, rank, descriptor(index) + offsetof(PageDescriptor, next), old & 0xFFFFFFFFu);
    const std::uint64_t fresh = ((old >> 32) + 1) << 32 | (index + 1);
    if (words_.compare_swap(io, rank, head, old, fresh) == old) return;
  }
}

/// index + 1, or 0. Only threads of this rank pop, but several may: the tag makes the compare-swap fail if the head came back.
std::uint64_t Heap::pop_listed(comm::Blocking& io, unsigned size_class) {
  const std::uint64_t head = offsetof(RankHeap, listed) + size_class * 8;
  for (;;) {
    const std::uint64_t old = words_.load(io, transport_.rank(), head);
    const std::uint64_t index = old & 0xFFFFFFFFu;
    if (index == 0) return 0;
    const std::uint64_t fresh = ((old >> 32) + 1) << 32 | local(index - 1).next.load();
    if (words_.compare_swap(io, transport_.rank(), head, old, fresh) == old) return index;
  }
}

void Heap::free(comm::Blocking& io, std::uint64_t offset) {
  const Object object = find(io, offset);
  const auto field = [&](std::uint64_t f) { return descriptor(object.index) + f; };
  const std::uint64_t size_class = load(io, object.rank, object.index, offsetof(PageDescriptor, size_class));
  const bool large = PageState{load(io, object.rank, object.index, offsetof(PageDescriptor, state))} == PageState::large;
  const std::size_t bytes = large ? size_class * kPageBytes : class_bytes(static_cast<unsigned>(size_class));
  const std::uint64_t number = large ? 0 : object.in_page / bytes;
  KASANE_CHECK(object.in_page == number * bytes, "free: the pointer is not the start of an allocation");

  hooks_.discard(io, offset, bytes);   // rule 7: before anybody can be given this memory again
  const std::uint64_t bit = std::uint64_t{1} << (number % 64);
  const std::uint64_t old = words_.fetch_or(io, object.rank, field(offsetof(PageDescriptor, free) + number / 64 * 8), bit);
  KASANE_CHECK((old & bit) == 0, "free: the memory is free already (double free)");
  if (large) return push(io, object.rank, offsetof(RankHeap, freed_runs), object.index);

  const auto full = static_cast<std::uint64_t>(PageState::full), listed = static_cast<std::uint64_t>(PageState::listed);
  if (words_.load(io, object.rank, field(offsetof(PageDescriptor, state))) == full &&
      words_.compare_swap(io, object.rank, field(offsetof(PageDescriptor, state)), full, listed) == full) {
    push(io, object.rank, offsetof(RankHeap, listed) + size_class * 8, object.index);
  }
}

std::size_t Heap::usable_size(comm::Blocking& io, std::uint64_t offset) const {
  const Object object = find(io, offset);
  const std::uint64_t size_class = load(io, object.rank, object.index, offsetof(PageDescriptor, size_class));
  const bool large = PageState{load(io, object.rank, object.index, offsetof(PageDescriptor, state))} == PageState::large;
  return large ? size_class * kPageBytes : class_bytes(static_cast<unsigned>(size_class));
}

// ---- large runs ---------------------------------------------------------------------------------------------------

Result<std::uint64_t> Heap::allocate_large(comm::Blocking& io, std::size_t bytes, Placement placement) {
  const std::uint64_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  const auto run = take_run(io, pages);
  if (!run) return tl::unexpected<Error>(run.error());
  const Rank me = transport_.rank();
  const std::uint64_t offset = page_offset(me, *run);
  for (std::uint64_t i = 0; i < pages; ++i) {
    const Rank owner = placement == Placement::local    ? me
                       : placement == Placement::cyclic ? Rank{static_cast<std::uint32_t>(i % transport_.ranks())}
                                                        : Rank{static_cast<std::uint32_t>(i * transport_.ranks() / pages)};
    KASANE_TRY(mover_.assign(io, mem::page_of(offset + i * kPageBytes), owner));
  }
  if (placement == Placement::local) {
    hooks_.arm_owned(io, offset, pages * kPageBytes);
  } else {
    hooks_.take(io, offset, pages * kPageBytes);
  }
  auto& first = local(*run);
  first.size_class.store(pages);
  first.free[0].store(0);
  first.state.store(static_cast<std::uint64_t>(PageState::large));
  return offset;
}

/// First fit in the free runs, then memory never used.
Result<std::uint64_t> Heap::take_run(comm::Blocking& io, std::uint64_t pages) {
  collect_freed_runs(io);
  const std::lock_guard lock(runs_mutex_);
  for (auto it = free_runs_.begin(); it != free_runs_.end(); ++it) {
    if (it->second < pages) continue;
    const auto [first, count] = *it;
    free_runs_.erase(it);
    if (count > pages) free_runs_.emplace(first + pages, count - pages);
    return first;
  }
  if (pages_per_rank_ - never_used_ < pages) {
    return fail(Errc::out_of_memory, "allocate: rank " + std::to_string(raw(transport_.rank())) + " has no " +
                                         std::to_string(pages * kPageBytes) + " bytes in a row left of its " +
                                         std::to_string(pages_per_rank_ * kPageBytes) + " (raise --space)");
  }
  const std::uint64_t first = never_used_;
  never_used_ += pages;
  return first;
}

void Heap::collect_freed_runs(comm::Blocking& io) {
  std::uint64_t index = words_.load(io, transport_.rank(), offsetof(RankHeap, freed_runs)) & 0xFFFFFFFFu;
  if (index == 0) return;
  // Taking all of a stack needs no tag: what was pushed stays linked below its head.
  index = words_.swap(io, transport_.rank(), offsetof(RankHeap, freed_runs), 0) & 0xFFFFFFFFu;
  const std::lock_guard lock(runs_mutex_);
  while (index != 0) {
    auto& page = local(index - 1);
    const std::uint64_t next = page.next.load(), pages = page.size_class.load();
    page.state.store(static_cast<std::uint64_t>(PageState::unused));
    give_run(index - 1, pages);
    index = next;
  }
}

/// Inserts a run and joins it with its neighbours. runs_mutex_ is held.
void Heap::give_run(std::uint64_t first, std::uint64_t pages) {
  auto after = free_runs_.lower_bound(first);
  if (after != free_runs_.end() && first + pages == after->first) {
    pages += after->second;
    after = free_runs_.erase(after);
  }
  if (after != free_runs_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == first) {
      before->second += pages;
      return;
    }
  }
  free_runs_.emplace(first, pages);
}

}  // namespace kasane::gas
