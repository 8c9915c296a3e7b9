// SPDX-License-Identifier: Apache-2.0
// The engine behind its inline paths: what happens to an operation that needs a network. Each has one record.
// The caller or the offloader's executor posts it; a thread that makes progress completes it.
//
//   submit ─▶ issue ─┬─ alone ─────────────▶ Transport::read, write, … ──▶ completion ─▶ finish ─▶ callback
//                    └─ small, peer busy ──▶ open pack of the peer ─▶ request ─▶ answer ──▶ finish each part
//   launch ─▶ drive ─┬─ everything posted
//                    └─ a queue is full ──▶ retry list ─▶ poll hook: drive again
//
// The parts: core.cpp (records, single operations, the hook, flush), packing.cpp (packs), drive.cpp
// (operations of several steps), service.cpp (what this rank does for others).
//
// Thread safety: everything from any thread. No thread waits for a lock: gates are only tried. Invariants:
// while all threads sleep, no list holds anything that could advance (announce_release(), retry_later()). A
// record is freed before its callback runs. An operation counts towards flushes from its issue, or from when
// it left the ring, until its callback has run.
#pragma once

#include <atomic>
#include <memory>

#include "comm/engine/accumulate.h"
#include "comm/engine/flush_epochs.h"
#include "comm/engine/gate.h"
#include "comm/engine/operation.h"
#include "comm/index_pool.h"
#include "comm/offload/offloader.h"
#include "comm/take_all_stack.h"

namespace kasane::comm {

/// The number of operations that may count towards one rank at once: those with a record, and those that the
/// offloader holds until they can be issued.
[[nodiscard]] constexpr std::uint64_t most_counted(const EngineOptions& o, std::uint32_t ranks) noexcept {
  const std::uint64_t records = std::uint64_t{2} * o.operations;
  return o.mode == Mode::offload ? records + Offloader::most_held(o.ring_commands, ranks) : records;
}
/// FlushState counts to 65535. The rest is for operations that count without being outstanding: calls that
/// will be refused, and operations that callbacks post.
inline constexpr std::uint64_t kMostCounted = 65535 - 8191;

class Engine::Core final : public Issuer {
 public:
  Core(Engine&, const EngineOptions&);
  ~Core();

  Result<void> attach_locks();
  Result<void> start_offload(const EngineOptions&);

  // ---- posting; arguments were checked --------------------------------------------------------------------
  /// A single operation: issues it, or passes it to the offloader. False: a queue is full and nothing
  /// happened.
  [[nodiscard]] bool submit(const Command&) noexcept;
  Issued issue(const Command&) noexcept override;
  void hold(Command&) noexcept override;
  /// A record for an operation of several steps; null: none is free. The caller fills it in and launches or
  /// drops it.
  [[nodiscard]] Operation* prepare(Operation::Kind, Rank peer, Callback, bool with_arguments) noexcept;
  void drop(Operation& op) noexcept { put(op); }
  [[nodiscard]] Piece* map_pieces(Operation&, std::size_t bytes) noexcept;
  /// Drives it, or passes it to the offloader; false: the ring is full, the record is dropped and nothing
  /// happened.
  [[nodiscard]] bool launch(Operation&) noexcept;
  [[nodiscard]] bool try_request(const RequestParams&) noexcept;
  [[nodiscard]] bool try_flush(const FlushParams&) noexcept;
  [[nodiscard]] ArgumentBuffer& arguments(const Operation& op) noexcept {
    return argument_buffers_[op.arguments];
  }

  /// Null: that rank's memory is not mapped here.
  [[nodiscard]] StripeLock* locks_of(Rank r) const noexcept { return locks_[raw(r)]; }
  [[nodiscard]] bool offloads() const noexcept { return offloader_ != nullptr; }

