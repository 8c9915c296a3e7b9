// SPDX-License-Identifier: Apache-2.0
#include "dsm/coherence.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/trace.h"
#include "dsm/fingerprint.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;

namespace {

constexpr std::uint64_t kWindowBlocks = 16;

[[nodiscard]] BlockId window_of(BlockId b) noexcept { return BlockId{raw(b) / kWindowBlocks * kWindowBlocks}; }
[[nodiscard]] unsigned index_in_window(BlockId b) noexcept { return static_cast<unsigned>(raw(b) % kWindowBlocks); }
[[nodiscard]] BlockId block_at(BlockId window, std::uint64_t i) noexcept { return BlockId{raw(window) + i}; }
[[nodiscard]] std::uint64_t end_of(BlockRange blocks) noexcept { return raw(blocks.first) + blocks.count; }

/// The blocks of the page that lie in the window, as a mask of it.
[[nodiscard]] std::uint32_t part_of_window(BlockRange page, BlockId window) noexcept {
  const std::uint64_t begin = std::max(raw(page.first), raw(window)), end = std::min(end_of(page), raw(window) + kWindowBlocks);
  return ((1u << (end - begin)) - 1) << (begin - raw(window));
}

template <class F>
void for_each_bit(std::uint32_t mask, const F& f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(std::countr_zero(mask)));
}

/// Calls f(first, count) for every run of ones.
template <class F>
void for_each_run(std::uint32_t mask, const F& f) {
  while (mask != 0) {
    const auto first = static_cast<unsigned>(std::countr_zero(mask));
    const auto count = static_cast<unsigned>(std::countr_one(mask >> first));
    f(first, count);
    mask &= ~(((1u << count) - 1) << first);
  }
}

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

[[nodiscard]] bool puts_live(const Step& step) noexcept { return step.actions[0] == Action::diff_put_live || step.actions[0] == Action::put_all_live; }

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

Coherence::Coherence(mem::Space& space, mem::BlockTable& table, mem::BlockSet& cached, mem::BlockSet& dirty, mem::FaultEngine& engine,
                     comm::Transport& transport, gas::AddressCache& addresses, gas::Sharing& sharing)
    : space_(space), table_(table), cached_(cached), dirty_(dirty), engine_(engine), transport_(transport),
      addresses_(addresses), directory_(addresses.directory()), pages_(directory_.pages()), sharing_(sharing) {
  transport_.set_handler(gas::kReleaseHandler, &Coherence::on_release, this);
}

// ---- words of the block table ------------------------------------------------------------------------------------

BlockState Coherence::state(BlockId b) const noexcept { return BlockState::of(table_[b].load()); }

bool Coherence::try_claim(BlockId b, BlockState before, const Step& step) noexcept {
  std::uint32_t expected = before.word();
  // seq_cst: the busy bit orders this thread's later look at the directory against an acquire's walk over cached_.
  return table_[b].compare_exchange_strong(expected, step.claimed.word());
}

Step Coherence::claim_block(comm::Blocking& io, BlockId b, Event event) {
  for (;;) {
    const BlockState s = state(b);
    const Step step = next(s, event);
    if (step.verdict == Verdict::wait) {
      wait_free(io, b);
    } else if (step.verdict != Verdict::proceed || try_claim(b, s, step)) {
      return step;
    }
  }
}

void Coherence::finish(BlockId b, BlockState after) noexcept {
  KASANE_ASSERT(after.check() && !after.busy);
  KASANE_ASSERT(state(b).busy);
  // release: whoever takes the bit next sees M, T and the sets as we leave them.
  table_[b].store(after.word(), std::memory_order_release);
}

void Coherence::wait_free(comm::Blocking& io, BlockId b) {
  io.waiter().until([this, b] { return !state(b).busy; });
}

void Coherence::mark_dirty(BlockId b) noexcept {
  dirty_.insert(b);
  sharing_.add_dirty();   // before any store can land: ask_release() of others relies on it
}

