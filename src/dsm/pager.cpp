// SPDX-License-Identifier: Apache-2.0
#include "dsm/pager.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "base/options.h"

namespace kasane::dsm {

namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;
// Less than kPatienceNs, and longer than blocks stay in use on a busy machine. Once it is known that pins do
// not fit, the shorter one applies.
constexpr std::uint64_t kPatienceOfPinsNs = 3'000'000'000, kPatienceOfBrokenPinsNs = 20'000'000;
// on a busy machine so much time may pass without this thread, or those that hold pages, having run
constexpr std::uint32_t kTriesOfPins = 32;
// More than the longest nap of a waiting thread (comm/waiter.cpp), and than the time after which a postponed
// fault is repeated.
constexpr std::uint64_t kForgottenNs = 20'000'000;
/// naps between looks at all pages of all ranks that could give room, while no thread waits for it
constexpr std::int64_t kShortestNapNs = kForgottenNs, kLongestNapNs = 64 * kShortestNapNs;
// Other ranks give unused room at once, and what has to be written first within milliseconds.
constexpr std::uint64_t kPatienceOfClaimsNs = 50'000'000, kClaimAgainNs = 1'000'000'000,
                        kWakeOthersNs = 20'000'000, kIdleNs = 100'000'000;
constexpr std::uint32_t kStacksTogether = 256;  ///< stacks that give their frames back in one turn: 1 to 3 ms
constexpr std::uint64_t kMostOwed = 32;         ///< blocks, when one more page is paged in beyond the budget
/// blocks that are evicted in one batch, unless a page has more
constexpr std::uint64_t kMostTogether = 1024;

/// Only the calling thread changes the counter.
void note_most(std::atomic<std::uint64_t>& counter, std::uint64_t now) noexcept {
  const std::uint64_t most = counter.load(std::memory_order_relaxed);  // relaxed: only this thread writes it
  if (now > most) count(counter, now - most);
}

std::string mib_text(std::uint64_t blocks) {
  return fmt::format("{:.1f} MiB", static_cast<double>(blocks * mem::kBlockBytes) / (1 << 20));
}

}  // namespace

Pager::Pager(const Parts& parts, Config config)
    : transport_(parts.transport),
      coherence_(parts.coherence),
      tiers_(parts.tiers),
      residency_(tiers_.residency()),
      advisor_(parts.advisor),
      directory_(parts.directory),
      config_(std::move(config)) {
  transport_.set_handler(gas::kBudgetHandler, &Pager::on_wake, this);
}

void Pager::on_wake(void* self, const comm::Message&) noexcept {
  static_cast<Pager*>(self)->residency_.ring();
}

void Pager::wake_others(comm::Blocking& io) {
  for (const Rank other : config_.others) io.send(other, gas::kBudgetHandler, {});
}

void Pager::stop() noexcept {
  stop_.store(true);
  residency_.lift_limit();  // no room is made any more: waiting threads go on
  residency_.ring();
}

void Pager::run(comm::Blocking& io, const Threads& threads) {
  nap_ns_ = kShortestNapNs;
  before_evictions_ = threads.before_evictions;
  for (std::uint32_t seen = residency_.rings(); !stop_.load(); seen = residency_.rings()) {
    check_stacks(threads, io.counters());
    check_tables(io.counters());
    note_idle(threads);
    too_young_ = pins_hold_ = false;
    evict_named(io);
    const bool left = make_room(io), asked = tiers_.asked(), nothing_leaves = !left && !too_young_;
    // one at a time, so that the budget is exceeded by one page at most, unless nothing can be evicted
    if (!asked || residency_.admitted(1) || (nothing_leaves && !pins_hold_)) {
      serve(io);
    } else if (!nothing_leaves || !serve_beside_pins(io)) {
      io.waiter().pause();
    }
    if (!left && !asked && !advisor_.asked() && !stop_.load()) sleep(seen);
  }
  balance(io);  // without a limit nothing is asked of other ranks
}

