// SPDX-License-Identifier: Apache-2.0
#include "gas/tiers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/trace.h"
#include "comm/requests.h"
#include "mem/large_frames.h"
#include "mem/page_runs.h"

namespace kasane::gas {

/// Answer to a put that has handed over its bytes: they are the page's now. Else: 0.
constexpr std::uint64_t kTaken = 1;

/// Pages that are being written.
struct Tiers::EvictionBatch {
  EvictionBatch() { locks.reserve(kTogether); }  // they stay where they are
  std::vector<PageLock> locks;
  std::uint64_t blocks = 0;  ///< that have frames
  std::vector<mem::SpillRange> ranges;
  std::optional<mem::SpillBatch> batch;
  std::optional<Traced> traced;  ///< as batch
};

/// A page that comes in; its blocks are claimed.
struct Tiers::Arriving : PageLock {
  Arriving() = default;
  Arriving(const Directory& directory, PageId page, const Source& handed)
      : PageLock(directory, page), source(handed) {}
  Source source{};
  PageInFrom from = PageInFrom::nothing;  ///< known when it is locked
  bool unused = false;                    ///< there is nothing of it, here or on SSD
};

/// Those that come in together.
struct Tiers::Incoming {
  explicit Incoming(const Directory& d) noexcept : directory(d) {}
  void add(PageId page, const Source& source = {}) noexcept {
    pages[n++] = Arriving(directory, page, source);
  }
  [[nodiscard]] std::span<Arriving> all() noexcept { return {pages.data(), n}; }

  const Directory& directory;
  std::array<Arriving, kMostPagedIn> pages;
  std::size_t n = 0;
};

Tiers::~Tiers() = default;

Tiers::Tiers(comm::Transport& transport, const Directory& directory, mem::Space& space,
             mem::Residency& residency, const mem::AdviceTable& advice, Config config)
    : transport_(transport),
      directory_(directory),
      pages_(directory.pages()),
      space_(space),
      residency_(residency),
      advice_(advice),
      config_(std::move(config)),
      polling_(config_.cores),
      eviction_batches_(std::make_unique<EvictionBatch[]>(2)) {
  transport_.set_handler(kPageInHandler, &Tiers::on_page_in, this);
  transport_.set_handler(kSendForHandler, &Tiers::on_send_for, this);
  transport_.set_handler(kHandOverHandler, &Tiers::on_hand_over, this);
}

Result<void> Tiers::check() const {
  return config_.directories.empty() ? Result<void>{}
                                     : mem::SpillFile::check(config_.directories, config_.space_bytes);
}

Result<void> Tiers::open() {
  if (is_open()) return {};
  if (config_.directories.empty())
    return fail(Errc::io, "there is no spill directory (--spill, KASANE_SPILL)");
  auto file = mem::SpillFile::create(config_.directories, config_.space_bytes);
  KASANE_TRY(file);
  auto made = std::make_unique<mem::SpillFile>(std::move(*file));
  // An engine of threads has some for each queue; submitting to it is quick, so one lane is enough there.
  const std::size_t lanes = mem::spill_engines().front().available ? kLanes : 1;
  auto staging =
      mem::BounceBuffers::create({space_.frames_fd(), space_.a(0), pages_, mem::large_frame_bytes()});
  KASANE_TRY(staging);
  auto as_stored = mem::Fingerprints::create(residency_.total(), config_.space_bytes / mem::kBlockBytes);
  KASANE_TRY(as_stored);
  std::vector<std::unique_ptr<mem::SpillQueue>> queues;
  for (std::size_t i = 0; i <= lanes; ++i) {
    // the last one writes
    auto opened = mem::SpillQueue::create(*made, "auto", i < lanes ? staging->get() : nullptr);
    KASANE_TRY(opened);
    queues.push_back(std::move(*opened));
  }
  writes_ = std::move(queues[lanes]);
  for (lanes_open_ = 0; lanes_open_ < lanes; ++lanes_open_)
    lanes_[lanes_open_].queue = std::move(queues[lanes_open_]);
  auto reader = mem::SpillReader::create(*made, space_.a(0), staging->get(), config_.fatal);
  KASANE_TRY(reader);
  reader_ = std::move(*reader);
  file_ = std::move(made);
  staging_ = std::move(*staging);
  as_stored_ = std::make_unique<mem::Fingerprints>(std::move(*as_stored));
  open_.store(true, std::memory_order_release);  // see is_open()
  Reading before = Reading::not_yet;
  reading_.compare_exchange_strong(before, Reading::begun);
  reading_.notify_all();
  return {};
}

void Tiers::forget(std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (is_open()) file_->forget(offset, bytes);
  if (pages_.whole(offset, bytes)) residency_.note_freed(pages_.in(offset, bytes));
}

// ---- eviction --------------------------------------------------------------------------------------------

void Tiers::evict(comm::Blocking& io, std::span<const PageId> pages, bool* left) {
  EvictionBatch& next = eviction_batches_[turn_];
  start_eviction(io, pages, left, next);
  finish(io);
  turn_ = 1 - turn_;
  if (!next.batch || next.batch->finished()) finish(io);  // there was nothing to write
}

/// Runs of blocks of the page. ranges: as in mem::append().
template <class Ranges>
void Tiers::add_blocks(Ranges& ranges, PageId page, const BlockMask& blocks) const {
  const std::uint64_t first = pages_.offset_of(page), count = pages_.blocks_of(page).count;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (blocks[i]) mem::append(ranges, {first + i * mem::kBlockBytes, mem::kBlockBytes});
  }
}