void Coherence::mark_clean(BlockId b) noexcept {
  dirty_.erase(b);
  sharing_.remove_dirty();   // after remote completion
}

// ---- rights in V ---------------------------------------------------------------------------------------------------

void Coherence::protect(BlockRange run, Access access) noexcept {
  for (int attempt = 0; !engine_.protect(run, access); ++attempt) {
    KASANE_CHECK(attempt < 100, "the kernel allows no more mappings: raise vm.max_map_count");
    make_room();
  }
}

void Coherence::protect(BlockId window, Mask mask, Access access) noexcept {
  for_each_run(mask, [&](unsigned first, unsigned count) { protect({block_at(window, first), count}, access); });
}

/// Merges mappings: drops clean cached blocks that nobody uses or pins. Never waits.
void Coherence::make_room() noexcept {
  cached_.for_each([&](BlockId b) {
    const BlockState s = state(b);
    const Step step = next(s, Event::acquire);
    if (step.verdict != Verdict::proceed || s.dirty() || s.pins != 0 || !try_claim(b, s, step)) return;
    if (engine_.protect({b, 1}, Access::none)) {
      cached_.erase(b);
      finish(b, step.after);
    } else {
      finish(b, s);   // splitting a mapping was refused; dropping its neighbours will do
    }
  });
}

// ---- faults --------------------------------------------------------------------------------------------------------

bool Coherence::fault(ThreadContext& ctx, std::uint64_t offset, Access wanted) {
  const Timed timed(ctx.counters, ctx.counters.ns_fault, wanted == Access::write ? TraceKind::store_fault : TraceKind::load_fault, offset);
  const Event event = wanted == Access::write ? Event::store : Event::load;
  count(wanted == Access::write ? ctx.counters.faults_write : ctx.counters.faults_read);
  const BlockId b = mem::block_of(offset);
  const Step step = claim_block(ctx.io, b, event);
  bool good = true;
  if (step.verdict == Verdict::done) {
    good = !hopeless(ctx, offset);
  } else {
    const Fault fault = carry_out_fault(ctx, b, event, step);
    if (fault == Fault::again) ctx.io.waiter().pause();   // the access runs into its next fault, with the page a little further
    good = fault != Fault::wild;
  }
  if (engine_.crowded()) make_room();
  return good;
}

bool Coherence::hopeless(ThreadContext& ctx, std::uint64_t offset) noexcept {
  ctx.idle_faults = offset == ctx.idle_fault ? ctx.idle_faults + 1 : 0;
  ctx.idle_fault = offset;
  return ctx.idle_faults > kMaxIdleFaults;
}

