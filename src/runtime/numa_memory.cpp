// SPDX-License-Identifier: Apache-2.0
#include "runtime/numa_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gas/heap_layout.h"
#include "gas/regions.h"
#include "runtime/warn.h"

namespace kasane::runtime {
namespace {

using gas::kHeapPageBytes;
using topo::NumaPolicy;

/// Pools beside one for each node: blocks, interleaved and weighted sets.
constexpr std::uint64_t kOtherPools = 4;

}  // namespace

std::uint64_t NumaMemory::pools_wanted(const topo::NodeSet& nodes) {
  return nodes.count() > 1 ? nodes.count() + kOtherPools : 0;
}

NumaMemory::NumaMemory(comm::Transport& transport, const mem::Space& space, Segments::Pools pools,
                       const topo::NodeSet& nodes)
    : transport_(transport), space_(space), pools_(pools), nodes_(nodes), binders_(transport.ranks()) {
  transport_.set_handler(gas::kNumaHandler, &NumaMemory::on_message, this);
}

std::uint64_t NumaMemory::share_bytes() const noexcept { return pools_.bytes / transport_.ranks(); }
std::uint64_t NumaMemory::share_of(std::uint32_t pool) const noexcept {
  return pools_.offset + (pool - 1) * pools_.bytes + raw(transport_.rank()) * share_bytes();
}

Result<void> NumaMemory::prefer(std::uint32_t node) {
  const std::lock_guard guard(mutex_);
  if (nodes_.count() < 2) return {};
  const NumaPolicy policy = NumaPolicy::on(node);
  KASANE_TRY(topo::check_nodes(policy.nodes, nodes_));
  for (std::byte* view : {space_.a(0), space_.t(0)})
    KASANE_TRY(topo::set_memory_policy(view, space_.bytes(), policy));
  preferred_ = policy;
  return {};
}

/// Fills in the nodes.
Result<NumaPolicy> NumaMemory::policy_of(NumaRequest& request) const {
  using Kind = NumaRequest::Kind;
  if (request.kind == Kind::none) return preferred_;
  if (request.beyond != 0)
    return fail(Errc::invalid_argument, fmt::format("there is no NUMA node {} (this machine has {})",
                                                    request.beyond, topo::nodes_text(nodes_)));
  if (request.nodes.none()) request.nodes = nodes_;
  KASANE_TRY(topo::check_nodes(request.nodes, nodes_));
  if (nodes_.count() < 2) return NumaPolicy{};
  switch (request.kind) {
    case Kind::interleave: return NumaPolicy{NumaPolicy::Kind::interleave, request.nodes};
    case Kind::weighted: return NumaPolicy{NumaPolicy::Kind::weighted, request.nodes};
    default: return NumaPolicy{NumaPolicy::Kind::preferred, request.nodes};
  }
}

Result<std::uint32_t> NumaMemory::pool_for(NumaRequest& request) {
  const auto policy = policy_of(request);
  KASANE_TRY(policy);
  if (policy->kind == NumaPolicy::Kind::local) return 0;
  if (pools_.count == 0)
    return fail(Errc::out_of_memory, "the space has no room for memory of NUMA nodes (raise --space)");
  if (request.kind == NumaRequest::Kind::blocks) return kBlocks;
  const std::lock_guard guard(mutex_);
  const auto found = std::find(policies_.begin(), policies_.end(), *policy);
  const auto pool = static_cast<std::uint32_t>(kBlocks + 1 + (found - policies_.begin()));
  if (found != policies_.end()) return pool;
  if (pool > pools_.count)
    return fail(Errc::out_of_memory,
                fmt::format("this rank uses {} NUMA policies already, and there are no more pools",
                            policies_.size()));
  KASANE_TRY(topo::set_memory_policy(space_.a(share_of(pool)), share_bytes(), *policy));
  policies_.push_back(*policy);
  return pool;
}

Result<bool> NumaMemory::place_blocks(std::uint64_t offset, std::uint64_t bytes, const topo::NodeSet& nodes) {
  const std::uint64_t pages = (bytes + kHeapPageBytes - 1) / kHeapPageBytes, parts = nodes.count();
  const std::lock_guard guard(mutex_);
  std::uint64_t part = 0;
  bool moved = true;
  for (std::uint32_t node = 0; node < topo::kMostNumaNodes; ++node) {
    if (!nodes[node]) continue;
    const std::uint64_t first = pages * part / parts, last = pages * (part + 1) / parts;
    ++part;
    if (first == last) continue;
    const std::uint64_t at = offset + first * kHeapPageBytes, size = (last - first) * kHeapPageBytes;
    const NumaPolicy policy = NumaPolicy::on(node);
    KASANE_TRY(topo::set_memory_policy(space_.a(at), size, policy));
    // what an allocation that was freed has left
    moved = topo::move_to_policy(space_.a(at), size, policy) && moved;
    note_bound(at, size, policy);
  }
  return moved;
}

Result<bool> NumaMemory::bind(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes,
                              NumaRequest request) {
  const std::uint64_t first = (offset + kHeapPageBytes - 1) / kHeapPageBytes * kHeapPageBytes,
                      last = (offset + bytes) / kHeapPageBytes * kHeapPageBytes;
  if (first >= last)
    return fail(Errc::invalid_argument,
                fmt::format("numa::bind: no whole page of {} KiB lies in the range", kHeapPageBytes >> 10));
  const auto policy = policy_of(request);
  KASANE_TRY(policy);
  if (request.kind == NumaRequest::Kind::blocks)
    return fail(Errc::invalid_argument, "numa::bind: bind the parts of an array for blocks");
  if (nodes_.count() < 2) return true;
  tell_others(io);
  const std::lock_guard guard(mutex_);
  KASANE_TRY(topo::set_memory_policy(space_.a(first), last - first, *policy));
  cut_out(first, last - first);
  if (request.kind != NumaRequest::Kind::none) note_bound(first, last - first, *policy);
  return topo::move_to_policy(space_.a(first), last - first, *policy);
}

/// That this rank binds. Returns when all know, also to threads that come while another one tells.
void NumaMemory::tell_others(comm::Blocking& io) {
  any_bound_.store(true, std::memory_order_relaxed);
  if (told_.load(std::memory_order_acquire)) return;
  const Note message{Note::What::i_bind, 0, 0};
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r)
    if (Rank{r} != transport_.rank()) (void)io.request(Rank{r}, gas::kNumaHandler, comm::as_payload(message));
  told_.store(true, std::memory_order_release);
}

