// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/numa_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gas/heap_layout.h"
#include "gas/regions.h"
#include "mem/page_tables.h"
#include "runtime/rank/warn.h"

namespace kasane::runtime {
namespace {

using gas::kHeapPageBytes;
using topo::NumaPolicy;

/// Pools beside one for each node: blocks, interleaved and weighted sets.
constexpr std::uint64_t kOtherPools = 4;
/// To move what is used meanwhile: so often in a row nothing moves, then it stays.
constexpr unsigned kVainTries = 6;

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

Result<void> NumaMemory::place_blocks(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes,
                                      const topo::NodeSet& nodes) {
  const std::uint64_t pages = (bytes + kHeapPageBytes - 1) / kHeapPageBytes, parts = nodes.count();
  std::uint64_t part = 0, stay = 0;
  for (std::uint32_t node = 0; node < topo::kMostNumaNodes; ++node) {
    if (!nodes[node]) continue;
    const std::uint64_t first = pages * part / parts, last = pages * (part + 1) / parts;
    ++part;
    if (first == last) continue;
    const std::uint64_t at = offset + first * kHeapPageBytes, size = (last - first) * kHeapPageBytes;
    const NumaPolicy policy = NumaPolicy::on(node);
    {
      const std::lock_guard guard(mutex_);
      KASANE_TRY(topo::set_memory_policy(space_.a(at), size, policy));
      note_bound(at, size, policy);
    }
    stay += move(io, at, size, policy);  // what an allocation that was freed has left
  }
  warn_of_misplaced(stay);
  return {};
}

Result<void> NumaMemory::bind(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes,
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
  if (nodes_.count() < 2) return {};
  tell_others(io);
  {
    const std::lock_guard guard(mutex_);
    KASANE_TRY(topo::set_memory_policy(space_.a(first), last - first, *policy));
    cut_out(first, last - first);
    if (request.kind != NumaRequest::Kind::none) note_bound(first, last - first, *policy);
  }
  warn_of_misplaced(move(io, first, last - first, *policy));
  return {};
}

/// Pages go to a node, also where the policy names none.
NumaPolicy NumaMemory::home_of(const NumaPolicy& policy) const noexcept {
  return policy.kind == NumaPolicy::Kind::local ? NumaPolicy::on(topo::current_node()) : policy;
}

/// Once, without the help of other ranks. Returns how many pages stay.
std::uint64_t NumaMemory::try_move(std::uint64_t offset, std::uint64_t bytes, const topo::NodeSet& wanted,
                                   topo::NodeSet& room) const noexcept {
  return topo::move_to_nodes(space_.v(offset), space_.a(offset), bytes, wanted, room).value_or(0);
}

/// Part by part, so that little of it is touched again before it is moved. Returns how many pages stay.
std::uint64_t NumaMemory::move(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes,
                               const NumaPolicy& policy) const {
  const topo::NodeSet wanted = home_of(policy).nodes;
  topo::NodeSet room = wanted;
  std::uint64_t stay = 0;
  for (std::uint64_t done = 0; done < bytes; done += topo::kMovedAtOnce) {
    const std::uint64_t at = offset + done, part = std::min(bytes - done, topo::kMovedAtOnce);
    std::uint64_t left = try_move(at, part, wanted, room);
    for (unsigned vain = 0; left != 0 && room.any() && vain < kVainTries;) {
      drop_kept(at, part);
      drop_at_others(io, transport_.rank(), at, part);
      const std::uint64_t before = left;
      left = try_move(at, part, wanted, room);
      vain = left < before ? 0 : vain + 1;
    }
    stay += left;
  }
  return stay;
}

/// V's translations of blocks without rights.
void NumaMemory::drop_kept(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  engine_->drop_kept_translations({mem::block_of(offset), bytes / mem::kBlockBytes});
}

/// This process's translations of that rank's frames, if it has them mapped.
void NumaMemory::drop(Rank owner, std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (std::byte* const frames = transport_.mapped(owner, gas::kFrames); frames != nullptr)
    mem::drop_translations(frames + offset, bytes);
}

/// Returns when all ranks but the owner have done so.
void NumaMemory::drop_at_others(comm::Blocking& io, Rank owner, std::uint64_t offset,
                                std::uint64_t bytes) const {
  const Note message{Note::What::drop, offset, bytes, raw(owner)};
  const bool near = transport_.mapped(owner, gas::kFrames) != nullptr;
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    if (Rank{r} == owner) continue;
    if (Rank{r} == transport_.rank()) {
      drop(owner, offset, bytes);
    } else if (!near || transport_.mapped(Rank{r}, gas::kFrames) != nullptr) {
      (void)io.request(Rank{r}, gas::kNumaHandler, comm::as_payload(message));
    }
  }
}

/// That this rank binds. Returns when all know, also to threads that come while another one tells. acquire
/// and release of told_: the answers of the others.
void NumaMemory::tell_others(comm::Blocking& io) {
  any_bound_.store(true, std::memory_order_relaxed);
  if (told_.load(std::memory_order_acquire)) return;
  const Note message{Note::What::i_bind, 0, 0, 0};
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

/// Calls f(offset, bytes) for the parts of the range that are noted as bound.
template <class F>
void NumaMemory::for_each_bound(std::uint64_t offset, std::uint64_t bytes, const F& f) const {
  auto it = bound_.upper_bound(offset);
  if (it != bound_.begin()) --it;
  for (; it != bound_.end() && it->first < offset + bytes; ++it) {
    const std::uint64_t first = std::max(offset, it->first),
                        last = std::min(offset + bytes, it->first + it->second.bytes);
    if (first < last) f(first, last - first);
  }
}

/// Takes the policy from the parts of the range that have one, but in the pools, where it stays. Their pages
/// come to this thread's node, since the kernel moves nothing to "wherever it is touched". False: some stay,
/// and all have their policy as before.
bool NumaMemory::unbind(std::uint64_t offset, std::uint64_t bytes, bool in_any_case) noexcept {
  const std::lock_guard guard(mutex_);
  if (pools_.contains(offset) || bound_.empty()) return true;
  const topo::NodeSet wanted = home_of(preferred_).nodes;
  topo::NodeSet room = wanted;
  std::uint64_t stay = 0;
  for_each_bound(offset, bytes, [&](std::uint64_t at, std::uint64_t part) {
    if (in_any_case) drop_kept(at, part);
    stay += try_move(at, part, wanted, room);
  });
  if (stay != 0 && room.any() && !in_any_case) return false;
  for_each_bound(offset, bytes, [&](std::uint64_t at, std::uint64_t part) {
    (void)topo::set_memory_policy(space_.a(at), part, preferred_);
  });
  cut_out(offset, bytes);
  return true;
}

void NumaMemory::forget(comm::Blocking& io, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes < kHeapPageBytes) return;
  for (std::uint32_t r = 0; r < transport_.ranks(); ++r) {
    const bool self = Rank{r} == transport_.rank();
    if (!self) {
      const std::lock_guard guard(mutex_);
      if (!binders_[r]) continue;
    }
    const auto ended = [&](bool in_any_case) {
      if (self) return unbind(offset, bytes, in_any_case);
      const Note message{in_any_case ? Note::What::ended : Note::What::freed, offset, bytes, 0};
      return io.request(Rank{r}, gas::kNumaHandler, comm::as_payload(message)) == 0;
    };
    // nobody uses it, so that two tries are enough
    if (ended(false)) continue;
    drop_at_others(io, Rank{r}, offset, bytes);
    (void)ended(true);
  }
}

void NumaMemory::on_message(void* self, const comm::Message& message) noexcept {
  auto& numa = *static_cast<NumaMemory*>(self);
  const auto said = gas::value_of<Note>(message);
  bool done = true;
  switch (said.what) {
    case Note::What::freed: done = numa.unbind(said.offset, said.bytes, false); break;
    case Note::What::ended: done = numa.unbind(said.offset, said.bytes, true); break;
    case Note::What::drop:
      numa.drop(Rank{static_cast<std::uint32_t>(said.owner)}, said.offset, said.bytes);
      break;
    case Note::What::i_bind: {
      const std::lock_guard guard(numa.mutex_);
      numa.binders_[raw(message.from)] = true;
      numa.any_bound_.store(true, std::memory_order_relaxed);
    }
  }
  numa.transport_.reply(message.token, done ? 0 : 1);
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

/// Says once that so many pages stay, if they do.
void NumaMemory::warn_of_misplaced(std::uint64_t pages) noexcept {
  if (pages == 0 || warned_.exchange(true, std::memory_order_relaxed)) return;
  CrashText text;
  text.add("kasane: rank ").decimal(raw(transport_.rank())).add(": ").decimal(pages);
  warn(text.add(
      " pages stay on other NUMA nodes than numa::bind or numa_blocks asks for (pages_misplaced in "
      "--stats). Their nodes have no more room, or other ranks or devices used them all the time: bind "
      "them again when these have ended\n"));
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