/// Sleeps until the pager is woken. While something is unsettled it looks again: soon, then after twice as
/// long each time.
void Pager::sleep(std::uint32_t rings) {
  if (!residency_.unsettled()) nap_ns_ = kShortestNapNs;
  residency_.sleep(
      rings, residency_.unsettled() ? std::exchange(nap_ns_, std::min(2 * nap_ns_, kLongestNapNs)) : -1);
}

/// Looking for tables that can be freed costs time in proportion to their number, so it is done when they
/// have grown by an eighth.
void Pager::check_tables(Counters* counters) {
  if (!residency_.tables_due()) return;
  const std::uint64_t before = residency_.measure_tables();
  note_tables(counters);
  const std::uint64_t many = residency_.many_tables();
  const auto step = [many](std::uint64_t blocks) { return std::max(many / 2, blocks / 8); };
  if (before < tables_most_) {
    tables_most_ = std::min(tables_most_, before + step(before));  // some may have been freed meanwhile
    return;
  }
  const std::uint64_t ranges = residency_.give_tables_back(
      [this](mem::BlockRange range) { return coherence_.blocks.give_tables_back(range); });
  std::uint64_t left = residency_.measure_tables();
  // New tables may have been made meanwhile, so the difference is too small.
  std::uint64_t leaving =
      std::min(before, std::max(ranges * mem::PageTables::kPresumed, before - std::min(before, left)));
  // More than half stays: they map other ranks' frames, or nothing else can be freed.
  if (tables_most_ == 0 || left > before / 2) {
    coherence_.tiering.give_back_tables_of_others();
    const std::uint64_t now = residency_.measure_tables();
    leaving += left - std::min(left, now);
    left = now;
  }
  residency_.note_leaving_tables(leaving);
  if (tables_most_ == 0 || left > residency_.share() / 2 || residency_.leaving_tables() >= many)
    residency_.see_off_tables();
  coherence_.blocks.wake_waiting();
  if (counters != nullptr) count(counters->tables_given_back, ranges);
  tables_most_ = left + step(left);
  check_what_stays();
}

/// Frames of stacks cannot be evicted while a thread uses them. If stacks alone take too much, looking for
/// tables that can be freed would not help.
void Pager::check_stacks(const Threads& threads, Counters* counters) {
  if (residency_.stacks_due()) residency_.measure_stacks();
  if (threads.trim_stacks && residency_.used_by_stacks() > residency_.share() / 8 &&
      residency_.short_of(residency_.low()) != 0) {
    const std::uint32_t trimmed = threads.trim_stacks(kStacksTogether);
    if (counters != nullptr) count(counters->stacks_trimmed, trimmed);
    if (trimmed != 0) residency_.measure_stacks();
  }
  // as the last measurement has it
  const std::uint64_t stacks = residency_.used_by_stacks(), share = residency_.share();
  if (counters != nullptr) note_most(counters->bytes_of_stacks, stacks * mem::kBlockBytes);
  if (stacks > share / 8 * 7) return check_what_stays();
  if (stacks > share / 2 && stacks + residency_.used_by_tables() > share / 8 * 7 &&
      residency_.short_of(share / 8) != 0)
    tables_most_ = 0;
}

/// After what could be freed was freed: is what stays too much?
void Pager::check_what_stays() {
  const std::uint64_t tables = residency_.used_by_tables(), stacks = residency_.used_by_stacks(),
                      share = residency_.share();
  if (tables + stacks > share / 2 && !std::exchange(tables_crowd_, true))
    config_.tables_crowd(tables * mem::kBlockBytes, stacks * mem::kBlockBytes, share * mem::kBlockBytes);
  if (config_.limit_asked && tables + stacks > share / 8 * 7 && residency_.short_of(share / 8) != 0)
    no_room_for_data();
}

