// SPDX-License-Identifier: Apache-2.0
// The engine behind its inline paths: what happens to an operation that needs a network. One record for each, posted by the caller or by the offloader's
// executor; completed by whoever makes progress.
//
//   submit ─▶ issue ─┬─ alone ─────────────▶ Transport::read, write, … ──▶ completion ─▶ finish ─▶ callback
//                    └─ small, peer busy ──▶ open shipment of the peer ─▶ request ─▶ answer ──▶ finish each part
//   launch ─▶ drive ─┬─ everything posted
//                    └─ a queue is full ──▶ retry list ─▶ poll hook: drive again
//
// The parts: core.cpp (records, single operations, the hook, flush), packing.cpp (shipments), drive.cpp (operations of several steps), service.cpp (what this rank does
// for others).
//
// Thread safety: everything from any thread. No lock is waited for: gates are tried. Invariants: nothing that can be moved on lies on a list while all threads sleep
// (see released() and retry_later()); a record is freed before its callback runs; an operation counts towards flushes from its issue, or from when it left
// its ring, until its callback has run.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "comm/engine/accumulate.h"
#include "comm/engine/flush_epochs.h"
#include "comm/engine/gate.h"
#include "comm/index_pool.h"
#include "comm/engine/operation.h"
#include "comm/engine/take_all_stack.h"
#include "comm/offload/offloader.h"

namespace kasane::comm {

/// As many operations may count towards one rank at once: those with a record, and what the offloader holds until it can be issued.
[[nodiscard]] constexpr std::uint64_t most_counted(const EngineOptions& o, std::uint32_t ranks) noexcept {
  const std::uint64_t records = std::uint64_t{2} * o.operations;
  return o.mode == Mode::offload ? records + Offloader::most_held(o.ring_commands, ranks) : records;
}
/// FlushState counts to 65535. What is left is for what counts without being under way: calls that will be refused, callbacks that post.
inline constexpr std::uint64_t kMostCounted = 65535 - 8191;

class Engine::Core final : public Issuer {
 public:
  Core(Engine&, const EngineOptions&);
  ~Core();

  Result<void> attach_locks();
  Result<void> start_offload(const EngineOptions&);

  // ---- posting; arguments were checked --------------------------------------------------------------------------
  /// A single operation: issues it, or hands it to the offloader. False: a queue is full and nothing happened.
  [[nodiscard]] bool submit(const Command&) noexcept;
  Issued issue(const Command&) noexcept override;
  void hold(Command&) noexcept override;
  /// A record for an operation of several steps; null: none is free. To be filled in and launched, or dropped.
  [[nodiscard]] Operation* prepare(Operation::Kind, Rank peer, Callback, bool with_parcel) noexcept;
  void drop(Operation& op) noexcept { put(op); }
  [[nodiscard]] Piece* map_pieces(Operation&, std::size_t bytes) noexcept;
  /// Drives it, or hands it to the offloader; false: the ring is full, the record is dropped and nothing happened.
  [[nodiscard]] bool launch(Operation&) noexcept;
  [[nodiscard]] bool try_request(const RequestParams&) noexcept;
  [[nodiscard]] bool try_flush(const FlushParams&) noexcept;
  [[nodiscard]] Parcel& parcel(const Operation& op) noexcept { return parcels_[op.parcel]; }

  /// Null: that rank's memory is not mapped here.
  [[nodiscard]] StripeLock* locks_of(Rank r) const noexcept { return locks_[raw(r)]; }
  [[nodiscard]] bool offloads() const noexcept { return offloader_ != nullptr; }

