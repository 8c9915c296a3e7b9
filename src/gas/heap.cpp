// SPDX-License-Identifier: Apache-2.0
#include "gas/heap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/misuse.h"
#include "gas/heap_slabs.h"
#include "mem/space.h"

namespace kasane::gas {
namespace {

// pages for slabs are taken in extents: one look at the directory, one protection change, one fault window
// each
constexpr std::uint64_t kExtentPages = 16;

/// The lowest n bits.
constexpr std::uint64_t low_bits(std::uint64_t n) noexcept {
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

}  // namespace

std::size_t Heap::region_bytes(const Config& config, std::uint32_t ranks) noexcept {
  const HeapLayout layout{config.bytes / kHeapPageBytes / ranks, config.bytes / kHeapPageBytes};
  return (layout.bytes() + mem::kBlockBytes - 1) / mem::kBlockBytes * mem::kBlockBytes;
}

Heap::Heap(comm::Transport& transport, const Config& config, Directory& directory, Mover& mover,
           HeapHooks& hooks)
    : transport_(transport),
      config_(config),
      directory_(directory),
      mover_(mover),
      hooks_(hooks),
      words_(transport, config.region, config.region_offset),
      ranks_(transport.ranks()),
      page_bytes_(directory.pages().page_bytes_at(config.offset)),
      unit_(std::max<std::uint64_t>(1, page_bytes_ / kHeapPageBytes)),
      layout_{config.bytes / kHeapPageBytes / ranks_ / unit_ * unit_, config.bytes / kHeapPageBytes},
      first_own_page_(raw(transport.rank()) * layout_.pages),
      alone_(ranks_ == 1),
      caches_(HeapCache::make<HeapCache>(config.caches + 1)),
      extents_(HeapCache::make<Extent>(transport.ranks())) {
  KASANE_CHECK_OP(layout_.pages * kGroupsPerPage, <, std::uint64_t{1} << StackHead::kTopBits);
  known_ = reinterpret_cast<std::atomic<std::uint16_t>*>(transport.mapped(transport.rank(), config.region) +
                                                         config.region_offset + layout_.known());
}

Heap::~Heap() {
  // the transport may be gone
  for (std::uint32_t i = 0; i <= config_.caches; ++i) caches_[i].destroy(ranks_);
  std::free(caches_);
  std::free(extents_);
}

HeapAccess Heap::access(comm::Blocking& io, Rank rank, Trips why) const noexcept {
  Counters* counters = io.counters();
  return {io, words_, layout_, rank,
          counters == nullptr      ? nullptr
          : why == Trips::allocate ? &counters->remote_operations_allocate
                                   : &counters->remote_operations_free};
}

void Heap::misuse(std::uint64_t offset, const char* what) const {
  char text[200];
  std::snprintf(
      text, sizeof text,
      "free: the pointer 0x%llx %s: pointers are freed once, as they were allocated (kasane run --check "
      "heap says more)",
      static_cast<unsigned long long>(config_.space + offset), what);
  misused(text);
}

Result<std::uint64_t> Heap::allocate_slowly(comm::Blocking& io, std::uint32_t cache, std::size_t bytes,
                                            std::size_t align, Placement placement, bool* fresh) {
  if (!std::has_single_bit(align) || align > kHeapPageBytes) {
    return fail(Errc::invalid_argument,
                "allocate: alignment " + std::to_string(align) + " is not a power of two up to 65536");
  }
  if (placement.kind == Placement::Kind::one_rank && raw(placement.rank) >= ranks_) {
    return fail(Errc::invalid_argument, "allocate: there is no rank " + std::to_string(raw(placement.rank)) +
                                            ", the job has " + std::to_string(ranks_));
  }
  if (placement.kind == Placement::Kind::block_cyclic &&
      (placement.block_bytes == 0 || placement.block_bytes % page_bytes_ != 0)) {
    return fail(Errc::invalid_argument, "allocate: a block of " + std::to_string(placement.block_bytes) +
                                            " bytes is not a multiple of a page (" +
                                            std::to_string(page_bytes_) + ")");
  }
  if (bytes == 0) bytes = 1;
  if (placement.fixed && placement.kind == Placement::Kind::first_touch)
    return fail(Errc::invalid_argument, "allocate: pages to be touched first have no fixed owner");
  const std::optional<Rank> at =
      bytes > kLargestSmall || align > kLargestSmall || unit_ > 1 || placement.fixed
          ? std::nullopt
          : rank_of_small(bytes, placement);
  if (!at) {
    auto run = allocate_large(io, bytes, placement, fresh);
    if (!run && run.error().code == Errc::out_of_memory && give_back_all(io, cache))
      run = allocate_large(io, bytes, placement, fresh);
    return run;
  }
  const unsigned c = align <= 16 ? kClassTable[(bytes + 15) / 16] : class_of(bytes, align);
  auto got = allocate_small(io, cache, *at, c, align);
  if (!got && give_back_all(io, cache)) got = allocate_small(io, cache, *at, c, align);
  if (!got)
    got.error().message = "allocate: no room for " + std::to_string(bytes) + " bytes: " + got.error().message;
  return got;
}

// ---- small objects ---------------------------------------------------------------------------------------

/// The rank where a small object lies, beside others; empty: it gets pages of its own. An object of at most a
/// page has one owner whatever its placement.
std::optional<Rank> Heap::rank_of_small(std::size_t bytes, Placement placement) noexcept {
  using Kind = Placement::Kind;
  const Rank me = transport_.rank();
  if (placement.kind == Kind::local) return me;
  if (placement.kind == Kind::one_rank) return placement.rank;
  if (bytes > page_bytes_) return std::nullopt;  // pages that are distributed
  if (alone_ || placement.kind == Kind::first_touch) return me;
  if (placement.kind != Kind::cyclic) return placement.owner(0, 1, page_bytes_, me, ranks_);
  // relaxed: a number. A page's worth of objects after the other, as pages of larger ones.
  const std::uint64_t before = dealt_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return Rank{static_cast<std::uint32_t>(before / kHeapPageBytes % ranks_)};
}

Result<std::uint64_t> Heap::allocate_small(comm::Blocking& io, std::uint32_t cache, Rank rank,
                                           unsigned size_class, std::size_t align) {
  for (;;) {
    HeapBin* mine = nullptr;
    {
      const auto guard = lock(cache);
      mine = &bin(cache, rank, size_class);
      const std::uint64_t offset = mine->take(size_class);
      if (offset != kNoObject) return offset;
    }
    const auto refilled = refill(io, cache, *mine, rank, size_class, true);
    if (refilled) continue;
    const std::uint64_t larger = allocate_larger(io, cache, rank, size_class, align);
    if (larger != kNoObject) return larger;
    return tl::unexpected<Error>(refilled.error());
  }
}

/// No page is left for a slab of the class: an object of a larger class must do, if none of its own has come
/// back meanwhile (a thread that collects free slabs holds all groups for a while).
std::uint64_t Heap::allocate_larger(comm::Blocking& io, std::uint32_t cache, Rank rank, unsigned size_class,
                                    std::size_t align) {
  for (unsigned c = size_class; c < kSizeClasses; ++c) {
    if (kClassBytes[c] % align != 0) continue;
    for (;;) {
      HeapBin* mine = nullptr;
      {
        const auto guard = lock(cache);
        mine = &bin(cache, rank, c);
        const std::uint64_t offset = mine->take(c);
        if (offset != kNoObject) return offset;
      }
      const auto refilled = refill(io, cache, *mine, rank, c, false);
      if (!refilled || !*refilled) break;
    }
  }
  return kNoObject;
}

/// Fills the bin with a group that has free objects, or with one of a new slab. False: there was none, and
/// `grow` was false.
Result<bool> Heap::refill(comm::Blocking& io, std::uint32_t cache, HeapBin& bin, Rank rank,
                          unsigned size_class, bool grow) {
  HeapAccess at = access(io, rank, Trips::allocate);
  StackHead known;
  Holding fresh;
  bool kept = false;
  {
    const auto guard = lock(cache);
    known = bin.known;
    kept = cache_of(cache).returns.take(rank, size_class, fresh);
  }
  if (!kept) {
    Taking taking = Taking::begin(known, true);
    at.drive(taking, HeapLayout::group_head(size_class), true);
    known = taking.head;
    if (taking.state == Taking::State::empty) {
      if (!grow) return false;
      auto made = new_slab(at, size_class, known);
      if (!made) return tl::unexpected<Error>(std::move(made.error()));
      fresh = *made;
    } else {
      fresh = {taking.bits, taking.item, offset_of(rank, size_class, taking.item)};
      drop(io, fresh, size_class);
    }
  }
  Holding displaced;
  {
    const auto guard = lock(cache);
    bin.known = known;
    const unsigned place = HeapBin::place(fresh.group, size_class);
    Holding& holding = bin.holdings[place];
    if (holding.group == fresh.group) {
      fresh.bits |= holding.bits;
    } else {
      displaced = holding;
    }
    holding = fresh;
    bin.current = place;
  }
  if (displaced.bits != 0) give_back(io, cache, rank, size_class, displaced);
  return true;
}

/// Returns the first group of a new slab; the others are on the rank's stack then.
Result<Holding> Heap::new_slab(HeapAccess& at, unsigned size_class, StackHead& known) {
  const std::uint64_t pages = slab_pages(size_class);
  const auto page = slab_space(at, pages);
  if (!page) return tl::unexpected<Error>(page.error());

  std::array<std::uint64_t, 8> records{};
  for (std::uint64_t i = 0; i < pages; ++i) {
    records[i * 2] = PageHeader{PageHeader::Kind::slab, size_class, static_cast<std::uint32_t>(i), 0}.word();
    known_[raw(at.rank()) * layout_.pages + *page + i].store(
        static_cast<std::uint16_t>(size_class + 1 + (i << 8)), std::memory_order_relaxed);
  }
  at.write(layout_.page(*page), records.data(), pages * 2);
  const std::uint64_t groups = groups_of(size_class), first = *page * kGroupsPerPage;
  if (groups > 1) {
    std::array<std::uint64_t, 2 * kGroupsPerPage> chain;
    for (std::uint64_t g = 1; g < groups; ++g) {
      chain[g * 2] = all_bits(size_class, g);
      chain[g * 2 + 1] = first + g + 2;  // the next group, + 1; the last one's is written when it is pushed
    }
    at.write(layout_.group(first + 1), chain.data() + 2, (groups - 1) * 2);
    Giving giving = Giving::chain(first + 1, first + groups - 1, known);
    at.drive(giving, HeapLayout::group_head(size_class), true);
    known = giving.head;
  }
  return Holding{all_bits(size_class, 0), first, offset_of(at.rank(), *page)};
}

/// Pages for one slab, owned by the rank.
Result<std::uint64_t> Heap::slab_space(HeapAccess& at, std::uint64_t pages) {
  Extent& extent = extents_[raw(at.rank())];
  for (;;) {
    {
      const std::lock_guard guard(extent_mutex_);
      if (extent.end - extent.next >= pages) {
        const std::uint64_t page = extent.next;
        extent.next += pages;
        return page;
      }
    }
    // Prepared without the lock, since that communicates (rule 11). If two threads do so at once, the pages
    // of one go back.
    auto run = HeapRuns::take(at, std::max(pages, std::min(kExtentPages, layout_.pages / 64)));
    if (!run) run = HeapRuns::take(at, pages);
    if (!run) return tl::unexpected<Error>(std::move(run.error()));
    // no longer a run, and not yet a slab
    if (!run->fresh) at.store(layout_.page(run->first), PageHeader{}.word());
    KASANE_TRY(own(at, *run, run->pages, run->pages * kHeapPageBytes, Placement::on(at.rank()), Use::slabs));
    Extent left{run->first, run->first + run->pages};
    {
      const std::lock_guard guard(extent_mutex_);
      std::swap(left, extent);
    }
    if (left.end != left.next) HeapRuns::give(at, left.next, left.end - left.next);
  }
}

/// Names the owners of a run's first pages, of which the first asked_bytes are distributed; small pages
/// behind them in the last heap page go with the last part. Where this rank is the owner, pages for slabs are
/// present and writable, and others if that makes no frames: a program may never touch them. Elsewhere
/// nothing of former uses is cached here.
Result<void> Heap::own(HeapAccess& at, const HeapRun& run, std::uint64_t pages, std::uint64_t asked_bytes,
                       Placement placement, Use use) {
  const Rank me = transport_.rank();
  const std::uint64_t offset = offset_of(at.rank(), run.first), bytes = pages * kHeapPageBytes;
  // of the directory: their size is the segment's
  const mem::PageRange range = directory_.pages().in(offset, bytes);
  const PageId first{range.first};
  const std::uint64_t shared = directory_.pages().in(offset, asked_bytes).size();
  const auto owner = [&](PageId page) {
    return placement.owner(std::min(raw(page) - range.first, shared - 1), shared, page_bytes_, me, ranks_);
  };
  const bool untouched = placement.kind == Placement::Kind::first_touch && !alone_;
  const bool here = (placement.together() && owner(first) == me) || alone_;
  const bool armed = here && (use == Use::slabs ? hooks_.fits(bytes) : hooks_.arms_without_frames());
  if (run.fresh) {
    directory_.name_fresh(at.io(), first, range.size(), owner, untouched,
                          armed || untouched ? Tier::dram : mover_.addresses().initial_tier(first),
                          placement.fixed);
  } else if (untouched) {
    for (const PageId page : range) KASANE_TRY(mover_.assign_untouched(at.io(), page));
  } else {
    Result<void> assigned;
    directory_.look_at(at.io(), first, range.size(), [&](PageId page, const Location& where) {
      if (assigned && !(where.allocated && !where.busy && !where.untouched && where.owner == owner(page) &&
                        where.fixed == placement.fixed && where.tier == Tier::dram))
        assigned = mover_.assign(at.io(), page, owner(page), placement.fixed);
    });
    KASANE_TRY(assigned);
  }
  if (armed) {
    hooks_.arm_owned(at.io(), offset, bytes);
  } else if (!run.fresh) {
    hooks_.take(at.io(), offset, bytes);
  }
  return {};
}

/// Rule 7: before this rank uses the objects, it drops what it has cached of them, in runs of neighbours.
void Heap::drop(comm::Blocking& io, const Holding& holding, unsigned size_class) {
  if (alone_) return;
  for (std::uint64_t bits = holding.bits; bits != 0;) {
    const auto begin = static_cast<unsigned>(std::countr_zero(bits));
    const auto count = static_cast<unsigned>(std::countr_one(bits >> begin));
    bits &= ~(low_bits(count) << begin);
    hooks_.take(io, holding.base + std::uint64_t{begin} * kClassBytes[size_class],
                std::uint64_t{count} * kClassBytes[size_class]);
  }
}

/// Returns objects of one group to their rank: at once if its words are mapped here, else together with
/// others.
void Heap::give_back(comm::Blocking& io, std::uint32_t cache, Rank rank, unsigned size_class,
                     const Holding& holding) {
  if (!words_.is_direct(rank)) {
    HeapReturns full;
    {
      const auto guard = lock(cache);
      HeapReturns& returns = cache_of(cache).returns;
      if (returns.add(rank, size_class, holding)) return;
      std::swap(full, returns);
    }
    return give_back_together(io, cache, full.all());
  }
  HeapAccess at = access(io, rank, Trips::free);
  StackHead known;
  {
    const auto guard = lock(cache);
    known = bin(cache, rank, size_class).known;
  }
  Giving giving = Giving::objects(holding.group, holding.bits, known);
  at.drive(giving, HeapLayout::group_head(size_class), true);
  check_given(giving, holding, size_class);
  const auto guard = lock(cache);
  bin(cache, rank, size_class).known = giving.head;
}

/// Returns what waits to be returned. False: nothing did.
bool Heap::give_back_all(comm::Blocking& io, std::uint32_t cache) {
  HeapReturns all;
  {
    const auto guard = lock(cache);
    std::swap(all, cache_of(cache).returns);
  }
  give_back_together(io, cache, all.all());
  return all.count != 0;
}

/// Returns objects of several groups, at most kMost, to their ranks: three round trips in a row, however many
/// groups there are, and two more whenever another thread changes a head meanwhile.
void Heap::give_back_together(comm::Blocking& io, std::uint32_t cache, std::span<HeapReturns::Group> all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a.rank, a.size_class) < std::pair(b.rank, b.size_class);
  });
  std::array<Giving, HeapReturns::kMost> machines;
  const std::span giving(machines.data(), all.size());
  {
    const auto guard = lock(cache);
    for (std::size_t i = 0; i < all.size(); ++i) {
      giving[i] = Giving::objects(all[i].objects.group, all[i].objects.bits,
                                  bin(cache, all[i].rank, all[i].size_class).known);
    }
  }
  step(io, all, giving);
  std::array<Giving*, HeapReturns::kMost> pushing{};  // by the first group of each stack
  for (std::size_t i = 0, end = 0; i < all.size(); i = end) {
    while (end < all.size() && all[end].of(all[i].rank, all[i].size_class)) ++end;
    pushing[i] = join(giving.subspan(i, end - i));
  }
  while (!std::all_of(giving.begin(), giving.end(), [](const Giving& g) { return g.over(); }))
    step(io, all, giving);
  for (std::size_t i = 0; i < all.size(); ++i) check_given(giving[i], all[i].objects, all[i].size_class);
  const auto guard = lock(cache);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (pushing[i] != nullptr) bin(cache, all[i].rank, all[i].size_class).known = pushing[i]->head;
  }
}

