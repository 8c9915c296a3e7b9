// SPDX-License-Identifier: Apache-2.0
// Inside the collectives: one member's state of one group, which carries out schedules over a transport.
// Users see group.h.
//
// Two carriers, chosen for each peer: messages (a handler stores what arrives), and stores into the peer's
// block where it is mapped. Both follow the same rules:
//   short message n   goes into cell n mod kActive of the receiver once the receiver's floor is above
//                     n - kActive (so the receiver has taken the cell's last message);
//   long message n    is announced by an empty short one. The receiver answers ready (by the same rule, in
//                     the other direction) with the step that waits; then chunks go to the step's memory.
// So nothing that has arrived ever waits for room, and a late rank delays only the members that need it.
//
// A member's floor is the number of its oldest incomplete collective. It is read from a mapped block. Of
// other peers it is requested well before it is needed, along with a message of a collective that the peer
// cannot complete without that message; the peer answers by a message before that collective is done there.
// So when a member has finished, no message to it or from it is outstanding.
//
// start() enqueues an operation (no lock). step(), under a gate that is only tried, advances all operations
// of the group. A thread that waits for any collective steps all groups of its rank. Handlers store and
// count; they never take the gate.
//
// Thread safety: start(): one thread at a time a group; step(), handle(): any.
// Invariants: every member starts the same collectives of a group in the same order. Operation n is active
// only while floor <= n < floor + kActive. Memory for which this member answered ready stays valid until all
// its bytes have arrived.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/collective_cells.h"
#include "comm/collective_schedule.h"
#include "comm/take_all_stack.h"
#include "comm/waiter.h"

namespace kasane::comm {

/// A collective that was started.
struct CollectiveOperation {
  std::uint64_t number = 0;     ///< of the group's collectives, from 0
  std::uint64_t signature = 0;  ///< equal on all members, else the program is wrong
  Schedule schedule;
  std::size_t position = 0;             ///< first step of the current round
  CollectiveOperation* next = nullptr;  ///< in the queue
  std::atomic<bool> done{false};        ///< written last
  Status status = Status::ok;
};

/// The collectives' messages begin with this.
struct CollectiveHeader {
  enum class Kind : std::uint8_t { cell, ready, chunk, ask, floor };
  Kind kind;
  std::uint8_t phase;
  std::uint16_t ask = 0;     ///< cell, ready, ask: 0, or collective - requested floor + 1
  std::uint32_t slot;        ///< of the group, at the receiver
  std::uint32_t generation;  ///< of the slot
  std::uint32_t from;        ///< the sender's number in the group
  std::uint64_t collective;
  std::uint64_t word;  ///< cell, ready: signature; chunk: offset; floor: the sender's floor
  std::uint64_t token;
};

/// Where a peer keeps its state of the group.
struct PeerPlace {
  Rank rank;
  std::uint32_t slot, generation;
  CollectiveBlock* block;  ///< mapped here, or null
};

class GroupState {
 public:
  GroupState(Transport& transport, std::uint32_t slot) noexcept : transport_(transport), slot_(slot) {}
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  /// Takes the slot for a group in which this rank is member me. own, shared: zeroed,
  /// CollectiveBlock::bytes(members) each; own receives messages, shared (or null) receives the stores of
  /// peers that map it. Messages may arrive as soon as peers know slot and generation.
  void open(std::uint32_t members, std::uint32_t me, CollectiveBlock* own, CollectiveBlock* shared);
  void set_peers(std::span<const PeerPlace> peers);
  /// From now on peers may map the block, too.
  /// Pre: no collective is outstanding.
  void share(CollectiveBlock* shared) noexcept;
  /// After the last collective. Waits for the floors that were requested from peers.
  void close(Waiter&);