/// Is the page evicted as one that other ranks may know of, not as a partial one?
static bool leaves_whole(const PageLock& lock) noexcept { return lock.now().tier == Tier::ssd; }

/// V is protected before word 0 says ssd: an eviction that is refused has changed nothing for other ranks.
void Tiers::start_eviction(comm::Blocking& io, std::span<const PageId> pages, bool* left, EvictionBatch& d) {
  KASANE_CHECK_OP(pages.size(), <=, kTogether);
  const Rank me = transport_.rank();
  d.ranges.clear();
  comm::Batch batch(io);
  for (const PageId page : pages) {
    PageLock& lock = d.locks.emplace_back(directory_, page);
    lock.try_lock(batch);
    lock.look_at_holders(batch);
  }
  batch.await();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    PageLock& lock = d.locks[i];
    const Location found = lock.found();
    const EvictionKind way = eviction_kind(found, me);
    const bool spills = way == EvictionKind::spill || way == EvictionKind::spill_part;
    left[i] = way == EvictionKind::drop && blocks_->try_evict(pages[i], true, nullptr);
    if (left[i] && (found.owner != me || !readable(found))) io.count(&Counters::pages_dropped);
    BlockMask unsaved;
    if (!spills || !is_open() || !blocks_->try_evict(pages[i], false, &unsaved)) {
      lock.give_back(batch);
      continue;
    }
    if (way == EvictionKind::spill)
      lock.store(batch, begin_evict(lock.now()));
    else  // no other rank knows its frames
      add_blocks(d.ranges, pages[i], unsaved);
    left[i] = true;
    d.blocks += residency_.count(pages_.blocks_of(pages[i]));
  }
  batch.await();
  std::erase_if(d.locks, [](const PageLock& lock) { return !lock.held(); });
  if (d.locks.empty()) return;
  std::array<PageLock*, kTogether> whole;
  std::size_t n = 0;
  for (PageLock& lock : d.locks) {
    if (leaves_whole(lock)) whole[n++] = &lock;
  }
  Recall recall(*addresses_, io, {whole.data(), n});
  for (std::size_t i = 0; i < n; ++i) recall.ask(*whole[i]);
  recall.await();
  for (std::size_t i = 0; i < n; ++i)  // not before: puts under way may have changed them
    add_blocks(d.ranges, whole[i]->page(), changed(whole[i]->page()));
  if (d.ranges.empty()) return;
  for (const mem::SpillRange& range : d.ranges) {
    for (std::uint64_t at = range.offset; at < range.offset + range.bytes; at += mem::kBlockBytes)
      as_stored_->forget(mem::block_of(at));
  }
  d.traced.emplace(io.counters(), TraceKind::spill, mem::bytes_of(d.ranges));
  d.batch.emplace(mem::SpillOp::write, space_.a(0), d.ranges);
  writes_->issue(*d.batch);
}