/// The next operation of each machine that is not over, all outstanding at once.
void Heap::step(comm::Blocking& io, std::span<const HeapReturns::Group> all, std::span<Giving> giving) {
  std::array<std::uint64_t, HeapReturns::kMost> old;
  comm::Batch batch(io);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!giving[i].over())
      access(io, all[i].rank, Trips::free)
          .post(batch, giving[i].operation(), HeapLayout::group_head(all[i].size_class), &old[i]);
  }
  batch.await();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!giving[i].over()) giving[i].answer(old[i]);
  }
}

void Heap::check_given(const Giving& giving, const Holding& holding, unsigned size_class) const {
  if (giving.state != Giving::State::twice) return;
  misuse(holding.base + static_cast<std::uint64_t>(std::countr_zero(giving.bits)) * kClassBytes[size_class],
         "was freed twice");
}

void Heap::free_slowly(comm::Blocking& io, std::uint32_t cache, std::uint64_t offset) {
  const std::uint64_t page = (offset - config_.offset) / kHeapPageBytes;
  std::uint16_t known = known_[page].load(std::memory_order_relaxed);  // as in free()
  if (known == 0) {
    const PageHeader header = learn(io, offset, Trips::free);
    if (header.kind == PageHeader::Kind::large) return free_large(io, offset, header);
    known = known_[page].load(std::memory_order_relaxed);
  }
  const Rank rank = share_of(offset);
  const Object object = object_of(offset, page % layout_.pages, known);
  const std::uint64_t mask = std::uint64_t{1} << object.bit;
  discard(io, offset, object);
  Holding displaced;
  {
    const auto guard = lock(cache);
    Holding& holding =
        bin(cache, rank, object.size_class).holdings[HeapBin::place(object.group, object.size_class)];
    Holding* const kept =
        holding.group == object.group ? &holding : cache_of(cache).returns.find(rank, object.group);
    if (kept != nullptr) {
      if ((kept->bits & mask) != 0) misuse(offset, "was freed twice");
      kept->bits |= mask;
      return;
    }
    displaced = holding;
    holding = {mask, object.group, offset_of(rank, object.size_class, object.group)};
  }
  if (displaced.bits != 0) give_back(io, cache, rank, object.size_class, displaced);
}