void NumaMemory::note_bound(std::uint64_t offset, std::uint64_t bytes, const NumaPolicy& policy) {
  cut_out(offset, bytes);
  bound_[offset] = {bytes, policy};
}

/// Nothing of the range is noted as bound afterwards.
void NumaMemory::cut_out(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  auto it = bound_.lower_bound(offset);
  if (it != bound_.begin()) {
    const auto before = std::prev(it);
    const std::uint64_t before_end = before->first + before->second.bytes;
    if (before_end > offset) {
      before->second.bytes = offset - before->first;
      if (before_end > end) bound_[end] = {before_end - end, before->second.policy};
    }
  }
  while (it != bound_.end() && it->first < end) {
    const Bound old = it->second;
    const std::uint64_t old_end = it->first + old.bytes;
    it = bound_.erase(it);
    if (old_end > end) bound_[end] = {old_end - end, old.policy};
  }
}

/// Takes the policy from the parts of the range that have one, but in the pools, where it stays.
void NumaMemory::unbind(std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::lock_guard guard(mutex_);
  if (pools_.contains(offset) || bound_.empty()) return;
  auto it = bound_.upper_bound(offset);
  if (it != bound_.begin()) --it;
  bool found = false;
  for (; it != bound_.end() && it->first < offset + bytes; ++it) {
    const std::uint64_t first = std::max(offset, it->first),
                        last = std::min(offset + bytes, it->first + it->second.bytes);
    if (first >= last) continue;
    found = true;
    // The kernel moves nothing to "wherever it is touched", so frames come to this thread's node.
    std::byte* const at = space_.a(first);
    const NumaPolicy home =
        preferred_.kind == NumaPolicy::Kind::local ? NumaPolicy::on(topo::current_node()) : preferred_;
    (void)topo::move_to_policy(at, last - first, home);
    (void)topo::set_memory_policy(at, last - first, preferred_);
  }
  if (found) cut_out(offset, bytes);
}