  /// Enqueues the operation, which must live until done.
  void start(CollectiveOperation&) noexcept;
  /// Advances everything that can advance. Never waits.
  void step() noexcept;
  void handle(const CollectiveHeader&, std::span<const std::byte> data) noexcept;
  /// If rank is a member, no collective of this group completes any more: all end with Status::peer_lost.
  void peer_lost(Rank rank) noexcept;

  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  // relaxed: the opener's own
  [[nodiscard]] std::uint32_t generation() const noexcept {
    return generation_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t members() const noexcept { return members_; }
  [[nodiscard]] std::uint32_t me() const noexcept { return me_; }
  [[nodiscard]] Rank member(std::uint32_t i) const noexcept { return peers_[i].rank; }

  std::unique_ptr<CollectiveOperation> take_spare();
  void give_spare(std::unique_ptr<CollectiveOperation>) noexcept;
  ~GroupState();

 private:
  struct Peer {
    Rank rank = kNoRank;
    std::uint32_t slot = 0, generation = 0;
    CollectiveBlock* block = nullptr;
    std::atomic<std::uint64_t> floor{0};  ///< as last received
    std::uint64_t asking = 0;             ///< the floor that we have requested, or 0
    /// chunks sent into its stream; those taken, as last seen
    std::uint64_t streamed = 0, stream_taken = 0;
    std::uint64_t taken = 0;              ///< chunks taken from our stream from it
    std::atomic<std::uint64_t> asked{0};  ///< the floor that it has requested, + 1; 0: none
  };

  void step_locked() noexcept;
  void take_started() noexcept;
  void activate() noexcept;
  bool advance(CollectiveOperation&) noexcept;
  bool carry_out(CollectiveOperation&, std::size_t index) noexcept;
  bool send(CollectiveOperation&, CollectiveStep&) noexcept;
  bool receive(CollectiveOperation&, CollectiveStep&, std::size_t index) noexcept;
  bool send_chunks(CollectiveOperation&, CollectiveStep&, std::uint64_t token) noexcept;
  bool stream_chunk(CollectiveOperation&, CollectiveStep&, std::uint64_t token) noexcept;
  bool message_chunk(CollectiveOperation&, CollectiveStep&, std::uint64_t token) noexcept;
  void drain_stream(std::uint32_t peer) noexcept;
  void arrived(std::uint64_t collective, std::uint64_t token, std::uint64_t offset,
               std::span<const std::byte> bytes) noexcept;
  bool put_cell(CollectiveOperation&, const CollectiveStep&, std::span<const std::byte> data) noexcept;
  bool put_ready(CollectiveOperation&, const CollectiveStep&, std::uint64_t token) noexcept;
  bool message(const CollectiveHeader&, Rank to, std::span<const std::byte> data) noexcept;
  bool has_room(Peer&, std::uint64_t number) noexcept;
  bool send_and_ask(CollectiveHeader, Peer&, std::span<const std::byte> data) noexcept;
  bool send_floors() noexcept;
  void complete(CollectiveOperation&, Status) noexcept;
  void mark_done() noexcept;
  void fail_all() noexcept;
  void check_same(const CollectiveOperation&, std::uint32_t peer, std::uint64_t theirs) const noexcept;
  [[nodiscard]] CollectiveHeader header(CollectiveHeader::Kind, const Peer&, const CollectiveOperation&,
                                        const CollectiveStep&) const noexcept;

  /// Where the peer-th member's messages arrive.
  [[nodiscard]] CollectivePeerArea& area(std::uint32_t peer) const noexcept {
    return (peers_[peer].block != nullptr ? shared_ : own_)->from(peer);
  }

  Transport& transport_;
  const std::uint32_t slot_;
  std::uint32_t members_ = 0, me_ = 0;
  CollectiveBlock* own_ = nullptr;
  CollectiveBlock* shared_ = nullptr;
  std::unique_ptr<Peer[]> peers_;
  std::atomic<std::uint32_t> generation_{0};  ///< odd: open
  std::atomic<std::uint32_t> inside_{0};      ///< handlers that are running
  std::atomic<bool> failed_{false};
  std::atomic<CollectiveOperation*> spare_{nullptr};

  std::uint64_t started_ = 0;                       ///< used by the starting thread only
  TakeAllStack<CollectiveOperation> incoming_;      ///< started, not queued yet
  alignas(64) std::atomic<std::uint32_t> gate_{0};  ///< 1 while a thread steps; guards the members below
  std::atomic<std::uint64_t> outstanding_{0};       ///< started and not yet done
  std::uint64_t floor_ = 0;
  std::uint64_t completed_ = 0;  ///< bit i: collective floor + i is complete
  CollectiveOperation* queue_first_ = nullptr;
  CollectiveOperation* queue_last_ = nullptr;
  /// complete, but a requested floor has not been sent yet
  CollectiveOperation* completed_first_ = nullptr;
  std::array<std::atomic<CollectiveOperation*>, kActive> active_{};  ///< read by handlers
};

}  // namespace kasane::comm