/// Reads what lies at an address; of a slab it is remembered. Ends the program if nothing is allocated there.
PageHeader Heap::learn(comm::Blocking& io, std::uint64_t offset, Trips why) {
  const std::uint64_t page = (offset - config_.offset) / kHeapPageBytes;
  HeapAccess at = access(io, share_of(offset), why);
  const PageHeader header = PageHeader::of(at.load(layout_.page(page % layout_.pages)));
  switch (header.kind) {
    case PageHeader::Kind::slab:
      known_[page].store(static_cast<std::uint16_t>(header.size_class + 1 + (header.delta << 8)),
                         std::memory_order_relaxed);
      break;
    case PageHeader::Kind::large:
      if (offset % kHeapPageBytes != 0) misuse(offset, "is not the start of an allocation");
      break;
    case PageHeader::Kind::free: misuse(offset, "is free already, or was never allocated");
    case PageHeader::Kind::unused:
      misuse(offset, "was never allocated, or is not the start of an allocation");
  }
  return header;
}

std::size_t Heap::usable_size(comm::Blocking& io, std::uint64_t offset) {
  const std::uint64_t page = (offset - config_.offset) / kHeapPageBytes;
  std::uint16_t known = known_[page].load(std::memory_order_relaxed);
  if (known == 0) {
    const PageHeader header = learn(io, offset, Trips::allocate);
    if (header.kind == PageHeader::Kind::large) return header.pages * kHeapPageBytes;
    known = known_[page].load(std::memory_order_relaxed);
  }
  return kClassBytes[object_of(offset, page % layout_.pages, known).size_class];
}