std::uint64_t Tiers::blocks_leaving() const noexcept { return eviction_batches_[1 - turn_].blocks; }

/// The frames stay until all are written: whatever fails, nothing is lost.
void Tiers::finish(comm::Blocking& io) {
  EvictionBatch& d = eviction_batches_[1 - turn_];
  if (d.locks.empty()) return;
  if (d.batch) {
    writes_->wait(*d.batch);
    if (d.batch->error() != 0)
      config_.fatal(
          file_->error(d.batch->op, d.batch->error(), d.batch->failed().offset, d.batch->failed().bytes));
    // relaxed: only this thread changes it
    const std::uint64_t written = file_->counts().bytes_written.load(std::memory_order_relaxed);
    io.count(&Counters::bytes_spilled, written - spilled_);
    spilled_ = written;
    d.batch.reset();
    d.traced.reset();
  }
  punch(d.locks);
  comm::Batch batch(io);
  for (PageLock& lock : d.locks)
    lock.store(batch, leaves_whole(lock) ? end_evict(lock.now()) : in_tier(lock.found(), Tier::ssd));
  batch.await();
  io.count(&Counters::pages_evicted, d.locks.size());
  d.locks.clear();
  d.blocks = 0;
}

/// Punches neighbours together: a hole costs a system call. Not too many: meanwhile no thread can fill frames
/// of the memory file.
void Tiers::punch(std::span<const PageLock> locks) noexcept {
  std::array<PageId, kTogether> pages;
  std::transform(locks.begin(), locks.end(), pages.begin(), [](const PageLock& l) { return l.page(); });
  std::sort(pages.begin(), pages.begin() + locks.size());
  mem::for_each_page_run(pages_, {pages.data(), locks.size()}, kMostPunched,
                         [this](mem::BlockRange run) { residency_.empty(run); });
}

/// The blocks of the page that the spill file does not have, or not as they are, as far as is known. No rank
/// can put to the page any more.
BlockMask Tiers::changed(PageId page) const noexcept {
  const mem::BlockRange all = pages_.blocks_of(page);
  BlockMask mask;
  for (std::uint64_t i = 0; i < all.count; ++i) {
    const BlockId b{raw(all.first) + i};
    mask[i] = !stored(b) || !as_stored_->matches(b, space_.a(mem::offset_of(b)));
  }
  return mask;
}

// ---- paging in -------------------------------------------------------------------------------------------

/// A thread that pages in its own rank's pages for a get or put may wait by letting other threads run. Not
/// while it holds the pages' blocks: those threads wait for them by polling.
void Tiers::page_in(comm::Blocking& io, std::span<Request> wanted) {
  constexpr std::size_t kAtOnce = 64;
  const Rank me = transport_.rank();
  comm::PollWaiter waiter(transport_);
  comm::Blocking polling(transport_, waiter, io.counters());
  for (; !wanted.empty(); wanted = wanted.subspan(std::min(kAtOnce, wanted.size()))) {
    const auto some = wanted.first(std::min(kAtOnce, wanted.size()));
    std::array<Request*, kAtOnce> own;
    std::size_t n = 0;
    for (Request& s : some) {
      if (s.owner == me)
        own[n++] = &s;
      else
        residency_.use_tables({pages_.blocks_of(s.page).first, 1});  // those that map its frames here
    }
    std::array<std::uint64_t, kAtOnce> answers;
    comm::request_each(io, {answers.data(), some.size()}, kAgain,
                       [&](comm::Requests& requests, std::size_t i, std::uint64_t& answer) {
                         if (some[i].owner == me)
                           answer = some[i].word;
                         else
                           requests.post(some[i].owner, kPageInHandler, comm::as_payload(some[i].page),
                                         {&answer});
                       });
    for (std::size_t i = 0; i < some.size(); ++i) some[i].word = answers[i];
    for (std::span<Request* const> left(own.data(), n); !left.empty();)
      left = left.subspan(page_in_own(polling, left));
  }
}

