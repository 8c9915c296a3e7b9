// SPDX-License-Identifier: Apache-2.0
// The calls of the engine: check the arguments, perform the operation here where both ends are mapped, else
// pass it to the core.
#include "comm/engine/engine.h"

#include <cstring>
#include <string>

#include "comm/engine/accumulate.h"
#include "comm/engine/core.h"
#include "comm/engine/refusal.h"

namespace kasane::comm {
namespace {

constexpr std::uint32_t kMostOperations = 16384;  // twice as many can be outstanding, see kMostCounted

bool refused(const Callback& c) noexcept {
  if (c.fn != nullptr) c.fn(c.context, Status::refused);
  return true;
}

bool completed(const Callback& c) noexcept {
  if (c.fn != nullptr) c.fn(c.context, Status::ok);
  return true;
}

Command command(Command::Kind kind, RemoteAddr remote, const Callback& on_complete) noexcept {
  Command c{};
  c.kind = kind;
  c.remote = remote;
  c.on_complete = on_complete;
  return c;
}

Command transfer(Command::Kind kind, RemoteAddr remote, LocalAddr local, std::uint64_t bytes,
                 const Callback& on_complete) noexcept {
  Command c = command(kind, remote, on_complete);
  c.transfer = {.local = local, .bytes = bytes, .flag_offset = 0, .value = 0};
  return c;
}

/// Copies each piece; remote and local are the mapped addresses that its offsets count from.
void copy_pieces(Cursor cursor, std::byte* remote, std::byte* local, bool reads) noexcept {
  for (; !cursor.done();) {
    const Piece p = cursor.piece();
    std::byte* there = remote + p.remote_offset;
    // Added as integers: for private memory the offsets are whole addresses, and local is null.
    auto* here = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(local) + p.local_offset);
    if (reads) {
      copy_in(here, there, p.bytes);
    } else {
      copy_out(there, here, p.bytes);
    }
    cursor.consume(p.bytes);
  }
}

}  // namespace

// ---- start ------------------------------------------------------------------------------------------------

Engine::Engine(Transport& transport, const EngineOptions& options)
    : transport_(transport),
      ranks_(transport.ranks()),
      me_(transport.rank()),
      cpu_atomics_(transport.facts().atomics_coherent_with_cpu),
      mode_(options.mode),
      paths_(std::make_unique<Path[]>(std::size_t{transport.ranks()} * kMaxRegions)),
      own_paths_(&paths_[std::size_t{raw(transport.rank())} * kMaxRegions]) {
  core_ = std::make_unique<Core>(*this, options);
}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(Transport& transport, const EngineOptions& o) {
  if (o.operations < 2 || o.operations > kMostOperations || o.packs == 0 || o.argument_buffers == 0) {
    return fail(Errc::invalid_argument, "an engine of " + std::to_string(o.operations) + " operations, " +
                                            std::to_string(o.packs) + " packs and " +
                                            std::to_string(o.argument_buffers) + " argument buffers: 2 to " +
                                            std::to_string(kMostOperations) +
                                            " operations and at least one of the others are needed");
  }
  if (const std::uint64_t counted = most_counted(o, transport.ranks()); counted > kMostCounted) {
    return fail(Errc::invalid_argument, "an engine of " + std::to_string(o.operations) +
                                            " operations and a ring of " + std::to_string(o.ring_commands) +
                                            " commands: " + std::to_string(counted) +
                                            " operations could be outstanding towards one rank, and " +
                                            std::to_string(kMostCounted) + " can be");
  }
  std::unique_ptr<Engine> engine(new Engine(transport, o));
  KASANE_TRY(engine->core_->attach_locks());
  if (o.mode == Mode::offload) KASANE_TRY(engine->core_->start_offload(o));
  return engine;
}

Result<void> Engine::attach(RegionId id, int fd, std::byte* local, std::size_t bytes) {
  if (id == kLockRegion)
    return fail(Errc::invalid_argument, "region " + std::to_string(raw(id)) + " is the engine's own");
  // Our own first: a peer may return from its attach before we do, and what it sends then is applied by any
  // thread that makes progress here. relaxed: one id is attached by one thread.
  const bool fresh = raw(id) < kMaxRegions && local != nullptr &&
                     own_paths_[raw(id)].bytes.load(std::memory_order_relaxed) == 0;
  if (fresh) publish(own_paths_[raw(id)], local, bytes);
  auto attached = transport_.attach(id, fd, local, bytes);
  if (!attached) {
    // relaxed: nothing follows from it
    if (fresh) own_paths_[raw(id)].bytes.store(0, std::memory_order_relaxed);
    return attached;
  }
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (std::byte* base = transport_.mapped(Rank{r}, id); base != nullptr)
      publish(paths_[std::size_t{r} * kMaxRegions + raw(id)], base, bytes);
  }
  return {};
}