void Heap::flush(comm::Blocking& io, std::uint32_t cache) {
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    for (unsigned c = 0; c < kSizeClasses; ++c) {
      for (unsigned i = 0; i < HeapBin::kHoldings; ++i) {
        Holding holding;
        {
          const auto guard = lock(cache);
          const HeapCache& all = cache_of(cache);
          if (Rank{r} != transport_.rank() && (all.others == nullptr || all.others[r] == nullptr)) break;
          std::swap(holding, bin(cache, Rank{r}, c).holdings[i]);
        }
        if (holding.bits != 0) give_back(io, cache, Rank{r}, c, holding);
      }
    }
  }
  give_back_all(io, cache);
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    Extent left;
    {
      const std::lock_guard guard(extent_mutex_);
      std::swap(left, extents_[r]);
    }
    HeapAccess at = access(io, Rank{r}, Trips::free);
    if (left.end != left.next) HeapRuns::give(at, left.next, left.end - left.next);
  }
}

// ---- large runs ------------------------------------------------------------------------------------------

Result<std::uint64_t> Heap::allocate_large(comm::Blocking& io, std::size_t bytes, Placement placement,
                                           bool* fresh) {
  const std::uint64_t pages = pages_for(bytes);
  const Rank share = placement.kind == Placement::Kind::one_rank ? placement.rank : transport_.rank();
  if (pages > layout_.pages) {
    return fail(Errc::out_of_memory, "allocate: " + std::to_string(bytes) + " bytes are more than rank " +
                                         std::to_string(raw(share)) + " has in all, " +
                                         std::to_string(layout_.pages * kHeapPageBytes) + " (raise --space)");
  }
  HeapAccess at = access(io, share, Trips::allocate);
  const auto run = HeapRuns::take(at, pages);
  if (!run) return fail(run.error().code, "allocate: " + run.error().message);
  if (auto owned = own(at, *run, pages, bytes, placement, Use::large); !owned) {
    HeapRuns::give(at, run->first, pages);
    return tl::unexpected<Error>(std::move(owned.error()));
  }
  at.store(layout_.page(run->first), PageHeader{PageHeader::Kind::large, 0, 0, pages}.word());
  if (fresh != nullptr) *fresh = run->fresh;
  return offset_of(share, run->first);
}

