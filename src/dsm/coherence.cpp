// SPDX-License-Identifier: Apache-2.0
#include "dsm/coherence.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"

namespace kasane::dsm {

using mem::Access;
using mem::BlockRange;
using mem::kBlockBytes;
using mem::kBlocksPerPage;

namespace {

[[nodiscard]] BlockId first_block(PageId page) noexcept { return BlockId{raw(page) * kBlocksPerPage}; }
[[nodiscard]] BlockId block_at(PageId page, unsigned i) noexcept { return BlockId{raw(page) * kBlocksPerPage + i}; }
[[nodiscard]] unsigned index_in_page(BlockId b) noexcept { return static_cast<unsigned>(raw(b) % kBlocksPerPage); }

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

Coherence::Coherence(mem::Space& space, mem::BlockTable& table, mem::BlockSet& cached, mem::BlockSet& dirty, mem::FaultEngine& engine,
                     comm::Transport& transport, gas::AddressCache& addresses, std::atomic<std::uint64_t>& dirty_blocks)
    : space_(space), table_(table), cached_(cached), dirty_(dirty), engine_(engine), transport_(transport),
      addresses_(addresses), directory_(addresses.directory()), dirty_blocks_(dirty_blocks) {
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
  dirty_blocks_.fetch_add(1);   // before any store can land: ask_release() of others relies on it
}

void Coherence::mark_clean(BlockId b) noexcept {
  dirty_.erase(b);
  dirty_blocks_.fetch_sub(1);   // after remote completion
}

// ---- rights in V ---------------------------------------------------------------------------------------------------

void Coherence::protect(BlockRange run, Access access) noexcept {
  for (int attempt = 0; !engine_.protect(run, access); ++attempt) {
    KASANE_CHECK(attempt < 100, "the kernel allows no more mappings: raise vm.max_map_count");
    make_room();
  }
}

void Coherence::protect(PageId page, Mask mask, Access access) noexcept {
  for_each_run(mask, [&](unsigned first, unsigned count) { protect({block_at(page, first), count}, access); });
}

/// Merges mappings: drops clean cached blocks that nobody uses or pins. Never waits.
void Coherence::make_room() noexcept {
  cached_.for_each([&](BlockId b) {
    const BlockState s = state(b);
    const Step step = next(s, Event::acquire);
    if (step.verdict != Verdict::proceed || s.twin || s.pins != 0 || !try_claim(b, s, step)) return;
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
  const std::uint64_t start = now_ns();
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
  count(ctx.counters.ns_fault, now_ns() - start);
  return good;
}

bool Coherence::hopeless(ThreadContext& ctx, std::uint64_t offset) noexcept {
  ctx.idle_faults = offset == ctx.idle_fault ? ctx.idle_faults + 1 : 0;
  ctx.idle_fault = offset;
  return ctx.idle_faults > kMaxIdleFaults;
}

/// The caller holds b's bit for a load, store or pin, and has given it back when this returns.
Coherence::Fault Coherence::carry_out_fault(ThreadContext& ctx, BlockId b, Event event, const Step& step) {
  const PageId page = mem::page_of(b);
  const bool fetches = step.actions[0] == Action::fetch;
  Mask mask = Mask{1} << index_in_page(b);
  if (step.actions[0] != Action::end) mask |= claim_window(ctx, b, event, step);
  if (fetches) {
    // Before the fetch begins: an acquire that does not see the block here began before it and needs nothing of it.
    for_each_bit(mask, [&](unsigned i) { cached_.insert(block_at(page, i)); });
    const Fetched fetched = fetch(ctx, b, static_cast<std::uint32_t>(std::popcount(mask)));
    if (fetched != Fetched::yes) {
      for_each_bit(mask, [&](unsigned i) { cached_.erase(block_at(page, i)); });
      if (fetched == Fetched::own) mask |= claim_rest_of_page(b, mask);
      if (fetched == Fetched::own) protect(page, mask, Access::write);
      for_each_bit(mask, [&](unsigned i) {
        BlockState after = fetched == Fetched::own ? next(BlockState{true}, Event::found_own).after : BlockState{};
        if (fetched == Fetched::own && block_at(page, i) == b) after.pins = step.after.pins;
        finish(block_at(page, i), after);
      });
      if (fetched == Fetched::untouched) mover_->touch(ctx.io, page);   // with no bit held; the access then finds the page ours, or somebody else's
      return fetched == Fetched::own ? Fault::served : fetched == Fetched::wild ? Fault::wild : Fault::again;
    }
  }
  for (const Action action : step.actions) {
    if (action == Action::make_twin) {
      for_each_run(mask, [&](unsigned first, unsigned n) {
        const std::uint64_t at = mem::offset_of(block_at(page, first));
        std::memcpy(space_.t(at), space_.a(at), n * kBlockBytes);
      });
      for_each_bit(mask, [&](unsigned i) { mark_dirty(block_at(page, i)); });
    } else if (action == Action::allow_read) {
      protect(page, mask, Access::read);
    } else if (action == Action::allow_write) {
      protect(page, mask, Access::write);
    }
  }
  for_each_bit(mask, [&](unsigned i) {
    BlockState after = step.after;
    if (block_at(page, i) != b) after.pins = 0;
    finish(block_at(page, i), after);
  });
  return Fault::served;
}

/// Read-ahead and write-ahead: claims the blocks that follow b in its page and need the same actions, as many as b's sweep deserves.
Coherence::Mask Coherence::claim_window(ThreadContext& ctx, BlockId b, Event event, const Step& step) {
  auto sweep = std::find_if(ctx.sweeps.begin(), ctx.sweeps.end(), [&](const auto& s) { return s.expected == raw(b); });
  if (sweep == ctx.sweeps.end()) {
    sweep = ctx.sweeps.begin() + ctx.next_sweep++ % ctx.sweeps.size();
    sweep->window = 1;
  } else {
    sweep->window = std::min<std::uint32_t>(sweep->window * 2, kBlocksPerPage);
  }
  Mask mask = 0;
  std::uint64_t end = raw(b) + 1;
  const Event alike = event == Event::store || event == Event::pin_write ? Event::store : Event::load;
  for (unsigned i = index_in_page(b) + 1; i < kBlocksPerPage && end - raw(b) < sweep->window; ++i, ++end) {
    const BlockState s = state(BlockId{end});
    const Step ahead = next(s, alike);
    if (ahead.verdict != Verdict::proceed || ahead.actions != step.actions || s.pins != 0 || !try_claim(BlockId{end}, s, ahead)) break;
    mask |= Mask{1} << i;
  }
  sweep->expected = end;
  return mask;
}

/// The page is ours but not armed yet: whatever of it is still absent is armed at once.
Coherence::Mask Coherence::claim_rest_of_page(BlockId b, Mask held) noexcept {
  const PageId page = mem::page_of(b);
  Mask mask = 0;
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    if ((held >> i & 1) != 0) continue;
    const BlockState s = state(block_at(page, i));
    const Step step = next(s, Event::load);
    if (step.verdict == Verdict::proceed && step.actions[0] == Action::fetch && try_claim(block_at(page, i), s, step)) mask |= Mask{1} << i;
  }
  return mask;
}

/// Owner's bytes of `count` blocks, all of one page and claimed by the caller, into M.
Coherence::Fetched Coherence::fetch(ThreadContext& ctx, BlockId first, std::uint32_t blocks) {
  const std::uint64_t offset = mem::offset_of(first);
  const PageId page = mem::page_of(first);
  for (;;) {
    const std::uint64_t acquires = acquires_.load();
    const auto found = addresses_.find(ctx.io, page);
    const Rank owner = found.owner;
    if (owner == kNoRank) return Fetched::wild;
    if (!found.by_entry && gas::Location::of(found.word).untouched) return gas::Location::of(found.word).busy ? Fetched::leaving : Fetched::untouched;
    if (owner == transport_.rank()) {
      // A cached location does not say whether the page is leaving: the owner may have been asked to yield before its entry was recalled.
      const gas::Location where = directory_.lookup(ctx.io, page);
      if (where.owner != owner) continue;
      // Leaving, it is neither ours nor yet a copy: puts counted before the move may still change M, and the move may be refused, so a twin
      // taken now could later send another rank's old byte as our change (found by tests/model, r8_use_while_leaving).
      return where.busy ? Fetched::leaving : Fetched::own;
    }
    ctx.io.read({owner, gas::kFrames, offset}, space_.a(offset), blocks * kBlockBytes);
    count(ctx.counters.blocks_fetched, blocks);
    count(ctx.counters.bytes_fetched, blocks * kBlockBytes);
    // Rules 2 and 9.
    if (acquires_.load() == acquires && addresses_.stood(ctx.io, page, found)) return Fetched::yes;
  }
}

// ---- release -------------------------------------------------------------------------------------------------------

void Coherence::release_all(ThreadContext& ctx) {
  if (dirty_blocks_.load() == 0) return;
  const std::uint64_t start = now_ns();
  const bool led = release_rounds_.join(ctx.io.waiter(), [&] { flush_dirty(ctx); });
  count(led ? ctx.counters.releases : ctx.counters.releases_combined);
  count(ctx.counters.ns_release, now_ns() - start);
}

/// Rule 3 and rule 11: first everything that is free, then what others hold.
void Coherence::flush_dirty(ThreadContext& ctx) {
  bool left = false;
  for (std::uint64_t b = dirty_.next(0); b != ~std::uint64_t{0};) {
    const PageId page = mem::page_of(BlockId{b});
    left |= flush_page(ctx.io, &ctx.counters, page);
    b = dirty_.next(raw(first_block(page)) + kBlocksPerPage);
  }
  if (left) dirty_.for_each([&](BlockId b) { flush_block(ctx.io, &ctx.counters, b); });
}

void Coherence::flush_block(comm::Blocking& io, Counters* counters, BlockId b) {
  const Step step = claim_block(io, b, Event::release);
  if (step.verdict != Verdict::proceed) return;
  if (step.actions[0] == Action::diff_put_live) return flush_block_live(io, counters, b, step);
  protect({b, 1}, Access::read);
  put_diffs(io, counters, mem::page_of(b), Mask{1} << index_in_page(b));
  mark_clean(b);
  finish(b, step.after);
}

bool Coherence::flush_page(comm::Blocking& io, Counters* counters, PageId page) {
  Mask mask = 0;
  bool left = false;
  std::array<BlockState, kBlocksPerPage> after;
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    const BlockId b = block_at(page, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::release);
    if (step.verdict == Verdict::wait) left |= dirty_.contains(b);
    if (step.verdict != Verdict::proceed || !try_claim(b, s, step)) {
      left |= step.verdict == Verdict::proceed;
      continue;
    }
    if (step.actions[0] == Action::diff_put_live) {
      flush_block_live(io, counters, b, step);
      continue;
    }
    mask |= Mask{1} << i;
    after[i] = step.after;
  }
  if (mask == 0) return left;
  protect(page, mask, Access::read);
  put_diffs(io, counters, page, mask);
  for_each_bit(mask, [&](unsigned i) {
    mark_clean(block_at(page, i));
    finish(block_at(page, i), after[i]);
  });
  return left;
}

/// The page's masked blocks are claimed and not writable: puts what differs from the twins, and returns when it has arrived.
void Coherence::put_diffs(comm::Blocking& io, Counters* counters, PageId page, Mask mask) {
  const gas::AddressCache::Put put(addresses_, io, page);
  if (put.owner() == kNoRank || put.owner() == transport_.rank()) return;   // freed meanwhile, so nobody will read it; or our M is the master copy
  Puts puts;
  for_each_bit(mask, [&](unsigned i) {
    const std::uint64_t at = mem::offset_of(block_at(page, i));
    put_changed(io, counters, put.owner(), at, space_.a(at), space_.t(at), puts);
  });
  puts.await(io);
}

/// Puts the bytes of a block that differ from base: exactly those, never a gap (rule 3).
void Coherence::put_changed(comm::Blocking& io, Counters* counters, Rank owner, std::uint64_t offset, const std::byte* bytes,
                            const std::byte* base, Puts& puts) {
  std::size_t run = 0, total = 0;   // bytes [i - run, i) differ and are not put yet
  const auto put_run = [&](std::size_t end) {
    if (run == 0) return;
    puts.write(io, {owner, gas::kFrames, offset + end - run}, bytes + end - run, run);
    total += run;
    run = 0;
  };
  for (std::size_t i = 0; i < kBlockBytes; i += 8) {
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
  if (counters != nullptr) {
    count(counters->diffs);
    count(counters->bytes_put, total);
  }
}

/// A pinned, writable block stays so: its changes so far go out, and the twin becomes what was sent (rules 3 and 10).
void Coherence::flush_block_live(comm::Blocking& io, Counters* counters, BlockId b, const Step& step) {
  alignas(8) std::byte now[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  snapshot(now, space_.a(at));
  if (const gas::AddressCache::Put put(addresses_, io, mem::page_of(b)); put.owner() != kNoRank) {
    Puts puts;
    put_changed(io, counters, put.owner(), at, now, space_.t(at), puts);
    puts.await(io);
    std::memcpy(space_.t(at), now, kBlockBytes);
  }
  if (step.actions[1] == Action::refresh) refresh(io, b, true);
  finish(b, step.after);
}

/// Rule 4: the owner's bytes that changed since the twin was made go into M and the twin, nothing else.
void Coherence::refresh(comm::Blocking& io, BlockId b, bool twin) {
  alignas(8) std::byte fresh[kBlockBytes];
  const std::uint64_t at = mem::offset_of(b);
  gas::AddressCache::Found found;
  do {
    found = addresses_.find(io, mem::page_of(b));
    if (found.owner == kNoRank || found.owner == transport_.rank()) return;
    io.read({found.owner, gas::kFrames, at}, fresh, kBlockBytes);
  } while (!addresses_.stood(io, mem::page_of(b), found));
  std::byte* mine = space_.a(at);
  std::byte* base = twin ? space_.t(at) : mine;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    if (fresh[i] == base[i]) continue;
    mine[i] = fresh[i];
    base[i] = fresh[i];
  }
}

// ---- acquire -------------------------------------------------------------------------------------------------------

void Coherence::acquire_all(ThreadContext& ctx) {
  const std::uint64_t start = now_ns();
  const bool led = acquire_rounds_.join(ctx.io.waiter(), [&] { drop_cached(ctx); });
  count(led ? ctx.counters.acquires : ctx.counters.acquires_combined);
  count(ctx.counters.ns_acquire, now_ns() - start);
}

/// Rule 2: everything that is cached and free is dropped, in runs; then what others hold, when they have finished.
void Coherence::drop_cached(ThreadContext& ctx) {
  acquires_.fetch_add(1);
  flush_dirty(ctx);
  bool left = false;
  BlockRange run{BlockId{0}, 0};
  std::uint64_t dropped = 0;
  const auto drop_run = [&] {
    if (run.count == 0) return;
    protect(run, Access::none);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      const BlockId b{raw(run.first) + i};
      cached_.erase(b);
      finish(b, BlockState{});
    }
    dropped += run.count;
    run.count = 0;
  };
  cached_.for_each([&](BlockId b) {
    const BlockState s = state(b);
    const Step step = next(s, Event::acquire);
    left |= step.verdict == Verdict::wait;
    if (step.verdict != Verdict::proceed) return;
    if (s.twin || s.pins != 0) {
      drop_run();   // hold nothing while we may wait
      acquire_block(ctx.io, &ctx.counters, b);
      return;
    }
    if (run.count != 0 && raw(run.first) + run.count != raw(b)) drop_run();
    if (!try_claim(b, s, step)) {
      left = true;
      return;
    }
    if (run.count++ == 0) run.first = b;
  });
  drop_run();
  if (left) cached_.for_each([&](BlockId b) { acquire_block(ctx.io, &ctx.counters, b); });
  count(ctx.counters.blocks_dropped, dropped);
}

void Coherence::acquire_block(comm::Blocking& io, Counters* counters, BlockId b) {
  const Step step = claim_block(io, b, Event::acquire);
  if (step.verdict == Verdict::proceed) perform_acquire(io, counters, b, step);
}

void Coherence::perform_acquire(comm::Blocking& io, Counters* counters, BlockId b, const Step& step) {
  switch (step.actions[0]) {
    case Action::diff_put_live: flush_block_live(io, counters, b, step); return;
    case Action::refresh:
      refresh(io, b, false);
      finish(b, step.after);
      return;
    default: break;
  }
  protect({b, 1}, Access::none);
  if (step.actions[1] == Action::diff_put) {
    put_diffs(io, counters, mem::page_of(b), Mask{1} << index_in_page(b));
    mark_clean(b);
  }
  cached_.erase(b);
  finish(b, step.after);
}

// ---- edges between ranks -------------------------------------------------------------------------------------------

void Coherence::ask_release(ThreadContext& ctx, Rank source) {
  if (source == transport_.rank()) return release_all(ctx);
  // The fact was fixed before we look, and a changed block counts until its bytes have arrived: 0 means that nothing is left to send.
  if (directory_.dirty_blocks(ctx.io, source) == 0) return;
  ctx.io.request(source, gas::kReleaseHandler, {});
}

void Coherence::on_release(void* self, const comm::Message& message) noexcept {
  auto& c = *static_cast<Coherence*>(self);
  if (c.dirty_blocks_.load() == 0) return c.transport_.reply(message.token, 0);
  while (c.asking_.test_and_set(std::memory_order_acquire)) relax();
  const std::uint32_t n = c.asked_.load(std::memory_order_relaxed);   // asking_ is held
  KASANE_CHECK_OP(n, <, kMaxAsked);
  c.tokens_[n] = message.token;
  c.asked_.store(n + 1);
  c.asking_.clear(std::memory_order_release);
  c.transport_.wake(c.transport_.rank(), comm::Doorbell::messages);   // we may run on a worker: the service thread must look
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

// ---- pins ----------------------------------------------------------------------------------------------------------

Result<void> Coherence::pin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes, bool writable) {
  const Event event = writable ? Event::pin_write : Event::pin_read;
  const std::uint64_t first = raw(mem::block_of(offset)), end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  for (std::uint64_t b = first; b < end; ++b) {
    Fault fault = Fault::again;
    while (fault == Fault::again) {
      const Step step = claim_block(ctx.io, BlockId{b}, event);
      fault = carry_out_fault(ctx, BlockId{b}, event, step);
      if (fault == Fault::again) ctx.io.waiter().pause();
    }
    if (fault == Fault::served) continue;
    if (b > first) unpin(ctx, first * kBlockBytes, (b - first) * kBlockBytes);
    return fail(Errc::out_of_range, "pin: global offset " + std::to_string(b * kBlockBytes) + " is not allocated");
  }
  return {};
}

void Coherence::unpin(ThreadContext& ctx, std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t first = raw(mem::block_of(offset)), end = raw(mem::block_of(offset + bytes + kBlockBytes - 1));
  for (std::uint64_t b = first; b < end; ++b) {
    KASANE_CHECK(state(BlockId{b}).pins > 0, "unpin without pin");
    const Step step = claim_block(ctx.io, BlockId{b}, Event::unpin);
    finish(BlockId{b}, step.after);
  }
}

// ---- memory that changes hands (rule 7) ----------------------------------------------------------------------------

void Coherence::arm_owned(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  KASANE_CHECK(offset % mem::kPageBytes == 0 && bytes % mem::kPageBytes == 0);
  for (std::uint64_t page = raw(mem::page_of(offset)); page < raw(mem::page_of(offset + bytes)); ++page) {
    for (unsigned i = 0; i < kBlocksPerPage; ++i) claim_block(io, block_at(PageId{page}, i), Event::arrive_blank);
  }
  protect({mem::block_of(offset), bytes / kBlockBytes}, Access::write);
  for (std::uint64_t b = raw(mem::block_of(offset)); b < raw(mem::block_of(offset + bytes)); ++b) {
    const BlockState s = state(BlockId{b});
    if (!s.busy) continue;   // was armed already
    if (s.twin) mark_clean(BlockId{b});
    cached_.erase(BlockId{b});
    BlockState before = s;
    before.busy = false;
    finish(BlockId{b}, next(before, Event::arrive_blank).after);
  }
}

void Coherence::take(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) acquire_block(io, nullptr, BlockId{b});
}

void Coherence::discard(comm::Blocking& io, std::uint64_t offset, std::size_t bytes) {
  for (std::uint64_t b = raw(mem::block_of(offset)); b * kBlockBytes < offset + bytes; ++b) {
    const Step step = claim_block(io, BlockId{b}, Event::discard);
    if (step.verdict != Verdict::proceed) continue;
    const std::uint64_t begin = std::max(offset, b * kBlockBytes), end = std::min(offset + bytes, (b + 1) * kBlockBytes);
    std::memcpy(space_.t(begin), space_.a(begin), end - begin);
    finish(BlockId{b}, step.after);
  }
}

// ---- relocation (gas::Mover) ---------------------------------------------------------------------------------------

gas::YieldAnswer Coherence::yield(PageId page) noexcept {
  Mask mask = 0;
  const auto give_back = [&](gas::YieldAnswer answer) {
    for_each_bit(mask, [&](unsigned i) {
      BlockState s = state(block_at(page, i));
      s.busy = false;
      finish(block_at(page, i), s);
    });
    return answer;
  };
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    const BlockId b = block_at(page, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::yield);
    if (step.verdict == Verdict::refuse) return give_back(gas::YieldAnswer::pinned);
    if (step.verdict == Verdict::done) continue;
    if (step.verdict == Verdict::wait || !try_claim(b, s, step)) return give_back(gas::YieldAnswer::retry);
    mask |= Mask{1} << i;
  }
  protect(page, mask, Access::none);
  for_each_bit(mask, [&](unsigned i) { finish(block_at(page, i), BlockState{}); });
  return gas::YieldAnswer::yielded;
}

