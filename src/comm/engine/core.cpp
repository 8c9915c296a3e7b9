// SPDX-License-Identifier: Apache-2.0
// Records, single operations, the poll hook and flush.
#include "comm/engine/core.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/assert.h"
#include "base/full_fence.h"
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
      packs_count_(o.packs),
      operations_(std::make_unique<Operation[]>(std::size_t{2} * o.operations)),
      packs_(std::make_unique<Pack[]>(o.packs)),
      argument_buffers_(std::make_unique<ArgumentBuffer[]>(o.argument_buffers)),
      peers_(std::make_unique<Peer[]>(engine.ranks_)),
      // 4 KiB a rank. Where every peer is mapped no rank sends a pack of reads.
      read_services_(transport_.facts().completes_inline ? nullptr
                                                         : std::make_unique<ReadService[]>(engine.ranks_)),
      copy_services_(std::make_unique<CopyService[]>(engine.ranks_)),
      locks_(std::make_unique<StripeLock*[]>(engine.ranks_)),
      free_transfers_(o.operations),
      free_prepared_(o.operations),
      free_packs_(o.packs),
      free_argument_buffers_(o.argument_buffers),
      deferred_replies_(std::make_unique<DeferredReply[]>(kDeferredReplies)),
      free_deferred_replies_(kDeferredReplies) {
  for (std::uint32_t i = 0; i < 2 * o.operations; ++i) {
    operations_[i].index = i;
    operations_[i].core = this;
  }
  for (std::uint32_t i = 0; i < o.packs; ++i) packs_[i].index = i;
  for (std::uint32_t i = 0; i < kDeferredReplies; ++i) deferred_replies_[i].index = i;
  for (std::uint32_t r = 0; r < engine.ranks_; ++r) {
    copy_services_[r].core = this;
  }
  set_handlers();
  transport_.set_poll_hook(&Core::hook, this);
}

Engine::Core::~Core() {
  offloader_.reset();
  transport_.set_poll_hook(nullptr, nullptr);
  // The locks stay mapped: peers attached them, and the transport still refers to them.
}

Result<void> Engine::Core::attach_locks() {
  constexpr std::size_t bytes = kStripes * sizeof(StripeLock);
  const auto memory = transport_.make_memory(kLockRegion, bytes);
  KASANE_TRY(memory);
  // Not through the engine: a region without paths is refused to every operation, at no cost to the inline
  // calls.
  KASANE_TRY(transport_.attach(kLockRegion, -1, *memory, bytes));
  for (std::uint32_t r = 0; r < engine_.ranks_; ++r)
    locks_[r] = reinterpret_cast<StripeLock*>(transport_.mapped(Rank{r}, kLockRegion));
  return {};
}

Result<void> Engine::Core::start_offload(const EngineOptions& o) {
  auto started = Offloader::start(transport_, *this, o.ring_commands);
  if (!started) return tl::unexpected<Error>(std::move(started).error());
  offloader_ = std::move(*started);
  return {};
}

// ---- records ----------------------------------------------------------------------------------------------

/// For a transfer or a child: given back as soon as the transport has completed it, without another thread's
/// help.
Operation* Engine::Core::take() noexcept {
  const std::uint32_t index = free_transfers_.take();
  return index == kNoRecord ? nullptr : &fresh(index);
}

/// For an operation that may lie in the offloader's ring behind commands that need records themselves: hence
/// a table of its own. With one table the ring would wait for records that its own commands hold.
Operation* Engine::Core::take_prepared() noexcept {
  const std::uint32_t index = free_prepared_.take();
  return index == kNoRecord ? nullptr : &fresh(operations_count_ + index);
}

Operation& Engine::Core::fresh(std::uint32_t index) noexcept {
  Operation& op = operations_[index];
  op.fn = &Core::completed;
  op.status = Status::ok;
  op.parent = op.arguments = kNoRecord;
  // relaxed, all three: no other thread uses the record until it is posted.
  op.left.store(1, std::memory_order_relaxed);
  op.worst.store(Status::ok, std::memory_order_relaxed);
  op.completion_out.store(false, std::memory_order_relaxed);
  return op;
}

void Engine::Core::put(Operation& op) noexcept {
  if (op.arguments != kNoRecord) free_argument_buffers_.put(op.arguments);
  if (op.many != nullptr) {
    ::munmap(op.many, op.many_bytes);
    op.many = nullptr;
  }
  if (op.index < operations_count_) {
    free_transfers_.put(op.index);
  } else {
    free_prepared_.put(op.index - operations_count_);
  }
  announce_release();
}