void Pager::note_tables(Counters* counters) const noexcept {
  if (counters != nullptr)
    note_most(counters->bytes_of_tables, residency_.used_by_tables() * mem::kBlockBytes);
}

/// False: nothing can be evicted.
bool Pager::ready() {
  if (usual_.policy != nullptr) return true;
  if (!tiers_.is_open()) {
    if (auto opened = tiers_.open(); !opened) {
      why_ = opened.error().message;
      if (!config_.limit_asked) {
        lift_limit("nothing can be spilled: " + why_);
        return false;
      }
    }
  }
  if (before_evictions_) before_evictions_();
  room_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      std::min(residency_.total() / 2, directory_.pages().count()), 1 << 12, 1u << 30));
  turnover_.emplace(page_set());
  arming_ = std::make_unique<mem::Arming>(
      page_set(), [this](std::span<const PageId> pages) { coherence_.tiering.retire(pages); });
  make(usual_, std::make_unique<mem::S3Fifo>(room_, static_cast<mem::PageProbe&>(*this)));
  return true;
}

mem::PageSet Pager::page_set() const {
  auto made = mem::PageSet::create(directory_.pages().count());
  if (!made) config_.fatal(made.error());
  return std::move(*made);
}

void Pager::make(Line& line, std::unique_ptr<mem::EvictionPolicy> policy) {
  line.known = std::make_unique<mem::PageSet>(page_set());
  line.policy = std::move(policy);
}

void Pager::take_entered() {
  residency_.arrivals().take(
      [this](PageId page) { enter(page, mem::leaves_first(advisor_.table().usage(page))); },
      room_ - first_.in - usual_.in);
  residency_.look_at_freed([this](PageId page) {
    if (usual_.known->contains(page)) enter(page, true);
  });
  arming_->end_turn();
  if (const auto crawl = turnover_ ? turnover_->look(now_ns()) : std::nullopt) {
    turnover_.reset();
    config_.crawls(*crawl, residency_.share() * mem::kBlockBytes);
  }
}

/// Pinned pages stay whether they are touched or not, so their translations stay, too.
void Pager::arm(PageId page, std::uint32_t before) noexcept {
  if (!advisor_.table().held(page)) arming_->arm(page, before);
}

bool Pager::touched(PageId page) noexcept {
  if (advisor_.table().held(page)) return true;
  arming_->before_look(page);
  return coherence_.tiering.touched(page);
}

void Pager::enter(PageId page, bool first) {
  if (first && first_.policy == nullptr)
    make(first_, std::make_unique<mem::Fifo>(room_, static_cast<mem::PageProbe&>(*this)));
  Line &line = first ? first_ : usual_, &other = first ? usual_ : first_;
  if (line.known->contains(page)) return;
  // it was freed, or is used in another way now
  if (other.policy != nullptr && other.known->contains(page)) {
    other.policy->leave(page);
    forget(other, page);
  }
  line.known->insert(page);
  if (turnover_) turnover_->note(page);
  line.policy->enter(page);
  ++line.in;
}

/// Returns how much was wanted since the last turn. A need does not end when something is evicted: other
/// ranks may take that room.
std::uint64_t Pager::note_need() noexcept {
  const bool relieved = residency_.take_relieved();
  const std::uint64_t wanted = residency_.take_wanted(), now = now_ns();
  if (relieved) stuck_since_ns_ = 0;
  if (wanted != 0) wanted_at_ns_ = now, nap_ns_ = kShortestNapNs;
  need_ = need_.next(wanted, relieved, now - wanted_at_ns_ >= kForgottenNs);
  const std::uint64_t needed = this->needed();
  const bool is_short = needed != 0 && !residency_.admitted(needed);
  if (relieved || !is_short) no_longer_short();
  if (is_short && short_since_ns_ == 0) short_since_ns_ = now;
  return wanted;
}

void Pager::no_longer_short() noexcept {
  short_since_ns_ = 0;
  tries_ = 0;
}

