// SPDX-License-Identifier: Apache-2.0
#include "dsm/misses.h"

#include <cstring>

namespace kasane::dsm {

using mem::BlockRange;
using mem::kBlockBytes;

Misses::Misses(Blocks& blocks, const Frames& frames, const Fetches& fetches)
    : blocks_(blocks), frames_(frames), fetches_(fetches), misses_(std::make_unique<Miss[]>(kMost)) {
  for (std::uint32_t i = 0; i < kMost; ++i) {
    misses_[i].misses = this;
    misses_[i].index = i;
    misses_[i].fn = [](comm::Completion* read) noexcept {
      auto& miss = *static_cast<Miss*>(read);
      if (miss.misses->part_ended(miss)) miss.misses->complete(miss);
    };
  }
}

/// Steps locate, join and read of dsm/fetch_protocol.h, where the first two need no answer.
Misses::Begun Misses::begin(ThreadContext& ctx, BlockId b, Held& held, const BlockStep& step) {
  const PageId page = p_.pages().page_of(b);
  const std::uint64_t drops = fetches_.drops();
  const gas::AddressCache::Found found = p_.addresses.find_here(ctx.io, page);
  const bool read_elsewhere = found.by_entry
                                  ? found.owner != p_.me()
                                  : fetch_source(gas::Location::of(found.word), p_.me()) == Fetched::yes;
  if (found.owner == kNoRank || !read_elsewhere || fetches_.frame_of(found.owner, 0) != nullptr ||
      !p_.sharing.is_reader(page))
    return Begun::no;
  const std::uint32_t index = free_.take();
  if (index == comm::IndexPool<>::kNone) return Begun::no;
  Miss& miss = misses_[index];
  miss.status = comm::Status::ok;
  miss.within = held.within();
  miss.held = held.first_bits();
  miss.page = page;
  miss.found = found;
  miss.drops = drops;
  miss.after = step.after;
  miss.makes_twins = step.after.twin && !step.claimed.twin;
  miss.last_seen.reset();
  if (p_.auto_relocator != nullptr && p_.auto_relocator->may_relocate(page))
    miss.last_seen.emplace(p_.space.a(mem::offset_of(held[0])), nullptr);
  frames_.fill_otherwise(held);
  count(ctx.counters.blocks_fetched, held.count());
  count(ctx.counters.bytes_fetched, held.count() * kBlockBytes);
  under_way_.fetch_add(1);
  miss.left.store(1, std::memory_order_relaxed);  // relaxed: the posts publish it
  held.for_each_run([&](BlockRange run) {
    const comm::RemoteAddr from{found.owner, gas::kFrames, mem::offset_of(run.first)};
    ctx.io.count_round_trip(from);
    miss.left.fetch_add(1, std::memory_order_relaxed);  // relaxed: this thread's own part is left
    comm::Post result = comm::Post::again;
    ctx.io.waiter().until([&] {  // may be called again after it was true
      if (result == comm::Post::again)
        result = p_.transport.read(from, p_.space.a(from.offset), run.count * kBlockBytes, &miss);
      return result != comm::Post::again;
    });
    if (result == comm::Post::done) part_ended(miss);
  });
  held.keep();
  if (!part_ended(miss)) return Begun::under_way;
  complete(miss);
  return Begun::at_once;
}

/// True for the last one.
bool Misses::part_ended(Miss& miss) noexcept {
  // acq_rel: all parts, and what begin() noted, come before the last one's look.
  return miss.left.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

/// Step check. It waits for nothing.
void Misses::complete(Miss& miss) noexcept {
  {
    Held held(blocks_, miss.within);
    for (std::uint64_t i = 0; i < held.size(); ++i)
      if ((miss.held >> i & 1) != 0) held.adopt(i);
    const FetchEvent event =
        miss.status != comm::Status::ok || !p_.addresses.stood_here(miss.page, miss.found) ? FetchEvent::moved
        : fetches_.drops() != miss.drops ? FetchEvent::dropped
                                         : FetchEvent::stood;
    if (next(FetchState::check, event).state == FetchState::fetched) {
      if (miss.last_seen) p_.auto_relocator->used(miss.page, miss.last_seen->changed());
      if (miss.makes_twins) make_twins(held);
      held.open([&](std::uint64_t, const BlockState&) { return miss.after; });
    }
  }
  free_.put(miss.index);
  blocks_.wake_leavers();
  under_way_.fetch_sub(1);
}

void Misses::make_twins(const Held& held) const noexcept {
  held.for_each_run([&](BlockRange run) {
    const std::uint64_t at = mem::offset_of(run.first);
    std::memcpy(p_.space.t(at), p_.space.a(at), run.count * kBlockBytes);
    for (std::uint64_t i = 0; i < run.count; ++i) frames_.fill_twin(block_at(run.first, i));
  });
}

}  // namespace kasane::dsm