/// The caller holds b's bit for a load, store or pin, and has given it back when this returns.
Coherence::Fault Coherence::carry_out_fault(ThreadContext& ctx, BlockId b, Event event, const Step& step) {
  const BlockId window = window_of(b);
  const bool fetches = step.actions[0] == Action::fetch, looks = fetches || step.actions[0] == Action::find;
  Mask mask = Mask{1} << index_in_window(b);
  if (step.actions[0] != Action::end && event != Event::pin_whole) mask |= claim_window(ctx, b, event, step);
  if (looks) {
    // Before the fetch begins: an acquire that does not see the block here began before it and needs nothing of it.
    for_each_bit(mask, [&](unsigned i) { cached_.insert(block_at(window, i)); });
    const auto blocks = static_cast<std::uint32_t>(std::popcount(mask));
    const Fetched fetched = fetch(ctx, b, blocks, fetches);
    if (fetched != Fetched::yes) {
      for_each_bit(mask, [&](unsigned i) { cached_.erase(block_at(window, i)); });
      if (fetched == Fetched::own) {
        arm_own_page(b, blocks, step.after.pins);
        return Fault::served;
      }
      for_each_bit(mask, [&](unsigned i) { finish(block_at(window, i), BlockState{}); });
      if (fetched == Fetched::untouched) mover_->touch(ctx.io, pages_.page_of(b));   // with no bit held; the access then finds the page ours, or somebody else's
      return fetched == Fetched::wild ? Fault::wild : Fault::again;
    }
  }
  for (const Action action : step.actions) {
    if (action == Action::make_twin) {
      for_each_run(mask, [&](unsigned first, unsigned n) {
        const std::uint64_t at = mem::offset_of(block_at(window, first));
        std::memcpy(space_.t(at), space_.a(at), n * kBlockBytes);
      });
      for_each_bit(mask, [&](unsigned i) { mark_dirty(block_at(window, i)); });
    } else if (action == Action::allow_write && step.after.whole) {
      mark_dirty(b);
      protect({b, 1}, Access::write);
    } else if (action == Action::mark_page) {
      sharing_.mark(pages_.page_of(b));
    } else if (action == Action::allow_read) {
      protect(window, mask, Access::read);
    } else if (action == Action::allow_write) {
      protect(window, mask, Access::write);
    }
  }
  for_each_bit(mask, [&](unsigned i) {
    BlockState after = step.after;
    if (block_at(window, i) != b) after.pins = 0;
    finish(block_at(window, i), after);
  });
  return Fault::served;
}

/// Read-ahead and write-ahead: claims the blocks that follow b in its page and window and need the same actions, as many as b's sweep deserves.
Coherence::Mask Coherence::claim_window(ThreadContext& ctx, BlockId b, Event event, const Step& step) {
  auto sweep = std::find_if(ctx.sweeps.begin(), ctx.sweeps.end(), [&](const auto& s) { return s.expected == raw(b); });
  if (sweep == ctx.sweeps.end()) {
    sweep = ctx.sweeps.begin() + ctx.next_sweep++ % ctx.sweeps.size();
    sweep->window = 1;
  } else {
    sweep->window = std::min<std::uint32_t>(sweep->window * 2, kWindowBlocks);
  }
  Mask mask = 0;
  std::uint64_t end = raw(b) + 1;
  const std::uint64_t stop = std::min({raw(b) + sweep->window, raw(window_of(b)) + kWindowBlocks, end_of(pages_.blocks_of(pages_.page_of(b)))});
  const Event alike = event == Event::store || event == Event::pin_write ? Event::store : Event::load;
  for (; end < stop; ++end) {
    const BlockState s = state(BlockId{end});
    const Step ahead = next(s, alike);
    if (ahead.verdict != Verdict::proceed || ahead.actions != step.actions || s.pins != 0 || !try_claim(BlockId{end}, s, ahead)) break;
    mask |= Mask{1} << index_in_window(BlockId{end});
  }
  sweep->expected = end;
  return mask;
}

/// The page is ours but not armed yet, and the caller holds the bits of `held` blocks from b on: these are armed with whatever of the page is still absent, in
/// runs. b's bit comes free last: while it is held, the page cannot leave.
void Coherence::arm_own_page(BlockId b, std::uint32_t held, std::uint32_t pins) noexcept {
  BlockState after = next(BlockState{true}, Event::found_own).after;
  sharing_.mark(pages_.page_of(b));
  BlockRange run{b, 0};
  const auto arm_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::write);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      if (block_at(run.first, i) != b) finish(block_at(run.first, i), after);
    }
    run.count = 0;
  };
  const auto claim_absent = [this](BlockId absent) {
    const BlockState s = state(absent);
    const Step step = next(s, Event::load);
    return step.verdict == Verdict::proceed && step.actions[0] == Action::fetch && try_claim(absent, s, step);
  };
  const BlockRange page = pages_.blocks_of(pages_.page_of(b));
  for (std::uint64_t i = raw(page.first); i < end_of(page); ++i) {
    if (i - raw(b) >= held && !claim_absent(BlockId{i})) {
      arm_run();
    } else if (run.count++ == 0) {
      run.first = BlockId{i};
    }
  }
  arm_run();
  after.pins = pins;
  finish(b, after);
}

