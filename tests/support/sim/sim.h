// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process and one OS thread, on a network that delays, reorders and tears, all decided
// by a seed: the same seed gives the same history, so a failure that was found once can be replayed.
//
//   World world(4, seed);
//   for (r …) world.transport(Rank{r}).attach(region, -1, memory[r], bytes);
//   world.spawn(Rank{0}, [&] { Blocking(world.transport(Rank{0}), world.waiter()).write(…); });
//   auto ok = world.run();          // until every thread has ended; an error if they wait for each other
//
// What the network does to an operation (design rule 17):
//   post ──delay──► each piece of a read samples, of a write stores, an atomic executes
//        ──delay──► the completion is due at the poster, and runs in its next progress(). Writes and reads
//        are torn into pieces at any byte.
//   A message: post ──delay──► due at the target, and runs in its next progress(). Its reply: another delay.
// Every post may be answered `again` without reason.
//
// With SimOptions::timing time is virtual instead (sim/timing.h): each thread has a clock, which compute()
// and what it posts advance; what happens next is what is due first, so there is one history. Without a clock
// of its own a layer sees these times where the program links kasane_comm_sim_clock.
//
//   a message arrives ── a thread of the rank polls: at once
//                     └─ none does: the rank's service thread, if it sleeps, runs wake_ns later
//
// Thread safety: none, there is one OS thread. Unlike other transports it allocates; it is not for signal
// handlers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/result.h"
#include "comm/transport.h"
#include "comm/waiter.h"
#include "support/sim/timing.h"

namespace kasane::comm::sim {

class InTime;

struct SimOptions {
  std::uint32_t max_delay_steps = 12;  ///< an event becomes due 0 … this many steps after its cause
  /// false: events from one rank to another happen in the order of their causes
  bool reorder = true;
  bool tear = true;  ///< reads and writes happen in up to three pieces, cut at any byte
  /// every rank has a service thread that calls progress() at some time
  bool service = true;
  /// messages in flight to, or not yet run at, one rank; then `again`
  std::uint32_t ring_capacity = 16;
  /// reads, writes, atomics and fences of one rank outstanding; then `again`
  std::uint32_t operation_capacity = 32;
  std::uint32_t reply_slots = 16;     ///< requests of one rank that are not yet tested; then `again`
  std::uint32_t again_permille = 50;  ///< how often a post is answered `again` without reason
  /// facts() says that one-sided operations are messages to the target's program, though they are not
  bool says_by_messages = false;
  /// how often an answer comes without the bytes that it was to bring along
  std::uint32_t answer_alone_permille = 100;
  std::uint32_t preempt_permille = 250;   ///< how often yield_point() lets others run
  std::uint64_t step_limit = 10'000'000;  ///< run() gives up after so many steps
  std::size_t stack_bytes = 256 * 1024;   ///< of a scripted thread
  /// with it nothing is drawn: no delay, order, tear, refusal or preemption; and no thread of the simulator's
  /// own serves messages (`service`), so a script has one
  std::optional<Timing> timing = {};
  std::uint64_t time_limit_ns = 60'000'000'000;  ///< with timing: run() gives up
};

class World {
 public:
  World(std::uint32_t ranks, std::uint64_t seed, const SimOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Its attach() registers memory of this rank only and needs no descriptor; sleep() never blocks: it lets
  /// others run.
  [[nodiscard]] Transport& transport(Rank) noexcept;

  /// Delivers one random event that is due, or runs one rank's progress(). False if there is nothing to do.
  bool step();

  /// A thread of rank that runs body under run(). Threads share the OS thread and take turns in wait() and
  /// yield_point().
  void spawn(Rank, std::function<void()> body);
  /// Runs until every thread has ended. An error names the seed: all threads wait and no event is in flight
  /// (deadlock), the step limit, or an exception that left a thread. After an error the world can only be
  /// destroyed.
  Result<void> run();

  /// How scripted threads wait; outside of them it takes steps, and fails a check where none is left.
  [[nodiscard]] Waiter& waiter() noexcept;
  /// Where a scripted thread may be preempted; call it wherever another thread's step could matter.
  void yield_point();

  // ---- with timing ----
  /// A thread that run() does not wait for: the rank's service thread.
  void serve(Rank, std::function<void()> body);
  /// The calling thread computes for so long.
  void compute(std::uint64_t ns);
  /// The calling thread polls until ready() or for so long.
  void poll_until(const std::function<bool()>& ready, std::uint64_t ns);
  /// The rank dies at that time: its threads stop, nothing arrives there, and who posts to it is told by its
  /// peer-lost hook, if it has one.
  void kill(Rank, std::uint64_t at_ns);
  /// run() returns now, whoever has not ended: the job is over. Then the world can only be destroyed.
  void stop();
  /// The clock of the calling thread; outside of threads, of what happened last.
  [[nodiscard]] std::uint64_t now_ns() const noexcept;
  /// Messages in a row that led to where the calling thread is.
  [[nodiscard]] std::uint32_t chain() const noexcept;
  [[nodiscard]] const Traffic& traffic(Rank) const noexcept;

  /// A number below bound from the seeded sequence, for scripts that make choices of their own.
  std::uint32_t random(std::uint32_t bound);
  /// A hash of all decisions so far: equal for equal seeds and programs.
  [[nodiscard]] std::uint64_t trace_hash() const noexcept;
  [[nodiscard]] std::uint64_t steps() const noexcept;
  [[nodiscard]] std::uint64_t seed() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<InTime> in_time_;  ///< one of the two
};

}  // namespace kasane::comm::sim
