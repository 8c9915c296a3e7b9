// SPDX-License-Identifier: Apache-2.0
// What the rest of the runtime, and programs through it, ask of a rank. How it is built, started and ended is
// in job/runtime.cpp.
#include "runtime/rank/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>

#include "base/call_selector.h"
#include "base/clock.h"
#include "base/misuse.h"
#include "gas/regions.h"
#include "runtime/rank/layers.h"
#include "ult/runtime_section.h"

namespace kasane::runtime {
namespace {
std::atomic<Runtime*> g_current{nullptr};
}  // namespace

// acquire: the runtime that create() has built.
Runtime* Runtime::current() noexcept { return g_current.load(std::memory_order_acquire); }
Rank Runtime::here() noexcept {
  const Runtime* const r = g_current.load(std::memory_order_acquire);
  return r != nullptr ? r->layers_->rank : Rank{0};
}

void Runtime::make_current() noexcept { g_current.store(this); }

bool Runtime::at_main() const noexcept {
  return layers_->running.load() && layers_->first_thread == std::this_thread::get_id() &&
         raw(layers_->rank) == 0 && ult::Pool::current() == nullptr;
}

void Runtime::ask_exit(int code) noexcept {
  const ult::RuntimeSection section;
  const std::int32_t word = code;
  layers_->contexts->here().io.send(Rank{0}, gas::kStopHandler, std::as_bytes(std::span(&word, 1)));
}

void Runtime::run_root(void (*entry)(void*), void* arg) { layers_->run_root(entry, arg); }
std::uint64_t Runtime::roots() const noexcept { return layers_->roots; }

ult::Pool& Runtime::pool() noexcept { return *layers_->pool; }

bool Runtime::attached() const noexcept { return layers_->attached; }
std::string_view Runtime::fault_engine() const noexcept { return layers_->engine->name(); }
comm::Collectives& Runtime::collectives() noexcept { return *layers_->collectives; }
bool Runtime::running() const noexcept { return layers_->running.load(); }
bool Runtime::threads_remain() const noexcept { return layers_->threads_remain.load(); }

bool Runtime::found_races() const noexcept { return layers_->races_found != 0; }
bool Runtime::lost_trace() const noexcept { return layers_->trace_lost; }

// ---- what programs ask ------------------------------------------------------------------------------------

Rank Runtime::rank() const noexcept { return layers_->rank; }
std::uint32_t Runtime::ranks() const noexcept { return layers_->ranks; }
bool Runtime::one_host() const noexcept {
  return layers_->ranks == 1 || layers_->session->job().host_ranks().size() == layers_->ranks;
}
std::uint32_t Runtime::workers() const noexcept { return layers_->workers; }
const Options& Runtime::options() const noexcept { return layers_->options; }
std::byte* Runtime::make_stack(std::size_t bytes) {
  auto& s = *layers_;
  const ult::RuntimeSection section;
  // The lowest page stays without an owner: an overflow is an access to it.
  const std::uint64_t at = s.bound_stacks_used.fetch_add(mem::kPageBytes + bytes);
  if (at + mem::kPageBytes + bytes > s.segments.bound_bytes) return nullptr;
  auto& context = s.contexts->here();
  const std::uint64_t offset = s.segments.bound_offset(s.rank) + at + mem::kPageBytes;
  for (const PageId page : s.directory->pages().in(offset, bytes))
    if (!s.coherence->mover.assign(context.io, page, s.rank)) return nullptr;
  s.coherence->moves.arm_owned(context.io, offset, bytes);
  return s.space->v(offset);
}

std::uint64_t Runtime::clock_ns() const noexcept { return now_ns() + layers_->clock_offset_ns; }
bool Runtime::contains(const void* p) const noexcept { return layers_->space->contains(p); }
const OneRankVariables& Runtime::one_rank_variables() const noexcept { return layers_->own_variables; }
const mem::Space& Runtime::space() const noexcept { return *layers_->space; }
bool Runtime::shares_variables() const noexcept { return layers_->space->addresses().parts().size() > 1; }
bool Runtime::in_heap(const void* p) const noexcept { return layers_->heap_at(p) != nullptr; }
std::byte* Runtime::space_base() const noexcept { return layers_->space->v(0); }

/// After the end of a job over a network memory of other ranks cannot be reached; destructors of static
/// objects may still call.
Result<void> Runtime::Layers::check_open(const char* what) const {
  if (!network_closed.load()) return {};
  return fail(Errc::unsupported, std::string(what) + ": the job has ended");
}

gas::Heap* Runtime::Layers::heap_of(std::uint64_t page_bytes) noexcept {
  for (std::size_t i = 0; i < segments.heaps.size(); ++i) {
    if (segments.heaps[i].page_bytes == page_bytes) [[likely]]
      return &*heaps[i];
  }
  return nullptr;
}

gas::Heap* Runtime::Layers::heap_at(const void* p) noexcept {
  if (!space->contains(p)) return nullptr;
  for (auto& heap : heaps) {
    if (heap->contains(space->offset(p))) [[likely]]
      return &*heap;
  }
  for (auto& one : pools)
    if (one->contains(space->offset(p))) return one.get();
  return nullptr;
}

Result<void*> Runtime::allocate(std::size_t bytes, std::size_t align, Placement placement,
                                InitialBytes initial) {
  const ult::RuntimeSection section;
  auto& s = *layers_;
  const bool zero = initial == InitialBytes::zero;
  bool fresh = false;
  const auto p = s.allocate(bytes, align, placement, zero ? &fresh : nullptr);
  if (!p || fresh || !zero) return p;
  auto zeroed = s.put_zeros(s.space->offset(*p), bytes);
  if (zeroed) return p;
  deallocate(*p);
  return tl::unexpected<Error>(std::move(zeroed.error()));
}

/// At the owners; afterwards this rank has no other copy.
Result<void> Runtime::Layers::put_zeros(std::uint64_t offset, std::size_t bytes) {
  alignas(64) static constexpr std::byte zeros[gas::kHeapPageBytes]{};
  comm::Blocking& io = contexts->here().io;
  gas::Outstanding outstanding;
  Result<void> put;
  for (std::size_t done = 0; put && done < bytes; done += sizeof zeros)
    put = access->write(io, outstanding, offset + done, zeros, std::min(sizeof zeros, bytes - done));
  gas::await(io, io, *access, outstanding);
  if (put && outstanding.failed()) return fail(Errc::peer_lost, "allocate: a peer was lost");
  if (ranks > 1) coherence->moves.take(io, offset, bytes);
  return put;
}

Result<void*> Runtime::Layers::allocate(std::size_t bytes, std::size_t align, Placement placement,
                                        bool* fresh) {
  KASANE_TRY(check_open("allocate"));
  const std::uint32_t cache = ult::Pool::current() != nullptr ? ult::Pool::worker() : gas::Heap::kShared;
  gas::Heap* const heap = placement.pool == 0 ? heap_of(placement.page_bytes) : &*pools[placement.pool - 1];
  if (heap == nullptr) [[unlikely]] {
    const auto& [usual, small, large] = segments.heaps;
    return fail(Errc::invalid_argument,
                "allocate: there are no pages of " + std::to_string(placement.page_bytes) +
                    " bytes; a page has " + std::to_string(small.page_bytes) + ", " +
                    std::to_string(usual.page_bytes) + " or " + std::to_string(large.page_bytes));
  }
  comm::Blocking& io = contexts->here().io;
  auto offset = fresh == nullptr ? heap->allocate(io, cache, bytes, align, placement)
                                 : heap->allocate(io, cache, bytes, align, placement, *fresh);
  if (!offset) return tl::unexpected<Error>(std::move(offset.error()));
  if (ranks == 1 && (bytes > gas::kLargestSmall || align > 16)) begin_catching_on_one_rank();
  return space->v(*offset);
}

void Runtime::deallocate(void* p) {
  const ult::RuntimeSection section;
  auto& s = *layers_;
  gas::Heap* const heap = s.heap_at(p);
  if (s.numa->any_bound() && heap != nullptr && !s.network_closed.load()) [[unlikely]] {
    comm::Blocking& io = s.contexts->here().io;
    s.numa->forget(io, s.space->offset(p), heap->usable_size(io, s.space->offset(p)));
  }
  if (heap == nullptr) [[unlikely]] {
    char text[200];
    std::snprintf(
        text, sizeof text,
        "free: the pointer %p is not from the global heap: memory of malloc goes back by free, that of "
        "new and kasane_allocate by delete and kasane_free; variables are not freed",
        p);
    misused(text);
  }
  if (s.network_closed.load()) return;  // the memory is gone with the job
  const std::uint32_t cache = ult::Pool::current() != nullptr ? ult::Pool::worker() : gas::Heap::kShared;
  heap->free(s.contexts->here().io, cache, s.space->offset(p));
}

bool Runtime::resize(void* p, std::size_t bytes) {
  const ult::RuntimeSection section;
  auto& s = *layers_;
  return !s.network_closed.load() && !s.numa->any_bound() &&
         s.heap_at(p)->resize(s.contexts->here().io, s.space->offset(p), bytes);
}

Placement Runtime::placement_like(const void* p) const noexcept {
  const std::uint64_t offset = layers_->space->offset(p);
  Placement like = Placement::on(layers_->heap_at(p)->share_of(offset));
  like.pool = layers_->numa->pool_like(offset);
  return like;
}

std::size_t Runtime::usable_size(const void* p) const {
  const ult::RuntimeSection section;
  return layers_->heap_at(p)->usable_size(layers_->contexts->here().io, layers_->space->offset(p));
}

void Runtime::release_all() {
  const PassedCalls passed;
  if (!layers_->network_closed.load()) layers_->coherence->fences.release_all(layers_->contexts->here());
}
void Runtime::acquire_all() {
  const PassedCalls passed;
  if (!layers_->network_closed.load()) layers_->coherence->fences.acquire_all(layers_->contexts->here());
}

namespace {
Result<void> check_range(const mem::Space& space, const void* p, std::size_t bytes, const char* what) {
  if (space.contains(p, bytes)) return {};
  return fail(Errc::out_of_range, std::string(what) + ": the range is not in global memory");
}
}  // namespace

Result<void> Runtime::pin(const void* p, std::size_t bytes, dsm::Use use) {
  if (use != dsm::Use::write_only) layers_->bring(p, bytes);
  const PassedCalls passed;
  KASANE_TRY(check_range(*layers_->space, p, bytes, "view"));
  KASANE_TRY(layers_->check_open("view"));
  if (layers_->in_common_stacks(layers_->space->offset(p))) return {};
  if (layers_->tiers != nullptr && !layers_->tiers->holds_at_once(bytes)) {
    return fail(Errc::out_of_memory,
                fmt::format("view: {} at once, and this rank can have {} of this host's budget of DRAM, {}; "
                            "take a view of a part at a time, or raise --dram (KASANE_DRAM)",
                            bytes_text(bytes), bytes_text(layers_->tiers->most_at_once()),
                            bytes_text(layers_->tiers->host_bytes())));
  }
  const auto wild =
      layers_->coherence->views.pin(layers_->contexts->here(), layers_->space->offset(p), bytes, use);
  if (!wild) {
    layers_->views_open.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
    return {};
  }
  const std::byte* at =
      std::max(layers_->space->v(mem::offset_of(*wild)), static_cast<std::byte*>(const_cast<void*>(p)));
  return fail(Errc::out_of_range, fmt::format("view: {} is not allocated", static_cast<const void*>(at)));
}

std::uint64_t Runtime::dram_share() const noexcept {
  return layers_->tiers != nullptr ? layers_->tiers->share() : std::numeric_limits<std::uint64_t>::max();
}
void Runtime::forget_process() noexcept { g_current.store(nullptr); }

std::span<std::byte> Runtime::stack_at(const void* p) const noexcept {
  const auto& s = *layers_;
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const auto within = [at](std::byte* low, std::size_t bytes) {
    return at - reinterpret_cast<std::uintptr_t>(low) < bytes;
  };
  if (s.main_stack_low != nullptr && within(s.main_stack_low, s.segments.main_bytes))
    return {s.main_stack_low, s.segments.main_bytes};
  if (s.pool == nullptr) return {};
  const ult::Config& c = s.pool->config();
  if (c.stack_bytes == 0 || !within(c.stacks, std::size_t{c.ranks} * c.stacks_per_rank * c.stack_bytes))
    return {};
  const StackId stack = c.stack_at(at);
  const std::size_t bytes = c.bytes_of_stack(stack);
  return {reinterpret_cast<std::byte*>(c.stack_end(stack) - bytes), bytes};
}

void Runtime::unpin(const void* p, std::size_t bytes) { layers_->unpin(p, bytes); }

void Runtime::prefetch(const void* p, std::size_t bytes, dsm::Use use) {
  const PassedCalls passed;
  if (!check_range(*layers_->space, p, bytes, "prefetch") || !layers_->check_open("prefetch") ||
      layers_->in_common_stacks(layers_->space->offset(p)))
    return;
  // more would evict what it has fetched
  if (layers_->tiers != nullptr) bytes = std::min<std::size_t>(bytes, layers_->tiers->most_at_once() / 2);
  layers_->coherence->views.prefetch(layers_->contexts->here(), layers_->space->offset(p), bytes, use);
}

std::size_t Runtime::send_for(const void* global, const comm::Cursor& cursor, dsm::Use use) {
  const PassedCalls passed;
  auto& s = *layers_;
  if (s.tiers == nullptr || !s.tiers->tiers().may_be_absent() || !s.space->contains(global) ||
      !s.check_open("send_for"))
    return 0;
  dsm::ThreadContext& here = s.contexts->here();
  const std::uint64_t offset = s.space->offset(global);
  const std::uint64_t most = s.tiers->tiers().most_bytes_together();
  std::size_t absent =
      s.access->send_for(here.io, offset, cursor, std::max<std::uint64_t>(most / mem::kPageBytes, 1));
  std::uint64_t sent = 0, last = ~std::uint64_t{0};
  for (comm::Cursor rest = cursor; !rest.done() && sent < most;) {
    const comm::Piece piece = rest.piece();
    const std::uint64_t at = offset + piece.remote_offset;
    rest.consume(piece.bytes);
    if (at >= s.space->bytes() || piece.bytes > s.space->bytes() - at) break;
    const std::uint64_t window = at / mem::kPageBytes;
    if (window == last && (at + piece.bytes - 1) / mem::kPageBytes == window) continue;
    last = window;
    if (s.directory->near_owner(s.directory->pages().page_of(at)) != s.rank) continue;
    absent += s.coherence->tiering.send_for(here, at, std::min(piece.bytes, most - sent), use);
    sent += piece.bytes;
  }
  return absent;
}

// ---- system calls -----------------------------------------------------------------------------------------

CallMemory& Runtime::call_memory() noexcept { return *layers_; }

std::size_t Runtime::Layers::pin_allocated(const void* p, std::size_t bytes, bool write) noexcept {
  const PassedCalls passed;
  if (!space->contains(p) || network_closed.load()) return 0;
  const std::uint64_t offset = space->offset(p);
  bytes = std::min<std::size_t>(bytes, space->addresses().room(p));
  if (in_common_stacks(offset)) return bytes;
  const dsm::Use use = write ? dsm::Use::read_write : dsm::Use::read;
  while (const auto wild = coherence->views.pin(contexts->here(), offset, bytes, use)) {
    const std::uint64_t end = mem::offset_of(*wild);
    if (end <= offset || end - offset >= bytes) return 0;
    bytes = end - offset;
  }
  views_open.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in pin()
  return bytes;
}

bool Runtime::Layers::can_pin(std::size_t bytes) noexcept {
  return tiers == nullptr || tiers->holds_at_once(bytes);
}

std::size_t Runtime::Layers::room_of_calls() const noexcept {
  constexpr std::size_t kLeast = 64 << 10;
  if (tiers == nullptr) return std::numeric_limits<std::size_t>::max();
  // All workers may be in such calls, and the rest of the program needs room beside them.
  return std::max<std::size_t>(tiers->most_at_once() / (4 * workers * ranks), kLeast);
}

std::size_t Runtime::Layers::part_of_calls() const noexcept {
  constexpr std::size_t kMost = 1 << 20;
  return std::min(room_of_calls(), kMost);
}

bool Runtime::Layers::in_open_stacks(const void* p) const noexcept {
  return space->contains(p) && in_common_stacks(space->offset(p));
}

void Runtime::Layers::unpin(const void* p, std::size_t bytes) {
  const PassedCalls passed;
  if (network_closed.load() || in_common_stacks(space->offset(p))) return;
  coherence->views.unpin(contexts->here(), space->offset(p), bytes);
  views_open.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as in pin()
}

Result<void> Runtime::discard(const void* p, std::size_t bytes) {
  const PassedCalls passed;
  KASANE_TRY(check_range(*layers_->space, p, bytes, "discard"));
  KASANE_TRY(layers_->check_open("discard"));
  if (layers_->in_common_stacks(layers_->space->offset(p))) return {};
  layers_->coherence->moves.discard(layers_->contexts->here().io, layers_->space->offset(p), bytes);
  layers_->coherence->tiering.blank(layers_->contexts->here().io, layers_->space->offset(p), bytes);
  return {};
}

Result<void> Runtime::Layers::check_movable(const void* p, std::size_t bytes, const char* what) const {
  KASANE_TRY(check_range(*space, p, bytes, what));
  KASANE_TRY(check_open(what));
  for (const auto& heap : heaps) {
    const std::uint64_t offset = space->offset(p);
    if (heap->contains(offset) && (bytes == 0 || heap->contains(offset + bytes - 1))) return {};
  }
  if (segments.pools.contains(space->offset(p)) &&
      (bytes == 0 || segments.pools.contains(space->offset(p) + bytes - 1)))
    return {};
  if (space->offset(p) >= segments.variables_offset) return {};
  return fail(Errc::invalid_argument,
              fmt::format("{}: {} + {} bytes is not memory that was allocated (stacks cannot be moved)", what,
                          p, bytes));
}

Result<void> Runtime::Layers::explain(const std::optional<gas::MoveRefusal>& refusal,
                                      const char* what) const {
  if (!refusal) return {};
  const void* page = space->v(directory->pages().offset_of(refusal->page));
  return fail(refusal->why,
              fmt::format("{}: the page at {} {}", what, page,
                          refusal->why == Errc::busy
                              ? "is in a view of its owner (try again when the view has ended), or "
                                "fixed at its owner"
                              : "is not allocated"));
}

bool Runtime::has_tiers() const noexcept { return layers_->tiers != nullptr; }

Result<void> Runtime::tell(const void* p, std::size_t bytes, gas::Advisor::What what, const char* call) {
  const PassedCalls passed;
  auto& s = *layers_;
  KASANE_TRY(s.check_movable(p, bytes, call));
  if (s.tiers != nullptr)
    s.tiers->tell(s.contexts->here().io, s.directory->pages().in(s.space->offset(p), bytes), what);
  return {};
}

Result<std::uint32_t> Runtime::numa_pool(NumaRequest& request) {
  const ult::RuntimeSection section;
  return layers_->numa->pool_for(request);
}

const topo::NodeSet& Runtime::numa_nodes() const noexcept { return layers_->numa->nodes(); }

Result<void> Runtime::numa_blocks(void* p, std::size_t bytes, const topo::NodeSet& nodes) {
  const ult::RuntimeSection section;
  auto& s = *layers_;
  const std::uint64_t offset = s.space->offset(p), first = offset / gas::kHeapPageBytes * gas::kHeapPageBytes;
  return s.numa->place_blocks(s.contexts->here().io, first, offset + bytes - first, nodes);
}

Result<void> Runtime::numa_bind(void* p, std::size_t bytes, const NumaRequest& request) {
  const ult::RuntimeSection section;
  auto& s = *layers_;
  constexpr const char* call = "numa::bind";
  KASANE_TRY(s.check_movable(p, bytes, call));
  comm::Blocking& io = s.contexts->here().io;
  s.coherence->mover.await_entry_updates(io);
  for (const PageId page : s.directory->pages().in(s.space->offset(p), bytes)) {
    if (const Rank owner = s.addresses->look(io, page).owner; owner != s.rank)
      return fail(
          Errc::invalid_argument,
          fmt::format("{}: the page at {} belongs to rank {}; call it there, or own() it before", call,
                      static_cast<const void*>(s.space->v(s.directory->pages().offset_of(page))),
                      raw(owner)));
  }
  return s.numa->bind(io, s.space->offset(p), bytes, request);
}

Result<topo::NumaPages> Runtime::numa_where(const void* p, std::size_t bytes) {
  const ult::RuntimeSection section;
  auto& s = *layers_;
  KASANE_TRY(s.check_movable(p, bytes, "numa::where"));
  return s.numa->where(s.space->offset(p), bytes);
}

Result<void> Runtime::own(const void* global, std::size_t bytes) {
  const PassedCalls passed;
  auto& s = *layers_;
  if (s.own_variables.contains(global, bytes)) return {};
  KASANE_TRY(s.check_movable(global, bytes, "own"));
  // By polling: the thread holds moving pages, so it must not let other threads run.
  const mem::PageRange pages = s.directory->pages().in(s.space->offset(global), bytes);
  return s.explain(s.coherence->mover.bring_all(s.contexts->here().io, PageId{pages.first}, pages.size()),
                   "own");
}

Result<void> Runtime::give(const void* global, std::size_t bytes, Rank to) {
  const PassedCalls passed;
  auto& s = *layers_;
  const bool variable = s.own_variables.contains(global, bytes);
  if (!variable) KASANE_TRY(s.check_movable(global, bytes, "give"));
  if (raw(to) >= s.ranks)
    return fail(Errc::invalid_argument,
                fmt::format("give: there is no rank {}; the job has {}", raw(to), s.ranks));
  if (variable) return {};
  const mem::PageRange pages = s.directory->pages().in(s.space->offset(global), bytes);
  return s.explain(s.give_service->give(s.contexts->here().io, PageId{pages.first}, pages.size(), to),
                   "give");
}

Result<Rank> Runtime::where(const void* global) {
  const PassedCalls passed;
  auto& s = *layers_;
  if (s.own_variables.contains(global)) return s.rank;
  KASANE_TRY(check_range(*s.space, global, 1, "where"));
  KASANE_TRY(s.check_open("where"));
  s.coherence->mover.await_entry_updates(s.contexts->here().io);
  const Rank owner =
      s.addresses->look(s.contexts->here().io, s.directory->pages().page_of(s.space->offset(global))).owner;
  if (owner != kNoRank) return owner;
  return fail(Errc::out_of_range, fmt::format("where: {} is not allocated", global));
}

CounterSums Runtime::counters(Rank rank) const {
  const ult::RuntimeSection section;
  return layers_->counters_of(rank);
}

/// Zeros for other ranks once the network is closed.
CounterSums Runtime::Layers::counters_of(Rank of) {
  if (of == rank) return job_counters->of_own();
  return network_closed.load() ? CounterSums{} : job_counters->of(contexts->here().io, of);
}

}  // namespace kasane::runtime