/// The first of the pages, and those after it that can be claimed without waiting. Returns how many that are.
std::size_t Tiers::page_in_own(comm::Blocking& io, std::span<Request* const> wanted) {
  const PageId first = wanted[0]->page;
  blocks_->admit(io, first);
  blocks_->claim(first, ClaimFor::page_in, &io);
  Incoming in(directory_);
  in.add(first);
  for (std::uint64_t blocks = 0;
       in.n < wanted.size() && fits_together(wanted[in.n]->page, blocks) && try_claim(wanted[in.n]->page);) {
    blocks += pages_.blocks_of(wanted[in.n]->page).count;
    in.add(wanted[in.n]->page);
  }
  const std::size_t n = in.n;
  if (wanted.size() == 1) claim_with(in);
  page_in(io, in, Caller::worker);
  for (std::size_t i = 0; i < n; ++i) wanted[i]->word = in.pages[i].now().word();
  if (in.pages[0].found().busy) io.waiter().pause();
  return n;
}

void Tiers::page_in(comm::Blocking& io, Incoming& in, Caller who) {
  comm::Batch batch(io);
  for (Arriving& p : in.all()) p.try_lock(batch);
  batch.await();
  // one page of any size, or one and kMostAtOnce blocks
  mem::SpillRanges<mem::kMostBlocksOfAPage / 2> ranges;
  std::size_t pages = 0;
  for (Arriving& p : in.all()) {
    p.from = page_in_from(p.found(), transport_.rank(), p.source.any());
    if (p.from == PageInFrom::nothing)
      p.give_back(batch);
    else
      ++pages;
    if (p.from != PageInFrom::ssd) continue;
    const BlockMask held = blocks_->blocks_here(p.page()).held, absent = missing(p.page(), held);
    p.unused = (held | absent).none();
    add_blocks(ranges, p.page(), absent);
  }
  if (!ranges.empty()) {
    read(io, ranges.all(), {}, who);
    if (ranges.all().size() > 1) io.count(&Counters::reads_together, ranges.all().size());
  }
  take_handed(io, in.all());
  if (pages != 0 && is_open()) note_as_stored(in.all());
  for (Arriving& p : in.all()) {
    if (p.held()) p.store(batch, end_page_in(p.now()));
  }
  batch.await();
  for (const Arriving& p : in.all()) {
    blocks_->settle(p.page(), p.from == PageInFrom::nothing ? Settled::as_it_was
                              : p.unused                    ? Settled::unused
                                                            : Settled::owned);
  }
  io.count(&Counters::pages_brought_in, pages);
}

/// The bytes that puts have handed over come into their pages, which are locked. What V shows of such a page
/// shows them at once, as those of a put to a page in DRAM.
void Tiers::take_handed(comm::Blocking& io, std::span<const Arriving> pages) {
  for (const Arriving& p : pages) {
    if (p.from != PageInFrom::put) continue;
    std::byte* const to = space_.a(pages_.offset_of(p.page()));
    const std::size_t bytes = pages_.bytes_of(p.page());
    if (p.source.here != nullptr)
      std::memcpy(to, p.source.here, bytes);
    else
      io.read({p.source.rank, kPending, p.source.at}, to, bytes);
    io.count(&Counters::pages_replaced);
  }
}

/// Of pages that have been read, and are still locked: records the blocks that are as the spill file has
/// them.
void Tiers::note_as_stored(std::span<const Arriving> pages) noexcept {
  std::uint64_t taken = 0;
  for (const Arriving& p : pages) {
    if (p.from != PageInFrom::ssd) continue;
    const BlocksHere here = blocks_->blocks_here(p.page());
    const BlockMask as_stored = here.saved | ~here.held;
    const mem::BlockRange all = pages_.blocks_of(p.page());
    for (std::uint64_t i = 0; i < all.count; ++i) {
      const BlockId b{raw(all.first) + i};
      if (as_stored[i] && stored(b)) taken += as_stored_->note(b, space_.a(mem::offset_of(b)));
    }
  }
  if (taken != 0) residency_.use_entries(taken);
}

