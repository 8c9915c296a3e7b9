// SPDX-License-Identifier: Apache-2.0
// Inside the collectives: one rank's state, which carries out schedules over a transport. Users see
// collectives.h.
//
// Two carriers, chosen for each peer: messages (a handler stores what arrives), and stores into the peer's
// block where it is mapped. Both follow the same rules, so nothing that has arrived ever waits for room
// (docs/design/comm_collectives.md, "Messages").
//
// run() makes its schedule the one that is under way; step(), under a gate that is only tried, advances it.
// Handlers store and count; they never take the gate.
//
// Thread safety: run(): one thread at a time; step(), the handler: any.
// Invariants: every rank runs the same collectives in the same order. Memory for which this rank answered
// ready stays valid until all its bytes have arrived. A handler's last access to this object is the store
// that makes what it brought known.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "comm/collectives/cells.h"
#include "comm/collectives/schedule.h"
#include "comm/waiter.h"

namespace kasane::comm {

class CollectiveState {
 public:
  /// Sets the handler. Messages may arrive from here on.
  explicit CollectiveState(Transport&);
  ~CollectiveState();
  CollectiveState(const CollectiveState&) = delete;
  CollectiveState& operator=(const CollectiveState&) = delete;

  /// Makes the collectives' region (collective over all ranks), and uses it where peers map it.
  Result<void> attach();
  /// After the last collective. Waits for the floors that were requested from peers.
  void close(Waiter&);
  /// One collective of all ranks. The plan's me and members are filled in.
  void run(Plan, Waiter&);
  /// Advances what can advance. Never waits.
  void step() noexcept;
  /// No collective is waited for any more.
  void peer_lost(Rank) noexcept;
  [[nodiscard]] std::uint32_t members() const noexcept { return members_; }

 private:
  /// The collective that is under way.
  struct Operation {
    std::uint64_t number = 0;     ///< of the collectives, from 0
    std::uint64_t signature = 0;  ///< equal on all ranks, else the program is wrong
    Schedule schedule;
    std::size_t position = 0;  ///< first step of the current round
    bool complete = false;     ///< but a requested floor may not have been sent yet
  };

  /// The collectives' messages begin with this.
  struct Header {
    enum class Kind : std::uint8_t { cell, ready, chunk, ask, floor };
    Kind kind;
    std::uint8_t phase = 0;
    std::uint16_t ask = 0;  ///< cell, ready, ask: 0, or collective - requested floor + 1
    std::uint32_t from = 0;
    std::uint64_t collective = 0;
    std::uint64_t word = 0;  ///< cell, ready: signature; chunk: offset; floor: the sender's floor
    std::uint64_t token = 0;
  };
  /// Chunks of messages are multiples of 16 bytes.
  static constexpr std::size_t kMessageChunk = (kMaxPayload - sizeof(Header)) / 16 * 16;
  static_assert(sizeof(Header) == 32 && kShortBytes + sizeof(Header) <= kMaxPayload);

  struct Peer {
    CollectiveBlock* block = nullptr;     ///< mapped here, or null
    std::atomic<std::uint64_t> floor{0};  ///< the last one received
    std::uint64_t asking = 0;             ///< the floor that we have requested, or 0
    /// chunks sent into its stream; those taken, as last seen
    std::uint64_t streamed = 0, stream_taken = 0;
    std::uint64_t taken = 0;              ///< chunks taken from our stream from it
    std::atomic<std::uint64_t> asked{0};  ///< the floor that it has requested, + 1; 0: none
  };

  void step_locked() noexcept;
  bool advance(Operation&) noexcept;
  bool carry_out(Operation&, std::size_t index) noexcept;
  bool send(Operation&, CollectiveStep&) noexcept;
  bool receive(Operation&, CollectiveStep&, std::size_t index) noexcept;
  bool send_chunks(Operation&, CollectiveStep&, std::uint64_t token) noexcept;
  bool stream_chunk(Operation&, CollectiveStep&, std::uint64_t token) noexcept;
  bool message_chunk(Operation&, CollectiveStep&, std::uint64_t token) noexcept;
  void drain_stream(std::uint32_t peer) noexcept;
  void arrived(std::uint64_t collective, std::uint64_t token, std::uint64_t offset,
               std::span<const std::byte> bytes) noexcept;
  bool put_cell(Operation&, const CollectiveStep&, std::span<const std::byte> data) noexcept;
  bool put_ready(Operation&, const CollectiveStep&, std::uint64_t token) noexcept;
  static void on_message(void* self, const Message&) noexcept;
  void handle(const Header&, std::span<const std::byte> data) noexcept;
  bool message(const Header&, std::uint32_t to, std::span<const std::byte> data) noexcept;
  bool has_room(std::uint32_t peer, std::uint64_t number) noexcept;
  bool send_and_ask(Header, std::uint32_t to, std::span<const std::byte> data) noexcept;
  bool send_floors() noexcept;
  void check_same(const Operation&, std::uint32_t peer, std::uint64_t theirs) const noexcept;
  [[nodiscard]] Header header(Header::Kind, const Operation&, const CollectiveStep&) const noexcept;

  /// Where the peer's messages arrive.
  [[nodiscard]] CollectivePeerArea& area(std::uint32_t peer) const noexcept {
    return (peers_[peer].block != nullptr ? shared_ : own_)->from(peer);
  }

  Transport& transport_;
  const std::uint32_t members_, me_;
  CollectiveBlock* own_ = nullptr;     ///< private: receives messages
  CollectiveBlock* shared_ = nullptr;  ///< in the region, or null: receives stores of peers that map it
  std::unique_ptr<Peer[]> peers_;
  std::atomic<bool> lost_{false};
  std::atomic<bool> any_asked_{false};  ///< some Peer::asked may be set
  std::uint64_t started_ = 0;           ///< used by the starting thread only
  Operation operation_;
  /// operation_ while it is under way, else null
  std::atomic<Operation*> active_{nullptr};
  alignas(64) std::atomic<std::uint32_t> gate_{0};  ///< 1 while a thread steps; guards floor_
  std::uint64_t floor_ = 0;
};

}  // namespace kasane::comm
