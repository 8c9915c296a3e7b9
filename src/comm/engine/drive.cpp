// SPDX-License-Identifier: Apache-2.0
// Operations of several steps. drive() performs as many steps as it can; the hook calls it again for the
// rest. One thread at a time drives an operation: first the poster, later the thread that took it off the
// retry list or that completed its last step.
#include <cstring>

#include "comm/engine/core.h"

namespace kasane::comm {

void Engine::Core::start(Operation& op) noexcept {
  const std::uint32_t before = changes_.load(std::memory_order_seq_cst);  // seq_cst: as in retry()
  const Driven driven = drive(op);
  if (driven != Driven::posted && retry_later(op, driven, before)) ring();
}

Engine::Core::Driven Engine::Core::drive(Operation& op) noexcept {
  switch (op.kind) {
    case Operation::Kind::read_pieces:
    case Operation::Kind::write_pieces:
    case Operation::Kind::accumulate: return drive_pieces(op);
    case Operation::Kind::copy: return drive_copy(op);
    case Operation::Kind::request: return drive_request(op);
    case Operation::Kind::send: return drive_send(op);
    default: return Driven::posted;  // transfer, child, flush: never driven
  }
}

Engine::Core::Driven Engine::Core::drive_pieces(Operation& op) noexcept {
  while (!op.cursor.done()) {
    Piece piece = op.cursor.piece();
    if (op.kind == Operation::Kind::accumulate) {
      piece.bytes = std::min<std::uint64_t>(piece.bytes, wire::kMaxEntryData);
    }
    op.left.fetch_add(1, std::memory_order_relaxed);  // relaxed: ours keeps it above 0
    const Driven driven = drive_piece(op, piece);
    if (driven != Driven::posted) {
      op.left.fetch_sub(1, std::memory_order_relaxed);  // relaxed: ours keeps it above 0
      return driven;
    }
    op.cursor.consume(piece.bytes);
  }
  finish(op, 1, Status::ok);
  return Driven::posted;
}

Engine::Core::Driven Engine::Core::drive_piece(Operation& op, Piece piece) noexcept {
  const RemoteAddr at{op.remote.rank, op.remote.region, op.remote.offset + piece.remote_offset};
  std::byte* here = local({op.local.region, op.local.offset + piece.local_offset});
  const auto bytes = static_cast<std::uint32_t>(piece.bytes);
  if (op.kind == Operation::Kind::accumulate) {
    const PackResult packed = add_accumulate(op, at, here, bytes);
    return packed == PackResult::added     ? Driven::posted
           : packed == PackResult::blocked ? Driven::blocked
                                           : Driven::again;
  }
  if (piece.bytes <= pack_below_) {
    const PackResult packed = op.kind == Operation::Kind::read_pieces ? add_read(op, at, here, bytes)
                                                                      : add_write(op, at, here, bytes);
    if (packed == PackResult::added) return Driven::posted;
  }
  return post_piece(op, piece);
}

/// By itself, on a record of its own, or, where all are taken, on the operation's own Completion: so
/// operations of many pieces never wait for records that other such operations hold.
Engine::Core::Driven Engine::Core::post_piece(Operation& op, const Piece& piece) noexcept {
  Operation* by = claim_completion(op);
  if (by == nullptr) return Driven::blocked;
  const RemoteAddr at{op.remote.rank, op.remote.region, op.remote.offset + piece.remote_offset};
  std::byte* here = local({op.local.region, op.local.offset + piece.local_offset});
  const Post posted = op.kind == Operation::Kind::read_pieces ? transport_.read(at, here, piece.bytes, by)
                                                              : transport_.write(at, here, piece.bytes, by);
  if (posted == Post::pending) return Driven::posted;
  return_completion(op, *by);
  if (posted == Post::again) return Driven::again;
  finish(op, 1, Status::ok);
  return Driven::posted;
}

Operation* Engine::Core::claim_completion(Operation& op) noexcept {
  if (Operation* child = take(); child != nullptr) {
    child->kind = Operation::Kind::child;
    child->parent = op.index;
    return child;
  }
  // acquire: pairs with completed(), which has read its status.
  if (op.completion_out.exchange(true, std::memory_order_acquire)) return nullptr;
  op.status = Status::ok;
  return &op;
}

void Engine::Core::return_completion(Operation& op, Operation& by) noexcept {
  if (&by != &op) return put(by);
  op.completion_out.store(false, std::memory_order_relaxed);  // relaxed: only the driver could take it
}

// ---- requests ---------------------------------------------------------------------------------------------

/// Asks the source's owner to write to the destination. The owner has one CopyService for this rank.
Engine::Core::Driven Engine::Core::drive_copy(Operation& op) noexcept {
  const Rank owner = op.source.rank;
  std::atomic<bool>& copying = peers_[raw(owner)].copying;
  // acquire: the use of the last copy has ended before this one begins
  if (copying.exchange(true, std::memory_order_acquire)) return Driven::blocked;
  const wire::CopyRequest request{.from_offset = op.source.offset,
                                  .to_offset = op.remote.offset,
                                  .bytes = op.bytes,
                                  .from_region = raw(op.source.region),
                                  .to_region = raw(op.remote.region),
                                  .to_rank = raw(op.remote.rank)};
  op.answered = &Core::copy_answered;
  const std::uint32_t before = activity();
  if (transport_.request(owner, wire::kCopy, std::as_bytes(std::span(&request, 1)), op.reply) ==
      Post::again) {
    // release: for the acquire of the next copy
    copying.store(false, std::memory_order_release);
    return Driven::again;
  }
  await(op, before);
  return Driven::posted;
}

void Engine::Core::copy_answered(Core& core, OutstandingRequest& request, std::uint64_t value,
                                 Status status) noexcept {
  auto& op = static_cast<Operation&>(request);
  // release for the next copy; seq_cst: before finish() counts the change.
  core.peers_[raw(op.source.rank)].copying.store(false, std::memory_order_seq_cst);
  core.finish(op, 1, status != Status::ok ? status : static_cast<Status>(value));
}

bool Engine::Core::try_request(const RequestParams& p) noexcept {
  Operation* op = prepare(Operation::Kind::request, p.to, p.on_complete, offloads());
  if (op == nullptr) return false;
  op->answer = p.answer;
  op->handler = p.handler;
  op->answered = &Core::request_answered;
  if (offloads()) {
    op->bytes = p.payload.size();
    if (!p.payload.empty()) std::memcpy(arguments(*op).bytes.data(), p.payload.data(), p.payload.size());
    return launch(*op);
  }
  op->epoch = count(p.to);  // before its answer can come
  const std::uint32_t before = activity();
  if (transport_.request(p.to, p.handler, p.payload, op->reply) == Post::again) {
    const std::uint8_t epoch = op->epoch;
    put(*op);
    uncount(p.to, epoch);
    return false;
  }
  await(*op, before);
  return true;
}

Engine::Core::Driven Engine::Core::drive_request(Operation& op) noexcept {
  const std::uint32_t before = activity();
  if (transport_.request(op.peer, op.handler, {arguments(op).bytes.data(), op.bytes}, op.reply) ==
      Post::again)
    return Driven::again;
  await(op, before);
  return Driven::posted;
}

void Engine::Core::request_answered(Core& core, OutstandingRequest& request, std::uint64_t value,
                                    Status status) noexcept {
  auto& op = static_cast<Operation&>(request);
  if (op.answer != nullptr) *op.answer = value;
  core.finish(op, 1, status);
}

// ---- messages ---------------------------------------------------------------------------------------------

Engine::Core::Driven Engine::Core::drive_send(Operation& op) noexcept {
  if (transport_.send(op.peer, op.handler, {arguments(op).bytes.data(), op.bytes}) == Post::again)
    return Driven::again;
  finish(op, 1, Status::ok);
  return Driven::posted;
}

}  // namespace kasane::comm