/// The page's blocks that are to be read. A block that is neither here nor on SSD has no frame, or one whose
/// bytes are undefined.
BlockMask Tiers::missing(PageId page, const BlockMask& held) const noexcept {
  const mem::BlockRange all = pages_.blocks_of(page);
  BlockMask mask;
  for (std::uint64_t i = 0; i < all.count; ++i) mask[i] = !held[i] && stored(BlockId{raw(all.first) + i});
  return mask;
}

/// A plan of pieces of `blocks` blocks each. All that is free but a quarter of `low` may be ahead, up to
/// `low`: the pager makes room meanwhile.
ReadAhead::Plan Tiers::plan(ReadAhead& ahead, PageId page, std::uint64_t piece, std::uint64_t blocks,
                            std::uint64_t most_blocks, ReadAhead::Purpose purpose) noexcept {
  if (!is_open() || !reads_ahead(page)) return {};
  const std::uint64_t all = std::min(most_blocks, residency_.low()) / blocks;
  std::uint64_t most = all;
  while (most != 0 && !residency_.admitted(residency_.low() / 4 + most * blocks)) most = most * 3 / 4;
  if (most != all) residency_.note_held_back();
  // acquire, release: the plans as their last user left them
  if (planning_.test_and_set(std::memory_order_acquire)) return {};
  const ReadAhead::Plan plan = ahead.ask(
      piece, static_cast<std::uint32_t>(std::min<std::uint64_t>(most, ReadAhead::kMost)),
      advice_.usage(page) == mem::Usage::sequential ? ReadAhead::Known::ascends : ReadAhead::Known::nothing,
      purpose);
  // release: the plans, for the next thread that asks
  planning_.clear(std::memory_order_release);
  return plan;
}

ReadAhead::Plan Tiers::plan(std::uint64_t offset, ReadAhead::Purpose purpose) noexcept {
  return plan(blocks_ahead_, pages_.page_of(offset), offset / kPieceBytes, kPieceBytes / mem::kBlockBytes,
              kMostAhead, purpose);
}

void Tiers::note_overwriting(std::uint64_t offset, std::uint64_t bytes) noexcept {
  // acquire, release: as in plan(); a hint, which may be missed
  if (bytes == 0 || planning_.test_and_set(std::memory_order_acquire)) return;
  blocks_ahead_.overwrites(offset / kPieceBytes, (offset + bytes - 1) / kPieceBytes);
  planning_.clear(std::memory_order_release);
}

bool Tiers::descends(std::uint64_t first, std::uint64_t last) noexcept {
  if (planning_.test_and_set(std::memory_order_acquire)) return false;  // acquire, release: as in plan()
  const bool down = blocks_ahead_.descends(first / kPieceBytes, last / kPieceBytes);
  planning_.clear(std::memory_order_release);
  return down;
}

/// The caller has claimed one page. Claims pages that should be read with it, as far as they are free and
/// there is ample room. Waits for nothing.
void Tiers::claim_with(Incoming& in) noexcept {
  const PageId page = in.pages[0].page();
  const std::uint64_t blocks = pages_.blocks_of(page).count;
  const ReadAhead::Plan plan =
      this->plan(pages_ahead_, page, raw(page), blocks, std::min(kMostAtOnce, (kMostPagedIn - 1) * blocks),
                 ReadAhead::Purpose::load);
  for (std::uint32_t i = 0; i < plan.pieces; ++i) {
    const PageId next{static_cast<std::uint64_t>(plan.first + plan.stride * i)};
    if (!pages_.contains(next) || pages_.bytes_of(next) != pages_.bytes_of(page) || !residency_.counts(next))
      break;
    if (!file_->stored(pages_.blocks_of(next).first) || !try_claim(next)) continue;
    in.add(next);
  }
}

// ---- partial pages ---------------------------------------------------------------------------------------

bool Tiers::make_partial(comm::Blocking& io, PageId page, Location found) {
  if (found.tier == Tier::partial) return true;
  if (!directory_.replace(io, page, found, in_part(found))) return false;
  io.count(&Counters::pages_brought_in);
  return true;
}

void Tiers::run_reader() {
  reading_.wait(Reading::not_yet);
  if (reading_.load() == Reading::begun) reader_->run();
}