void Engine::publish(Path& path, std::byte* base, std::size_t bytes) noexcept {
  path.base.store(base, std::memory_order_relaxed);    // relaxed: published by the next line
  path.bytes.store(bytes, std::memory_order_release);  // release: a thread that sees the size sees the base
}

const std::string& Engine::explain_refusal() noexcept { return refusal_text(); }

Bounds Engine::bounds() const noexcept {
  return {.ranks = ranks_,
          .region_bytes = [](const void* e, RegionId id) noexcept -> std::uint64_t {
            const Engine& engine = *static_cast<const Engine*>(e);
            // acquire: as in mapped_at(). Regions are equally large everywhere, and our own is always mapped.
            return engine.own_paths_[raw(id)].bytes.load(std::memory_order_acquire);
          },
          .engine = this};
}

// ---- contiguous -------------------------------------------------------------------------------------------

bool Engine::read_slow(const ReadParams& p) noexcept {
  if (!valid_range(bounds(), p.from, p.bytes) || !valid_range(bounds(), p.to, p.bytes))
    return refused(p.on_complete);
  Command c = transfer(Command::Kind::read, p.from, p.to, p.bytes, p.on_complete);
  return core_->submit(c);
}

bool Engine::write_slow(const WriteParams& p) noexcept {
  if (!valid_range(bounds(), p.to, p.bytes) || !valid_range(bounds(), p.from, p.bytes))
    return refused(p.on_complete);
  Command c = transfer(Command::Kind::write, p.to, p.from, p.bytes, p.on_complete);
  return core_->submit(c);
}

bool Engine::write_notify_slow(const WriteNotifyParams& p) noexcept {
  const Bounds b = bounds();
  if (!valid_range(b, p.to, p.bytes) || !valid_range(b, p.from, p.bytes) ||
      !valid_range(b, RemoteAddr{p.to.rank, p.to.region, p.flag_offset}, 8) ||
      !valid_alignment(p.flag_offset, 8)) {
    return refused(p.on_complete);
  }
  Command c = transfer(Command::Kind::write_notify, p.to, p.from, p.bytes, p.on_complete);
  c.transfer.flag_offset = p.flag_offset;
  c.transfer.value = p.value;
  return core_->submit(c);
}

bool Engine::atomic_slow(const AtomicParams& p) noexcept {
  const auto bytes = static_cast<std::uint64_t>(p.width);
  if (!valid_alignment(p.at.offset, bytes) || !valid_range(bounds(), p.at, bytes))
    return refused(p.on_complete);
  Command c = command(Command::Kind::atomic, p.at, p.on_complete);
  c.op = p.op;
  c.width = p.width;
  c.atomic = {.operand = p.operand, .compare = p.compare, .result = p.result};
  return core_->submit(c);
}

// ---- pieces -----------------------------------------------------------------------------------------------

bool Engine::try_read_strided_async(const StridedParams& p) noexcept { return strided(p, true); }
bool Engine::try_write_strided_async(const StridedParams& p) noexcept { return strided(p, false); }
bool Engine::try_read_vector_async(const VectorParams& p) noexcept { return vector(p, true); }
bool Engine::try_write_vector_async(const VectorParams& p) noexcept { return vector(p, false); }

bool Engine::strided(const StridedParams& p, bool reads) noexcept {
  std::uint64_t there = 0, here = 0;
  if (!valid_shape(p.shape, &there, &here) || !valid_range(bounds(), p.remote, there) ||
      !valid_range(bounds(), p.local, here)) {
    return refused(p.on_complete);
  }
  const Cursor cursor(p.shape);
  if (std::byte* remote = mapped_at(p.remote, there); remote != nullptr) {
    copy_pieces(cursor, remote, local_at(p.local, here), reads);
    return completed(p.on_complete);
  }
  Operation* op = core_->prepare(reads ? Operation::Kind::read_pieces : Operation::Kind::write_pieces,
                                 p.remote.rank, p.on_complete, false);
  if (op == nullptr) return false;
  op->remote = p.remote;
  op->local = p.local;
  op->cursor = cursor;
  return core_->launch(*op);
}

bool Engine::vector(const VectorParams& p, bool reads) noexcept {
  const Bounds b = bounds();
  if (!valid_range(b, RemoteAddr{p.rank, p.remote_region, 0}, 0) ||
      !valid_range(b, LocalAddr{p.local_region, 0}, 0))
    return refused(p.on_complete);
  for (const Piece& piece : p.pieces) {
    if (!valid_range(b, RemoteAddr{p.rank, p.remote_region, piece.remote_offset}, piece.bytes) ||
        !valid_range(b, LocalAddr{p.local_region, piece.local_offset}, piece.bytes)) {
      return refused(p.on_complete);
    }
  }
  if (std::byte* remote = mapped_at({p.rank, p.remote_region, 0}, 0); remote != nullptr) {
    copy_pieces(Cursor(p.pieces), remote, local_at({p.local_region, 0}, 0), reads);
    return completed(p.on_complete);
  }
  const std::size_t bytes = p.pieces.size_bytes();
  const bool fits = bytes <= kMaxPayload;
  Operation* op = core_->prepare(reads ? Operation::Kind::read_pieces : Operation::Kind::write_pieces, p.rank,
                                 p.on_complete, fits);
  if (op == nullptr) return false;
  Piece* kept =
      fits ? reinterpret_cast<Piece*>(core_->arguments(*op).bytes.data()) : core_->map_pieces(*op, bytes);
  if (kept == nullptr) {
    core_->drop(*op);
    return false;
  }
  if (bytes != 0) std::memcpy(kept, p.pieces.data(), bytes);
  op->remote = {p.rank, p.remote_region, 0};
  op->local = {p.local_region, 0};
  op->cursor = Cursor(std::span<const Piece>(kept, p.pieces.size()));
  return core_->launch(*op);
}