/// Whom the page's bytes are to be read from: yes, from found.owner; or why from nobody.
Coherence::Fetched Coherence::locate(comm::Blocking& io, PageId page, gas::AddressCache::Found& found) {
  for (;;) {
    found = addresses_.find(io, page);
    if (found.owner == kNoRank) return Fetched::wild;
    if (!found.by_entry && gas::Location::of(found.word).untouched) return gas::Location::of(found.word).busy ? Fetched::leaving : Fetched::untouched;
    if (found.owner != transport_.rank()) return Fetched::yes;
    // A cached location does not say whether the page is leaving: the owner may have been asked to yield before its entry was recalled.
    const gas::Location where = directory_.lookup(io, page);
    if (where.owner != found.owner) continue;
    // Leaving, it is neither ours nor yet a copy: puts counted before the move may still change M, and the move may be refused, so a twin
    // taken now could later send another rank's old byte as our change (found by tests/model, r8_use_while_leaving).
    return where.busy ? Fetched::leaving : Fetched::own;
  }
}

/// Owner's bytes of `count` blocks, all of one page and claimed by the caller, into M; or only that this rank is among the page's readers.
Coherence::Fetched Coherence::fetch(ThreadContext& ctx, BlockId first, std::uint32_t blocks, bool bytes_too) {
  const std::uint64_t offset = mem::offset_of(first);
  const PageId page = pages_.page_of(first);
  const bool counts = bytes_too && attractor_ != nullptr && attractor_->draws(page);
  std::optional<std::uint64_t> had;   // of the first block: what this rank last saw and wrote
  for (;;) {
    const std::uint64_t drops = drops_.load();
    gas::AddressCache::Found found;
    if (const Fetched where = locate(ctx.io, page, found); where != Fetched::yes) return where;
    if (counts && !had) had = fingerprint(space_.a(offset));
    const auto stay = sharing_.join(ctx.io, page, found.owner);
    if (bytes_too) {
      const Traced traced(&ctx.counters, TraceKind::fetch, blocks * kBlockBytes);
      ctx.io.read({found.owner, gas::kFrames, offset}, space_.a(offset), blocks * kBlockBytes);
      count(ctx.counters.blocks_fetched, blocks);
      count(ctx.counters.bytes_fetched, blocks * kBlockBytes);
    }
    // Rules 2 and 9.
    if (!addresses_.stood(ctx.io, page, found)) continue;
    sharing_.joined(page, stay);
    if (drops_.load() != drops) continue;
    if (counts) attractor_->used(page, fingerprint(space_.a(offset)) != *had);
    return Fetched::yes;
  }
}

// ---- release -------------------------------------------------------------------------------------------------------

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

/// Rule 4: the owner's bytes that changed since the twin was made go into M and the twin, nothing else.
void Coherence::refresh(comm::Blocking& io, BlockId b, bool twin) {
  alignas(8) std::byte fresh[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  const PageId page = pages_.page_of(b);
  for (;;) {
    const auto found = addresses_.find(io, page);
    if (found.owner == kNoRank || found.owner == transport_.rank()) return;
    const auto stay = sharing_.join(io, page, found.owner);
    io.read({found.owner, gas::kFrames, at}, fresh, kBlockBytes);
    if (!addresses_.stood(io, page, found)) continue;
    sharing_.joined(page, stay);
    break;
  }
  std::byte* mine = space_.a(at);
  std::byte* base = twin ? space_.t(at) : mine;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    if (fresh[i] == base[i]) continue;
    mine[i] = fresh[i];
    base[i] = fresh[i];
  }
}

// ---- acquire -------------------------------------------------------------------------------------------------------