/// An operation that waits for a record, a pack or credit is on a list by now, or its thread sees the change
/// that is counted here (retry_later).
void Engine::Core::announce_release() noexcept {
  changes_.fetch_add(1, std::memory_order_seq_cst);  // seq_cst: before the look at the list
  if (!retry_.empty()) ring();
}

void Engine::Core::finish(Operation& op, std::uint32_t pieces, Status status) noexcept {
  if (status != Status::ok) op.worst.store(status, std::memory_order_relaxed);  // relaxed: published by left
  // release: our bytes and status, to the thread that completes the operation; acquire: those of all other
  // threads.
  if (op.left.fetch_sub(pieces, std::memory_order_acq_rel) == pieces) complete(op);
}

void Engine::Core::complete(Operation& op) noexcept {
  const Callback callback = op.on_complete;
  const Status status = op.worst.load(std::memory_order_relaxed);  // relaxed: ordered by left
  const Rank peer = op.peer;
  const std::uint32_t epoch = op.epoch;
  put(op);  // first, so that the callback can post
  if (callback.fn != nullptr) callback.fn(callback.context, status);
  uncount(peer, epoch);  // after the callback: a flush has completed when the callbacks before it have run
}

void Engine::Core::uncount(Rank peer, std::uint32_t epoch) noexcept {
  if (peers_[raw(peer)].epochs.complete(epoch)) resume_flushes(peer);
}

/// Runs when the transport has completed what our Completion was given for.
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
    case Operation::Kind::read_pieces:
    case Operation::Kind::write_pieces:
      op.completion_out.store(false, std::memory_order_release);  // release: we have read status
      core.finish(op, 1, status);
      return core.announce_release();
    default: return core.finish(op, 1, status);
  }
}

// ---- single operations ------------------------------------------------------------------------------------

bool Engine::Core::submit(const Command& c) noexcept {
  return offloader_ != nullptr ? offloader_->try_push(c) : issue(c) == Issued::done;
}

