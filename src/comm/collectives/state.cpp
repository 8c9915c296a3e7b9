// SPDX-License-Identifier: Apache-2.0
#include "comm/collectives/state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory_file.h"
#include "comm/collectives/collectives.h"

namespace kasane::comm {
namespace {

std::size_t block_bytes(std::uint32_t members) noexcept {
  return (CollectiveBlock::bytes(members) + 4095) / 4096 * 4096;
}

bool is_network(const CollectiveStep& s) noexcept {
  return s.kind == CollectiveStep::Kind::send || s.kind == CollectiveStep::Kind::receive;
}

const char* name_of(std::uint64_t signature) noexcept {
  static constexpr const char* kNames[] = {"?", "barrier", "broadcast", "allreduce", "allgather"};
  const std::uint64_t c = signature >> 60;
  return c < std::size(kNames) ? kNames[c] : "?";
}

/// What must be equal on all ranks (root: 20 bits, size: 32 bits); each message carries it.
std::uint64_t signature_of(const Plan& p) noexcept {
  return static_cast<std::uint64_t>(p.collective) << 60 | std::uint64_t{p.reduction.name} << 52 |
         (std::uint64_t{p.root} & 0xFFFFF) << 32 | (p.bytes & 0xFFFFFFFF);
}

}  // namespace

// ---- life -------------------------------------------------------------------------------------------------

CollectiveState::CollectiveState(Transport& transport)
    : transport_(transport),
      members_(transport.ranks()),
      me_(raw(transport.rank())),
      own_(reinterpret_cast<CollectiveBlock*>(
          map_sparse(block_bytes(members_), "the memory of collectives").value_or(nullptr))),
      peers_(std::make_unique<Peer[]>(members_)) {
  KASANE_CHECK(own_ != nullptr, "no memory for the messages of collectives");
  transport.set_handler(kCollectiveHandler, &CollectiveState::on_message, this);
}

CollectiveState::~CollectiveState() { ::munmap(own_, block_bytes(members_)); }

Result<void> CollectiveState::attach() {
  const std::size_t bytes = block_bytes(members_);
  const auto made = transport_.make_memory(kCollectiveRegion, bytes);
  KASANE_TRY(made);
  // It returns when every rank has called it, hence has completed all earlier collectives and has this memory
  // ready.
  KASANE_TRY(transport_.attach(kCollectiveRegion, -1, *made, bytes));
  shared_ = reinterpret_cast<CollectiveBlock*>(*made);
  // relaxed: no thread steps before the next collective
  shared_->floor.store(floor_, std::memory_order_relaxed);
  for (std::uint32_t r = 0; r < members_; ++r)
    peers_[r].block = reinterpret_cast<CollectiveBlock*>(transport_.mapped(Rank{r}, kCollectiveRegion));
  return {};
}

void CollectiveState::close(Waiter& waiter) {
  waiter.until([this] {
    for (std::uint32_t i = 0; i < members_; ++i) {
      // acquire: as in has_room(). A lost peer sends nothing.
      if (peers_[i].asking > peers_[i].floor.load(std::memory_order_acquire) &&
          !lost_.load(std::memory_order_acquire))
        return false;
    }
    return true;
  });
  // A thread may be stepping: it finds nothing to do, but it reads.
  while (gate_.exchange(1, std::memory_order_acquire) != 0) relax();  // acquire: what it did
}

// ---- running and stepping ---------------------------------------------------------------------------------

void CollectiveState::run(Plan plan, Waiter& waiter) {
  plan.me = me_;
  plan.members = members_;
  operation_.number = started_++;
  operation_.signature = signature_of(plan);
  operation_.schedule.build(plan);
  operation_.position = 0;
  operation_.complete = false;
  // release: threads that step, and a handler that meets a chunk for it, see its steps.
  active_.store(&operation_, std::memory_order_release);
  waiter.until([this] {
    step();
    // acquire: the results; and lost_ pairs with peer_lost()
    return active_.load(std::memory_order_acquire) == nullptr || lost_.load(std::memory_order_acquire);
  });
  KASANE_CHECK(active_.load(std::memory_order_relaxed) == nullptr,  // relaxed: as just read, or lost
               "a rank was lost, and this one waits for all in a collective");
}

void CollectiveState::step() noexcept {
  // relaxed: only saves taking the gate
  if (active_.load(std::memory_order_relaxed) == nullptr) return;
  if (gate_.load(std::memory_order_relaxed) != 0) return;         // relaxed: saves taking it, too
  if (gate_.exchange(1, std::memory_order_acquire) != 0) return;  // acquire: what the last thread did
  step_locked();
  gate_.store(0, std::memory_order_release);  // release: for the next thread
}

void CollectiveState::step_locked() noexcept {
  Operation* op = active_.load(std::memory_order_acquire);  // acquire: its steps
  if (op == nullptr) return;
  if (!op->complete) {
    send_floors();  // to peers that requested a floor which is reached already; below it is made sure
    if (!advance(*op)) return;
    op->complete = true;
    floor_ = op->number + 1;
    // release, for peers that map it: the cells below it were read.
    if (shared_ != nullptr) shared_->floor.store(floor_, std::memory_order_release);
  }
  // It is done once all peers that requested a floor have received it: then a rank may leave.
  if (!send_floors()) return;
  active_.store(nullptr, std::memory_order_release);  // release: its results
}

bool CollectiveState::advance(Operation& op) noexcept {
  auto& steps = op.schedule.steps();
  for (;;) {
    std::size_t i = op.position;
    bool all = true;
    for (; i < steps.size() && is_network(steps[i]); ++i) {
      if (!steps[i].done) steps[i].done = carry_out(op, i);
      all = all && steps[i].done;
    }
    if (!all) return false;
    for (; i < steps.size() && !is_network(steps[i]); ++i) {
      const CollectiveStep& s = steps[i];
      if (s.bytes == 0) continue;
      if (s.kind == CollectiveStep::Kind::copy)
        std::memcpy(s.into, s.from, s.bytes);
      else
        op.schedule.reduction()(s.into, s.from, s.right, s.bytes);
    }
    op.position = i;
    if (i == steps.size()) return true;
  }
}

bool CollectiveState::carry_out(Operation& op, std::size_t index) noexcept {
  CollectiveStep& s = op.schedule.steps()[index];
  return s.kind == CollectiveStep::Kind::send ? send(op, s) : receive(op, s, index);
}

// ---- the two ends of a message ----------------------------------------------------------------------------

bool CollectiveState::send(Operation& op, CollectiveStep& s) noexcept {
  if (s.bytes <= kShortBytes) return put_cell(op, s, {s.from, s.bytes});
  if (!s.announced) s.announced = put_cell(op, s, {});
  const CollectiveReady& ready = area(s.peer).ready[op.number % kActive][s.phase];
  if (ready.stamp.load(std::memory_order_acquire) != op.number + 1) return false;  // acquire: the note
  check_same(op, s.peer, ready.signature);
  return s.announced && send_chunks(op, s, ready.token);
}

bool CollectiveState::receive(Operation& op, CollectiveStep& s, std::size_t index) noexcept {
  const CollectiveCell& cell = area(s.peer).cells[op.number % kActive][s.phase];
  const bool told = cell.stamp.load(std::memory_order_acquire) == op.number + 1;  // acquire: the message
  if (told) check_same(op, s.peer, cell.signature);
  if (s.bytes <= kShortBytes) {
    if (told && s.bytes != 0) std::memcpy(s.into, cell.data, s.bytes);
    return told;
  }
  if (!s.announced) s.announced = put_ready(op, s, index);
  if (peers_[s.peer].block != nullptr) drain_stream(s.peer);
  // acquire: pairs with arrived(); the bytes are used next.
  return told && s.announced && std::atomic_ref(s.moved).load(std::memory_order_acquire) == s.bytes;
}

bool CollectiveState::put_cell(Operation& op, const CollectiveStep& s,
                               std::span<const std::byte> data) noexcept {
  Peer& p = peers_[s.peer];
  if (!has_room(s.peer, op.number)) return false;
  if (p.block == nullptr) {
    Header h = header(Header::Kind::cell, op, s);
    h.word = op.signature;
    return send_and_ask(h, s.peer, data);
  }
  CollectiveCell& cell = p.block->from(me_).cells[op.number % kActive][s.phase];
  cell.signature = op.signature;
  if (!data.empty()) std::memcpy(cell.data, data.data(), data.size());
  cell.stamp.store(op.number + 1, std::memory_order_release);  // release: publishes the message
  transport_.wake(Rank{s.peer}, Doorbell::messages);
  return true;
}

bool CollectiveState::put_ready(Operation& op, const CollectiveStep& s, std::uint64_t token) noexcept {
  Peer& p = peers_[s.peer];
  if (!has_room(s.peer, op.number)) return false;
  if (p.block == nullptr) {
    Header h = header(Header::Kind::ready, op, s);
    h.word = op.signature;
    h.token = token;
    return send_and_ask(h, s.peer, {});
  }
  CollectiveReady& ready = p.block->from(me_).ready[op.number % kActive][s.phase];
  ready.signature = op.signature;
  ready.token = token;
  ready.stamp.store(op.number + 1, std::memory_order_release);  // release: publishes the note
  transport_.wake(Rank{s.peer}, Doorbell::messages);
  return true;
}

bool CollectiveState::send_chunks(Operation& op, CollectiveStep& s, std::uint64_t token) noexcept {
  const bool mapped = peers_[s.peer].block != nullptr;
  while (s.moved < s.bytes) {
    if (!(mapped ? stream_chunk(op, s, token) : message_chunk(op, s, token))) return false;
  }
  return true;
}

bool CollectiveState::message_chunk(Operation& op, CollectiveStep& s, std::uint64_t token) noexcept {
  Header h = header(Header::Kind::chunk, op, s);
  h.word = s.moved;
  h.token = token;
  const std::size_t bytes = std::min(kMessageChunk, s.bytes - s.moved);
  if (!message(h, s.peer, {s.from + s.moved, bytes})) return false;
  s.moved += bytes;
  return true;
}

bool CollectiveState::stream_chunk(Operation& op, CollectiveStep& s, std::uint64_t token) noexcept {
  Peer& p = peers_[s.peer];
  CollectiveStream& stream = p.block->from(me_).stream;
  if (p.streamed - p.stream_taken == CollectiveStream::kChunks) {
    // acquire: the consumer has read what is overwritten next
    p.stream_taken = stream.taken.load(std::memory_order_acquire);
    if (p.streamed - p.stream_taken == CollectiveStream::kChunks) return false;
  }
  const std::uint64_t i = p.streamed % CollectiveStream::kChunks;
  const std::size_t bytes = std::min(CollectiveStream::kChunkBytes, s.bytes - s.moved);
  std::memcpy(stream.data[i], s.from + s.moved, bytes);
  CollectiveStream::Head& head = stream.slots[i].head;
  head.collective = op.number;
  head.offset = s.moved;
  head.token = static_cast<std::uint32_t>(token);
  head.bytes = static_cast<std::uint32_t>(bytes);
  head.full.store(++p.streamed, std::memory_order_release);  // release: publishes the chunk
  transport_.wake(Rank{s.peer}, Doorbell::messages);
  s.moved += bytes;
  return true;
}

/// Takes every chunk that has arrived: for each the receiver has answered ready.
void CollectiveState::drain_stream(std::uint32_t peer) noexcept {
  Peer& p = peers_[peer];
  CollectiveStream& stream = shared_->from(peer).stream;
  for (;;) {
    const std::uint64_t i = p.taken % CollectiveStream::kChunks;
    const CollectiveStream::Head& head = stream.slots[i].head;
    if (head.full.load(std::memory_order_acquire) != p.taken + 1) return;  // acquire: the chunk
    arrived(head.collective, head.token, head.offset, {stream.data[i], head.bytes});
    stream.taken.store(++p.taken, std::memory_order_release);  // release: it was read
    transport_.wake(Rank{peer}, Doorbell::messages);
  }
}

/// Copies one chunk to its step's memory; called by the stepping thread or a handler.
void CollectiveState::arrived(std::uint64_t collective, std::uint64_t token, std::uint64_t offset,
                              std::span<const std::byte> bytes) noexcept {
  Operation* op = active_.load(std::memory_order_acquire);  // acquire: its steps
  KASANE_CHECK(op != nullptr && op->number == collective, "a chunk for a collective that is not under way");
  KASANE_CHECK_OP(token, <, op->schedule.steps().size());
  CollectiveStep& s = op->schedule.steps()[token];
  KASANE_CHECK(s.kind == CollectiveStep::Kind::receive && offset + bytes.size() <= s.bytes,
               "a chunk beyond the message that was asked for");
  std::memcpy(s.into + offset, bytes.data(), bytes.size());
  // release: pairs with receive(). The last access: the next collective may use the steps after it.
  std::atomic_ref(s.moved).fetch_add(bytes.size(), std::memory_order_release);
}

// ---- messages ---------------------------------------------------------------------------------------------

CollectiveState::Header CollectiveState::header(Header::Kind kind, const Operation& op,
                                                const CollectiveStep& s) const noexcept {
  return {.kind = kind, .phase = s.phase, .from = me_, .collective = op.number};
}

bool CollectiveState::message(const Header& h, std::uint32_t to, std::span<const std::byte> data) noexcept {
  alignas(8) std::byte payload[kMaxPayload];
  std::memcpy(payload, &h, sizeof(h));
  if (!data.empty()) std::memcpy(payload + sizeof(h), data.data(), data.size());
  return transport_.send(Rank{to}, kCollectiveHandler, {payload, sizeof(h) + data.size()}) != Post::again;
}

void CollectiveState::on_message(void* self, const Message& m) noexcept {
  Header h;
  KASANE_CHECK_OP(m.payload.size(), >=, sizeof(h));
  std::memcpy(&h, m.payload.data(), sizeof(h));
  static_cast<CollectiveState*>(self)->handle(h, m.payload.subspan(sizeof(h)));
}

void CollectiveState::handle(const Header& h, std::span<const std::byte> data) noexcept {
  KASANE_CHECK_OP(h.from, <, members_);
  CollectivePeerArea& from = own_->from(h.from);
  Peer& p = peers_[h.from];
  // release: publishes only itself; before the stamp below, which makes a thread step.
  if (h.ask != 0) {
    p.asked.store(h.collective + 1 - h.ask + 1, std::memory_order_release);
    any_asked_.store(true, std::memory_order_release);  // release: what was asked, for send_floors()
  }
  switch (h.kind) {
    case Header::Kind::cell: {
      CollectiveCell& cell = from.cells[h.collective % kActive][h.phase & 1];
      KASANE_CHECK_OP(data.size(), <=, kShortBytes);
      // relaxed: the last message was taken before our floor told the sender so.
      // else a peer sent too early
      KASANE_CHECK_OP(cell.stamp.load(std::memory_order_relaxed), <=, h.collective);
      cell.signature = h.word;
      if (!data.empty()) std::memcpy(cell.data, data.data(), data.size());
      cell.stamp.store(h.collective + 1, std::memory_order_release);  // release: publishes the message
      break;
    }
    case Header::Kind::ready: {
      CollectiveReady& ready = from.ready[h.collective % kActive][h.phase & 1];
      ready.signature = h.word;
      ready.token = h.token;
      ready.stamp.store(h.collective + 1, std::memory_order_release);  // release: publishes the note
      break;
    }
    case Header::Kind::chunk: arrived(h.collective, h.token, h.word, data); break;
    case Header::Kind::ask: break;
    // release: pairs with has_room(): the cells below the floor were taken.
    case Header::Kind::floor: p.floor.store(h.word, std::memory_order_release); break;
  }
}

// ---- the floor: how far behind a peer may be --------------------------------------------------------------

/// May message `number` be put into the peer's cell?
bool CollectiveState::has_room(std::uint32_t peer, std::uint64_t number) noexcept {
  Peer& p = peers_[peer];
  // acquire, both: the cell's last message was taken, see step_locked().
  if (number < p.floor.load(std::memory_order_acquire) + kActive) return true;
  if (p.block == nullptr) {
    const Header h{.kind = Header::Kind::ask, .from = me_, .collective = number};
    // relaxed: only decides whether to ask
    if (p.asking <= p.floor.load(std::memory_order_relaxed)) send_and_ask(h, peer, {});
    return false;
  }
  const std::uint64_t floor = p.block->floor.load(std::memory_order_acquire);
  // relaxed: for mapped peers only the stepping thread writes it
  p.floor.store(floor, std::memory_order_relaxed);
  return number < floor + kActive;
}

/// Sends a message, and requests the peer's floor along with it when half the room is used up and no request
/// is outstanding. The requested floor is at most the number of the message's collective, which the peer
/// cannot complete without that message: so the peer is still there, and reaches the floor without further
/// progress here.
bool CollectiveState::send_and_ask(Header h, std::uint32_t to, std::span<const std::byte> data) noexcept {
  Peer& p = peers_[to];
  const std::uint64_t floor = p.floor.load(std::memory_order_acquire);  // acquire: as in has_room()
  const bool ask = h.collective >= floor + kActive / 2 && p.asking <= floor;
  const std::uint64_t wanted = floor + kActive / 2;
  // The distance may exceed 16 bits where this rank sent nothing to the peer for long: then a floor close
  // to the current collective is requested.
  if (ask) h.ask = static_cast<std::uint16_t>(std::min<std::uint64_t>(h.collective - wanted, kActive) + 1);
  if (!message(h, to, data)) return false;
  if (ask) p.asking = h.collective + 1 - h.ask;
  return true;
}

/// Sends the floor to each peer whose requested floor is reached. False if a message could not be sent: try
/// again.
bool CollectiveState::send_floors() noexcept {
  // acquire, both: what was asked. It is taken back first, so what is asked meanwhile is for the next call.
  if (!any_asked_.load(std::memory_order_acquire) || !any_asked_.exchange(false, std::memory_order_acquire))
    return true;
  bool all = true, left = false;
  for (std::uint32_t i = 0; i < members_; ++i) {
    Peer& p = peers_[i];
    const std::uint64_t asked = p.asked.load(std::memory_order_acquire);  // acquire: pairs with handle()
    if (asked == 0) continue;
    if (asked - 1 > floor_) {
      left = true;
      continue;
    }
    // relaxed: before the message, after which the peer may ask again
    p.asked.store(0, std::memory_order_relaxed);
    const Header h{.kind = Header::Kind::floor, .from = me_, .word = floor_};
    if (message(h, i, {})) continue;
    // relaxed: no other thread writes it until the floor was sent
    p.asked.store(asked, std::memory_order_relaxed);
    all = false;
  }
  if (left || !all)
    any_asked_.store(true, std::memory_order_relaxed);  // relaxed: for this thread's next call
  return all;
}

// ---- failure ----------------------------------------------------------------------------------------------

void CollectiveState::peer_lost(Rank rank) noexcept {
  // release: pairs with run()
  if (raw(rank) < members_) lost_.store(true, std::memory_order_release);
}

void CollectiveState::check_same(const Operation& op, std::uint32_t peer,
                                 std::uint64_t theirs) const noexcept {
  if (op.signature == theirs) [[likely]]
    return;
  static char text[256];  // about to abort: neither stack nor allocation is needed
  std::snprintf(text, sizeof(text),
                "ranks differ in collective %llu: rank %u calls %s (root %u, %u bytes, type/operation %u), "
                "rank %u calls %s (root %u, %u bytes, type/operation %u)",
                static_cast<unsigned long long>(op.number), me_, name_of(op.signature),
                static_cast<unsigned>(op.signature >> 32 & 0xFFFFF), static_cast<unsigned>(op.signature),
                static_cast<unsigned>(op.signature >> 52 & 0xFF), peer, name_of(theirs),
                static_cast<unsigned>(theirs >> 32 & 0xFFFFF), static_cast<unsigned>(theirs),
                static_cast<unsigned>(theirs >> 52 & 0xFF));
  check_failed("every rank calls the same collective", __FILE__, __LINE__, text);
}

}  // namespace kasane::comm
