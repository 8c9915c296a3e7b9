// SPDX-License-Identifier: Apache-2.0
#include "gas/tiers.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "gas/trip.h"

namespace kasane::gas {

namespace {

constexpr std::uint64_t kAgain = 1;   // an answer: there was no room to note the request

}  // namespace

Tiers::Tiers(comm::Transport& transport, Mover& mover, AddressCache& addresses, PageHolder& holder, mem::Space& space, mem::Residency& residency, Config config)
    : transport_(transport), mover_(mover), addresses_(addresses), directory_(addresses.directory()), pages_(directory_.pages()), holder_(holder), space_(space),
      residency_(residency), config_(std::move(config)) {
  transport_.set_handler(kRouseHandler, &Tiers::on_rouse, this);
}

Result<void> Tiers::open() {
  if (is_open()) return {};
  if (config_.directories.empty()) return fail(Errc::io, "there is no spill directory (--spill, KASANE_SPILL)");
  auto file = mem::SpillFile::create(config_.directories, config_.space_bytes);
  KASANE_TRY(file);
  auto made = std::make_unique<mem::SpillFile>(std::move(*file));
  for (auto* queue : {&writes_, &reads_}) {
    auto opened = mem::SpillQueue::create(*made);
    KASANE_TRY(opened);
    *queue = std::move(*opened);
  }
  file_ = std::move(made);
  open_.store(true, std::memory_order_release);   // see is_open()
  return {};
}

void Tiers::forget(std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (is_open()) file_->forget(offset, bytes);
}

// ---- out -----------------------------------------------------------------------------------------------------------

/// V is protected before word 0 says ssd: an eviction that is refused has told nobody anything.
void Tiers::evict(comm::Blocking& io, std::span<const PageId> pages, bool* left) {
  KASANE_CHECK_OP(pages.size(), <=, kTogether);
  const Rank me = transport_.rank();
  std::array<Mover::Trip, kTogether> all, leaving;
  std::array<mem::SpillRange, kTogether> ranges;
  std::array<std::size_t, kTogether> index;
  std::size_t n = 0;
  comm::Batch batch(io);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    left[i] = false;
    all[i].page = pages[i];
    directory_.mark(batch, pages[i], &all[i].before);
    directory_.peek_holders(batch, pages[i], &all[i].peeked);
  }
  batch.await();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    Mover::Trip& t = all[i];
    const Location before = Location::of(t.before);
    t.step = begin_move(before, me);
    const Leaving way = way_out(before, me);
    if (way == Leaving::wait) continue;
    left[i] = way == Leaving::drop && holder_.let_go(t.page, true);
    if (left[i] && (before.owner != me || !readable(before)) && io.counters() != nullptr) count(io.counters()->pages_dropped);
    if (way != Leaving::spill || !is_open() || !holder_.let_go(t.page, false)) {
      directory_.unmark(batch, t.page, before, &t.last);
      continue;
    }
    directory_.unmark(batch, t.page, begin_evict(t.step.claimed), &t.last);
    t.step.verdict = MoveVerdict::claim;   // from here on as for a move
    ranges[n] = {pages_.offset_of(t.page), pages_.bytes_of(t.page)};
    index[n] = i;
    leaving[n++] = t;
  }
  batch.await();
  if (n == 0) return;
  mover_.recall(io, {leaving.data(), n});
  write(io, {ranges.data(), n});   // sorts them
  for (std::size_t i = 0; i < n; ++i) {
    Mover::Trip& t = leaving[i];
    residency_.empty(pages_.blocks_of(t.page));
    directory_.unmark(batch, t.page, end_evict(begin_evict(t.step.claimed)), &t.last);
  }
  batch.await();
  for (std::size_t i = 0; i < n; ++i) {
    KASANE_CHECK(leaving[i].last == begin_evict(leaving[i].step.claimed).word(), "only its mover changes the entry of a page that moves");
    left[index[i]] = true;
  }
  if (io.counters() != nullptr) count(io.counters()->pages_evicted, n);
}

/// The frames stay until all are written: whatever fails, nothing is lost.
void Tiers::write(comm::Blocking& io, std::span<mem::SpillRange> ranges) {
  mem::SpillBatch batch(mem::SpillOp::write, space_.a(0), ranges);
  const std::uint64_t before = file_->counts().bytes_written.load(std::memory_order_relaxed);   // relaxed, both: a number that only we change
  writes_->run(batch);
  if (batch.error() != 0) config_.fatal(file_->error(batch.op, batch.error(), batch.failed().offset, batch.failed().bytes));
  if (io.counters() != nullptr) count(io.counters()->bytes_spilled, file_->counts().bytes_written.load(std::memory_order_relaxed) - before);
}