/// Other ranks' requests made progress; they may ask again by the next turn.
void Pager::serve(comm::Blocking& io) {
  if (tiers_.serve(io, gas::Tiers::Pinned::too) == gas::Tiers::Served::some) no_longer_short();
}

/// Only pinned pages could be evicted. Pages that other ranks ask for are paged in beyond the budget, one at
/// a time, unless they are pinned themselves: all else here may be changes to pages of the asking rank, which
/// cannot be sent before that rank has made progress. False: nothing was paged in.
bool Pager::serve_beside_pins(comm::Blocking& io) {
  if (residency_.debt() > kMostOwed) return false;
  const gas::Tiers::Served served = tiers_.serve(io, gas::Tiers::Pinned::not_now);
  if (served == gas::Tiers::Served::put_back) put_back_at_ns_ = now_ns();
  if (served != gas::Tiers::Served::some) return false;
  // A thread that waits here, or for a pinned page, has made no progress by that: pins that do not fit are
  // broken for it.
  if (need_.blocks == 0 && now_ns() - put_back_at_ns_ >= kForgottenNs) no_longer_short();
  return true;
}

/// In blocks. A page that is asked for needs at least one.
std::uint64_t Pager::needed() const noexcept {
  return std::max<std::uint64_t>(need_.blocks, tiers_.asked() ? 1 : 0);
}

/// A rank whose pages other ranks ask for is not idle, though its threads are.
void Pager::note_idle(const Threads& threads) {
  const std::uint64_t now = now_ns();
  if (!threads.idle || !threads.idle() || tiers_.asked() || need_.blocks != 0) busy_at_ns_ = now;
  residency_.set_idle(now - busy_at_ns_ > kIdleNs);
}

/// Must other ranks give what is missing, since this rank holds less than its share? Then its own pages stay,
/// as long as the others give. If it holds its share, other ranks may have become idle since they last
/// looked.
bool Pager::claims(comm::Blocking& io, std::uint64_t wanted) {
  claimed_ = 0;
  if (config_.others.empty() || residency_.idle() ||
      residency_.short_of(std::max(residency_.low(), wanted)) == 0) {
    claimed_at_ns_ = 0;
    return false;
  }
  const std::uint64_t headroom = std::max(2 * residency_.low(), wanted),
                      right = residency_.rightful(headroom), held = residency_.held(), now = now_ns();
  if (right == 0) {
    if (now - woken_others_ns_ > kWakeOthersNs) woken_others_ns_ = now, wake_others(io);
    return false;
  }
  if (claimed_at_ns_ == 0 || held > held_then_ || now - claimed_at_ns_ > kClaimAgainNs) claimed_at_ns_ = now;
  held_then_ = held;
  if (now - claimed_at_ns_ > kPatienceOfClaimsNs) return false;  // they cannot, for now
  claimed_ = right;
  return right >= residency_.short_of(headroom);
}

void Pager::balance(comm::Blocking& io) {
  const std::uint64_t claimed = claimed_ == 0 ? 0 : residency_.credit() + claimed_;
  if (residency_.balance(std::max(needed(), claimed))) wake_others(io);
}

/// Called when nothing else could be evicted.
bool Pager::pins_may_break() noexcept {
  if (short_since_ns_ == 0) return false;
  const std::uint64_t patience = pins_broken_ ? kPatienceOfBrokenPinsNs : kPatienceOfPinsNs;
  return (pins_broken_ || ++tries_ >= kTriesOfPins) && now_ns() - short_since_ns_ > patience;
}

