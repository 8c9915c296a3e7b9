// SPDX-License-Identifier: Apache-2.0
// What a release does: the changes of this rank go to the pages' owners, then whoever has copies is told (rules 3 to 6).
#include <array>
#include <bit>
#include <cstring>

#include "base/trace.h"
#include "dsm/coherence.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

namespace {

[[nodiscard]] std::uint64_t word_at(const std::byte* p) noexcept {
  std::uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

constexpr std::size_t kLineBytes = 64;   ///< of a cache line

[[nodiscard]] bool same_line(const std::byte* a, const std::byte* b) noexcept {
  std::uint64_t differ = 0;
  for (std::size_t i = 0; i < kLineBytes; i += 8) differ |= word_at(a + i) ^ word_at(b + i);
  return differ == 0;
}

/// Copies a block that other threads may be storing to: every byte is loaded exactly once.
void snapshot(std::byte* to, const std::byte* from) noexcept {
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
    // relaxed: which of two racing values is taken does not matter, only that message and twin get the same one.
    const auto w = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(from + i))).load(std::memory_order_relaxed);
    std::memcpy(to + i, &w, sizeof w);
  }
}

}  // namespace

/// Writes under way to one owner; await() returns when all have completed.
struct Coherence::Puts : comm::Completion {
  Puts() noexcept {
    fn = [](comm::Completion* c) noexcept { static_cast<Puts*>(c)->outstanding.fetch_sub(1); };
  }
  void write(comm::Blocking& io, comm::RemoteAddr to, const void* from, std::size_t bytes) {
    outstanding.fetch_add(1);
    for (;;) {
      const comm::Post post = io.transport().write(to, from, bytes, this);
      if (post == comm::Post::pending) return;
      if (post == comm::Post::done) {
        outstanding.fetch_sub(1);
        return;
      }
      io.waiter().pause();
    }
  }
  void await(comm::Blocking& io) {
    io.waiter().until([this] { return outstanding.load() == 0; });
  }
  std::atomic<std::uint32_t> outstanding{0};
};

void Coherence::release_all(ThreadContext& ctx) {
  if (sharing_.nothing_to_release()) return;
  const Timed timed(ctx.counters, ctx.counters.ns_release, TraceKind::release);
  const bool led = release_rounds_.join(ctx.io.waiter(), [&] {
    flush_dirty(ctx);
    sharing_.tell(ctx.io, ctx.counters, [this](PageId page, bool changed, bool watch) { return must_tell(page, changed, watch); });
  });
  count(led ? ctx.counters.releases : ctx.counters.releases_combined);
}

/// Rule 3 and rule 11: first everything that is free, then what others hold.
void Coherence::flush_dirty(ThreadContext& ctx) {
  bool left = false;
  for (std::uint64_t b = dirty_.next(0); b != ~std::uint64_t{0};) {
    const BlockId window = window_of(BlockId{b});
    left |= flush_window(ctx.io, &ctx.counters, window);
    b = dirty_.next(raw(window) + kWindowBlocks);
  }
  if (left) dirty_.for_each([&](BlockId b) { flush_block(ctx.io, &ctx.counters, b); });
  if (mover_ != nullptr) mover_->await_named(ctx.io);   // stores into pages that came here can be read where others look for them
}

/// Rules 5 and 6: has the page, which is marked, to be told of? watch: blocks of ours are protected first, so that later stores mark the page again. Never
/// waits: a block that is in use stays open.
bool Coherence::must_tell(PageId page, bool changed, bool watch) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  auto openness = Openness::foreign;
  BlockRange run{all.first, 0};
  const auto protect_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::read);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      BlockState before = state(block_at(run.first, i));
      before.busy = false;
      finish(block_at(run.first, i), next(before, Event::watch).after);
    }
    run.count = 0;
  };
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    const BlockState s = state(b);
    openness = with_block(openness, s);
    if (!watch) {
      if (openness == Openness::open) break;
      continue;
    }
    const Step step = next(s, Event::watch);
    if (step.verdict != Verdict::proceed || !try_claim(b, s, step)) {
      protect_run();
    } else if (run.count++ == 0) {
      run.first = b;
    }
  }
  protect_run();
  return dsm::must_tell(changed, openness);
}

void Coherence::flush_block(comm::Blocking& io, Counters* counters, BlockId b) {
  const Step step = claim_block(io, b, Event::release);
  if (step.verdict != Verdict::proceed) return;
  if (puts_live(step)) return flush_block_live(io, counters, b, step);
  flush_claimed(io, counters, b, step);
}

void Coherence::flush_claimed(comm::Blocking& io, Counters* counters, BlockId b, const Step& step) {
  protect({b, 1}, Access::read);
  put_diffs(io, counters, window_of(b), Mask{1} << index_in_window(b));
  mark_clean(b);
  finish(b, step.after);
}