 private:
  struct alignas(64) Peer {
    FlushEpochs<> epochs;
    Gate gate;                                       ///< guards open
    Pack* open[2] = {nullptr, nullptr};              ///< by Pack::Kind: takes parts, not sent yet
    std::atomic<std::uint32_t> outstanding[2] = {};  ///< packs sent and not retired
    /// a third-party copy of ours occupies the peer's one slot for us
    std::atomic<bool> copying{false};
    TakeAllStack<Operation> flushes;  ///< flushes that wait for a generation of epochs
  };
  /// What this rank does for one other rank. One of each kind suffices: the other sends the next only after
  /// the answer.
  struct ReadService {
    ReadService* next = nullptr;
    ReplyToken token{};
    std::uint32_t bytes = 0;
    std::array<std::uint64_t, kMaxPayload / 8> data;
  };
  /// A reply that is sent after the polling thread could look at what the pack brought, see on_pack().
  struct DeferredReply {
    DeferredReply* next = nullptr;
    ReplyToken token{};
    std::uint32_t index = 0;
  };
  static constexpr std::uint32_t kDeferredReplies = 64;
  struct CopyService : Completion {
    Core* core = nullptr;
    CopyService* next = nullptr;
    ReplyToken token{};
    wire::CopyRequest request{};
  };
  /// How far drive() came. posted: everything is. blocked: it waits for something that announce_release()
  /// announces. again: a queue of the transport is full.
  enum class Driven { posted, blocked, again };
  enum class PackResult { added, blocked, again };

  // ---- records (core.cpp)
  [[nodiscard]] Operation* take() noexcept;
  [[nodiscard]] Operation* take_prepared() noexcept;
  [[nodiscard]] Operation& fresh(std::uint32_t index) noexcept;
  void put(Operation&) noexcept;
  void finish(Operation&, std::uint32_t pieces, Status) noexcept;
  void complete(Operation&) noexcept;
  [[nodiscard]] std::uint8_t count(Rank peer) noexcept {
    return static_cast<std::uint8_t>(peers_[raw(peer)].epochs.post());
  }
  void uncount(Rank peer, std::uint32_t epoch) noexcept;
  void announce_release() noexcept;
  static void completed(Completion*) noexcept;
  [[nodiscard]] Post post(const Command&, Completion*) noexcept;
  [[nodiscard]] std::byte* local(LocalAddr at) const noexcept { return engine_.local_at(at, 0); }
  void await(OutstandingRequest&, std::uint32_t activity_before) noexcept;
  [[nodiscard]] std::uint32_t activity() const noexcept { return transport_.activity(Doorbell::messages); }

  // ---- the hook (core.cpp)
  static bool hook(void* core) noexcept { return static_cast<Core*>(core)->advance(); }
  bool advance() noexcept;
  bool collect_answers() noexcept;
  OutstandingRequest* take_answered() noexcept;
  bool retry() noexcept;
  [[nodiscard]] bool retry_later(Operation&, Driven, std::uint32_t changes_before) noexcept;
  void ring() noexcept { transport_.wake(transport_.rank(), Doorbell::messages); }

  // ---- flush (core.cpp)
  void continue_flush(Operation&) noexcept;
  void resume_flushes(Rank) noexcept;

