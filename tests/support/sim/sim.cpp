// SPDX-License-Identifier: Apache-2.0
// The World: whose turn it is. At each step one of these is drawn, each with the same chance: an event that
// is due, a thread that can run, a thread that waits and has not looked since something last happened, a
// service thread with something due. If there is none of them while threads still wait, that is a deadlock.
#include "support/sim/sim.h"

#include <exception>
#include <string>
#include <vector>

#include "base/assert.h"
#include "support/sim/chance.h"
#include "support/sim/context.h"
#include "support/sim/in_time.h"
#include "support/sim/network.h"

namespace kasane::comm::sim {
namespace {

struct Thread {
  enum class State : std::uint8_t { runnable, waiting, finished };
  Thread(Rank r, std::function<void()> b, bool is_service)
      : rank(r), body(std::move(b)), service(is_service) {}

  Rank rank;
  std::function<void()> body;
  bool service;  ///< runs for ever; waits for something due at its rank
  State state = State::runnable;
  /// Impl::changes() when ready() last said no; of a service thread: its doorbell when it last looked
  std::uint64_t looked_at = ~std::uint64_t{0};
  std::string error;
  std::unique_ptr<Context> context;
};

}  // namespace

class World::Impl final : public Waiter, public Sleeper {
 public:
  Impl(std::uint32_t ranks, std::uint64_t seed, const SimOptions& options)
      : options_(options),
        seed_(seed),
        ranks_(ranks),
        dice_(seed),
        net_(ranks, options, dice_, trace_, *this) {}

  void spawn(Rank rank, std::function<void()> body, bool service = false);
  Result<void> run();
  bool step();
  void yield_point();
  void sleep(Transport&, Doorbell, std::uint32_t seen, std::int64_t timeout_ns) override;

  SimOptions options_;
  std::uint64_t seed_;
  std::uint32_t ranks_;
  Dice dice_;
  Trace trace_;
  Network net_;
  std::uint64_t steps_ = 0;

 protected:
  void wait(bool (*ready)(const void*), const void* arg) override;

 private:
  static void entry(void* impl);
  void run_body();
  void leave(Thread::State state);
  void resume(std::size_t index);
  [[nodiscard]] bool may_run(const Thread&) const;
  [[nodiscard]] bool all_finished() const;
  [[nodiscard]] std::string who_waits() const;
  [[nodiscard]] tl::unexpected<Error> failed(const std::string& what) const;
  /// Grows whenever a thread may have changed what another waits for.
  [[nodiscard]] std::uint64_t changes() const { return own_changes_ + net_.changes(); }

  std::vector<std::unique_ptr<Thread>> threads_;
  Context main_;
  Thread* running_ = nullptr;  ///< null: the caller of run() or step()
  std::uint64_t own_changes_ = 0;
};

// ---- threads ----------------------------------------------------------------------------------------------

void World::Impl::spawn(Rank rank, std::function<void()> body, bool service) {
  KASANE_CHECK_OP(raw(rank), <, ranks_);
  threads_.push_back(std::make_unique<Thread>(rank, std::move(body), service));
  threads_.back()->context = std::make_unique<Context>(options_.stack_bytes, &Impl::entry, this);
  ++own_changes_;
}

void World::Impl::entry(void* impl) { static_cast<Impl*>(impl)->run_body(); }

void World::Impl::run_body() {
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

/// The running thread gives way to the scheduler, and returns when it is drawn again.
void World::Impl::leave(Thread::State state) {
  running_->state = state;
  running_->context->switch_to(main_);
}

void World::Impl::resume(std::size_t index) {
  Thread& thread = *threads_[index];
  trace_.mix(0xC, index);
  // A thread that only looks and goes on waiting changes nothing, see wait(); any other may store anywhere.
  if (thread.state == Thread::State::runnable) ++own_changes_;
  running_ = &thread;
  main_.switch_to(*thread.context);
  running_ = nullptr;
}

void World::Impl::wait(bool (*ready)(const void*), const void* arg) {
  if (running_ == nullptr) {
    while (!ready(arg)) KASANE_CHECK(step(), "sim: a wait outside of any thread, and nothing is under way");
    return;
  }
  Thread& self = *running_;
  while (!ready(arg)) {
    // A rank's own threads make progress too, not only its service thread.
    if (dice_.below(2) == 0 && net_.transport(self.rank).progress()) continue;
    // What a layer above put off is tried again before the thread rests. If that rings, there is more to try:
    // it counts as a change since we looked.
    self.looked_at = changes();
    if (net_.transport(self.rank).run_poll_hook()) continue;
    leave(Thread::State::waiting);
  }
  ++own_changes_;
}

void World::Impl::yield_point() {
  if (running_ != nullptr && dice_.permille(options_.preempt_permille)) leave(Thread::State::runnable);
}

void World::Impl::sleep(Transport& transport, Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) {
  if (running_ == nullptr) {
    step();
  } else if (timeout_ns >= 0) {
    leave(Thread::State::runnable);  // the timeout may expire at any moment
  } else {
    until([&] { return transport.activity(d) != seen; });
  }
}

// ---- whose turn it is -------------------------------------------------------------------------------------

bool World::Impl::may_run(const Thread& t) const {
  if (t.state != Thread::State::waiting) return t.state == Thread::State::runnable;
  if (t.service) return net_.can_progress(t.rank) || t.looked_at != net_.rung(t.rank);
  // Without a service thread it is the waiting thread that must take what is due.
  return t.looked_at != changes() || (!options_.service && net_.can_progress(t.rank));
}

bool World::Impl::all_finished() const {
  for (const auto& t : threads_) {
    // A service thread that was preempted inside a handler still has it to finish.
    const bool at_rest =
        t->service ? t->state == Thread::State::waiting : t->state == Thread::State::finished;
    if (!at_rest) return false;
  }
  return true;
}

Result<void> World::Impl::run() {
  KASANE_CHECK(running_ == nullptr, "run() inside a simulated thread");
  if (options_.service && (threads_.empty() || !threads_.front()->service)) {
    std::vector<std::unique_ptr<Thread>> users = std::move(threads_);
    threads_.clear();
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      spawn(
          Rank{r},
          [this, r] {
            for (;;) {
              leave(Thread::State::waiting);
              running_->looked_at =
                  net_.rung(Rank{r});  // before the look: what rings during it wakes us again
              net_.transport(Rank{r}).progress();
            }
          },
          /*service=*/true);
    }
    for (auto& user : users) threads_.push_back(std::move(user));
  }
  std::vector<std::size_t> able;
  while (!all_finished()) {
    if (++steps_ > options_.step_limit)
      return failed("no end after " + std::to_string(options_.step_limit) + " steps; " + who_waits());
    net_.tick();
    able.clear();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      if (may_run(*threads_[i])) able.push_back(i);
    }
    const std::size_t events = net_.count_eligible();
    if (events + able.size() == 0)
      return failed("deadlock after " + std::to_string(steps_) + " steps; " + who_waits());
    const std::size_t drawn = dice_.below(events + able.size());
    if (drawn < events) {
      net_.deliver(drawn);
      continue;
    }
    const Thread& thread = *threads_[able[drawn - events]];
    resume(able[drawn - events]);
    if (!thread.error.empty())
      return failed("a thread of rank " + std::to_string(raw(thread.rank)) + " threw: " + thread.error);
  }
  // Threads that ended are removed, so that the world can be given new ones and run again.
  std::erase_if(threads_, [](const auto& t) { return t->state == Thread::State::finished; });
  return {};
}

