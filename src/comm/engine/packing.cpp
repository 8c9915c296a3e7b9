// SPDX-License-Identifier: Apache-2.0
// Small pieces share messages. Per peer and direction one pack is open. While no pack of its kind is
// outstanding towards the peer, a piece leaves at once; else the pack stays open until it is full or an
// answer has come back (Nagle's rule: the answer ends the waiting, so no timer is needed).
//
//   | outstanding | a piece is added | an answer comes | the pack is full                  |
//   | 0           | send at once     | –               | –                                 |
//   | n > 0       | collect          | n − 1; 0: send  | write: send, n + 1. read: blocked |
//   | any         | transport answers again: unsent, the hook tries again                  |
//
// A full read pack waits because the other side has one place for each rank's answer (service.cpp).
#include <bit>

#include "comm/engine/core.h"

namespace kasane::comm {
namespace {

constexpr std::size_t kind_index(Pack::Kind k) noexcept { return static_cast<std::size_t>(k); }

std::uint32_t narrow(std::size_t bytes) noexcept { return static_cast<std::uint32_t>(bytes); }

wire::Entry entry(wire::EntryKind kind, RemoteAddr at, std::uint32_t bytes, Element element = {}) noexcept {
  return {.offset = at.offset,
          .bytes = bytes,
          .region = static_cast<std::uint8_t>(raw(at.region)),
          .kind = kind,
          .element = element};
}

}  // namespace

/// Does it pay to share a message? Yes if the operation is small and something else of ours is outstanding
/// towards the peer. A lone operation goes by itself, which needs no program at the other end; but a write
/// with notification is one message instead of two and a flush, where puts are messages to a program anyway.
bool Engine::Core::packable(const Command& c) const noexcept {
  if (c.kind == Command::Kind::atomic || pack_below_ == 0) return false;
  if (c.kind == Command::Kind::write_notify && puts_are_messages_)
    return c.transfer.bytes <= wire::kMaxNotified;
  if (stored_once(c)) return true;
  return c.transfer.bytes <= pack_below_ && peers_[raw(c.remote.rank)].epochs.outstanding() > 1;
}

/// A word where puts are messages goes in a pack, and waits for one: apply() stores it once, but UCX and MPI
/// by the C library's memcpy, which stores up to 16 bytes twice, and the owner may have seen the first and
/// changed the word.
bool Engine::Core::stored_once(const Command& c) const noexcept {
  return c.kind == Command::Kind::write && puts_are_messages_ && pack_below_ != 0 &&
         std::has_single_bit(c.transfer.bytes) && c.transfer.bytes <= 8 &&
         c.remote.offset % c.transfer.bytes == 0;
}

Engine::Core::PackResult Engine::Core::add_to_pack(const Command& c, Operation& op) noexcept {
  const auto bytes = narrow(c.transfer.bytes);
  std::byte* here = local(c.transfer.local);
  switch (c.kind) {
    case Command::Kind::read: return add_read(op, c.remote, here, bytes);
    case Command::Kind::write: return add_write(op, c.remote, here, bytes);
    default: break;
  }
  const RemoteAddr flag_at{c.remote.rank, c.remote.region, c.transfer.flag_offset};
  const wire::Entry flag = entry(wire::EntryKind::flag, flag_at, 8);
  return add_entry(
      op, c.remote.rank, entry(wire::EntryKind::write, c.remote, bytes),
      [&](std::byte* to) { copy_bytes(to, here, bytes); }, &flag, c.transfer.value);
}

Engine::Core::PackResult Engine::Core::add_write(Operation& op, RemoteAddr at, const std::byte* from,
                                                 std::uint32_t bytes) noexcept {
  return add_entry(op, at.rank, entry(wire::EntryKind::write, at, bytes),
                   [&](std::byte* to) { copy_bytes(to, from, bytes); });
}

Engine::Core::PackResult Engine::Core::add_accumulate(Operation& op, RemoteAddr at, const std::byte* from,
                                                      std::uint32_t bytes) noexcept {
  return add_entry(op, at.rank, entry(wire::EntryKind::accumulate, at, bytes, op.element),
                   [&](std::byte* to) { scale_elements(op.element, op.scale, to, from, bytes); });
}

/// Adds one entry (and a flag after it) to the open pack of writes. fill writes the data in place.
template <class Fill>
Engine::Core::PackResult Engine::Core::add_entry(Operation& op, Rank rank, const wire::Entry& e,
                                                 const Fill& fill, const wire::Entry* flag,
                                                 std::uint64_t value) noexcept {
  Peer& peer = peers_[raw(rank)];
  if (!peer.gate.enter()) return PackResult::again;
  const std::size_t wanted =
      sizeof(e) + wire::padded(e.bytes) + (flag != nullptr ? sizeof(e) + sizeof(value) : 0);
  const PackResult fits = room(peer, rank, Pack::Kind::write, wanted, 0);
  if (fits == PackResult::added) {
    Pack& s = *peer.open[kind_index(Pack::Kind::write)];
    std::byte* to = s.payload.data() + s.used;
    std::memcpy(to, &e, sizeof(e));
    fill(to + sizeof(e));
    if (flag != nullptr) {
      std::byte* after = to + sizeof(e) + wire::padded(e.bytes);
      std::memcpy(after, flag, sizeof(*flag));
      std::memcpy(after + sizeof(*flag), &value, sizeof(value));
    }
    s.used += narrow(wanted);
    add_part(s, op, nullptr, 0);
    send_due_inside(peer);
  }
  leave_gate(rank);
  return fits;
}

Engine::Core::PackResult Engine::Core::add_read(Operation& op, RemoteAddr at, std::byte* to,
                                                std::uint32_t bytes) noexcept {
  Peer& peer = peers_[raw(at.rank)];
  if (!peer.gate.enter()) return PackResult::again;
  const PackResult fits = room(peer, at.rank, Pack::Kind::read, sizeof(wire::Entry), wire::padded(bytes));
  if (fits == PackResult::added) {
    Pack& s = *peer.open[kind_index(Pack::Kind::read)];
    const wire::Entry e{.offset = at.offset,
                        .bytes = bytes,
                        .region = static_cast<std::uint8_t>(raw(at.region)),
                        .kind = wire::EntryKind::write,
                        .element = {}};
    std::memcpy(s.payload.data() + s.used, &e, sizeof(e));
    s.used += sizeof(e);
    s.answer_bytes += narrow(wire::padded(bytes));
    add_part(s, op, to, bytes);
    send_due_inside(peer);
  }
  leave_gate(at.rank);
  return fits;
}

/// Inside the gate: an open pack with so much room, or why there is none.
Engine::Core::PackResult Engine::Core::room(Peer& peer, Rank rank, Pack::Kind kind, std::size_t bytes,
                                            std::size_t answer_bytes) noexcept {
  Pack*& open = peer.open[kind_index(kind)];
  if (open != nullptr &&
      (open->used + bytes > kMaxPayload || open->answer_bytes + answer_bytes > kMaxPayload)) {
    // relaxed: the thread that retires the outstanding pack enters the gate after us, or has entered it
    // before.
    if (kind == Pack::Kind::read && peer.outstanding[kind_index(kind)].load(std::memory_order_relaxed) != 0) {
      return PackResult::blocked;
    }
    if (!send_open(peer, kind)) return PackResult::again;
  }
  if (open != nullptr) return PackResult::added;
  const std::uint32_t index = free_packs_.take();
  if (index == kNoRecord) return PackResult::blocked;
  Pack& s = packs_[index];
  s.kind = kind;
  s.peer = rank;
  s.parts = 0;
  s.used = kind == Pack::Kind::read ? sizeof(wire::ReadPackHead) : 0;
  s.answer_bytes = sizeof(wire::ReadDataHead);
  s.answered = kind == Pack::Kind::read ? &Core::read_answered : &Core::write_answered;
  // relaxed: published by the request.
  s.state.store(std::uint64_t{++s.stamp} << Pack::kStampShift, std::memory_order_relaxed);
  open = &s;
  return PackResult::added;
}

void Engine::Core::add_part(Pack& s, const Operation& op, std::byte* to, std::uint32_t bytes) noexcept {
  if (to == nullptr && s.parts != 0 && s.part[s.parts - 1].operation == op.index) {
    ++s.part[s.parts - 1].pieces;
    return;
  }
  s.part[s.parts++] = {.operation = op.index, .pieces = 1, .bytes = bytes, .to = to};
}

/// Inside the gate. False: the transport is full, and the hook will try again.
bool Engine::Core::send_open(Peer& peer, Pack::Kind kind) noexcept {
  Pack& s = *peer.open[kind_index(kind)];
  if (kind == Pack::Kind::read) {
    const wire::ReadPackHead head{.pack = s.index, .stamp = s.stamp, .answer_bytes = s.answer_bytes};
    std::memcpy(s.payload.data(), &head, sizeof(head));
  }
  const std::uint32_t before = activity();
  // relaxed: the gate orders it. Before its answer can come.
  peer.outstanding[kind_index(kind)].fetch_add(1, std::memory_order_relaxed);
  const HandlerId handler = kind == Pack::Kind::read ? wire::kReadPack : wire::kPack;
  if (transport_.request(s.peer, handler, {s.payload.data(), s.used}, s.reply) == Post::again) {
    // release: as in retire(). If others are outstanding, the thread that takes their answer sends this pack.
    if (peer.outstanding[kind_index(kind)].fetch_sub(1, std::memory_order_release) != 1) return false;
    unsent_.store(true, std::memory_order_seq_cst);  // seq_cst: before ring(); the woken thread reads it
    ring();
    return false;
  }
  peer.open[kind_index(kind)] = nullptr;
  await(s, before);
  return true;
}

bool Engine::Core::send_due_inside(Peer& peer) noexcept {
  bool sent = false;
  for (const auto kind : {Pack::Kind::write, Pack::Kind::read}) {
    // relaxed: the thread that brings it to 0 enters the gate afterwards, or makes us look again as we leave.
    if (peer.open[kind_index(kind)] == nullptr) continue;
    if (peer.outstanding[kind_index(kind)].load(std::memory_order_relaxed) == 0)
      sent |= send_open(peer, kind);
  }
  return sent;
}

/// Leaves the gate. A thread that failed to enter meanwhile may have come to send: then looks again on its
/// behalf.
void Engine::Core::leave_gate(Rank rank) noexcept {
  Peer& peer = peers_[raw(rank)];
  while (peer.gate.leave()) {
    if (!peer.gate.enter()) return;  // the thread that entered looks
    send_due_inside(peer);
  }
}

bool Engine::Core::send_due(Rank rank) noexcept {
  Peer& peer = peers_[raw(rank)];
  if (!peer.gate.enter()) return false;
  const bool sent = send_due_inside(peer);
  leave_gate(rank);
  return sent;
}

bool Engine::Core::send_unsent() noexcept {
  // seq_cst: before the look; a thread that fails after this sets it again
  unsent_.store(false, std::memory_order_seq_cst);
  bool any = false;
  for (std::uint32_t r = 0; r < engine_.ranks_; ++r) any |= send_due(Rank{r});
  return any;
}

void Engine::Core::finish_parts(Pack& s, Status status) noexcept {
  for (std::uint32_t i = 0; i < s.parts; ++i)
    finish(operations_[s.part[i].operation], s.part[i].pieces, status);
}

void Engine::Core::retire(Pack& s) noexcept {
  const Rank rank = s.peer;
  Peer& peer = peers_[raw(rank)];
  const std::size_t kind = kind_index(s.kind);
  free_packs_.put(s.index);
  // release: pairs with the gate, whether send_due() enters it or fails to.
  peer.outstanding[kind].fetch_sub(1, std::memory_order_release);
  send_due(rank);
  announce_release();
}

void Engine::Core::write_answered(Core& core, OutstandingRequest& request, std::uint64_t,
                                  Status status) noexcept {
  auto& s = static_cast<Pack&>(request);
  core.finish_parts(s, status);
  core.retire(s);
}

/// The answer may overtake the data, and the peer may be lost between the two. If the data came first the
/// pack is retired here; else by the hook (settle_reads), once there is data or none will come.
void Engine::Core::read_answered(Core& core, OutstandingRequest& request, std::uint64_t,
                                 Status status) noexcept {
  auto& s = static_cast<Pack&>(request);
  // acq_rel, here and in on_read_data(): the second of the two sees what the first did.
  s.state.fetch_or(Pack::kAnswered, std::memory_order_acq_rel);
  if (core.settle_read(s, status != Status::ok)) return;
  core.answered_reads_.push(&s);  // advance() looks at it after this
}

/// The answer has come, or never will. True: the pack was retired. lost: retire it without its data, if need
/// be.
bool Engine::Core::settle_read(Pack& s, bool lost) noexcept {
  if ((s.state.load(std::memory_order_acquire) & Pack::kDelivered) == 0) {  // acquire: what was delivered
    if (!lost || !claim(s, s.stamp)) return false;                          // not there yet, or being copied
    finish_parts(s, Status::peer_lost);                                     // no data will be taken any more
  }
  retire(s);
  return true;
}

/// Settles the packs whose answer came before their data. The thread that delivers data and sees the answer
/// rings the doorbell afterwards, and so does the loss of a peer: a woken thread sees what this one missed.
/// But the woken thread may have found the list empty while this thread held it; hence the ring at the end.
bool Engine::Core::settle_reads() noexcept {
  const std::uint32_t before = activity();
  bool any = false, kept = false;
  for (OutstandingRequest* read = answered_reads_.take_all(); read != nullptr;) {
    OutstandingRequest* next = read->next;
    auto& s = static_cast<Pack&>(*read);
    if (settle_read(s, transport_.lost(s.peer))) {
      any = true;
    } else {
      answered_reads_.push(read);
      kept = true;
    }
    read = next;
  }
  if (kept && activity() != before) ring();
  return any;
}

/// True: this thread finishes the parts. False: another one does, or the data is for an earlier use of the
/// record.
bool Engine::Core::claim(Pack& s, std::uint32_t stamp) noexcept {
  std::uint64_t state = s.state.load(std::memory_order_relaxed);  // relaxed: the compare-swap checks it
  while (state >> Pack::kStampShift == stamp && (state & Pack::kClaimed) == 0) {
    // acquire: the parts. release: as in read_answered().
    if (s.state.compare_exchange_weak(state, state | Pack::kClaimed, std::memory_order_acq_rel,
                                      std::memory_order_relaxed))
      return true;
  }
  return false;
}

void Engine::Core::on_read_data(void* context, const Message& m) noexcept {
  Core& core = *static_cast<Core*>(context);
  wire::ReadDataHead head;
  KASANE_CHECK_OP(m.payload.size(), >=, sizeof(head));
  std::memcpy(&head, m.payload.data(), sizeof(head));
  KASANE_CHECK_OP(head.pack, <, core.packs_count_);
  Pack& s = core.packs_[head.pack];
  if (!claim(s, head.stamp)) return;  // given up when the peer was called lost; perhaps in use again
  KASANE_CHECK_OP(raw(m.from), ==, raw(s.peer));
  KASANE_CHECK_OP(m.payload.size(), ==, s.answer_bytes);
  const std::byte* data = m.payload.data() + sizeof(head);
  for (std::uint32_t i = 0; i < s.parts; ++i) {
    copy_bytes(s.part[i].to, data, s.part[i].bytes);
    data += wire::padded(s.part[i].bytes);
  }
  core.finish_parts(s, Status::ok);
  // The thread that takes the answer retires it.
  // acq_rel: as in read_answered()
  if ((s.state.fetch_or(Pack::kDelivered, std::memory_order_acq_rel) & Pack::kAnswered) != 0) core.ring();
}

}  // namespace kasane::comm