Issued Engine::Core::issue(const Command& c) noexcept {
  const bool counted = c.epoch != Command::kUncounted;
  if (c.kind == Command::Kind::prepared) {
    Operation& op = operations_[c.record];
    if (op.kind == Operation::Kind::flush) {
      continue_flush(op);  // everything posted before it has left the ring, and has been counted
      return Issued::done;
    }
    op.epoch = counted ? c.epoch : count(op.peer);
    start(op);  // where a queue is full the hook tries again
    return Issued::done;
  }
  Operation* op = take();
  if (op == nullptr) return Issued::again;
  op->kind = Operation::Kind::transfer;
  op->peer = c.remote.rank;
  op->on_complete = c.on_complete;
  op->epoch = counted ? c.epoch : count(c.remote.rank);  // before it can complete
  if (packable(c) && add_to_pack(c, *op) == PackResult::added) return Issued::done;
  switch (stored_once(c) ? Post::again : post(c, op)) {
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

/// Counts a command that leaves the ring unissued, so that a flush behind it in the ring finds it counted.
void Engine::Core::hold(Command& c) noexcept {
  const bool flush =
      c.kind == Command::Kind::prepared && operations_[c.record].kind == Operation::Kind::flush;
  if (!flush) c.epoch = count(c.remote.rank);
}

Post Engine::Core::post(const Command& c, Completion* done) noexcept {
  switch (c.kind) {
    case Command::Kind::read:
      return transport_.read(c.remote, local(c.transfer.local), c.transfer.bytes, done);
    case Command::Kind::write:
      return transport_.write(c.remote, local(c.transfer.local), c.transfer.bytes, done);
    case Command::Kind::write_notify:
      return transport_.write_notify(c.remote, local(c.transfer.local), c.transfer.bytes,
                                     c.transfer.flag_offset, c.transfer.value, done);
    default:
      return transport_.atomic(c.op, c.remote, c.atomic.operand, c.atomic.compare, c.atomic.result, done,
                               c.width);
  }
}

Operation* Engine::Core::prepare(Operation::Kind kind, Rank peer, Callback on_complete,
                                 bool with_arguments) noexcept {
  Operation* op = take_prepared();
  if (op == nullptr) return nullptr;
  if (with_arguments) {
    op->arguments = free_argument_buffers_.take();
    if (op->arguments == kNoRecord) {
      put(*op);
      return nullptr;
    }
  }
  op->kind = kind;
  op->peer = peer;
  op->on_complete = on_complete;
  return op;
}

/// Maps pages for a list of pieces; null: no memory.
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

// ---- the hook ---------------------------------------------------------------------------------------------

bool Engine::Core::advance() noexcept {
  // A thread that polls for an arrival pays for each vain look, at both ends of a round trip: hence no call
  // for an empty list.
  bool any = false;
  // seq_cst: await() counts, then reads the doorbell; the thread that it rings sleeps only after this look.
  if (awaited_count_.load(std::memory_order_seq_cst) != 0) any |= collect_answers();
  if (!answered_reads_.empty()) any |= settle_reads();  // after collect_answers(), which adds to them
  if (!retry_.empty()) any |= retry();
  if (unsent_.load(std::memory_order_seq_cst)) any |= send_unsent();  // seq_cst: pairs with send_open()
  if (!deferred_reads_.empty() || !deferred_copies_.empty()) any |= serve_deferred();
  if (!due_deferred_replies_.empty() || !new_deferred_replies_.empty()) any |= send_deferred_replies();
  return any;
}

/// A request was sent. Before it is on the list its answer may have come and rung, and a poller may have
/// looked for it in vain: then ring again.
void Engine::Core::await(OutstandingRequest& request, std::uint32_t activity_before) noexcept {
  new_answers_.push(&request);
  // seq_cst: before the doorbell is read, see advance()
  awaited_count_.fetch_add(1, std::memory_order_seq_cst);
  if (activity() != activity_before) ring();
}

bool Engine::Core::collect_answers() noexcept {
  if (!answers_gate_.enter()) return false;
  OutstandingRequest* answered = take_answered();
  // A thread that failed to enter may have come for an answer that this one looked for too early.
  if (answers_gate_.leave()) ring();
  const bool any = answered != nullptr;
  while (answered != nullptr) {
    OutstandingRequest* next = answered->next;
    answered->answered(*this, *answered, answered->value, answered->reply.status);  // frees the record
    answered = next;
  }
  return any;
}

/// Inside the gate: takes the requests whose answer has come off the list.
OutstandingRequest* Engine::Core::take_answered() noexcept {
  for (OutstandingRequest* fresh = new_answers_.take_all(); fresh != nullptr;) {
    OutstandingRequest* next = fresh->next;
    fresh->next = awaited_;
    awaited_ = fresh;
    fresh = next;
  }
  OutstandingRequest* answered = nullptr;
  for (OutstandingRequest** link = &awaited_; *link != nullptr;) {
    OutstandingRequest* request = *link;
    if (!transport_.test(request->reply, &request->value)) {
      link = &request->next;
      continue;
    }
    *link = request->next;
    request->next = answered;
    answered = request;
    awaited_count_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: seen late, it costs one vain look
  }
  return answered;
}

bool Engine::Core::retry() noexcept {
  Operation* op = retry_.take_all();
  bool any = false, look_again = false;
  while (op != nullptr) {
    Operation* next = op->next;
    // seq_cst: before drive() looks for what announce_release() announces.
    const std::uint32_t before = changes_.load(std::memory_order_seq_cst);
    const Driven driven = drive(*op);
    if (driven == Driven::posted) {
      any = true;
    } else {
      look_again |= retry_later(*op, driven, before);
    }
    op = next;
  }
  if (look_again) ring();
  return any;
}

/// True: the caller has to ring, since no other thread will. A full transport announces nothing when it has
/// room; and a record may have been released before the operation was on the list.
bool Engine::Core::retry_later(Operation& op, Driven driven, std::uint32_t changes_before) noexcept {
  retry_.push(&op);
  // seq_cst: after the push.
  return driven == Driven::again || changes_.load(std::memory_order_seq_cst) != changes_before;
}

// ---- flush ------------------------------------------------------------------------------------------------

bool Engine::Core::try_flush(const FlushParams& p) noexcept {
  full_fence();  // inline writes have completed: later loads come after them, too
  const bool all = p.rank == kNoRank;
  Rank peer = all ? Rank{0} : p.rank;
  const Rank last = all ? Rank{engine_.ranks_ - 1} : p.rank;
  // An operation that was posted and has not completed is in the ring, or counted.
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
  // Behind everything that the ring holds. The command names this rank as its peer, so that a closed peer
  // does not stop the flush: commands that are held have been counted.
  if (offloader_->try_push(prepared(*op, engine_.me_))) return true;
  put(*op);
  return false;
}

/// Goes through the ranks until one still has outstanding operations, and waits there.
void Engine::Core::continue_flush(Operation& op) noexcept {
  for (;;) {
    const Rank rank = op.peer;
    Peer& peer = peers_[raw(rank)];
    op.generation = peer.epochs.flush();
    if (!peer.epochs.over(op.generation)) {
      const std::uint32_t generation = op.generation;
      peer.flushes.push(&op);  // from here on another thread may own it
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
      // It waits for the next turn. If that is over by now, no other thread would look.
      peer.flushes.push(op);
      if (peer.epochs.over(generation)) resume_flushes(rank);
    }
    op = next;
  }
}

}  // namespace kasane::comm