bool World::Impl::step() {
  ++steps_;
  net_.tick();
  std::vector<std::uint32_t> able;
  for (std::uint32_t r = 0; options_.service && r < ranks_; ++r) {
    if (net_.can_progress(Rank{r})) able.push_back(r);
  }
  const std::size_t events = net_.count_eligible();
  if (events + able.size() == 0) return false;
  const std::size_t drawn = dice_.below(events + able.size());
  if (drawn < events) {
    net_.deliver(drawn);
  } else {
    net_.transport(Rank{able[drawn - events]}).progress();
  }
  return true;
}

std::string World::Impl::who_waits() const {
  std::string text = "threads not finished:";
  for (std::size_t i = 0, user = 0; i < threads_.size(); ++i) {
    const Thread& t = *threads_[i];
    if (t.service) continue;
    if (t.state != Thread::State::finished) {
      text += " #" + std::to_string(user) + " of rank " + std::to_string(raw(t.rank)) +
              (t.state == Thread::State::waiting ? " (waits)" : " (runs)");
    }
    ++user;
  }
  return text;
}

tl::unexpected<Error> World::Impl::failed(const std::string& what) const {
  return fail(Errc::internal,
              "sim, " + std::to_string(ranks_) + " ranks, seed " + std::to_string(seed_) + ": " + what);
}

// ---- World ------------------------------------------------------------------------------------------------

World::World(std::uint32_t ranks, std::uint64_t seed, const SimOptions& options) {
  KASANE_CHECK_OP(ranks, >, 0u);
  if (options.timing)
    in_time_ = std::make_unique<InTime>(ranks, seed, options);
  else
    impl_ = std::make_unique<Impl>(ranks, seed, options);
}
World::~World() = default;

Transport& World::transport(Rank r) noexcept {
  return (in_time_ ? in_time_->net_ : impl_->net_).transport(r);
}
bool World::step() { return impl_->step(); }
void World::spawn(Rank rank, std::function<void()> body) {
  if (in_time_) return in_time_->spawn(rank, std::move(body), /*forever=*/false);
  impl_->spawn(rank, std::move(body));
}
void World::serve(Rank rank, std::function<void()> body) {
  in_time_->spawn(rank, std::move(body), /*forever=*/true);
}
Result<void> World::run() { return in_time_ ? in_time_->run() : impl_->run(); }
Waiter& World::waiter() noexcept {
  if (in_time_) return *in_time_;
  return *impl_;
}
void World::yield_point() {
  if (impl_) impl_->yield_point();
}
void World::compute(std::uint64_t ns) { in_time_->compute(ns); }
void World::poll_until(const std::function<bool()>& ready, std::uint64_t ns) {
  in_time_->poll_until(ready, ns);
}
void World::kill(Rank r, std::uint64_t at_ns) { in_time_->net_.kill(raw(r), at_ns); }
void World::stop() { in_time_->stop(); }
std::uint64_t World::now_ns() const noexcept { return in_time_->clock(); }
std::uint32_t World::chain() const noexcept { return in_time_->chain(); }
const Traffic& World::traffic(Rank r) const noexcept { return in_time_->net_.traffic(raw(r)); }
std::uint32_t World::random(std::uint32_t bound) {
  return static_cast<std::uint32_t>((in_time_ ? in_time_->dice_ : impl_->dice_).below(bound));
}
std::uint64_t World::trace_hash() const noexcept {
  return (in_time_ ? in_time_->trace_ : impl_->trace_).hash();
}
std::uint64_t World::steps() const noexcept { return in_time_ ? in_time_->steps_ : impl_->steps_; }
std::uint64_t World::seed() const noexcept { return in_time_ ? in_time_->seed_ : impl_->seed_; }

}  // namespace kasane::comm::sim
