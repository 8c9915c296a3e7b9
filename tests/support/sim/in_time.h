// SPDX-License-Identifier: Apache-2.0
// The World with times: an event queue of what the network delivers and of threads that go on. A thread that
// polls is looked at when something happens at its rank (and now and then, for what no event announces); one
// that sleeps when its doorbell has rung.
//
// Looks are taken on the caller's stack: a condition is a pure look or a post that is tried again, and never
// waits.
//
// Thread safety: none. Invariant: an event is delivered when nothing earlier is left, neither an event nor a
// thread; a thread's own clock may be ahead of that by the overheads that it has spent.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "support/sim/chance.h"
#include "support/sim/context.h"
#include "support/sim/network.h"

namespace kasane::comm::sim {

class InTime final : public Waiter, public Sleeper {
 public:
  InTime(std::uint32_t ranks, std::uint64_t seed, const SimOptions& options);
  ~InTime();

  void spawn(Rank, std::function<void()> body, bool forever);
  Result<void> run();
  void stop() { stopped_ = true; }
  void compute(std::uint64_t ns);
  void poll_until(const std::function<bool()>& ready, std::uint64_t ns);

  void sleep(Transport&, Doorbell, std::uint32_t seen, std::int64_t timeout_ns) override;
  void polled_in_vain() override;
  std::uint64_t clock() override { return running_ != nullptr ? running_->clock : now_; }
  std::uint32_t chain() override { return cause_ != 0 ? cause_ : running_ != nullptr ? running_->chain : 0; }
  void spend(std::uint64_t ns) override {
    if (running_ != nullptr) running_->clock += ns;
  }
  void caused_by(std::uint32_t chain) override { cause_ = chain; }

  SimOptions options_;
  std::uint64_t seed_;
  Dice dice_;
  Trace trace_;
  Network net_;
  std::uint64_t steps_ = 0;

 protected:
  void wait(bool (*ready)(const void*), const void* arg) override;

 private:
  struct Thread {
    enum class State : std::uint8_t { able, polls, sleeps, finished };
    std::uint32_t rank;
    std::function<void()> body;
    bool forever;
    State state = State::able;
    bool drains = false;  ///< runs what is due before it looks
    std::uint32_t chain = 0, empty_polls = 0;
    std::uint64_t clock = 0, waits = 0, deadline = Network::kNever, look_again_ns = 0;
    bool (*ready)(const void*) = nullptr;
    const void* argument = nullptr;
    std::string error;
    std::unique_ptr<Context> context;
  };
  /// A thread goes on, or is looked at: then `wait` says which of its waits is meant.
  struct Turn {
    std::uint64_t at, order;
    Thread* thread;
    std::uint64_t wait;
    bool goes_on;
    bool operator>(const Turn& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  static void entry(void* self);
  void run_body();
  void advance(std::uint64_t ns);
  void leave();
  void suspend(Thread::State, bool (*ready)(const void*), const void* argument, std::uint64_t deadline,
               bool drains);
  void add_turn(Thread&, std::uint64_t at, bool goes_on);
  void go_on(Thread&, std::uint64_t at);
  bool look(Thread&);
  void look_at(std::uint32_t rank, const Thread* but);
  void deliver();
  void take(const Turn&);
  [[nodiscard]] Error failed(const std::string& what) const;

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::vector<Thread*>> of_rank_;
  std::vector<std::uint64_t> happened_;  ///< events, by rank
  std::vector<std::uint32_t> news_;      ///< chain of the last answer that came, by rank
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::vector<std::uint64_t> cores_;  ///< from when on each is free
  std::uint64_t now_ = 0, order_ = 0, unfinished_ = 0;
  std::uint32_t cause_ = 0;
  bool stopped_ = false;
  bool waits_ = false;  ///< progress() is called by wait(): no poll in vain
  Context main_;
  Thread* running_ = nullptr;
};

/// The clock of the world that runs, for kasane_comm_sim_clock; null: none with times does.
[[nodiscard]] InTime*& world_in_time() noexcept;

}  // namespace kasane::comm::sim