void Tiers::stop_reading() noexcept {
  const Reading before = reading_.exchange(Reading::ended);
  reading_.notify_all();
  if (before == Reading::begun) reader_->stop();
}

void Tiers::drain_reader() {
  if (is_open()) reader_->drain();
}

/// A thread's own lane if it is free: the kernel, too, is fastest with the ring that a thread used last.
Tiers::Lane& Tiers::take_lane(comm::Blocking& io) noexcept {
  // 0: it has none yet
  [[gnu::tls_model("initial-exec")]] static thread_local constinit std::uint32_t t_number = 0;
  // relaxed: any will do
  if (t_number == 0) t_number = next_lane_.fetch_add(1, std::memory_order_relaxed) + 1;
  for (const std::uint32_t first = t_number;; io.waiter().pause()) {
    for (std::size_t i = 0; i < lanes_open_; ++i) {
      Lane& lane = lanes_[(first + i) % lanes_open_];
      // acquire, release: the lane as its last user left it
      if (!lane.submitting.test_and_set(std::memory_order_acquire)) return lane;
    }
  }
}

void Tiers::read(comm::Blocking& io, std::span<mem::SpillRange> ranges, const mem::View& view, Caller who) {
  const std::uint64_t bytes = mem::bytes_of(ranges);
  const Traced traced(io.counters(), TraceKind::read_back, bytes);
  mem::SpillBatch batch(space_.a(0), ranges, view);
  Lane& lane = take_lane(io);
  while (!lane.queue->submit(batch)) lane.queue->poll(), io.waiter().pause();
  // release: the lane, for its next user (take_lane())
  lane.submitting.clear(std::memory_order_release);
  if (who == Caller::pager)
    lane.queue->wait(batch);
  else if (lane.queue->wait(batch, polling_))
    io.count(&Counters::reads_polled);
  if (batch.error() == 0) {
    io.count(&Counters::bytes_read_back, bytes);
    return;
  }
  if (who == Caller::pager)
    config_.fatal(file_->error(batch.op, batch.error(), batch.failed().offset, batch.failed().bytes));
  const mem::SpillBatch* none = nullptr;
  broken_.compare_exchange_strong(none, &batch);  // seq_cst: before the pager is woken
  // this may be a fault handler: the pager finds broken_, and ends the job
  for (;; io.waiter().pause()) residency_.ring();
}

// ---- what other ranks ask for ----------------------------------------------------------------------------

void Tiers::on_page_in(void* self, const comm::Message& message) noexcept {
  static_cast<Tiers*>(self)->note_asked({value_of<PageId>(message), message.token, {}});
}

void Tiers::on_send_for(void* self, const comm::Message& message) noexcept {
  static_cast<Tiers*>(self)->note_asked({value_of<PageId>(message), {}, {}, true});
}

void Tiers::on_hand_over(void* self, const comm::Message& message) noexcept {
  const auto handed = value_of<Handed>(message);
  static_cast<Tiers*>(self)->note_asked({handed.page, message.token, {nullptr, message.from, handed.at}});
}

/// A hint for whose page there is no room is dropped: what is queued counts as a need of room.
void Tiers::note_asked(const QueuedRequest& asked) noexcept {
  if (asked.hint && !residency_.admitted(pages_.blocks_of(asked.page).count)) return;
  if (asked_.add(asked))
    residency_.ring();
  else if (!asked.hint)
    transport_.reply(asked.token, kAgain);
}

/// If the message cannot be sent now, the page comes when it is used.
void Tiers::send_for(PageId page, Rank owner) noexcept {
  residency_.use_tables({pages_.blocks_of(page).first, 1});
  static_cast<void>(transport_.send(owner, kSendForHandler, comm::as_payload(page)));
}

