// SPDX-License-Identifier: Apache-2.0
// Records, single operations, the poll hook and flush.
#include "comm/engine/core.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/assert.h"
#include "base/memory_file.h"

namespace kasane::comm {
namespace {

/// The command that names a record.
Command prepared(const Operation& op, Rank to) noexcept {
  Command c{};
  c.kind = Command::Kind::prepared;
  c.record = op.index;
  c.remote.rank = to;
  return c;
}

}  // namespace

Engine::Core::Core(Engine& engine, const EngineOptions& o)
    : engine_(engine),
      transport_(engine.transport_),
      puts_are_messages_(engine.transport_.facts().puts_need_target),
      pack_below_(std::min(o.pack_below, wire::kMaxNotified)),
      operations_count_(o.operations),
      shipments_count_(o.packs),
      operations_(std::make_unique<Operation[]>(std::size_t{2} * o.operations)),
      shipments_(std::make_unique<Shipment[]>(o.packs)),
      parcels_(std::make_unique<Parcel[]>(o.parcels)),
      peers_(std::make_unique<Peer[]>(engine.ranks_)),
      // 4 KiB a rank. Where every peer is mapped nobody asks for a pack of reads.
      read_services_(transport_.facts().completes_inline ? nullptr
                                                         : std::make_unique<ReadService[]>(engine.ranks_)),
      copy_services_(std::make_unique<CopyService[]>(engine.ranks_)),
      locks_(std::make_unique<StripeLock*[]>(engine.ranks_)),
      free_transfers_(o.operations),
      free_prepared_(o.operations),
      free_shipments_(o.packs),
      free_parcels_(o.parcels),
      late_answers_(std::make_unique<LateAnswer[]>(kLateAnswers)),
      free_late_answers_(kLateAnswers) {
  for (std::uint32_t i = 0; i < 2 * o.operations; ++i) {
    operations_[i].index = i;
    operations_[i].core = this;
  }
  for (std::uint32_t i = 0; i < o.packs; ++i) shipments_[i].index = i;
  for (std::uint32_t i = 0; i < kLateAnswers; ++i) late_answers_[i].index = i;
  for (std::uint32_t r = 0; r < engine.ranks_; ++r) {
    copy_services_[r].core = this;
  }
  set_handlers();
  transport_.set_poll_hook(&Core::hook, this);
}

Engine::Core::~Core() {
  offloader_.reset();
  transport_.set_poll_hook(nullptr, nullptr);
  // The locks stay mapped: peers attached them, and the transport still names them.
}

Result<void> Engine::Core::attach_locks() {
  constexpr std::size_t bytes = kStripes * sizeof(StripeLock);
  const auto memory = transport_.make_memory(kLockRegion, bytes);
  KASANE_TRY(memory);
  // Not through the engine: a region without paths is refused to everybody, at no cost to the inline calls.
  KASANE_TRY(transport_.attach(kLockRegion, -1, *memory, bytes));
  for (std::uint32_t r = 0; r < engine_.ranks_; ++r) locks_[r] = reinterpret_cast<StripeLock*>(transport_.mapped(Rank{r}, kLockRegion));
  return {};
}

Result<void> Engine::Core::start_offload(const EngineOptions& o) {
  auto started = Offloader::start(transport_, *this, o.ring_commands);
  if (!started) return tl::unexpected<Error>(std::move(started).error());
  offloader_ = std::move(*started);
  return {};
}

// ---- records -----------------------------------------------------------------------------------------------------

/// For a transfer or a child: given back without anybody's help, once the transport is done with it.
Operation* Engine::Core::take() noexcept {
  const std::uint32_t index = free_transfers_.take();
  return index == kNoRecord ? nullptr : &fresh(index);
}

/// For an operation that may lie in the offloader's ring behind commands which need records themselves: hence a table of its own, or the ring would wait for
/// what lies in it.
Operation* Engine::Core::take_prepared() noexcept {
  const std::uint32_t index = free_prepared_.take();
  return index == kNoRecord ? nullptr : &fresh(operations_count_ + index);
}

Operation& Engine::Core::fresh(std::uint32_t index) noexcept {
  Operation& op = operations_[index];
  op.fn = &Core::completed;
  op.status = Status::ok;
  op.parent = op.parcel = kNoRecord;
  op.posted = false;
  // relaxed, all three: the record is ours alone until it is posted.
  op.left.store(1, std::memory_order_relaxed);
  op.worst.store(Status::ok, std::memory_order_relaxed);
  op.completion_out.store(false, std::memory_order_relaxed);
  return op;
}

void Engine::Core::put(Operation& op) noexcept {
  if (op.parcel != kNoRecord) free_parcels_.put(op.parcel);
  if (op.many != nullptr) {
    ::munmap(op.many, op.many_bytes);
    op.many = nullptr;
  }
  if (op.index < operations_count_) {
    free_transfers_.put(op.index);
  } else {
    free_prepared_.put(op.index - operations_count_);
  }
  released();
}

/// Whoever waits for a record, shipment or credit is on a list by now, or sees the change that we count here (retry_later).
void Engine::Core::released() noexcept {
  changes_.fetch_add(1, std::memory_order_seq_cst);   // seq_cst: before the look at the list
  if (!retry_.empty()) ring();
}

void Engine::Core::finish(Operation& op, std::uint32_t pieces, Status status) noexcept {
  if (status != Status::ok) op.worst.store(status, std::memory_order_relaxed);   // relaxed: published by left
  // release: our bytes and status, to who completes; acquire: everybody else's.
  if (op.left.fetch_sub(pieces, std::memory_order_acq_rel) == pieces) complete(op);
}

void Engine::Core::complete(Operation& op) noexcept {
  const Callback callback = op.on_complete;
  const Status status = op.worst.load(std::memory_order_relaxed);   // relaxed: ordered by left
  const Rank peer = op.peer;
  const std::uint32_t epoch = op.epoch;
  put(op);   // first, so that the callback can post
  if (callback.fn != nullptr) callback.fn(callback.context, status);
  uncount(peer, epoch);   // after the callback: a flush has completed when the callbacks before it have run
}

void Engine::Core::uncount(Rank peer, std::uint32_t epoch) noexcept {
  if (peers_[raw(peer)].epochs.complete(epoch)) resume_flushes(peer);
}

/// The transport is done with what it was given our Completion for.
void Engine::Core::completed(Completion* done) noexcept {
  auto& op = static_cast<Operation&>(*done);
  Core& core = *op.core;
  const Status status = op.status;
  switch (op.kind) {
    case Operation::Kind::child: {
      Operation& parent = core.operations_[op.parent];
      core.put(op);
      return core.finish(parent, 1, status);
    }
    case Operation::Kind::send_long:
      if (status != Status::ok) op.worst.store(status, std::memory_order_relaxed);   // relaxed: ours alone again
      return core.start(op);
    case Operation::Kind::read_pieces:
    case Operation::Kind::write_pieces:
      op.completion_out.store(false, std::memory_order_release);   // release: we have read status
      core.finish(op, 1, status);
      return core.released();
    default: return core.finish(op, 1, status);
  }
}

// ---- single operations -------------------------------------------------------------------------------------------

bool Engine::Core::submit(const Command& c) noexcept { return offloader_ != nullptr ? offloader_->try_push(c) : issue(c) == Issued::done; }

Issued Engine::Core::issue(const Command& c) noexcept {
  const bool counted = c.epoch != Command::kUncounted;
  if (c.kind == Command::Kind::prepared) {
    Operation& op = operations_[c.record];
    if (op.kind == Operation::Kind::flush) {
      continue_flush(op);   // everything posted before it has left the ring, and has been counted
      return Issued::done;
    }
    op.epoch = counted ? c.epoch : count(op.peer);
    start(op);   // what is full is tried again from the hook
    return Issued::done;
  }
  Operation* op = take();
  if (op == nullptr) return Issued::again;
  op->kind = Operation::Kind::transfer;
  op->peer = c.remote.rank;
  op->on_complete = c.on_complete;
  op->epoch = counted ? c.epoch : count(c.remote.rank);   // before it can complete
  if (packable(c) && pack(c, *op) == Packed::yes) return Issued::done;
  switch (post(c, op)) {
    case Post::done: finish(*op, 1, Status::ok); break;
    case Post::pending: break;
    case Post::again:
      const std::uint8_t epoch = op->epoch;
      put(*op);
      if (!counted) uncount(c.remote.rank, epoch);
      return Issued::again;
  }
  return Issued::done;
}

/// A flush that comes through the ring behind it must find it counted.
void Engine::Core::hold(Command& c) noexcept {
  const bool flush = c.kind == Command::Kind::prepared && operations_[c.record].kind == Operation::Kind::flush;
  if (!flush) c.epoch = count(c.remote.rank);
}

Post Engine::Core::post(const Command& c, Completion* done) noexcept {
  switch (c.kind) {
    case Command::Kind::read: return transport_.read(c.remote, local(c.transfer.local), c.transfer.bytes, done);
    case Command::Kind::write: return transport_.write(c.remote, local(c.transfer.local), c.transfer.bytes, done);
    case Command::Kind::write_notify:
      return transport_.write_notify(c.remote, local(c.transfer.local), c.transfer.bytes, c.transfer.flag_offset, c.transfer.value, done);
    default: return transport_.atomic(c.op, c.remote, c.atomic.operand, c.atomic.compare, c.atomic.result, done, c.width);
  }
}

Operation* Engine::Core::prepare(Operation::Kind kind, Rank peer, Callback on_complete, bool with_parcel) noexcept {
  Operation* op = take_prepared();
  if (op == nullptr) return nullptr;
  if (with_parcel) {
    op->parcel = free_parcels_.take();
    if (op->parcel == kNoRecord) {
      put(*op);
      return nullptr;
    }
  }
  op->kind = kind;
  op->peer = peer;
  op->on_complete = on_complete;
  return op;
}

/// Pages for a list of pieces; null: there are none.
Piece* Engine::Core::map_pieces(Operation& op, std::size_t bytes) noexcept {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  op.many = static_cast<Piece*>(pages);
  op.many_bytes = bytes;
  return op.many;
}

bool Engine::Core::launch(Operation& op) noexcept {
  if (offloader_ == nullptr) {
    op.epoch = count(op.peer);
    start(op);
    return true;
  }
  if (offloader_->try_push(prepared(op, op.peer))) return true;
  put(op);
  return false;
}

// ---- the hook ----------------------------------------------------------------------------------------------------

bool Engine::Core::move_on() noexcept {
  // Who polls for an arrival pays for each look in vain, at both ends of a round trip: no call where there is nothing.
  bool any = false;
  // seq_cst: await() counts, then looks at the doorbell; who rings the doorbell sleeps only after this look.
  if (awaited_count_.load(std::memory_order_seq_cst) != 0) any |= collect_answers();
  if (!answered_reads_.empty()) any |= settle_reads();   // after collect_answers(), which adds to them
  if (!retry_.empty()) any |= retry();
  if (unsent_.load(std::memory_order_seq_cst)) any |= send_unsent();   // seq_cst: pairs with send_open()
  if (!deferred_reads_.empty() || !deferred_copies_.empty()) any |= serve_deferred();
  if (!due_late_answers_.empty() || !new_late_answers_.empty()) any |= give_late_answers();
  return any;
}

/// A request was sent. Its answer may have come, and rung, and been looked for in vain, before we are on the list: then ring again.
void Engine::Core::await(Awaiting& request, std::uint32_t activity_before) noexcept {
  new_answers_.push(&request);
  awaited_count_.fetch_add(1, std::memory_order_seq_cst);   // seq_cst: before the look at the doorbell, see move_on()
  if (activity() != activity_before) ring();
}

bool Engine::Core::collect_answers() noexcept {
  if (!answers_gate_.enter()) return false;
  Awaiting* answered = take_answered();
  if (answers_gate_.leave()) ring();   // whoever was turned away may have come for an answer that we looked at too early
  const bool any = answered != nullptr;
  while (answered != nullptr) {
    Awaiting* next = answered->next;
    answered->answered(*this, *answered, answered->value, answered->reply.status);   // frees the record
    answered = next;
  }
  return any;
}

/// Inside the gate: moves those whose answer has come off the list.
Awaiting* Engine::Core::take_answered() noexcept {
  for (Awaiting* fresh = new_answers_.take_all(); fresh != nullptr;) {
    Awaiting* next = fresh->next;
    fresh->next = awaited_;
    awaited_ = fresh;
    fresh = next;
  }
  Awaiting* answered = nullptr;
  for (Awaiting** link = &awaited_; *link != nullptr;) {
    Awaiting* request = *link;
    if (!transport_.test(request->reply, &request->value)) {
      link = &request->next;
      continue;
    }
    *link = request->next;
    request->next = answered;
    answered = request;
    awaited_count_.fetch_sub(1, std::memory_order_relaxed);   // relaxed: seen late, it costs a look
  }
  return answered;
}

bool Engine::Core::retry() noexcept {
  Operation* op = retry_.take_all();
  bool any = false, look_again = false;
  while (op != nullptr) {
    Operation* next = op->next;
    const std::uint32_t before = changes_.load(std::memory_order_seq_cst);   // seq_cst: before we look for what released() announces
    const Went went = drive(*op);
    if (went == Went::through) {
      any = true;
    } else {
      look_again |= retry_later(*op, went, before);
    }
    op = next;
  }
  if (look_again) ring();
  return any;
}

/// True: ring, for nobody else will. A transport that is full announces nothing when it has room; a released record that we missed was announced before
/// we were on the list.
bool Engine::Core::retry_later(Operation& op, Went went, std::uint32_t changes_before) noexcept {
  retry_.push(&op);
  return went == Went::again || changes_.load(std::memory_order_seq_cst) != changes_before;   // seq_cst: after the push
}

// ---- flush -------------------------------------------------------------------------------------------------------

bool Engine::Core::try_flush(const FlushParams& p) noexcept {
  fence_all();   // inline writes have completed, in the sense that later loads come after them too
  const bool all = p.rank == kNoRank;
  Rank peer = all ? Rank{0} : p.rank;
  const Rank last = all ? Rank{engine_.ranks_ - 1} : p.rank;
  // What was posted and has not completed is in a ring, or counted.
  if (offloader_ == nullptr || offloader_->issued_everything()) {
    while (peers_[raw(peer)].epochs.idle()) {
      if (peer == last) return Engine::call(p.on_complete);
      peer = Rank{raw(peer) + 1};
    }
  }
  Operation* op = take_prepared();
  if (op == nullptr) return false;
  op->kind = Operation::Kind::flush;
  op->peer = peer;
  op->all = all;
  op->on_complete = p.on_complete;
  if (offloader_ == nullptr) {
    continue_flush(*op);
    return true;
  }
  // Behind everything that the ring holds. The command names this rank as its peer, so that a closed peer does not stop the
  // flush: commands that are held have been counted.
  if (offloader_->try_push(prepared(*op, engine_.me_))) return true;
  put(*op);
  return false;
}

/// Goes through the ranks until one still has something under way, and waits there.
void Engine::Core::continue_flush(Operation& op) noexcept {
  for (;;) {
    const Rank rank = op.peer;
    Peer& peer = peers_[raw(rank)];
    op.generation = peer.epochs.flush();
    if (!peer.epochs.over(op.generation)) {
      const std::uint32_t generation = op.generation;
      peer.flushes.push(&op);   // from here on it is not ours
      if (peer.epochs.over(generation)) resume_flushes(rank);
      return;
    }
    if (!op.all || raw(rank) + 1 == engine_.ranks_) break;
    op.peer = Rank{raw(rank) + 1};
  }
  const Callback callback = op.on_complete;
  put(op);
  Engine::call(callback);
}

void Engine::Core::resume_flushes(Rank rank) noexcept {
  Peer& peer = peers_[raw(rank)];
  Operation* op = peer.flushes.take_all();
  while (op != nullptr) {
    Operation* next = op->next;
    if (peer.epochs.over(op->generation)) {
      continue_flush(*op);
    } else {
      const std::uint32_t generation = op->generation;
      peer.flushes.push(op);   // it waits for the next turn, which may be over by now: then nobody else would look
      if (peer.epochs.over(generation)) resume_flushes(rank);
    }
    op = next;
  }
}

}  // namespace kasane::comm
