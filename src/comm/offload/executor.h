// SPDX-License-Identifier: Apache-2.0
// An executor: one ring, and the thread that empties it. It hands every command to the Issuer; what is answered `again` it keeps, by peer, and tries again.
//
//   try_push ─▶ ring ─▶ take ─▶ Issuer::issue ─ done
//                        ▲            └ again ─▶ held, by peer ─ after progress ─▶ Issuer::issue
//                        └ stops while held is full, so that the ring fills and try_push says false
//
// **One blocked peer does not block the others.** A peer with kPeerQuota commands held is closed: try_push refuses its commands at once. Held commands have
// room for all that the ring may still contain of them, for 64 closed peers at a time; beyond that all wait until one of them takes something.
//
// **Where it sleeps.** The executor that also polls the transport sleeps on the transport's messages doorbell: one sleep for arrivals and commands. Others
// have a bell of their own.
//
// Thread safety: try_push(), issued_all_before(), wake() by anybody, also from callbacks and handlers; run() is its thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bell.h"
#include "base/mpsc_ring.h"
#include "comm/command.h"
#include "comm/offload/held_commands.h"
#include "comm/offload/idle.h"
#include "comm/transport.h"

namespace kasane::comm::offload {

/// Where a thread of the offloader sleeps: the transport's messages doorbell, or a bell of its own.
class Bed {
 public:
  Bed(Transport& transport, bool shared) noexcept : transport_(transport), shared_(shared) {}

  [[nodiscard]] std::uint32_t activity() const noexcept { return shared_ ? transport_.activity(Doorbell::messages) : own_.activity(); }
  void sleep(std::uint32_t seen, std::int64_t limit_ns) noexcept {
    shared_ ? transport_.sleep(Doorbell::messages, seen, limit_ns) : own_.sleep(seen, limit_ns);
  }
  void ring() noexcept { shared_ ? transport_.wake(transport_.rank(), Doorbell::messages) : own_.ring(); }

 private:
  Transport& transport_;
  const bool shared_;
  Bell own_{};
};

class Executor {
 public:
  /// ring_commands: a power of two, at least 2. polls: it is the completer too.
  Executor(Transport&, Issuer&, std::size_t ring_commands, bool polls, bool alone);

  /// False: the ring is full, or the peer takes nothing; nothing happened.
  [[nodiscard]] bool try_push(const Command& command) noexcept {
    // relaxed: a hint; the commands that slip through have room.
    if (closed_[raw(command.remote.rank)].load(std::memory_order_relaxed)) return false;
    const Push push = ring_.try_push(command);
    if (push == Push::wake) bed_.ring();
    return push != Push::full;
  }

  /// As many commands may have left the ring and not been issued.
  [[nodiscard]] static constexpr std::uint64_t most_held(std::uint64_t ring_commands, std::uint32_t ranks) noexcept {
    return ring_commands + std::uint64_t{kPeerQuota} * (ranks < kClosedPeers ? ranks : kClosedPeers);
  }
  /// Commands that were accepted so far (or are being accepted).
  [[nodiscard]] std::uint64_t accepted() const noexcept { return ring_.claimed(); }
  /// Have the first `accepted` commands been issued? What issuing them did is then visible.
  [[nodiscard]] bool issued_all_before(std::uint64_t accepted) const noexcept {
    return issued_before_.load(std::memory_order_acquire) >= accepted;   // acquire: pairs with settle()
  }

  /// Until stop is true and everything accepted has been issued.
  void run(const std::atomic<bool>& stop) noexcept;
  void wake() noexcept { bed_.ring(); }

 private:
  static constexpr std::uint32_t kBatch = 64;          // commands between two looks at arrivals
  static constexpr std::uint32_t kPeerQuota = 16;      // held commands of a peer before it is closed
  static constexpr std::uint32_t kClosedPeers = 64;    // peers that can be closed without others waiting
  static constexpr std::uint32_t kUnpublishedLooks = 16;

  bool look() noexcept;
  bool retry_held() noexcept;
  std::uint32_t take() noexcept;
  bool take_one(const Command& command) noexcept;
  void hold(const Command& command) noexcept;
  void settle() noexcept;
  void rest(Idle& idle, std::uint32_t seen) noexcept;

  MpscRing<Command> ring_;
  Bed bed_;
  std::vector<std::atomic<bool>> closed_;   // by rank; written by the executor
  Transport& transport_;
  Issuer& issuer_;
  const bool polls_;
  const bool alone_;
  // The executor's own; what is above, requesters read.
  alignas(64) HeldCommands held_;
  std::uint64_t taken_ = 0;                 // positions popped
  std::uint32_t unpublished_ = 0;           // looks in a row that met a claimed cell without its command
  alignas(64) std::atomic<std::uint64_t> issued_before_{0};
};

}  // namespace kasane::comm::offload