/// True: something was evicted.
bool Pager::make_room(comm::Blocking& io) {
  const std::uint64_t wanted = note_need(),
                      enough = residency_.take_held_back() ? residency_.low() / 8 * 15 : residency_.low();
  // what threads still need: a turn in which none has asked anew must not begin the patience afresh
  const bool others_give = claims(io, std::max(wanted, need_.blocks));
  balance(io);
  if (others_give || residency_.short_of(std::max(enough, wanted)) == 0 || !ready()) return false;
  std::uint64_t left = 0;
  for (std::uint64_t n;
       (n = residency_.short_of(std::max(2 * residency_.low(), wanted))) > tiers_.blocks_leaving() &&
       !stop_.load();) {
    n -= tiers_.blocks_leaving();
    take_entered();
    const std::uint64_t urgent = residency_.admitted(wanted) ? 0 : wanted;
    std::uint64_t now = evict(io, n, urgent, Pins::hold);
    if (now == 0 && pins_hold_ && pins_may_break()) {
      pins_hold_ = false;
      now = evict(io, n, urgent, Pins::break_them);
    }
    if (now == 0) break;
    left += now;
    balance(io);
    if (residency_.admitted(1)) serve(io);
  }
  if (left != 0) {
    finish(io);
    stuck_since_ns_ = 0;
  } else if (wanted != 0 && !residency_.admitted(wanted)) {
    nothing_left();
  }
  return left != 0;
}

void Pager::finish(comm::Blocking& io) {
  tiers_.finish(io);
  coherence_.blocks.wake_waiting();
  balance(io);
}

/// Evicts pages of about so many blocks; threads wait for `urgent` of them. Returns how many pages were
/// evicted. Looks at each page once.
std::uint64_t Pager::evict(comm::Blocking& io, std::uint64_t most, std::uint64_t urgent, Pins pins) {
  if (first_.in != 0) {
    const auto [gone, young] = evict(io, first_, most, pins);
    // those will be evicted before the others are missed
    if (gone != 0 || (young != 0 && young >= urgent)) return gone;
  }
  return evict(io, usual_, most, pins).pages;
}

Pager::Gone Pager::evict(comm::Blocking& io, Line& line, std::uint64_t most, Pins pins) {
  const mem::Pages& pages = directory_.pages();
  std::uint64_t gone = 0, young_blocks = 0;
  bool pinned = false;
  for (std::uint32_t looks = line.in; looks != 0 && gone == 0;) {
    std::array<PageId, gas::Tiers::kTogether> named;
    std::array<bool, gas::Tiers::kTogether> left;
    std::size_t n = 0;
    for (std::uint64_t blocks = 0; n < named.size() && blocks < std::min(most, kMostTogether) && looks != 0;
         --looks) {
      const auto page = line.policy->evict();
      if (!page) break;
      const std::uint64_t here = residency_.count(pages.blocks_of(*page));
      if (here == 0) {  // it was evicted while it was noted once more
        forget(line, *page);
        continue;
      }
      if (residency_.arrivals().just_came(*page)) {
        line.policy->put_back(*page);
        too_young_ = true;
        young_blocks += here;
        continue;
      }
      const bool held = advisor_.table().held(*page);
      if (held && pins == Pins::hold) {
        pins_hold_ = true;
        line.policy->keep(*page);
        continue;
      }
      pinned |= held;
      blocks += here;
      named[n++] = *page;
    }
    if (&line == &first_) {  // its policy arms no pages: neighbours are retired together here, too
      for (std::size_t i = 0; i < n; ++i) arming_->arm(named[i], 0);
    }
    arming_->end_turn();
    tiers_.evict(io, {named.data(), n}, left.data());
    coherence_.blocks.wake_waiting();
    for (std::size_t i = 0; i < n; ++i) {
      if (left[i]) {
        forget(line, named[i]);
        ++gone;
      } else {
        line.policy->keep(named[i]);
      }
    }
  }
  if (gone != 0 && pinned && !std::exchange(pins_broken_, true)) config_.pins_break();
  return {gone, young_blocks};
}

void Pager::forget(Line& line, PageId page) noexcept {
  line.known->erase(page);
  --line.in;
}

