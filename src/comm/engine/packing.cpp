// SPDX-License-Identifier: Apache-2.0
// Small pieces share messages. Per peer and direction one shipment is open: while nothing of its kind is under way to the peer, what is put in leaves at once; else
// it stays until it is full or an answer has come back (Nagle's rule; the answer is what ends the waiting, so no timer is needed).
//
//   | under way | put in                         | answer               | full                                     |
//   | 0         | send at once                   | –                    | –                                        |
//   | n > 0     | collect                        | n − 1; 0: send       | write: send, n + 1. read: blocked        |
//   | any       | transport says again: unsent, the hook tries again                                                  |
//
// A read waits when it is full because the other side keeps one place for each rank's answer (service.cpp).
#include "comm/engine/core.h"

namespace kasane::comm {
namespace {

constexpr std::size_t kind_index(Shipment::Kind k) noexcept { return static_cast<std::size_t>(k); }

std::uint32_t narrow(std::size_t bytes) noexcept { return static_cast<std::uint32_t>(bytes); }

}  // namespace

/// Worth sharing a message: small, and the peer has something else of ours under way. A lone operation goes by itself, which needs no program at the other
/// end; but a write with notification is one message instead of two and a flush, where puts are messages to a program anyway.
bool Engine::Core::packable(const Command& c) const noexcept {
  if (c.kind == Command::Kind::atomic || pack_below_ == 0) return false;
  if (c.kind == Command::Kind::write_notify && puts_are_messages_) return c.transfer.bytes <= wire::kMaxNotified;
  return c.transfer.bytes <= pack_below_ && peers_[raw(c.remote.rank)].epochs.under_way() > 1;
}

Engine::Core::Packed Engine::Core::pack(const Command& c, Operation& op) noexcept {
  const auto bytes = narrow(c.transfer.bytes);
  std::byte* here = local(c.transfer.local);
  switch (c.kind) {
    case Command::Kind::read: return pack_read(op, c.remote, here, bytes);
    case Command::Kind::write: return pack_write(op, c.remote, here, bytes);
    default: break;
  }
  const auto region = static_cast<std::uint8_t>(raw(c.remote.region));
  const wire::Entry data{.offset = c.remote.offset, .bytes = bytes, .region = region, .what = wire::What::write, .element = {}};
  const wire::Entry flag{.offset = c.transfer.flag_offset, .bytes = 8, .region = region, .what = wire::What::flag, .element = {}};
  return pack_entry(op, c.remote.rank, data, [&](std::byte* to) { copy_bytes(to, here, bytes); }, &flag, c.transfer.value);
}

Engine::Core::Packed Engine::Core::pack_write(Operation& op, RemoteAddr at, const std::byte* from, std::uint32_t bytes) noexcept {
  const wire::Entry e{.offset = at.offset, .bytes = bytes, .region = static_cast<std::uint8_t>(raw(at.region)), .what = wire::What::write, .element = {}};
  return pack_entry(op, at.rank, e, [&](std::byte* to) { copy_bytes(to, from, bytes); });
}

Engine::Core::Packed Engine::Core::pack_accumulate(Operation& op, RemoteAddr at, const std::byte* from, std::uint32_t bytes) noexcept {
  const wire::Entry e{.offset = at.offset, .bytes = bytes, .region = static_cast<std::uint8_t>(raw(at.region)), .what = wire::What::accumulate,
                      .element = op.element};
  return pack_entry(op, at.rank, e, [&](std::byte* to) { scale_elements(op.element, op.scale, to, from, bytes); });
}

/// Puts one entry (and a flag after it) into the open shipment of writes. fill writes the data in place.
template <class Fill>
Engine::Core::Packed Engine::Core::pack_entry(Operation& op, Rank rank, const wire::Entry& e, const Fill& fill, const wire::Entry* flag,
                                              std::uint64_t value) noexcept {
  Peer& peer = peers_[raw(rank)];
  if (!peer.gate.enter()) return Packed::again;
  const std::size_t wanted = sizeof(e) + wire::padded(e.bytes) + (flag != nullptr ? sizeof(e) + sizeof(value) : 0);
  const Packed fits = room(peer, rank, Shipment::Kind::write, wanted, 0);
  if (fits == Packed::yes) {
    Shipment& s = *peer.open[kind_index(Shipment::Kind::write)];
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
  leave(rank);
  return fits;
}

Engine::Core::Packed Engine::Core::pack_read(Operation& op, RemoteAddr at, std::byte* to, std::uint32_t bytes) noexcept {
  Peer& peer = peers_[raw(at.rank)];
  if (!peer.gate.enter()) return Packed::again;
  const Packed fits = room(peer, at.rank, Shipment::Kind::read, sizeof(wire::Entry), wire::padded(bytes));
  if (fits == Packed::yes) {
    Shipment& s = *peer.open[kind_index(Shipment::Kind::read)];
    const wire::Entry e{.offset = at.offset, .bytes = bytes, .region = static_cast<std::uint8_t>(raw(at.region)), .what = wire::What::write, .element = {}};
    std::memcpy(s.payload.data() + s.used, &e, sizeof(e));
    s.used += sizeof(e);
    s.answer_bytes += narrow(wire::padded(bytes));
    add_part(s, op, to, bytes);
    send_due_inside(peer);
  }
  leave(at.rank);
  return fits;
}

/// Inside the gate: an open shipment with so much room, or why there is none.
Engine::Core::Packed Engine::Core::room(Peer& peer, Rank rank, Shipment::Kind kind, std::size_t bytes, std::size_t answer_bytes) noexcept {
  Shipment*& open = peer.open[kind_index(kind)];
  if (open != nullptr && (open->used + bytes > kMaxPayload || open->answer_bytes + answer_bytes > kMaxPayload)) {
    // relaxed: who retires the one under way comes through the gate after us, or has been there.
    if (kind == Shipment::Kind::read && peer.under_way[kind_index(kind)].load(std::memory_order_relaxed) != 0) return Packed::blocked;
    if (!send_open(peer, kind)) return Packed::again;
  }
  if (open != nullptr) return Packed::yes;
  const std::uint32_t index = free_shipments_.take();
  if (index == kNoRecord) return Packed::blocked;
  Shipment& s = shipments_[index];
  s.kind = kind;
  s.peer = rank;
  s.parts = 0;
  s.used = kind == Shipment::Kind::read ? sizeof(wire::ReadPackHead) : 0;
  s.answer_bytes = sizeof(wire::ReadDataHead);
  s.answered = kind == Shipment::Kind::read ? &Core::read_answered : &Core::write_answered;
  s.state.store(std::uint64_t{++s.stamp} << Shipment::kStampShift, std::memory_order_relaxed);   // relaxed: published by the request
  open = &s;
  return Packed::yes;
}

void Engine::Core::add_part(Shipment& s, const Operation& op, std::byte* to, std::uint32_t bytes) noexcept {
  if (to == nullptr && s.parts != 0 && s.part[s.parts - 1].operation == op.index) {
    ++s.part[s.parts - 1].pieces;
    return;
  }
  s.part[s.parts++] = {.operation = op.index, .pieces = 1, .bytes = bytes, .to = to};
}

/// Inside the gate. False: the transport is full, and the hook will try again.
bool Engine::Core::send_open(Peer& peer, Shipment::Kind kind) noexcept {
  Shipment& s = *peer.open[kind_index(kind)];
  if (kind == Shipment::Kind::read) {
    const wire::ReadPackHead head{.shipment = s.index, .stamp = s.stamp, .answer_bytes = s.answer_bytes};
    std::memcpy(s.payload.data(), &head, sizeof(head));
  }
  const std::uint32_t before = activity();
  peer.under_way[kind_index(kind)].fetch_add(1, std::memory_order_relaxed);   // relaxed: the gate orders it. Before its answer can come.
  const HandlerId handler = kind == Shipment::Kind::read ? wire::kReadPack : wire::kPack;
  if (transport_.request(s.peer, handler, {s.payload.data(), s.used}, s.reply) == Post::again) {
    // release: as in retire(). Others under way: an answer will make somebody send this.
    if (peer.under_way[kind_index(kind)].fetch_sub(1, std::memory_order_release) != 1) return false;
    unsent_.store(true, std::memory_order_seq_cst);   // seq_cst: before the ring, whose hearer looks for it
    ring();
    return false;
  }
  peer.open[kind_index(kind)] = nullptr;
  await(s, before);
  return true;
}

bool Engine::Core::send_due_inside(Peer& peer) noexcept {
  bool sent = false;
  for (const auto kind : {Shipment::Kind::write, Shipment::Kind::read}) {
    // relaxed: who brings it to 0 enters the gate afterwards, or makes us look again as we leave.
    if (peer.open[kind_index(kind)] != nullptr && peer.under_way[kind_index(kind)].load(std::memory_order_relaxed) == 0) sent |= send_open(peer, kind);
  }
  return sent;
}

/// Leaves the gate; who was turned away meanwhile may have come to send.
void Engine::Core::leave(Rank rank) noexcept {
  Peer& peer = peers_[raw(rank)];
  while (peer.gate.leave()) {
    if (!peer.gate.enter()) return;   // it is the other's turn to look again
    send_due_inside(peer);
  }
}

bool Engine::Core::send_due(Rank rank) noexcept {
  Peer& peer = peers_[raw(rank)];
  if (!peer.gate.enter()) return false;
  const bool sent = send_due_inside(peer);
  leave(rank);
  return sent;
}

bool Engine::Core::send_unsent() noexcept {
  unsent_.store(false, std::memory_order_seq_cst);   // before we look: who fails after this sets it anew
  bool any = false;
  for (std::uint32_t r = 0; r < engine_.ranks_; ++r) any |= send_due(Rank{r});
  return any;
}

void Engine::Core::finish_parts(Shipment& s, Status status) noexcept {
  for (std::uint32_t i = 0; i < s.parts; ++i) finish(operations_[s.part[i].operation], s.part[i].pieces, status);
}

void Engine::Core::retire(Shipment& s) noexcept {
  const Rank rank = s.peer;
  Peer& peer = peers_[raw(rank)];
  const std::size_t kind = kind_index(s.kind);
  free_shipments_.put(s.index);
  peer.under_way[kind].fetch_sub(1, std::memory_order_release);   // release: pairs with the gate, entered or turned away from below
  send_due(rank);
  released();
}

void Engine::Core::write_answered(Core& core, Awaiting& request, std::uint64_t, Status status) noexcept {
  auto& s = static_cast<Shipment&>(request);
  core.finish_parts(s, status);
  core.retire(s);
}

/// The answer may overtake the data, and the peer may be lost between the two. Data first: retired here; else by the hook (settle_reads), once there is data
/// or none will come.
void Engine::Core::read_answered(Core& core, Awaiting& request, std::uint64_t, Status status) noexcept {
  auto& s = static_cast<Shipment&>(request);
  // acq_rel, here and in on_read_data(): whoever comes second sees what the first did.
  s.state.fetch_or(Shipment::kAnswered, std::memory_order_acq_rel);
  if (core.settle_read(s, status != Status::ok)) return;
  core.answered_reads_.push(&s);   // move_on() looks at it after us
}

/// Its answer has come, or never will. True: it was retired; lost: without its data, if need be.
bool Engine::Core::settle_read(Shipment& s, bool lost) noexcept {
  if ((s.state.load(std::memory_order_acquire) & Shipment::kDelivered) == 0) {   // acquire: what was delivered
    if (!lost || !claim(s, s.stamp)) return false;                               // under way, or being copied
    finish_parts(s, Status::peer_lost);                                          // no data will be taken any more
  }
  retire(s);
  return true;
}

/// Those whose answer came before their data. Who delivers and sees the answer rings the doorbell afterwards, and so does the loss of a peer: what we missed is
/// seen by who hears that; unless it found the list in our hands, hence our own ring.
bool Engine::Core::settle_reads() noexcept {
  const std::uint32_t before = activity();
  bool any = false, kept = false;
  for (Awaiting* read = answered_reads_.take_all(); read != nullptr;) {
    Awaiting* next = read->next;
    auto& s = static_cast<Shipment&>(*read);
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

/// True: the parts are ours to finish. False: somebody else's, or those of another use.
bool Engine::Core::claim(Shipment& s, std::uint32_t stamp) noexcept {
  std::uint64_t state = s.state.load(std::memory_order_relaxed);   // relaxed: the compare-swap checks it
  while (state >> Shipment::kStampShift == stamp && (state & Shipment::kClaimed) == 0) {
    // acquire: the parts. release: as in read_answered().
    if (s.state.compare_exchange_weak(state, state | Shipment::kClaimed, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
  }
  return false;
}

void Engine::Core::on_read_data(void* context, const Message& m) noexcept {
  Core& core = *static_cast<Core*>(context);
  wire::ReadDataHead head;
  std::memcpy(&head, m.payload.data(), sizeof(head));
  KASANE_CHECK_OP(head.shipment, <, core.shipments_count_);
  Shipment& s = core.shipments_[head.shipment];
  if (!claim(s, head.stamp)) return;   // given up, since the peer was called lost, and perhaps in use again
  KASANE_CHECK_OP(raw(m.from), ==, raw(s.peer));
  const std::byte* data = m.payload.data() + sizeof(head);
  for (std::uint32_t i = 0; i < s.parts; ++i) {
    copy_bytes(s.part[i].to, data, s.part[i].bytes);
    data += wire::padded(s.part[i].bytes);
  }
  core.finish_parts(s, Status::ok);
  // It is retired by who has the answer, or will have it.
  if ((s.state.fetch_or(Shipment::kDelivered, std::memory_order_acq_rel) & Shipment::kAnswered) != 0) core.ring();
}

}  // namespace kasane::comm
