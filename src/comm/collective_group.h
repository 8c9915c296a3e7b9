// SPDX-License-Identifier: Apache-2.0
// Inside the collectives: one member's state of one group, which carries schedules out over a transport. Users see group.h.
//
// Two carriers, chosen for each peer: messages (a handler stores what arrives), and stores into the peer's block where it is mapped. Both keep the same rules:
//   short message n   goes into cell n mod kActive of the receiver once its floor is above n - kActive (so the cell's last message was taken);
//   long message n    is announced by an empty short one; the receiver says ready (the same rule, the other way) with the step that waits; then chunks go
//                     straight to where they belong. So nothing that has arrived ever waits for room, and a late rank holds back only those who need it.
// The floor is read from the mapped block; of others it is asked for well before it is needed, along with a message of a collective that the peer cannot complete without it, and told
// by a message that the peer sends before that collective is done there. So when a member has finished, nothing is on its way to it or from it.
//
// Who does what: start() hands an operation over (no lock); step(), under a gate that is only ever tried, moves all operations of the group on. Whoever waits for any
// collective steps all groups of its rank. Handlers store and count, they never take the gate.
//
// Thread safety: start(): one thread at a time a group; step(), handle(): any. Invariants: every member starts the same collectives of a group in the same order; operation
// n is active only while floor <= n < floor + kActive; memory that a peer was told of stays valid until all its bytes have arrived.
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
#include "comm/waiter.h"

namespace kasane::comm {

/// A collective under way.
struct Operation {
  std::uint64_t number = 0;           ///< of the group's collectives, from 0
  std::uint64_t signature = 0;        ///< equal on all members, or somebody made a mistake
  Schedule schedule;
  std::size_t position = 0;           ///< first step of the current round
  Operation* next = nullptr;          ///< in the queue
  std::atomic<bool> done{false};      ///< the last thing that is written
  Status status = Status::ok;
};

/// The collectives' messages begin with this.
struct CollectiveHeader {
  enum class Kind : std::uint8_t { cell, ready, chunk, ask, floor };
  Kind kind;
  std::uint8_t phase;
  std::uint16_t ask = 0;       ///< cell, ready, ask: 0, or collective - the floor that is asked for + 1
  std::uint32_t slot;          ///< the receiver's name of the group
  std::uint32_t generation;    ///< of the slot
  std::uint32_t from;          ///< the sender's number in the group
  std::uint64_t collective;
  std::uint64_t word;          ///< cell, ready: signature; chunk: offset; floor: the sender's floor
  std::uint64_t token;
};

/// Where a peer keeps its state of the group.
struct PeerPlace {
  Rank rank;
  std::uint32_t slot, generation;
  CollectiveBlock* block;      ///< mapped here, or null
};

class GroupState {
 public:
  GroupState(Transport& transport, std::uint32_t slot) noexcept : transport_(transport), slot_(slot) {}
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  /// Takes the slot for a group of which this rank is member me. own, shared: zeroed, of CollectiveBlock::bytes(members); for what comes by messages, and for what
  /// peers that map it store there (or null). Messages may arrive as soon as peers know slot and generation.
  void open(std::uint32_t members, std::uint32_t me, CollectiveBlock* own, CollectiveBlock* shared);
  void set_peers(std::span<const PeerPlace> peers);
  /// From now on peers may map it too. Nothing is under way.
  void share(CollectiveBlock* shared) noexcept;
  /// After the last collective. Waits for what peers were asked and will tell.
  void close(Waiter&);

  /// Takes over; the operation stays until done.
  void start(Operation&) noexcept;
  /// Moves everything on that can move. Never waits.
  void step() noexcept;
  void handle(const CollectiveHeader&, std::span<const std::byte> data) noexcept;
  /// If rank is a member, nothing of this group will complete any more: all of it ends with Status::peer_lost.
  void peer_lost(Rank rank) noexcept;

  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  [[nodiscard]] std::uint32_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }  // relaxed: the opener's own
  [[nodiscard]] std::uint32_t members() const noexcept { return members_; }
  [[nodiscard]] std::uint32_t me() const noexcept { return me_; }
  [[nodiscard]] Rank member(std::uint32_t i) const noexcept { return peers_[i].rank; }

  std::unique_ptr<Operation> take_spare();
  void give_spare(std::unique_ptr<Operation>) noexcept;
  ~GroupState();

 private:
  struct Peer {
    Rank rank = kNoRank;
    std::uint32_t slot = 0, generation = 0;
    CollectiveBlock* block = nullptr;
    std::atomic<std::uint64_t> floor{0};  ///< as last heard
    std::uint64_t asking = 0;             ///< the floor that we have asked for, or 0
    std::uint64_t streamed = 0, stream_taken = 0;   ///< chunks sent into its stream; of these taken, as last seen
    std::uint64_t taken = 0;                        ///< chunks taken from our stream of it
    std::atomic<std::uint64_t> asked{0};            ///< the floor that it wants to be told of, + 1; 0: none
  };

  void step_inside() noexcept;
  void take_started() noexcept;
  void activate() noexcept;
  bool advance(Operation&) noexcept;
  bool move(Operation&, std::size_t index) noexcept;
  bool send(Operation&, Step&) noexcept;
  bool receive(Operation&, Step&, std::size_t index) noexcept;
  bool send_chunks(Operation&, Step&, std::uint64_t token) noexcept;
  bool stream_chunk(Operation&, Step&, std::uint64_t token) noexcept;
  bool message_chunk(Operation&, Step&, std::uint64_t token) noexcept;
  void drain_stream(std::uint32_t peer) noexcept;
  void arrived(std::uint64_t collective, std::uint64_t token, std::uint64_t offset, std::span<const std::byte> bytes) noexcept;
  bool put_cell(Operation&, const Step&, std::span<const std::byte> data) noexcept;
  bool put_ready(Operation&, const Step&, std::uint64_t token) noexcept;
  bool message(const CollectiveHeader&, Rank to, std::span<const std::byte> data) noexcept;
  bool has_room(Peer&, std::uint64_t number) noexcept;
  bool message_asking(CollectiveHeader, Peer&, std::span<const std::byte> data) noexcept;
  bool tell_floor() noexcept;
  void complete(Operation&, Status) noexcept;
  void hand_back() noexcept;
  void fail_all() noexcept;
  void check_same(const Operation&, std::uint32_t peer, std::uint64_t theirs) const noexcept;
  [[nodiscard]] CollectiveHeader header(CollectiveHeader::Kind, const Peer&, const Operation&, const Step&) const noexcept;

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
  std::atomic<std::uint32_t> generation_{0};        ///< odd: open
  std::atomic<std::uint32_t> inside_{0};            ///< handlers at work
  std::atomic<bool> failed_{false};
  std::atomic<Operation*> spare_{nullptr};

  std::uint64_t started_ = 0;                       ///< the starter's
  std::atomic<Operation*> incoming_{nullptr};       ///< a stack: the latest on top
  alignas(64) std::atomic<std::uint32_t> gate_{0};  ///< 1 while a thread steps; what follows belongs to it
  std::atomic<std::uint64_t> under_way_{0};         ///< started, not yet done
  std::uint64_t floor_ = 0;
  std::uint64_t completed_ = 0;                     ///< bit i: collective floor + i is complete
  Operation* queue_first_ = nullptr;
  Operation* queue_last_ = nullptr;
  Operation* completed_first_ = nullptr;            ///< complete, but some peer has not been told of the floor yet
  std::array<std::atomic<Operation*>, kActive> active_{};   ///< read by handlers
};

}  // namespace kasane::comm