 private:
  struct alignas(64) Peer {
    FlushEpochs<> epochs;
    Gate gate;                                      ///< guards open
    Shipment* open[2] = {nullptr, nullptr};         ///< by Shipment::Kind: takes parts, not sent yet
    std::atomic<std::uint32_t> under_way[2] = {};   ///< shipments sent and not retired
    std::atomic<bool> copying{false};               ///< a third-party copy of ours is with the peer: its one slot for us is taken
    TakeAllStack<Operation> flushes;                ///< that wait for a generation of epochs
  };
  /// What this rank does for one other rank; one of each at a time, since the other sends the next only after the answer.
  struct ReadService {
    ReadService* next = nullptr;
    ReplyToken token{};
    std::uint32_t bytes = 0;
    std::array<std::uint64_t, kMaxPayload / 8> data;
  };
  /// An answer that lets what came with it be seen first, see on_pack().
  struct LateAnswer {
    LateAnswer* next = nullptr;
    ReplyToken token{};
    std::uint32_t index = 0;
  };
  static constexpr std::uint32_t kLateAnswers = 64;
  struct CopyService : Completion {
    Core* core = nullptr;
    CopyService* next = nullptr;
    ReplyToken token{};
    wire::CopyOrder order{};
  };
  /// How far drive() came: everything is posted; it waits for something that released() announces; a queue of the transport is full.
  enum class Went { through, blocked, again };
  enum class Packed { yes, blocked, again };

  // ---- records (core.cpp)
  [[nodiscard]] Operation* take() noexcept;
  [[nodiscard]] Operation* take_prepared() noexcept;
  [[nodiscard]] Operation& fresh(std::uint32_t index) noexcept;
  void put(Operation&) noexcept;
  void finish(Operation&, std::uint32_t pieces, Status) noexcept;
  void complete(Operation&) noexcept;
  [[nodiscard]] std::uint8_t count(Rank peer) noexcept { return static_cast<std::uint8_t>(peers_[raw(peer)].epochs.post()); }
  void uncount(Rank peer, std::uint32_t epoch) noexcept;
  void released() noexcept;
  static void completed(Completion*) noexcept;
  [[nodiscard]] Post post(const Command&, Completion*) noexcept;
  [[nodiscard]] std::byte* local(LocalAddr at) const noexcept { return engine_.local_at(at, 0); }
  void await(Awaiting&, std::uint32_t activity_before) noexcept;
  [[nodiscard]] std::uint32_t activity() const noexcept { return transport_.activity(Doorbell::messages); }

  // ---- the hook (core.cpp)
  static bool hook(void* core) noexcept { return static_cast<Core*>(core)->move_on(); }
  bool move_on() noexcept;
  bool collect_answers() noexcept;
  Awaiting* take_answered() noexcept;
  bool retry() noexcept;
  [[nodiscard]] bool retry_later(Operation&, Went, std::uint32_t changes_before) noexcept;
  void ring() noexcept { transport_.wake(transport_.rank(), Doorbell::messages); }

  // ---- flush (core.cpp)
  void continue_flush(Operation&) noexcept;
  void resume_flushes(Rank) noexcept;

  // ---- shipments (packing.cpp)
  [[nodiscard]] bool packable(const Command&) const noexcept;
  [[nodiscard]] Packed pack(const Command&, Operation&) noexcept;
  template <class Fill>
  [[nodiscard]] Packed pack_entry(Operation&, Rank, const wire::Entry&, const Fill&, const wire::Entry* flag = nullptr, std::uint64_t value = 0) noexcept;
  [[nodiscard]] Packed pack_write(Operation&, RemoteAddr, const std::byte* from, std::uint32_t bytes) noexcept;
  [[nodiscard]] Packed pack_accumulate(Operation&, RemoteAddr, const std::byte* from, std::uint32_t bytes) noexcept;
  [[nodiscard]] Packed pack_read(Operation&, RemoteAddr, std::byte* to, std::uint32_t bytes) noexcept;
  [[nodiscard]] Packed room(Peer&, Rank, Shipment::Kind, std::size_t bytes, std::size_t answer_bytes) noexcept;
  static void add_part(Shipment&, const Operation&, std::byte* to, std::uint32_t bytes) noexcept;
  bool send_open(Peer&, Shipment::Kind) noexcept;
  bool send_due(Rank) noexcept;
  bool send_due_inside(Peer&) noexcept;
  void leave(Rank) noexcept;
  void retire(Shipment&) noexcept;
  void finish_parts(Shipment&, Status) noexcept;
  static void write_answered(Core&, Awaiting&, std::uint64_t, Status) noexcept;
  bool settle_read(Shipment&, bool lost) noexcept;
  bool settle_reads() noexcept;
  [[nodiscard]] static bool claim(Shipment&, std::uint32_t stamp) noexcept;
  static void read_answered(Core&, Awaiting&, std::uint64_t, Status) noexcept;
  bool send_unsent() noexcept;

