// SPDX-License-Identifier: Apache-2.0
// The offload engine (W. Endo's thesis, 2017, §4.4). A requester puts a command into a bounded ring and goes
// on with its work. One thread, the executor, hands each command to the Issuer, polls the transport and so
// runs the callbacks.
//
//   try_push ─▶ ring ─▶ take ─▶ Issuer::issue ─ done ─▶ Transport ──progress()──▶ callback
//                        ▲            └ again ─▶ held, by peer ─ after progress ─▶ Issuer::issue
//                        └ stops while held is full, so that the ring fills and try_push returns false
//
// **One blocked peer does not block the others.** A peer with kPeerQuota commands held is closed: try_push
// refuses its commands at once. The held commands have room for all commands that the ring may still contain
// for 64 closed peers. With more closed peers the executor stops taking commands until one of these peers
// accepts a command.
//
// **Where the executor sleeps.** On the transport's messages doorbell, which producers ring too: one sleep
// covers arrivals and commands. The executor spins for some microseconds, yields, then sleeps.
//
// Thread safety: try_push() and issued_everything() from any thread, also from callbacks, handlers and fault
// handlers: they neither allocate nor wait nor lock. The destructor from a thread that runs no callback.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/mpsc_ring.h"
#include "base/result.h"
#include "comm/command.h"
#include "comm/offload/held_commands.h"
#include "comm/offload/idle.h"
#include "comm/transport.h"

namespace kasane::comm {

class Offloader {
 public:
  /// Starts the executor. ring_commands: capacity of the ring, a power of two, at least 2. Both references
  /// must outlive the offloader.
  /// Errors: a wrong capacity, or the thread could not be started.
  static Result<std::unique_ptr<Offloader>> start(Transport&, Issuer&, std::uint32_t ring_commands);
  /// Issues everything that was accepted, then ends the executor. No thread or callback may push any more.
  /// Operations may still be outstanding: their callbacks run in the thread that calls progress().
  ~Offloader();
  Offloader(const Offloader&) = delete;
  Offloader& operator=(const Offloader&) = delete;

  /// Accepts a command whose arguments are valid; the executor calls Issuer::issue with it until that returns
  /// done. False: the ring is full, or the peer accepts nothing at the moment; nothing happened, try again
  /// later.
  [[nodiscard]] bool try_push(const Command& command) noexcept {
    // relaxed: a hint; there is room for the commands that pass it.
    if (closed_[raw(command.remote.rank)].load(std::memory_order_relaxed)) return false;
    const Push push = ring_.try_push(command);
    if (push == Push::wake) wake();
    return push != Push::full;
  }

  /// Has everything accepted before the call been issued? What issuing it did is then visible. Never waits.
  [[nodiscard]] bool issued_everything() const noexcept {
    const std::uint64_t accepted = ring_.claimed();
    // acquire: pairs with publish_issued()
    return issued_before_.load(std::memory_order_acquire) >= accepted;
  }

  /// The number of commands that may have left the ring and not been issued.
  [[nodiscard]] static constexpr std::uint64_t most_held(std::uint64_t ring_commands,
                                                         std::uint32_t ranks) noexcept {
    return ring_commands + std::uint64_t{kPeerQuota} * (ranks < kClosedPeers ? ranks : kClosedPeers);
  }

 private:
  static constexpr std::uint32_t kBatch = 64;        // commands between two calls of progress()
  static constexpr std::uint32_t kPeerQuota = 16;    // held commands of a peer before it is closed
  static constexpr std::uint32_t kClosedPeers = 64;  // peers that can be closed without others waiting
  static constexpr std::uint32_t kUnpublishedLooks = 16;

  Offloader(Transport&, Issuer&, std::uint32_t ring_commands);
  Result<void> start_thread();
  void wake() noexcept { transport_.wake(transport_.rank(), Doorbell::messages); }
  void run() noexcept;
  bool run_once() noexcept;
  bool retry_held() noexcept;
  std::uint32_t take() noexcept;
  bool take_one(const Command& command) noexcept;
  void hold(const Command& command) noexcept;
  void publish_issued() noexcept;
  void rest(offload::Idle& idle, std::uint32_t seen) noexcept;

  MpscRing<Command> ring_;
  std::vector<std::atomic<bool>> closed_;  // by rank; written by the executor
  Transport& transport_;
  Issuer& issuer_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
  // Requesters read the members above; those below belong to the executor.
  alignas(64) offload::HeldCommands held_;
  std::uint64_t taken_ = 0;        // positions popped
  std::uint32_t unpublished_ = 0;  // consecutive looks that met a claimed cell without its command
  alignas(64) std::atomic<std::uint64_t> issued_before_{0};
};

}  // namespace kasane::comm