/// Drops blocks in runs; what waits, or has unreleased bytes or pins, goes by itself.
class Coherence::Drops {
 public:
  Drops(Coherence& coherence, ThreadContext& ctx) noexcept : c_(coherence), ctx_(ctx) {}
  ~Drops() {
    drop_run();
    count(ctx_.counters.blocks_dropped, dropped_);
  }
  /// False: somebody else has the block in hand.
  bool see(BlockId b) {
    const BlockState s = c_.state(b);
    const Step step = next(s, Event::acquire);
    if (step.verdict == Verdict::wait) return false;
    if (step.verdict != Verdict::proceed) return true;
    if (s.dirty() || s.pins != 0) {
      drop_run();   // hold nothing while we may wait
      c_.acquire_block(ctx_.io, &ctx_.counters, b);
      return true;
    }
    if (run_.count != 0 && raw(run_.first) + run_.count != raw(b)) drop_run();
    if (!c_.try_claim(b, s, step)) return false;
    if (run_.count++ == 0) run_.first = b;
    return true;
  }
  void drop_run() {
    if (run_.count == 0) return;
    c_.protect(run_, Access::none);
    for (std::uint64_t i = 0; i < run_.count; ++i) {
      c_.cached_.erase(block_at(run_.first, i));
      c_.finish(block_at(run_.first, i), BlockState{});
    }
    dropped_ += run_.count;
    run_.count = 0;
  }

 private:
  Coherence& c_;
  ThreadContext& ctx_;
  BlockRange run_{BlockId{0}, 0};
  std::uint64_t dropped_ = 0;
};