void Tiers::hand_over(comm::Blocking& io, std::span<HandOver> pages) {
  constexpr std::size_t kAtOnce = 64;
  KASANE_CHECK_OP(pages.size(), <=, kAtOnce);
  std::array<std::uint64_t, kAtOnce> answers;
  comm::PollWaiter waiter(transport_);
  comm::Blocking polling(transport_, waiter, io.counters());
  comm::request_each(io, {answers.data(), pages.size()}, kAgain,
                     [&](comm::Requests& requests, std::size_t i, std::uint64_t& answer) {
                       const HandOver& h = pages[i];
                       if (h.owner == transport_.rank())
                         answer = 0;
                       else
                         requests.post(h.owner, kHandOverHandler, comm::as_payload(Handed{h.page, h.at}),
                                       {&answer});
                     });
  for (std::size_t i = 0; i < pages.size(); ++i)
    pages[i].taken =
        pages[i].owner == transport_.rank() ? hand_over_here(polling, pages[i]) : answers[i] == kTaken;
}

bool Tiers::hand_over_here(comm::Blocking& io, const HandOver& handed) {
  blocks_->admit(io, handed.page);
  blocks_->claim(handed.page, ClaimFor::page_in, &io);
  Incoming in(directory_);
  in.add(handed.page, {handed.bytes});
  page_in(io, in, Caller::worker);
  return in.pages[0].from == PageInFrom::put;
}

Tiers::Served Tiers::serve(comm::Blocking& io, Pinned pinned) {
  if (const mem::SpillBatch* batch = broken_.load())
    config_.fatal(file_->error(batch->op, batch->error(), batch->failed().offset, batch->failed().bytes));
  std::array<QueuedRequest, kMostPagedIn> asked;
  do {
    if (!asked_.take(asked[0])) return Served::none;
  } while (asked[0].hint && (pinned == Pinned::not_now || !claim_hinted(io, asked[0].page)));
  if (!asked[0].hint) {
    if (pinned == Pinned::not_now && advice_.held(asked[0].page)) {
      put_back(asked[0]);
      return Served::put_back;
    }
    blocks_->claim(asked[0].page, ClaimFor::page_in, &io);
  }
  Incoming in(directory_);
  in.add(asked[0].page, asked[0].source);
  claim_asked(io, in, asked);
  const std::size_t n = in.n;
  if (n == 1 && !asked_.any() && !asked[0].source.any() && !asked[0].hint) claim_with(in);
  page_in(io, in, Caller::pager);
  for (std::size_t i = 0; i < n; ++i) {
    const Arriving& p = in.pages[i];
    if (asked[i].hint) continue;
    transport_.reply(asked[i].token, !p.source.any()             ? p.now().word()
                                     : p.from == PageInFrom::put ? kTaken
                                                                 : 0);
  }
  return Served::some;
}

/// If there is room, and the page is on SSD and free. Else the hint is dropped: no thread waits for it.
bool Tiers::claim_hinted(comm::Blocking& io, PageId page) noexcept {
  return residency_.admitted(pages_.blocks_of(page).count) &&
         owned_on_ssd(directory_.lookup(io, page), transport_.rank()) && try_claim(page);
}

/// May the page come in a turn with so many blocks of others?
bool Tiers::fits_together(PageId page, std::uint64_t blocks) const noexcept {
  const std::uint64_t all = blocks + pages_.blocks_of(page).count;
  return all <= kMostAtOnce && residency_.admitted(residency_.low() + all);
}

/// One page is claimed. Claims further ones that are asked for and free, and for which there is ample room;
/// the others wait for their turn.
void Tiers::claim_asked(comm::Blocking& io, Incoming& in,
                        std::array<QueuedRequest, kMostPagedIn>& asked) noexcept {
  std::uint64_t blocks = 0;
  while (in.n < kMostPagedIn && asked_.take(asked[in.n])) {
    const QueuedRequest& next = asked[in.n];
    if (!fits_together(next.page, blocks)) return put_back(next);
    if (next.hint) {
      if (!claim_hinted(io, next.page)) continue;
    } else if (!try_claim(next.page)) {
      return put_back(next);
    }
    in.add(next.page, next.source);
    blocks += pages_.blocks_of(next.page).count;
  }
}

/// A thread waits for it, if it is no hint: if there is no room in the queue it asks again.
void Tiers::put_back(const QueuedRequest& asked) noexcept {
  if (!asked_.add(asked) && !asked.hint) transport_.reply(asked.token, kAgain);
}

}  // namespace kasane::gas