// ---- in ------------------------------------------------------------------------------------------------------------

void Tiers::rouse(comm::Blocking& io, PageId page, Rank owner) {
  if (owner == transport_.rank()) return bring_in(io, page);
  while (io.request(owner, kRouseHandler, comm::as_payload(page)) == kAgain) io.waiter().pause();
}

void Tiers::bring_in(comm::Blocking& io, PageId page) {
  holder_.admit(io, page);
  bring_in(io, page, Who::worker);
}

void Tiers::bring_in(comm::Blocking& io, PageId page, Who who) {
  if (holder_.claim(io, page) == Claim::ours) return;
  std::uint64_t word = 0;
  {
    comm::Batch batch(io);
    directory_.mark(batch, page, &word);
  }
  const Location before = Location::of(word);
  const Location claimed = begin_move(before, transport_.rank()).claimed;
  if (comes_in(before, transport_.rank())) {
    read(io, page, who);
    KASANE_CHECK(directory_.replace(io, page, claimed, end_bring_in(claimed)), "only its mover changes the entry of a page that moves");
    holder_.settle(page);
    if (io.counters() != nullptr) count(io.counters()->pages_brought_in);
    return;
  }
  if (!before.busy) KASANE_CHECK(directory_.replace(io, page, claimed, before), "only its mover changes the entry of a page that moves");
  holder_.give_up(page);
  if (who == Who::worker) io.waiter().pause();
}

void Tiers::read(comm::Blocking& io, PageId page, Who who) {
  // What is not there has no frame either, or one whose bytes do not matter.
  std::array<mem::SpillRange, mem::kMostBlocksOfAPage / 2> ranges;
  std::size_t n = 0;
  const mem::BlockRange all = pages_.blocks_of(page);
  bool there = false;
  for (std::uint64_t b = raw(all.first); b < raw(all.first) + all.count && is_open(); ++b) {
    const bool before = std::exchange(there, file_->stored(BlockId{b}) && !holder_.changed(BlockId{b}));
    if (there && !before) ranges[n++] = {mem::offset_of(BlockId{b}), 0};
    if (there) ranges[n - 1].bytes += mem::kBlockBytes;
  }
  if (n == 0) return;
  mem::SpillBatch batch(mem::SpillOp::read, space_.a(0), {ranges.data(), n});
  for (bool submitted = false; !submitted;) {
    while (submitting_.test_and_set(std::memory_order_acquire)) relax();   // acquire, release: the lane as its last holder left it
    submitted = reads_->submit(batch);
    submitting_.clear(std::memory_order_release);
    if (!submitted) reads_->poll(), io.waiter().pause();
  }
  reads_->wait(batch);
  if (batch.error() == 0) return;
  if (who == Who::keeper) config_.fatal(file_->error(batch.op, batch.error(), batch.failed().offset, batch.failed().bytes));
  const mem::SpillBatch* none = nullptr;
  broken_.compare_exchange_strong(none, &batch);   // seq_cst: before the bell
  for (;; io.waiter().pause()) residency_.ring();  // this may be a fault handler: the keeper finds the words, and ends the job
}

void Tiers::on_rouse(void* self, const comm::Message& message) noexcept {
  auto& tiers = *static_cast<Tiers*>(self);
  Asked asked{.page = {}, .token = message.token};
  KASANE_CHECK_OP(message.payload.size(), ==, sizeof asked.page);
  std::memcpy(&asked.page, message.payload.data(), sizeof asked.page);
  if (!tiers.asked_.add(asked)) return tiers.transport_.reply(message.token, kAgain);
  tiers.residency_.ring();
}

void Tiers::serve(comm::Blocking& io) {
  if (const mem::SpillBatch* batch = broken_.load()) config_.fatal(file_->error(batch->op, batch->error(), batch->failed().offset, batch->failed().bytes));
  Asked asked;
  if (!asked_.take(asked)) return;
  bring_in(io, asked.page, Who::keeper);
  transport_.reply(asked.token, 0);
}

}  // namespace kasane::gas