void Coherence::acquire_all(ThreadContext& ctx) {
  const Timed timed(ctx.counters, ctx.counters.ns_acquire, TraceKind::acquire);
  const bool led = acquire_rounds_.join(ctx.io.waiter(), [&] { drop_cached(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// Rule 2: everything that is cached and free is dropped; then what others hold, when they have finished.
void Coherence::drop_cached(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  drops_.fetch_add(1);
  flush_dirty(ctx);
  bool left = false;
  {
    Drops drops(*this, ctx);
    cached_.for_each([&](BlockId b) { left |= !drops.see(b); });
  }
  if (left) cached_.for_each([&](BlockId b) { acquire_block(ctx.io, &ctx.counters, b); });
}

void Coherence::acquire_told(ThreadContext& ctx) {
  if (!sharing_.on()) return acquire_all(ctx);
  if (sharing_.nothing_told()) {   // and nobody is still dropping
    acquires_.fetch_add(1);
    return;
  }
  const Timed timed(ctx.counters, ctx.counters.ns_acquire, TraceKind::acquire);
  const bool led = told_rounds_.join(ctx.io.waiter(), [&] { drop_told(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
}

/// The same of the pages that this rank was told of.
void Coherence::drop_told(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  drops_.fetch_add(1);
  sharing_.begin_drop();
  const auto for_each_cached = [this](PageId page, const auto& f) {
    const BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = cached_.next(raw(all.first)); b < end_of(all); b = cached_.next(b + 1)) f(BlockId{b});
  };
  bool left = false;
  {
    Drops drops(*this, ctx);
    sharing_.take_told(ctx.io, [&](PageId page) {
      count(ctx.counters.pages_heard);
      bool in_use = false;
      for_each_cached(page, [&](BlockId b) { in_use |= !drops.see(b); });
      if (in_use) sharing_.tell_myself(page);
      left |= in_use;
    });
  }
  if (left) {
    sharing_.take_told(ctx.io, [&](PageId page) { for_each_cached(page, [&](BlockId b) { acquire_block(ctx.io, &ctx.counters, b); }); });
  }
  sharing_.end_drop();
}

void Coherence::acquire_block(comm::Blocking& io, Counters* counters, BlockId b) {
  const Step step = claim_block(io, b, Event::acquire);
  if (step.verdict == Verdict::proceed) perform_acquire(io, counters, b, step);
}

void Coherence::perform_acquire(comm::Blocking& io, Counters* counters, BlockId b, const Step& step) {
  switch (step.actions[0]) {
    case Action::diff_put_live:
    case Action::put_all_live: flush_block_live(io, counters, b, step); return;
    case Action::refresh:
      refresh(io, b, false);
      finish(b, step.after);
      return;
    default: break;
  }
  protect({b, 1}, Access::none);
  if (step.claimed.dirty()) {
    put_diffs(io, counters, window_of(b), Mask{1} << index_in_window(b));
    mark_clean(b);
  }
  cached_.erase(b);
  finish(b, step.after);
}

// ---- edges between ranks -------------------------------------------------------------------------------------------

void Coherence::ask_release(ThreadContext& ctx, Rank source) {
  if (source == transport_.rank()) return release_all(ctx);
  // The fact was fixed before we look. What was changed before it counts until its bytes have arrived and its readers were told.
  if (sharing_.nothing_to_release(ctx.io, source)) return;
  ctx.io.request(source, gas::kReleaseHandler, {}, comm::kPatienceNs);
}

void Coherence::on_release(void* self, const comm::Message& message) noexcept {
  auto& c = *static_cast<Coherence*>(self);
  if (c.sharing_.nothing_to_release()) return c.transport_.reply(message.token, 0);
  while (c.asking_.test_and_set(std::memory_order_acquire)) relax();
  const std::uint32_t n = c.asked_.load(std::memory_order_relaxed);   // asking_ is held
  KASANE_CHECK_OP(n, <, kMaxAsked);
  c.tokens_[n] = message.token;
  c.asked_.store(n + 1);
  c.asking_.clear(std::memory_order_release);
  // Whoever answers takes back his word and then looks at asked_ (seq_cst, all four): he sees what we have noted, or we see that he is through.
  if (c.answering_.load() != 0) return;
  c.transport_.wake(c.transport_.rank(), comm::Doorbell::messages);   // we may run on a worker: the service thread must look
}

void Coherence::answer(ThreadContext& ctx) {
  answering_.fetch_add(1);
  transport_.progress();
  answering_.fetch_sub(1);
  while (serve(ctx)) {
  }
}

bool Coherence::serve(ThreadContext& ctx) {
  if (asked_.load() == 0) return false;
  comm::ReplyToken tokens[64];
  while (asking_.test_and_set(std::memory_order_acquire)) relax();
  const std::uint32_t n = std::min<std::uint32_t>(asked_.load(std::memory_order_relaxed), 64);   // asking_ is held
  const std::uint32_t left = asked_.load(std::memory_order_relaxed) - n;
  std::copy_n(tokens_ + left, n, tokens);
  asked_.store(left);
  asking_.clear(std::memory_order_release);
  release_all(ctx);
  for (std::uint32_t i = 0; i < n; ++i) transport_.reply(tokens[i], 0);
  return n != 0;
}

// ---- memory that changes hands (rule 7) ----------------------------------------------------------------------------

void Coherence::arm_owned(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  KASANE_CHECK(pages_.whole(offset, bytes));
  const mem::PageRange range = pages_.in(offset, bytes);
  std::uint64_t run = range.first;   // pages [run, page) are claimed
  for (const PageId page : range) {
    const BlockRange all = pages_.blocks_of(page);
    for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) claim_block(io, BlockId{b}, Event::arrive_blank);
    if (attractor_ == nullptr || !attractor_->draws(page)) continue;
    // A rank that used this memory before it was freed may just draw it away. While we hold the bits nobody is told that we yield; what was told before
    // shows here.
    const gas::Location where = directory_.lookup(io, page);
    if (where.owner == transport_.rank() && !where.busy) continue;
    for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) {
      if (state(BlockId{b}).busy) give_back(BlockId{b}, 1);
    }
    arm_claimed(run, raw(page));   // hold nothing while we may wait
    KASANE_CHECK(mover_->bring(io, page, {}).has_value(), "memory that is allocated anew is pinned elsewhere");
    run = raw(page) + 1;
  }
  arm_claimed(run, range.last);
}

/// Makes pages [first, last) ours and writable, of whose blocks we hold those that were not so.
void Coherence::arm_claimed(std::uint64_t first, std::uint64_t last) noexcept {
  if (first == last) return;
  for (std::uint64_t page = first; page < last; ++page) sharing_.mark(PageId{page});
  const BlockRange all{mem::block_of(pages_.offset_of(PageId{first})), (pages_.end_of(PageId{last - 1}) - pages_.offset_of(PageId{first})) / kBlockBytes};
  protect(all, Access::write);
  for (std::uint64_t b = raw(all.first); b < end_of(all); ++b) {
    const BlockState s = state(BlockId{b});
    if (!s.busy) continue;   // was armed already
    if (s.dirty()) mark_clean(BlockId{b});
    cached_.erase(BlockId{b});
    BlockState before = s;
    before.busy = false;
    finish(BlockId{b}, next(before, Event::arrive_blank).after);
  }
}

/// Does the event mean anything to the block? The heap asks for whole ranges, of which most are not cached here, as often as it takes and gives groups: so
/// the answer is one look, and the compiler leaves out all of next() that is about other events.
template <Event event>
[[gnu::flatten]] bool Coherence::concerns(BlockId b) const noexcept {
  return next(BlockState::of(table_[b].load()), event).verdict != Verdict::done;
}

void Coherence::take(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    if (concerns<Event::acquire>(BlockId{b})) acquire_block(io, nullptr, BlockId{b});
  }
}

void Coherence::discard(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    const BlockId block{b};
    const std::uint64_t begin = std::max(offset, b * kBlockBytes), end = std::min(offset + bytes, (b + 1) * kBlockBytes);
    const Event event = end - begin == kBlockBytes ? Event::discard_block : Event::discard;
    if (!(event == Event::discard ? concerns<Event::discard>(block) : concerns<Event::discard_block>(block))) continue;
    const Step step = claim_block(io, block, event);
    if (step.verdict != Verdict::proceed) continue;
    if (puts_live(step)) {
      flush_block_live(io, nullptr, block, step);
    } else if (step.actions[0] == Action::protect_read) {
      flush_claimed(io, nullptr, block, step);
    } else {
      std::memcpy(space_.t(begin), space_.a(begin), end - begin);
      finish(block, step.after);
    }
  }
}

// ---- relocation (gas::Mover) ---------------------------------------------------------------------------------------

gas::YieldAnswer Coherence::yield(PageId page) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  std::bitset<mem::kMostBlocksOfAPage> taken;   // those that are ours; a page may have others, which no fault has armed
  const auto answer = [&] {
    for (std::uint64_t i = 0; i < all.count; ++i) {
      const BlockId b = block_at(all.first, i);
      const BlockState s = state(b);
      const Step step = next(s, Event::yield);
      if (step.verdict == Verdict::refuse) return gas::YieldAnswer::pinned;
      if (step.verdict == Verdict::done) continue;
      if (step.verdict == Verdict::wait || !try_claim(b, s, step)) return gas::YieldAnswer::retry;
      taken[i] = true;
    }
    return gas::YieldAnswer::yielded;
  }();
  for (std::uint64_t i = 0; i < all.count;) {
    std::uint64_t end = i;
    while (end < all.count && taken[end]) ++end;
    const BlockRange run{block_at(all.first, i), end - i};
    if (answer != gas::YieldAnswer::yielded) {
      give_back(run.first, run.count);
    } else if (run.count != 0) {
      protect(run, Access::none);
      for (std::uint64_t k = 0; k < run.count; ++k) finish(block_at(run.first, k), BlockState{});
    }
    i = end + 1;
  }
  return answer;
}

/// Frees the bits of claimed blocks, which stay what they were.
void Coherence::give_back(BlockId first, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    BlockState s = state(block_at(first, i));
    s.busy = false;
    finish(block_at(first, i), s);
  }
}

