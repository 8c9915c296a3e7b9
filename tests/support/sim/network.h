// SPDX-License-Identifier: Apache-2.0
// The simulated network: the events in flight between the ranks of a World, and the Transport that each rank
// sees of it. It decides nothing about threads; the World says when an event is delivered and which.
//
// Thread safety: none. Invariants: an operation's Completion is delivered once, after its last piece; a post
// is answered `again` only while events are in flight, so a thread that retries after others have run
// succeeds in the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/transport.h"
#include "support/sim/chance.h"
#include "support/sim/sim.h"
#include "support/sim/timing.h"

namespace kasane::comm::sim {

class SimTransport;

/// What the network needs of the World: how a rank's sleep() gives way; and with times, whose clock it is.
class Sleeper {
 public:
  virtual void sleep(Transport&, Doorbell, std::uint32_t seen, std::int64_t timeout_ns) = 0;
  /// A thread polls, and there is nothing.
  virtual void polled_in_vain() {}
  /// The clock of who runs now; the longest chain of messages that led to what it does.
  virtual std::uint64_t clock() { return 0; }
  virtual std::uint32_t chain() { return 0; }
  virtual void spend(std::uint64_t /*ns*/) {}
  virtual void caused_by(std::uint32_t /*chain*/) {}

 protected:
  ~Sleeper() = default;
};

struct Event {
  enum class Kind : std::uint8_t {
    read,
    write,
    notify,
    atomic,
    fence,
    completion,
    message,
    reply,
    ring,
    lost,  ///< its rank is told that another has died
  };
  Kind kind;
  AtomicOp op = AtomicOp::fetch_add;
  Width width = Width::eight;
  std::uint32_t from = 0, to = 0;  ///< the ranks it travels between
  std::uint64_t id = 0;            ///< in order of their causes
  std::uint64_t due = 0;           ///< the step from which on it may happen; with times, when it happens
  std::uint32_t chain = 0;         ///< with times: of how many messages in a row it is the last
  Doorbell bell{};                 ///< of a ring
  std::uint64_t operation = 0;     ///< which operation it is a piece of, or completes
  std::byte* remote = nullptr;     ///< in to's region
  std::byte* local = nullptr;      ///< the poster's buffer, or where an atomic's result goes
  std::size_t bytes = 0;
  std::uint64_t operand = 0, compare = 0;
  Completion* done = nullptr;
  HandlerId handler{};
  ReplyToken token{};
  std::vector<std::uint64_t> payload;  ///< words, for the alignment that handlers are promised
};

class Network {
 public:
  Network(std::uint32_t ranks, const SimOptions& options, Dice& dice, Trace& trace, Sleeper& sleeper);
  ~Network();

  [[nodiscard]] Transport& transport(Rank r) noexcept;
  /// One step of time passes.
  void tick() noexcept { ++now_; }
  /// How many events may happen now; if none is due yet, time jumps to the next.
  std::size_t count_eligible();
  /// Lets the index-th of them happen (right after count_eligible()).
  void deliver(std::size_t index);
  /// Has something due, and is not inside its progress().
  [[nodiscard]] std::uint32_t rung(Rank) const noexcept;  ///< the messages doorbell
  [[nodiscard]] bool can_progress(Rank) const noexcept;
  /// Grows with every event here; equal numbers: nothing happened in between.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

  // ---- with times ----
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  [[nodiscard]] std::uint64_t next_due() const noexcept {
    return in_order_.empty() ? kNever : in_order_.begin()->first.first;
  }
  /// The earliest event happens. Returns at which rank.
  std::uint32_t deliver_next();
  /// Something is due at the rank that its next progress() will run.
  [[nodiscard]] bool has_due(std::uint32_t rank) const noexcept;
  void kill(std::uint32_t rank, std::uint64_t at_ns) { dies_[rank] = at_ns; }
  [[nodiscard]] bool dead(std::uint32_t rank, std::uint64_t at_ns) const noexcept {
    return !dies_.empty() && dies_.contains(rank) && dies_.at(rank) <= at_ns;
  }
  [[nodiscard]] const Traffic& traffic(std::uint32_t rank) const noexcept { return traffic_[rank]; }
  /// With times: rank `from` begins an operation there.
  void count(std::uint32_t from, RemoteAddr at) noexcept {
    if (links_ && from != raw(at.rank)) ++traffic_[raw(at.rank)].operations_in[raw(at.region)];
  }

 private:
  friend class SimTransport;
  struct Operation {
    std::uint32_t rank;
    std::uint32_t pieces;
    Completion* done;
    /// of a write_notify: the word that becomes value after the last piece
    std::byte* flag = nullptr;
    std::uint64_t value = 0;
  };

  bool refuse(bool full);
  std::uint64_t begin(std::uint32_t rank, std::uint32_t pieces, Completion* done);
  Post transfer(Event::Kind, std::uint32_t from, RemoteAddr at, std::byte* remote, std::byte* local,
                std::size_t bytes, Completion*, std::byte* flag = nullptr, std::uint64_t value = 0);
  void launch(Event event);
  [[nodiscard]] bool held_back(const Event&) const;
  void happen(Event& event);
  void finish_piece(const Event& event);
  void execute(const Event& event);
  void launch_in_time(Event event);
  [[nodiscard]] bool needs_processor(const Event&) const noexcept;

  SimOptions options_;
  Dice& dice_;
  Trace& trace_;
  Sleeper& sleeper_;
  std::uint64_t now_ = 0, next_id_ = 0, next_operation_ = 0, changes_ = 0;
  std::vector<Event> under_way_;
  std::vector<std::size_t> eligible_;  ///< indices into under_way_
  std::map<std::uint64_t, Operation> operations_;
  std::optional<Links> links_;                                         ///< with times
  std::map<std::pair<std::uint64_t, std::uint64_t>, Event> in_order_;  ///< by due and id
  std::vector<Traffic> traffic_;
  std::map<std::uint32_t, std::uint64_t> dies_;  ///< when
  std::unique_ptr<Bells[]> bells_;               ///< by rank
  std::vector<std::unique_ptr<SimTransport>> transports_;
};

}  // namespace kasane::comm::sim