void Heap::discard_run(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes) {
  if (!alone_) hooks_.discard(io, offset, bytes);
  mover_.addresses().forget(offset, bytes);
}

void Heap::free_large(comm::Blocking& io, std::uint64_t offset, PageHeader header) {
  HeapAccess at = access(io, share_of(offset), Trips::free);
  const std::uint64_t page = (offset - config_.offset) / kHeapPageBytes % layout_.pages;
  const PageHeader free{PageHeader::Kind::free, 0, 0, header.pages};
  if (at.compare_swap(layout_.page(page), header.word(), free.word()) != header.word())
    misuse(offset, "was freed twice");
  discard_run(io, offset, header.pages * kHeapPageBytes);
  HeapRuns::push(at, page, header.pages);
}

bool Heap::resize(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  const std::size_t usable = usable_size(io, offset);
  if (known_[(offset - config_.offset) / kHeapPageBytes].load(std::memory_order_relaxed) != 0)
    return bytes <= usable && (bytes > usable / 2 || usable <= 128);
  const std::uint64_t page = (offset - config_.offset) / kHeapPageBytes % layout_.pages,
                      pages = usable / kHeapPageBytes;
  const std::uint64_t wanted = pages_for(bytes);
  if (bytes <= kLargestSmall && unit_ == 1) return false;
  if (wanted == pages) return true;
  const Rank share = share_of(offset);
  HeapAccess at = access(io, share, Trips::allocate);
  const PageHeader resized{PageHeader::Kind::large, 0, 0, wanted};
  if (wanted < pages) {
    discard_run(io, offset + wanted * kHeapPageBytes, (pages - wanted) * kHeapPageBytes);
    at.store(layout_.page(page), resized.word());
    HeapRuns::give(at, page + wanted, pages - wanted);
    return true;
  }
  if (!HeapRuns::extend(at, page, pages, wanted)) return false;
  const HeapRun more{page + pages, wanted - pages, true};
  if (!own(at, more, more.pages, more.pages * kHeapPageBytes, Placement::on(share), Use::large)) {
    HeapRuns::give(at, more.first, more.pages);
    return false;
  }
  at.store(layout_.page(page), resized.word());
  return true;
}