  // ---- packs (packing.cpp)
  [[nodiscard]] bool packable(const Command&) const noexcept;
  [[nodiscard]] bool stored_once(const Command&) const noexcept;
  [[nodiscard]] PackResult add_to_pack(const Command&, Operation&) noexcept;
  template <class Fill>
  [[nodiscard]] PackResult add_entry(Operation&, Rank, const wire::Entry&, const Fill&,
                                     const wire::Entry* flag = nullptr, std::uint64_t value = 0) noexcept;
  [[nodiscard]] PackResult add_write(Operation&, RemoteAddr, const std::byte* from,
                                     std::uint32_t bytes) noexcept;
  [[nodiscard]] PackResult add_accumulate(Operation&, RemoteAddr, const std::byte* from,
                                          std::uint32_t bytes) noexcept;
  [[nodiscard]] PackResult add_read(Operation&, RemoteAddr, std::byte* to, std::uint32_t bytes) noexcept;
  [[nodiscard]] PackResult room(Peer&, Rank, Pack::Kind, std::size_t bytes,
                                std::size_t answer_bytes) noexcept;
  static void add_part(Pack&, const Operation&, std::byte* to, std::uint32_t bytes) noexcept;
  bool send_open(Peer&, Pack::Kind) noexcept;
  bool send_due(Rank) noexcept;
  bool send_due_inside(Peer&) noexcept;
  void leave_gate(Rank) noexcept;
  void retire(Pack&) noexcept;
  void finish_parts(Pack&, Status) noexcept;
  static void write_answered(Core&, OutstandingRequest&, std::uint64_t, Status) noexcept;
  bool settle_read(Pack&, bool lost) noexcept;
  bool settle_reads() noexcept;
  [[nodiscard]] static bool claim(Pack&, std::uint32_t stamp) noexcept;
  static void read_answered(Core&, OutstandingRequest&, std::uint64_t, Status) noexcept;
  bool send_unsent() noexcept;

  // ---- operations of several steps (drive.cpp)
  Driven drive(Operation&) noexcept;
  Driven drive_pieces(Operation&) noexcept;
  Driven drive_piece(Operation&, Piece) noexcept;
  Driven post_piece(Operation&, const Piece&) noexcept;
  Driven drive_copy(Operation&) noexcept;
  Driven drive_request(Operation&) noexcept;
  Driven drive_send(Operation&) noexcept;
  Operation* claim_completion(Operation&) noexcept;
  void return_completion(Operation&, Operation&) noexcept;
  void start(Operation&) noexcept;
  static void request_answered(Core&, OutstandingRequest&, std::uint64_t, Status) noexcept;
  static void copy_answered(Core&, OutstandingRequest&, std::uint64_t, Status) noexcept;

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
  bool send_deferred_replies() noexcept;

  Engine& engine_;
  Transport& transport_;
  const bool puts_are_messages_;  ///< Facts::puts_need_target
  std::size_t pack_below_;
  std::uint32_t operations_count_, packs_count_;
  std::unique_ptr<Operation[]> operations_;  ///< of free_transfers_, then of free_prepared_
  std::unique_ptr<Pack[]> packs_;
  std::unique_ptr<ArgumentBuffer[]> argument_buffers_;
  std::unique_ptr<Peer[]> peers_;
  /// By the rank that is served; null where every peer's memory is mapped.
  std::unique_ptr<ReadService[]> read_services_;
  std::unique_ptr<CopyService[]> copy_services_;
  std::unique_ptr<StripeLock*[]> locks_;  ///< by rank; constant after attach_locks()
  IndexPool<> free_transfers_, free_prepared_, free_packs_, free_argument_buffers_;

  TakeAllStack<OutstandingRequest> new_answers_;  ///< requests sent, not yet on awaited_
  Gate answers_gate_;                             ///< guards awaited_
  OutstandingRequest* awaited_ = nullptr;
  std::atomic<std::uint32_t> awaited_count_{0};      ///< of both
  TakeAllStack<OutstandingRequest> answered_reads_;  ///< packs whose answer has come and whose data has not
  TakeAllStack<Operation> retry_;
  TakeAllStack<ReadService> deferred_reads_;
  TakeAllStack<CopyService> deferred_copies_;
  std::unique_ptr<DeferredReply[]> deferred_replies_;
  IndexPool<> free_deferred_replies_;
  TakeAllStack<DeferredReply> new_deferred_replies_, due_deferred_replies_;
  std::atomic<bool> unsent_{false};        ///< an open pack is due and the transport said again
  std::atomic<std::uint32_t> changes_{0};  ///< grows when a record, pack or credit is given back

  std::unique_ptr<Offloader> offloader_;
};

}  // namespace kasane::comm