gas::Claim Coherence::claim(comm::Blocking& io, PageId page) {
  const BlockRange all = pages_.blocks_of(page);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    // Ascending order among movers; others that hold a bit never wait for a second one.
    if (claim_block(io, block_at(all.first, i), Event::arrive).verdict == Verdict::proceed) continue;
    give_back(all.first, i);
    return gas::Claim::ours;
  }
  return gas::Claim::taken;
}

gas::Claim Coherence::try_claim(PageId page) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::arrive);
    if (step.verdict == Verdict::proceed && try_claim(b, s, step)) continue;
    give_back(all.first, i);
    return step.verdict == Verdict::done ? gas::Claim::ours : gas::Claim::in_use;
  }
  return gas::Claim::taken;
}

void Coherence::give_up(PageId page) noexcept {
  const BlockRange all = pages_.blocks_of(page);
  give_back(all.first, all.count);
}

/// Calls part(offset, bytes, has a twin) for the live bytes of the page in order: for blocks without a twin a run at a time, for those with one one by one,
/// for those that are whole not at all.
template <class F>
void Coherence::for_each_arriving(PageId page, gas::ByteRange live, const F& part) const {
  const std::uint64_t end = std::min(live.end, pages_.end_of(page));
  const auto end_of_block = [end](std::uint64_t offset) { return std::min(end, mem::offset_of(mem::block_of(offset)) + kBlockBytes); };
  for (std::uint64_t at = std::max(live.begin, pages_.offset_of(page)); at < end;) {
    std::uint64_t next_at = end_of_block(at);
    const BlockState s = state(mem::block_of(at));
    while (!s.dirty() && next_at < end && !state(mem::block_of(next_at)).dirty()) next_at = end_of_block(next_at);
    if (!s.whole) part(at, next_at - at, s.twin);
    at = next_at;
  }
}