// ---- reports ---------------------------------------------------------------------------------------------

HeapStatistics Heap::statistics(comm::Blocking& io, Rank rank) {
  HeapAccess at = access(io, rank, Trips::allocate);
  HeapStatistics s;
  const std::uint64_t used = at.load(offsetof(HeapHeader, used));
  s.share_bytes = layout_.pages * kHeapPageBytes;
  s.touched_bytes = used * kHeapPageBytes;
  constexpr std::uint64_t kAtOnce = 128;  // a share may be another rank's
  std::array<std::uint64_t, kAtOnce * 2> records;
  std::uint64_t read_from = 0, read_to = 0;
  for (std::uint64_t page = 0; page < used;) {
    if (page >= read_to) {
      read_from = page;
      read_to = std::min(used, page + kAtOnce);
      at.read(layout_.page(page), records.data(), (read_to - read_from) * 2);
    }
    const PageHeader header = PageHeader::of(records[(page - read_from) * 2]);
    const std::uint64_t run_bytes = header.pages * kHeapPageBytes;
    switch (header.kind) {
      case PageHeader::Kind::unused: ++page; break;
      case PageHeader::Kind::large: ++s.runs, s.run_bytes += run_bytes, page += header.pages; break;
      case PageHeader::Kind::free: ++s.free_runs, s.free_run_bytes += run_bytes, page += header.pages; break;
      case PageHeader::Kind::slab: {
        const unsigned c = header.size_class;
        ++s.slabs, s.slab_bytes += objects_of(c) * kClassBytes[c];
        const std::uint64_t groups = groups_of(c);
        std::array<std::uint64_t, 2 * kGroupsPerPage> words;
        at.read(layout_.group(page * kGroupsPerPage), words.data(), groups * 2);
        for (std::uint64_t g = 0; g < groups; ++g)
          s.slab_free_bytes += static_cast<std::uint64_t>(std::popcount(words[g * 2])) * kClassBytes[c];
        page += slab_pages(c);
        break;
      }
    }
  }
  return s;
}

void Heap::walk(comm::Blocking& io, void (*live)(void*, std::uint64_t offset, std::size_t bytes),
                void* context) {
  const Rank me = transport_.rank();
  HeapAccess at = access(io, me, Trips::allocate);
  const std::uint64_t used = at.load(offsetof(HeapHeader, used));
  for (std::uint64_t page = 0; page < used;) {
    const PageHeader header = PageHeader::of(at.load(layout_.page(page)));
    if (header.kind == PageHeader::Kind::large)
      live(context, offset_of(me, page), header.pages * kHeapPageBytes);
    if (header.kind != PageHeader::Kind::slab) {
      page += std::max<std::uint64_t>(1, header.pages);
      continue;
    }
    const unsigned c = header.size_class;
    for (std::uint64_t i = 0; i < objects_of(c); ++i) {
      const std::uint64_t bits = at.load(layout_.group(page * kGroupsPerPage + i / 64));
      if ((bits >> (i % 64) & 1) == 0)
        live(context, offset_of(me, page) + i * kClassBytes[c], kClassBytes[c]);
    }
    page += slab_pages(c);
  }
}

}  // namespace kasane::gas