void NumaMemory::forget(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes < kHeapPageBytes) return;
  unbind(offset, bytes);
  const Note message{Note::What::freed, offset, bytes};
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    bool binds = false;
    {
      const std::lock_guard guard(mutex_);
      binds = binders_[r];
    }
    if (binds) (void)io.request(Rank{r}, gas::kNumaHandler, comm::as_payload(message));
  }
}

void NumaMemory::on_message(void* self, const comm::Message& message) noexcept {
  auto& numa = *static_cast<NumaMemory*>(self);
  const auto said = gas::value_of<Note>(message);
  if (said.what == Note::What::freed) {
    numa.unbind(said.offset, said.bytes);
  } else {
    const std::lock_guard guard(numa.mutex_);
    numa.binders_[raw(message.from)] = true;
    numa.any_bound_.store(true, std::memory_order_relaxed);
  }
  numa.transport_.reply(message.token, 0);
}

/// Of a range with one pool, or with none.
Result<void> NumaMemory::count(std::uint64_t offset, std::uint64_t bytes, topo::NumaPages& to) {
  topo::NodeSet wanted = preferred_.nodes;
  if (const std::uint32_t pool = pool_of(offset); pool > kBlocks && pool - kBlocks <= policies_.size())
    wanted = policies_[pool - kBlocks - 1].nodes;
  const std::uint64_t end = offset + bytes;
  auto it = bound_.upper_bound(offset);
  if (it != bound_.begin()) --it;
  for (std::uint64_t at = offset; at < end;) {
    while (it != bound_.end() && it->first + it->second.bytes <= at) ++it;
    const bool inside = it != bound_.end() && it->first <= at;
    const std::uint64_t next = inside               ? it->first + it->second.bytes
                               : it != bound_.end() ? it->first
                                                    : end,
                        part = std::min(next, end) - at;
    KASANE_TRY(topo::count_pages(space_.a(at), part, inside ? it->second.policy.nodes : wanted, to));
    at += part;
  }
  return {};
}

Result<topo::NumaPages> NumaMemory::where(std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t page = 4096;
  const std::uint64_t first = offset / page * page, last = (offset + bytes + page - 1) / page * page;
  topo::NumaPages pages;
  const std::lock_guard guard(mutex_);
  KASANE_TRY(count(first, last - first, pages));
  return pages;
}

void NumaMemory::warn_of_misplaced(std::uint64_t offset, std::uint64_t bytes) {
  const auto pages = where(offset, bytes);
  if (!pages || pages->misplaced == 0 || warned_.exchange(true, std::memory_order_relaxed)) return;
  CrashText text;
  text.add("kasane: rank ").decimal(raw(transport_.rank())).add(": ").decimal(pages->misplaced);
  text.add(
      " pages stay on other NUMA nodes than numa::bind or numa_blocks asks for (pages_misplaced in --stats). "
      "To move what is present takes CAP_SYS_NICE (docker run --cap-add SYS_NICE), or a directory through ");
  warn(text.add("which it leaves DRAM and comes back (--spill, KASANE_SPILL)\n"));
}

std::uint64_t NumaMemory::misplaced(std::span<const Range> ranges) {
  topo::NumaPages pages;
  const std::lock_guard guard(mutex_);
  if (preferred_.nodes.none() && policies_.empty() && bound_.empty()) return 0;
  for (const Range& range : ranges)
    if (!count(range.offset, range.bytes, pages)) return 0;
  return pages.misplaced;
}

}  // namespace kasane::runtime