bool Coherence::flush_window(comm::Blocking& io, Counters* counters, BlockId window) {
  Mask mask = 0;
  bool left = false;
  std::array<BlockState, kWindowBlocks> after;
  for (unsigned i = 0; i < kWindowBlocks; ++i) {
    const BlockId b = block_at(window, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::release);
    if (step.verdict == Verdict::wait) left |= dirty_.contains(b);
    if (step.verdict != Verdict::proceed || !try_claim(b, s, step)) {
      left |= step.verdict == Verdict::proceed;
      continue;
    }
    if (puts_live(step)) {
      flush_block_live(io, counters, b, step);
      continue;
    }
    mask |= Mask{1} << i;
    after[i] = step.after;
  }
  if (mask == 0) return left;
  protect(window, mask, Access::read);
  put_diffs(io, counters, window, mask);
  for_each_bit(mask, [&](unsigned i) {
    mark_clean(block_at(window, i));
    finish(block_at(window, i), after[i]);
  });
  return left;
}

/// The window's masked blocks are claimed and not writable: puts what differs from the twins, and returns when it has arrived. Page by page: a put under way
/// may wait for nothing but its completion, so also not for the move of the next page to end.
void Coherence::put_diffs(comm::Blocking& io, Counters* counters, BlockId window, Mask mask) {
  while (mask != 0) {
    const PageId page = pages_.page_of(block_at(window, static_cast<unsigned>(std::countr_zero(mask))));
    const Mask part = mask & part_of_window(pages_.blocks_of(page), window);
    put_diffs_of_page(io, counters, page, window, part);
    mask &= ~part;
  }
}

void Coherence::put_diffs_of_page(comm::Blocking& io, Counters* counters, PageId page, BlockId window, Mask mask) {
  gas::AddressCache::Put put(addresses_, io, page);
  put.is_diff();
  if (put.owner() == kNoRank || put.owner() == transport_.rank()) return;   // freed meanwhile, so nobody will read it; or our M is the master copy
  const Traced traced(counters, TraceKind::put_changes, static_cast<std::uint64_t>(std::popcount(mask)));
  Puts puts;
  Mask whole = 0;
  for_each_bit(mask, [&](unsigned i) {
    if (state(block_at(window, i)).whole) {
      whole |= Mask{1} << i;
      return;
    }
    const std::uint64_t at = mem::offset_of(block_at(window, i));
    put_changed(io, counters, put.owner(), at, space_.a(at), space_.t(at), puts);
  });
  for_each_run(whole, [&](unsigned first, unsigned n) {
    const std::uint64_t at = mem::offset_of(block_at(window, first));
    puts.write(io, {put.owner(), gas::kFrames, at}, space_.a(at), n * kBlockBytes);
    if (counters != nullptr) count(counters->bytes_put, n * kBlockBytes);
  });
  puts.await(io);
  sharing_.changed(page);
}

/// Puts the bytes of a block that differ from base: exactly those, never a gap (rule 3).
void Coherence::put_changed(comm::Blocking& io, Counters* counters, Rank owner, std::uint64_t offset, const std::byte* bytes,
                            const std::byte* base, Puts& puts) {
  std::size_t total = 0;
  if (races_ != nullptr) {
    total = put_checked(io, *races_, {owner, gas::kFrames, offset}, bytes, base);
  } else {
    total = put_runs(io, owner, offset, bytes, base, puts);
  }
  if (counters == nullptr) return;
  count(counters->diffs);
  count(counters->bytes_put, total);
}

std::size_t Coherence::put_runs(comm::Blocking& io, Rank owner, std::uint64_t offset, const std::byte* bytes, const std::byte* base, Puts& puts) {
  std::size_t run = 0, total = 0;   // bytes [i - run, i) differ and are not put yet
  const auto put_run = [&](std::size_t end) {
    if (run == 0) return;
    puts.write(io, {owner, gas::kFrames, offset + end - run}, bytes + end - run, run);
    total += run;
    run = 0;
  };
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
    if (i % kLineBytes == 0 && run == 0) {   // most lines have no change: one branch for each of those
      while (i < kBlockBytes && same_line(bytes + i, base + i)) i += kLineBytes;
      if (i == kBlockBytes) break;
    }
    const std::uint64_t differs = word_at(bytes + i) ^ word_at(base + i);
    if (differs == 0) {
      put_run(i);
      continue;
    }
    for (unsigned k = 0; k < 8; ++k) {
      if ((differs >> (8 * k) & 0xFF) != 0) {
        ++run;
      } else {
        put_run(i + k);
      }
    }
  }
  put_run(kBlockBytes);
  return total;
}

/// A pinned, writable block stays so: its changes so far go out, and the twin becomes what was sent (rules 3 and 10). Of one that is whole all goes out.
void Coherence::flush_block_live(comm::Blocking& io, Counters* counters, BlockId b, const Step& step) {
  alignas(8) std::byte now[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  snapshot(now, space_.a(at));
  const PageId page = pages_.page_of(b);
  if (gas::AddressCache::Put put(addresses_, io, page); put.owner() != kNoRank) {
    put.is_diff();
    Puts puts;
    if (step.claimed.whole) {
      if (put.owner() != transport_.rank()) puts.write(io, {put.owner(), gas::kFrames, at}, now, kBlockBytes);
    } else {
      put_changed(io, counters, put.owner(), at, now, space_.t(at), puts);
    }
    puts.await(io);
    sharing_.changed(page);
    std::memcpy(space_.t(at), now, kBlockBytes);
  }
  if (step.actions[1] == Action::refresh) refresh(io, b, true);
  finish(b, step.after);
}

}  // namespace kasane::dsm