bool Engine::accumulate_here(RemoteAddr to, std::byte* y, const std::byte* x, std::size_t bytes, Element e,
                             std::complex<double> scale) noexcept {
  StripeLock* const locks = core_->locks_of(to.rank);
  if (locks == nullptr) return false;
  accumulate(e, scale, y, x, bytes, locks, to.region, to.offset);
  return true;
}

bool Engine::try_accumulate_async(const AccumulateParams& p) noexcept {
  std::uint64_t there = 0, here = 0;
  if (!valid_shape(p.shape, &there, &here) || !valid_elements(p) || !valid_range(bounds(), p.to, there) ||
      !valid_range(bounds(), p.from, here)) {
    return refused(p.on_complete);
  }
  Cursor cursor(p.shape);
  StripeLock* locks = core_->locks_of(p.to.rank);
  if (std::byte* y = mapped_at(p.to, there); y != nullptr && locks != nullptr) {
    const std::byte* x = local_at(p.from, here);
    for (; !cursor.done();) {
      const Piece piece = cursor.piece();
      accumulate(p.element, p.scale, y + piece.remote_offset, x + piece.local_offset, piece.bytes, locks,
                 p.to.region, p.to.offset + piece.remote_offset);
      cursor.consume(piece.bytes);
    }
    return completed(p.on_complete);
  }
  Operation* op = core_->prepare(Operation::Kind::accumulate, p.to.rank, p.on_complete, false);
  if (op == nullptr) return false;
  op->remote = p.to;
  op->local = p.from;
  op->cursor = cursor;
  op->element = p.element;
  op->scale = p.scale;
  return core_->launch(*op);
}

// ---- third-party copy -------------------------------------------------------------------------------------

bool Engine::try_copy_async(const CopyParams& p) noexcept {
  if (!valid_range(bounds(), p.from, p.bytes) || !valid_range(bounds(), p.to, p.bytes))
    return refused(p.on_complete);
  const std::byte* from = mapped_at(p.from, p.bytes);
  std::byte* to = mapped_at(p.to, p.bytes);
  if (from != nullptr && to != nullptr) {
    move_between(to, from, p.bytes);
    return completed(p.on_complete);
  }
  if (p.from.rank == me_)
    return try_write_async(
        {.to = p.to, .from = {p.from.region, p.from.offset}, .bytes = p.bytes, .on_complete = p.on_complete});
  if (p.to.rank == me_)
    return try_read_async(
        {.from = p.from, .to = {p.to.region, p.to.offset}, .bytes = p.bytes, .on_complete = p.on_complete});
  Operation* op = core_->prepare(Operation::Kind::copy, p.to.rank, p.on_complete, false);
  if (op == nullptr) return false;
  op->source = p.from;
  op->remote = p.to;
  op->bytes = p.bytes;
  return core_->launch(*op);
}

// ---- messages ---------------------------------------------------------------------------------------------

bool Engine::try_send_async(const SendParams& p) noexcept {
  if (!valid_message(bounds(), p.to, p.handler, p.payload.size(), kMaxPayload)) return refused(p.on_complete);
  if (!core_->offloads()) {
    if (transport_.send(p.to, p.handler, p.payload) == Post::again) return false;
    return completed(p.on_complete);
  }
  Operation* op = core_->prepare(Operation::Kind::send, p.to, p.on_complete, true);
  if (op == nullptr) return false;
  op->handler = p.handler;
  op->bytes = p.payload.size();
  if (!p.payload.empty()) std::memcpy(core_->arguments(*op).bytes.data(), p.payload.data(), p.payload.size());
  return core_->launch(*op);
}

bool Engine::try_request_async(const RequestParams& p) noexcept {
  if (!valid_message(bounds(), p.to, p.handler, p.payload.size(), kMaxPayload)) return refused(p.on_complete);
  return core_->try_request(p);
}

bool Engine::try_flush_async(const FlushParams& p) noexcept {
  if (p.rank != kNoRank && !valid_rank(bounds(), p.rank)) return refused(p.on_complete);
  return core_->try_flush(p);
}

}  // namespace kasane::comm