/// Gives the bits of the page's first blocks back, whose words are otherwise as they were.
void Coherence::free_first(PageId page, unsigned blocks) noexcept {
  while (blocks-- > 0) {
    BlockState s = state(block_at(page, blocks));
    s.busy = false;
    finish(block_at(page, blocks), s);
  }
}

gas::Claim Coherence::claim(comm::Blocking& io, PageId page) {
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    // Ascending order among movers; others that hold a bit never wait for a second one.
    if (claim_block(io, block_at(page, i), Event::arrive).verdict == Verdict::proceed) continue;
    free_first(page, i);
    return gas::Claim::ours;
  }
  return gas::Claim::taken;
}

gas::Claim Coherence::try_claim(PageId page) noexcept {
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    const BlockId b = block_at(page, i);
    const BlockState s = state(b);
    const Step step = next(s, Event::arrive);
    if (step.verdict == Verdict::proceed && try_claim(b, s, step)) continue;
    free_first(page, i);
    return step.verdict == Verdict::done ? gas::Claim::ours : gas::Claim::in_use;
  }
  return gas::Claim::taken;
}

void Coherence::give_up(PageId page) noexcept { free_first(page, kBlocksPerPage); }

void Coherence::begin_merge(comm::Batch& batch, PageId page, gas::ByteRange live, Rank from) {
  Mask plain = 0;
  for (unsigned i = 0; i < kBlocksPerPage; ++i) plain |= Mask{!state(block_at(page, i)).twin} << i;
  for_each_run(plain, [&](unsigned first, unsigned count) {
    const std::uint64_t at = mem::offset_of(block_at(page, first));
    const std::uint64_t begin = std::max(live.begin, at), end = std::min(live.end, at + count * kBlockBytes);
    if (begin < end) batch.read({from, gas::kFrames, begin}, space_.a(begin), end - begin);
  });
}

void Coherence::end_merge(comm::Blocking& io, PageId page, gas::ByteRange live, Rank from) {
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    const BlockId b = block_at(page, i);
    const std::uint64_t begin = std::max(live.begin, mem::offset_of(b)), end = std::min(live.end, mem::offset_of(b) + kBlockBytes);
    if (begin >= end || !state(b).twin) continue;
    // Our threads may be storing to this block: only bytes that we have not changed are taken (rule 4).
    alignas(8) std::byte fresh[kBlockBytes];
    io.read({from, gas::kFrames, begin}, fresh, end - begin);
    std::byte *mine = space_.a(begin), *base = space_.t(begin);
    for (std::size_t k = 0; k < end - begin; ++k) {
      if (fresh[k] != base[k]) mine[k] = fresh[k];
    }
  }
}

void Coherence::settle(PageId page) {
  protect({first_block(page), kBlocksPerPage}, Access::write);
  for (unsigned i = 0; i < kBlocksPerPage; ++i) {
    const BlockId b = block_at(page, i);
    BlockState s = state(b);
    if (s.twin) mark_clean(b);
    cached_.erase(b);
    s.busy = false;
    finish(b, next(s, Event::arrive).after);
  }
}

}  // namespace kasane::dsm