void Coherence::begin_merge(comm::Batch& batch, PageId page, gas::ByteRange live, Rank from) {
  for_each_arriving(page, live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
    if (!twin) batch.read({from, gas::kFrames, at}, space_.a(at), bytes);
  });
}

/// Our threads may be storing to blocks with a twin: only bytes that we have not changed are taken (rule 4).
void Coherence::end_merge(comm::Blocking& io, PageId page, gas::ByteRange live, Rank from) {
  for_each_arriving(page, live, [&](std::uint64_t at, std::uint64_t bytes, bool twin) {
    if (!twin) return;
    alignas(8) std::byte fresh[kBlockBytes];
    io.read({from, gas::kFrames, at}, fresh, bytes);
    std::byte *mine = space_.a(at), *base = space_.t(at);
    if (races_ != nullptr) tell_races(io.counters(), *races_, at, bytes, base, mine, fresh);
    for (std::size_t k = 0; k < bytes; ++k) {
      if (fresh[k] != base[k]) mine[k] = fresh[k];
    }
  });
}

void Coherence::settle(PageId page) {
  const BlockRange all = pages_.blocks_of(page);
  // Not earlier: a release of ours would take the mark while others still join the old owner's readers. Where the entry is on its way, end_naming() marks once more.
  sharing_.mark(page);
  protect(all, Access::write);
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b = block_at(all.first, i);
    BlockState s = state(b);
    if (s.dirty()) mark_clean(b);
    cached_.erase(b);
    s.busy = false;
    finish(b, next(s, Event::arrive).after);
  }
}

/// Counts as a changed block does: the release that sends it has to wait.
void Coherence::begin_naming() noexcept { sharing_.add_dirty(); }

void Coherence::end_naming(PageId page) noexcept {
  sharing_.mark(page);   // again: a release that began before the page came may have taken settle()'s mark while others still joined the old owner's readers
  sharing_.remove_dirty();
}

}  // namespace kasane::dsm
