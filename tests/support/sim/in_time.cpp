// SPDX-License-Identifier: Apache-2.0
#include "support/sim/in_time.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/assert.h"

namespace kasane::comm::sim {
namespace {

// Real pollers look all the time; what no event announces (another thread's block bit) is seen so soon.
constexpr std::uint64_t kFirstLookNs = 250, kLongestLookNs = 1'000'000;
constexpr std::uint64_t kPollNs = 50;             ///< of a poll that finds nothing
constexpr std::uint64_t kLongestPollNs = 20'000;  ///< of a thread that polls in a loop of its own

}  // namespace

InTime*& world_in_time() noexcept {
  static InTime* world = nullptr;
  return world;
}

InTime::InTime(std::uint32_t ranks, std::uint64_t seed, const SimOptions& options)
    : options_(options),
      seed_(seed),
      dice_(seed),
      net_(ranks, options, dice_, trace_, *this),
      of_rank_(ranks),
      happened_(ranks),
      news_(ranks),
      cores_(options.timing->cores) {}

InTime::~InTime() = default;

// ---- threads ----------------------------------------------------------------------------------------------

void InTime::spawn(Rank rank, std::function<void()> body, bool forever) {
  KASANE_CHECK_OP(raw(rank), <, of_rank_.size());
  threads_.push_back(std::make_unique<Thread>());
  Thread& t = *threads_.back();
  t.rank = raw(rank);
  t.body = std::move(body);
  t.forever = forever;
  t.clock = clock();
  t.context = std::make_unique<Context>(options_.stack_bytes, &InTime::entry, this);
  of_rank_[t.rank].push_back(&t);
  if (!forever) ++unfinished_;
  add_turn(t, t.clock, true);
}

void InTime::entry(void* self) { static_cast<InTime*>(self)->run_body(); }

void InTime::run_body() {
  Thread& self = *running_;
  try {
    self.body();
  } catch (const std::exception& e) {
    self.error = e.what();
  } catch (...) {
    self.error = "an exception that is no std::exception";
  }
  self.state = Thread::State::finished;
  self.context->switch_to(main_, /*last=*/true);
}

void InTime::leave() { running_->context->switch_to(main_); }

void InTime::compute(std::uint64_t ns) {
  KASANE_CHECK(running_ != nullptr, "compute() outside of any simulated thread");
  if (cores_.empty()) return advance(ns);
  Thread& self = *running_;
  while (ns != 0) {  // on the core that is free first
    const std::uint64_t slice = std::min(ns, Timing::kSliceNs);
    std::uint64_t& core = *std::ranges::min_element(cores_);
    core = std::max(core, self.clock) + slice;
    ns -= slice;
    advance(core - self.clock);
  }
}

/// The running thread's clock goes on, and what comes before happens.
void InTime::advance(std::uint64_t ns) {
  Thread& self = *running_;
  self.clock += ns;
  // Nothing comes before: no need to let anything run.
  if (net_.next_due() >= self.clock && (turns_.empty() || turns_.top().at >= self.clock)) return;
  add_turn(self, self.clock, true);
  leave();
}

void InTime::suspend(Thread::State state, bool (*ready)(const void*), const void* argument,
                     std::uint64_t deadline, bool drains) {
  Thread& self = *running_;
  self.state = state;
  self.ready = ready;
  self.argument = argument;
  self.deadline = deadline;
  self.drains = drains;
  self.look_again_ns = kFirstLookNs;
  ++self.waits;
  if (state == Thread::State::polls && drains) add_turn(self, self.clock + kFirstLookNs, false);
  if (deadline != Network::kNever) add_turn(self, deadline, false);
  leave();
}

void InTime::wait(bool (*ready)(const void*), const void* arg) {
  if (running_ == nullptr) {  // before run(): the network alone
    while (!ready(arg)) {
      KASANE_CHECK(net_.next_due() != Network::kNever,
                   "sim: a wait outside of any thread, and nothing is "
                   "under way");
      const std::uint32_t at = net_.deliver_next();
      now_ = std::max(now_, clock());
      while (net_.has_due(at)) net_.transport(Rank{at}).progress();
      cause_ = 0;
    }
    return;
  }
  Transport& transport = net_.transport(Rank{running_->rank});
  for (;;) {
    if (ready(arg)) return;
    if (!net_.has_due(running_->rank) && !transport.run_poll_hook()) break;
    waits_ = true;
    transport.progress();
    waits_ = false;
  }
  suspend(Thread::State::polls, ready, arg, Network::kNever, true);
}

void InTime::poll_until(const std::function<bool()>& ready, std::uint64_t ns) {
  if (ready()) return;
  suspend(
      Thread::State::polls, [](const void* f) { return (*static_cast<const std::function<bool()>*>(f))(); },
      &ready, running_->clock + ns, true);
}

void InTime::sleep(Transport& transport, Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) {
  if (running_ == nullptr || timeout_ns == 0) return;
  const std::uint64_t deadline =
      timeout_ns < 0 ? Network::kNever : running_->clock + static_cast<std::uint64_t>(timeout_ns);
  struct Bell {
    Transport& transport;
    Doorbell d;
    std::uint32_t seen;
  } const bell{transport, d, seen};
  suspend(
      Thread::State::sleeps,
      [](const void* b) {
        const auto& at = *static_cast<const Bell*>(b);
        return at.transport.activity(at.d) != at.seen;
      },
      &bell, deadline, false);
}

/// A loop that polls by itself (comm::PollWaiter) rests until something has happened at its rank.
void InTime::polled_in_vain() {
  if (running_ == nullptr || waits_) return;
  running_->clock += kPollNs;
  if (++running_->empty_polls < 2) return;
  struct Since {
    const std::uint64_t& happened;
    std::uint64_t seen;
  } const since{happened_[running_->rank], happened_[running_->rank]};
  suspend(
      Thread::State::polls,
      [](const void* s) {
        return static_cast<const Since*>(s)->happened != static_cast<const Since*>(s)->seen;
      },
      &since, running_->clock + kLongestPollNs, false);
  if (since.happened != since.seen) running_->empty_polls = 0;
}

// ---- whose turn it is -------------------------------------------------------------------------------------

void InTime::add_turn(Thread& t, std::uint64_t at, bool goes_on) {
  turns_.push({at, order_++, &t, t.waits, goes_on});
}

void InTime::go_on(Thread& t, std::uint64_t at) {
  if (t.state == Thread::State::sleeps) at += options_.timing->wake_ns;
  t.state = Thread::State::able;
  t.clock = std::max(t.clock, at);
  // Who waited gets a core when a slice of one that computes is over.
  if (!cores_.empty()) t.clock = std::max(t.clock, *std::ranges::min_element(cores_));
  t.chain = std::max(t.chain, news_[t.rank]);
  ++t.waits;
  add_turn(t, t.clock, true);
}

/// True if it ran what was due: that may be what another thread of the rank waits for.
bool InTime::look(Thread& t) {
  Thread* const before = std::exchange(running_, &t);
  const std::uint64_t clock = t.clock;
  t.clock = std::max(t.clock, now_);
  waits_ = true;
  bool ran = false;
  for (; t.drains && net_.has_due(t.rank); ran = true) net_.transport(Rank{t.rank}).progress();
  const bool ready = t.ready(t.argument);
  waits_ = false;
  running_ = before;
  if (ready)
    go_on(t, t.clock);
  else if (!t.drains)
    t.clock = clock;  // a look costs nothing
  return ran;
}

/// What the rank's threads wait for may have come true.
void InTime::look_at(std::uint32_t rank, const Thread* but) {
  for (bool again = true; again;) {
    again = false;
    for (Thread* const t : of_rank_[rank]) {
      if (t != but && (t->state == Thread::State::polls || t->state == Thread::State::sleeps))
        again = look(*t) || again;
    }
  }
}

void InTime::deliver() {
  now_ = std::max(now_, net_.next_due());
  cause_ = 0;
  const std::uint32_t at = net_.deliver_next();
  if (cause_ != 0) news_[at] = cause_;
  cause_ = 0;
  ++happened_[at];
  const bool polled = std::any_of(of_rank_[at].begin(), of_rank_[at].end(),
                                  [](const Thread* t) { return t->state == Thread::State::polls; });
  if (net_.has_due(at) && !polled) net_.transport(Rank{at}).wake(Rank{at}, Doorbell::messages);
  look_at(at, nullptr);
  cause_ = 0;
}

void InTime::take(const Turn& turn) {
  Thread& t = *turn.thread;
  if (net_.dead(t.rank, turn.at)) return;
  if (turn.wait != t.waits || t.state == Thread::State::finished) return;  // it went on before
  now_ = std::max(now_, turn.at);
  if (!turn.goes_on) {
    if (t.state == Thread::State::able) return;
    if (now_ >= t.deadline) return go_on(t, now_);
    if (look(t)) look_at(t.rank, &t);
    if (t.state != Thread::State::polls || !t.drains) return;
    t.look_again_ns = std::min(t.look_again_ns * 2, kLongestLookNs);
    return add_turn(t, now_ + t.look_again_ns, false);
  }
  running_ = &t;
  main_.switch_to(*t.context);
  running_ = nullptr;
  now_ = std::max(now_, turn.at);
  look_at(t.rank, &t);
  if (t.state == Thread::State::finished && !t.forever) --unfinished_;
}

Result<void> InTime::run() {
  InTime* const before = std::exchange(world_in_time(), this);
  struct Restore {
    InTime* before;
    ~Restore() { world_in_time() = before; }
  } const restore{before};
  while (unfinished_ != 0 && !stopped_) {
    if (++steps_ > options_.step_limit)
      return tl::unexpected(failed("no end after " + std::to_string(options_.step_limit) + " steps"));
    const std::uint64_t event = net_.next_due(), turn = turns_.empty() ? Network::kNever : turns_.top().at;
    if (event == Network::kNever && turn == Network::kNever) return tl::unexpected(failed("deadlock"));
    if (std::min(event, turn) > options_.time_limit_ns) return tl::unexpected(failed("no end in time"));
    if (event <= turn) {
      deliver();
      continue;
    }
    const Turn next = turns_.top();
    turns_.pop();
    take(next);
    if (!next.thread->error.empty())
      return tl::unexpected(
          failed("a thread of rank " + std::to_string(next.thread->rank) + " threw: " + next.thread->error));
  }
  return {};
}

Error InTime::failed(const std::string& what) const {
  std::string text = "sim, " + std::to_string(of_rank_.size()) + " ranks, at " + std::to_string(now_) +
                     " ns: " + what + "; threads not finished:";
  int named = 0;
  for (const auto& t : threads_) {
    if (t->forever || t->state == Thread::State::finished) continue;
    if (++named > 8) break;
    text += " of rank " + std::to_string(t->rank) +
            (t->state == Thread::State::polls    ? " (polls)"
             : t->state == Thread::State::sleeps ? " (sleeps)"
                                                 : " (runs)");
  }
  return {Errc::internal, text};
}

}  // namespace kasane::comm::sim