/// Evicts what the program has named, just arrived or not. Pinned pages stay.
void Pager::evict_named(comm::Blocking& io) {
  gas::Advisor::EvictRequest request;
  while (advisor_.take(request)) {
    if (ready()) take_entered();
    const mem::Pages& pages = directory_.pages();
    std::array<PageId, gas::Tiers::kTogether> named;
    std::array<bool, gas::Tiers::kTogether> left;
    std::size_t n = 0;
    const auto evict_all = [&] {
      tiers_.evict(io, {named.data(), n}, left.data());
      for (std::size_t i = 0; i < n; ++i) {
        if (!left[i]) continue;
        for (Line* line : {&first_, &usual_}) {
          if (line->policy == nullptr || !line->known->contains(named[i])) continue;
          line->policy->leave(named[i]);
          forget(*line, named[i]);
        }
      }
      n = 0;
    };
    for (std::uint64_t p = request.pages.first; p < request.pages.last && !stop_.load(); ++p) {
      // Most of a large range may have no frames here.
      const std::uint64_t next = residency_.frames().next(raw(pages.blocks_of(PageId{p}).first));
      if (next >= raw(mem::block_of(pages.end_of(PageId{request.pages.last - 1})))) break;
      p = raw(pages.page_of(BlockId{next}));
      if (advisor_.table().held(PageId{p})) continue;
      named[n++] = PageId{p};
      if (n == named.size()) evict_all();
    }
    if (n != 0) evict_all();
    finish(io);
    advisor_.report_evicted(request);
  }
}

/// What is left is too little to make progress: pages would be evicted before they are used.
void Pager::no_room_for_data() {
  config_.fatal(
      fail(Errc::limit,
           fmt::format("of this rank's share of this host's budget, {} of {}, page tables and entries of the "
                       "runtime take {}, since so much of the space was used, and stacks of threads {}, "
                       "since {} of them were in use at once; less than an eighth is left for data. Raise "
                       "--dram (KASANE_DRAM), or hold fewer threads at once",
                       bytes_text(residency_.share() * mem::kBlockBytes), bytes_text(config_.host_bytes),
                       mib_text(residency_.used_by_tables()), mib_text(residency_.used_by_stacks()),
                       residency_.stacks()))
          .value());
}

/// A thread waits for room and nothing can be evicted for now: blocks are in use, pinned, or have unsent
/// changes. As long as any thread gets room, even from other ranks, the job goes on.
void Pager::nothing_left() {
  const std::uint64_t now = now_ns();
  if (stuck_since_ns_ == 0) stuck_since_ns_ = now;
  residency_.note_stuck();
  tables_most_ = 0;  // the next look tries to free what there is
  if (now - stuck_since_ns_ < kPatienceNs) return;
  const std::string tables = fmt::format(
      "{} of it tables of pages and blocks, which are larger the more of the space was used, and {} stacks "
      "of threads",
      mib_text(residency_.used_by_tables()), mib_text(residency_.used_by_stacks()));
  if (!config_.limit_asked) return lift_limit("what of it is left is pinned (views) or in use");
  const std::string spill =
      why_.empty() ? "what is left is pinned (views) or in use" : "nothing can be spilled: " + why_;
  config_.fatal(
      fail(Errc::limit, fmt::format("{} of global memory in DRAM ({}) are not enough; this rank's share of "
                                    "this host's budget is {} of {}; {}. Raise --dram (KASANE_DRAM), or hold "
                                    "less at once",
                                    bytes_text(residency_.used() * mem::kBlockBytes), tables,
                                    bytes_text(residency_.share() * mem::kBlockBytes),
                                    bytes_text(config_.host_bytes), spill))
          .value());
}

/// Waiting threads go on.
void Pager::lift_limit(const std::string& why) {
  if (residency_.limitless()) return;
  residency_.lift_limit();
  coherence_.blocks.wake_waiting();
  config_.limit_lifted(why.c_str());
}

}  // namespace kasane::dsm