  // ---- operations of several steps (drive.cpp)
  Went drive(Operation&) noexcept;
  Went drive_pieces(Operation&) noexcept;
  Went drive_piece(Operation&, Piece) noexcept;
  Went post_piece(Operation&, const Piece&) noexcept;
  Went drive_copy(Operation&) noexcept;
  Went drive_request(Operation&) noexcept;
  Went drive_send(Operation&) noexcept;
  Went drive_send_long(Operation&) noexcept;
  Operation* claim_completion(Operation&) noexcept;
  void return_completion(Operation&, Operation&) noexcept;
  void start(Operation&) noexcept;
  static void request_answered(Core&, Awaiting&, std::uint64_t, Status) noexcept;
  static void copy_answered(Core&, Awaiting&, std::uint64_t, Status) noexcept;

  // ---- for others (service.cpp)
  void set_handlers() noexcept;
  static void on_pack(void* core, const Message&) noexcept;
  static void on_read_pack(void* core, const Message&) noexcept;
  static void on_read_data(void* core, const Message&) noexcept;
  static void on_copy(void* core, const Message&) noexcept;
  void apply(const wire::Entry&, const std::byte* data) noexcept;
  [[nodiscard]] bool serve(ReadService&) noexcept;
  [[nodiscard]] bool serve(CopyService&) noexcept;
  static void copied(Completion*) noexcept;
  bool serve_deferred() noexcept;
  bool give_late_answers() noexcept;

  Engine& engine_;
  Transport& transport_;
  const bool puts_are_messages_;                   ///< Facts::puts_need_target
  std::size_t pack_below_;
  std::uint32_t operations_count_, shipments_count_;
  std::unique_ptr<Operation[]> operations_;        ///< of free_transfers_, then of free_prepared_
  std::unique_ptr<Shipment[]> shipments_;
  std::unique_ptr<Parcel[]> parcels_;
  std::unique_ptr<Peer[]> peers_;
  /// by the rank that is served; null where there is nothing to serve
  std::unique_ptr<ReadService[]> read_services_;
  std::unique_ptr<CopyService[]> copy_services_;
  std::unique_ptr<StripeLock*[]> locks_;           ///< by rank; constant after attach_locks()
  IndexPool<> free_transfers_, free_prepared_, free_shipments_, free_parcels_;

  TakeAllStack<Awaiting> new_answers_;             ///< requests sent, not yet on awaited_
  Gate answers_gate_;                              ///< guards awaited_
  Awaiting* awaited_ = nullptr;
  std::atomic<std::uint32_t> awaited_count_{0};    ///< of both
  TakeAllStack<Awaiting> answered_reads_;          ///< shipments whose data has not come
  TakeAllStack<Operation> retry_;
  TakeAllStack<ReadService> deferred_reads_;
  TakeAllStack<CopyService> deferred_copies_;
  std::unique_ptr<LateAnswer[]> late_answers_;
  IndexPool<> free_late_answers_;
  TakeAllStack<LateAnswer> new_late_answers_, due_late_answers_;
  std::atomic<bool> unsent_{false};                ///< an open shipment is due and the transport said again
  std::atomic<std::uint32_t> changes_{0};          ///< grows when a record, shipment or credit is given back

  std::unique_ptr<Offloader> offloader_;
};

}  // namespace kasane::comm
