// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_group.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"

namespace kasane::comm {
namespace {

/// Chunks of messages are multiples of 16 bytes.
constexpr std::size_t kMessageChunk = (kMaxPayload - sizeof(CollectiveHeader)) / 16 * 16;
static_assert(sizeof(CollectiveHeader) == 40 && kShortBytes + sizeof(CollectiveHeader) <= kMaxPayload);

bool is_network(const CollectiveStep& s) noexcept {
  return s.kind == CollectiveStep::Kind::send || s.kind == CollectiveStep::Kind::receive;
}

const char* name_of(std::uint64_t signature) noexcept {
  static constexpr const char* kNames[] = {"?",      "barrier",   "broadcast", "reduce", "allreduce",
                                           "gather", "allgather", "alltoall",  "scan",   "exclusive scan"};
  const std::uint64_t c = signature >> 60;
  return c < std::size(kNames) ? kNames[c] : "?";
}

}  // namespace

// ---- life -------------------------------------------------------------------------------------------------

// relaxed: no other thread is left
GroupState::~GroupState() { delete spare_.load(std::memory_order_relaxed); }

void GroupState::open(std::uint32_t members, std::uint32_t me, CollectiveBlock* own,
                      CollectiveBlock* shared) {
  // A thread that is about to step the slot's previous group may still come: it must not meet a group half
  // made.
  while (gate_.exchange(1, std::memory_order_acquire) != 0) relax();  // acquire: as in step()
  members_ = members;
  me_ = me;
  own_ = own;
  shared_ = shared;
  peers_ = std::make_unique<Peer[]>(members);
  started_ = floor_ = completed_ = 0;
  failed_.store(false, std::memory_order_relaxed);  // relaxed: published by the generation
  // seq_cst: handlers that see it see the group; see close()
  generation_.fetch_add(1, std::memory_order_seq_cst);
  gate_.store(0, std::memory_order_release);  // release: for the next thread that steps
}

void GroupState::set_peers(std::span<const PeerPlace> peers) {
  KASANE_CHECK_OP(peers.size(), ==, members_);
  for (std::uint32_t i = 0; i < members_; ++i) {
    peers_[i].rank = peers[i].rank;
    peers_[i].slot = peers[i].slot;
    peers_[i].generation = peers[i].generation;
    peers_[i].block = peers[i].block;
  }
}

void GroupState::share(CollectiveBlock* shared) noexcept {
  KASANE_CHECK_OP(outstanding_.load(std::memory_order_acquire), ==, 0u);
  shared_ = shared;
}

void GroupState::close(Waiter& waiter) {
  KASANE_CHECK_OP(outstanding_.load(std::memory_order_acquire), ==, 0u);
  waiter.until([this] {
    for (std::uint32_t i = 0; i < members_; ++i) {
      // acquire: as in has_room(). A lost peer sends nothing.
      if (peers_[i].asking > peers_[i].floor.load(std::memory_order_acquire) &&
          !failed_.load(std::memory_order_acquire))
        return false;
    }
    return true;
  });
  // Handlers may still be running. seq_cst on both words: either a handler sees that the generation is over,
  // or we see that it runs.
  generation_.fetch_add(1, std::memory_order_seq_cst);
  while (inside_.load(std::memory_order_seq_cst) != 0) relax();
  // A thread may be stepping: it finds nothing to do, but it reads. A thread that comes later finds the gate
  // taken until we have finished.
  while (gate_.exchange(1, std::memory_order_acquire) != 0) relax();  // acquire: what it did
  gate_.store(0, std::memory_order_release);  // release: for the next thread that steps
}

std::unique_ptr<CollectiveOperation> GroupState::take_spare() {
  // acquire: pairs with give_spare()
  CollectiveOperation* spare = spare_.exchange(nullptr, std::memory_order_acquire);
  return spare == nullptr ? std::make_unique<CollectiveOperation>()
                          : std::unique_ptr<CollectiveOperation>(spare);
}

void GroupState::give_spare(std::unique_ptr<CollectiveOperation> op) noexcept {
  // release: our use of op; acquire: the use of the one that is deleted
  delete spare_.exchange(op.release(), std::memory_order_acq_rel);
}

// ---- starting and stepping --------------------------------------------------------------------------------

void GroupState::start(CollectiveOperation& op) noexcept {
  op.number = started_++;
  op.position = 0;
  op.status = Status::ok;
  op.done.store(false, std::memory_order_relaxed);  // relaxed: published by incoming_
  // relaxed: step() is called by this thread, or by one that learns of it later
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  incoming_.push(&op);
}

void GroupState::step() noexcept {
  if (outstanding_.load(std::memory_order_relaxed) == 0) return;  // relaxed: only saves taking the gate
  if (gate_.load(std::memory_order_relaxed) != 0) return;         // relaxed: the same
  if (gate_.exchange(1, std::memory_order_acquire) != 0) return;  // acquire: what the last thread did
  step_locked();
  gate_.store(0, std::memory_order_release);  // release: for the next thread
}

void GroupState::step_locked() noexcept {
  take_started();
  if (failed_.load(std::memory_order_acquire)) return fail_all();  // acquire: pairs with peer_lost()
  activate();
  send_floors();  // to peers that requested a floor which is reached already; mark_done() makes sure
  // The bound moves along with floor_: an operation that becomes active here may complete at once.
  for (std::uint64_t n = floor_; n < floor_ + kActive; ++n) {
    // relaxed: only the stepping thread writes it
    CollectiveOperation* op = active_[n % kActive].load(std::memory_order_relaxed);
    if (op == nullptr || op->number != n || !advance(*op)) continue;
    complete(*op, Status::ok);
    activate();
  }
  mark_done();
}

/// Appends what was started, in order, to the queue.
void GroupState::take_started() noexcept {
  for (CollectiveOperation* op = incoming_.take_all(); op != nullptr; op = op->next) {
    (queue_last_ == nullptr ? queue_first_ : queue_last_->next) = op;
    queue_last_ = op;
  }
}

void GroupState::activate() noexcept {
  while (queue_first_ != nullptr && queue_first_->number < floor_ + kActive) {
    CollectiveOperation* op = queue_first_;
    queue_first_ = op->next;
    if (queue_first_ == nullptr) queue_last_ = nullptr;
    // release: a handler that meets a chunk for it sees its steps.
    active_[op->number % kActive].store(op, std::memory_order_release);
  }
}

bool GroupState::advance(CollectiveOperation& op) noexcept {
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

bool GroupState::carry_out(CollectiveOperation& op, std::size_t index) noexcept {
  CollectiveStep& s = op.schedule.steps()[index];
  return s.kind == CollectiveStep::Kind::send ? send(op, s) : receive(op, s, index);
}

void GroupState::complete(CollectiveOperation& op, Status status) noexcept {
  // relaxed: everything has arrived, so no handler looks for it any more
  active_[op.number % kActive].store(nullptr, std::memory_order_relaxed);
  completed_ |= std::uint64_t{1} << (op.number - floor_);
  while ((completed_ & 1) != 0) {
    completed_ >>= 1;
    ++floor_;
  }
  // release, for peers that map it: the cells below it were read.
  if (shared_ != nullptr) shared_->floor.store(floor_, std::memory_order_release);
  op.status = status;
  op.next = completed_first_;
  completed_first_ = &op;
}

/// Completed operations are done once all peers that requested a floor have received it: then a member may
/// leave.
void GroupState::mark_done() noexcept {
  if (completed_first_ == nullptr) return;
  if (!send_floors() && !failed_.load(std::memory_order_acquire)) return;  // acquire: as in step_locked()
  while (completed_first_ != nullptr) {
    CollectiveOperation* op = completed_first_;
    completed_first_ = op->next;
    outstanding_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: close() comes after done
    // release: its results. Last: from here on the owner may destroy it.
    op->done.store(true, std::memory_order_release);
  }
}

// ---- the two ends of a message ----------------------------------------------------------------------------

bool GroupState::send(CollectiveOperation& op, CollectiveStep& s) noexcept {
  if (s.bytes <= kShortBytes) return put_cell(op, s, {s.from, s.bytes});
  if (!s.announced) s.announced = put_cell(op, s, {});
  const CollectiveReady& ready = area(s.peer).ready[op.number % kActive][s.phase];
  if (ready.stamp.load(std::memory_order_acquire) != op.number + 1) return false;  // acquire: the note
  check_same(op, s.peer, ready.signature);
  return s.announced && send_chunks(op, s, ready.token);
}

bool GroupState::receive(CollectiveOperation& op, CollectiveStep& s, std::size_t index) noexcept {
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

bool GroupState::put_cell(CollectiveOperation& op, const CollectiveStep& s,
                          std::span<const std::byte> data) noexcept {
  Peer& p = peers_[s.peer];
  if (!has_room(p, op.number)) return false;
  if (p.block == nullptr) {
    CollectiveHeader h = header(CollectiveHeader::Kind::cell, p, op, s);
    h.word = op.signature;
    return send_and_ask(h, p, data);
  }
  CollectiveCell& cell = p.block->from(me_).cells[op.number % kActive][s.phase];
  cell.signature = op.signature;
  if (!data.empty()) std::memcpy(cell.data, data.data(), data.size());
  cell.stamp.store(op.number + 1, std::memory_order_release);  // release: publishes the message
  transport_.wake(p.rank, Doorbell::messages);
  return true;
}

bool GroupState::put_ready(CollectiveOperation& op, const CollectiveStep& s, std::uint64_t token) noexcept {
  Peer& p = peers_[s.peer];
  if (!has_room(p, op.number)) return false;
  if (p.block == nullptr) {
    CollectiveHeader h = header(CollectiveHeader::Kind::ready, p, op, s);
    h.word = op.signature;
    h.token = token;
    return send_and_ask(h, p, {});
  }
  CollectiveReady& ready = p.block->from(me_).ready[op.number % kActive][s.phase];
  ready.signature = op.signature;
  ready.token = token;
  ready.stamp.store(op.number + 1, std::memory_order_release);  // release: publishes the note
  transport_.wake(p.rank, Doorbell::messages);
  return true;
}

bool GroupState::send_chunks(CollectiveOperation& op, CollectiveStep& s, std::uint64_t token) noexcept {
  const bool mapped = peers_[s.peer].block != nullptr;
  while (s.moved < s.bytes) {
    if (!(mapped ? stream_chunk(op, s, token) : message_chunk(op, s, token))) return false;
  }
  return true;
}

bool GroupState::message_chunk(CollectiveOperation& op, CollectiveStep& s, std::uint64_t token) noexcept {
  const Peer& p = peers_[s.peer];
  CollectiveHeader h = header(CollectiveHeader::Kind::chunk, p, op, s);
  h.word = s.moved;
  h.token = token;
  const std::size_t bytes = std::min(kMessageChunk, s.bytes - s.moved);
  if (!message(h, p.rank, {s.from + s.moved, bytes})) return false;
  s.moved += bytes;
  return true;
}

bool GroupState::stream_chunk(CollectiveOperation& op, CollectiveStep& s, std::uint64_t token) noexcept {
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
  transport_.wake(p.rank, Doorbell::messages);
  s.moved += bytes;
  return true;
}

/// Takes every chunk that has arrived, of any collective: for each the receiver has answered ready.
void GroupState::drain_stream(std::uint32_t peer) noexcept {
  Peer& p = peers_[peer];
  CollectiveStream& stream = shared_->from(peer).stream;
  for (;;) {
    const std::uint64_t i = p.taken % CollectiveStream::kChunks;
    const CollectiveStream::Head& head = stream.slots[i].head;
    if (head.full.load(std::memory_order_acquire) != p.taken + 1) return;  // acquire: the chunk
    arrived(head.collective, head.token, head.offset, {stream.data[i], head.bytes});
    stream.taken.store(++p.taken, std::memory_order_release);  // release: it was read
    transport_.wake(p.rank, Doorbell::messages);
  }
}

/// Copies one chunk to its step's memory; called by the stepping thread or a handler.
void GroupState::arrived(std::uint64_t collective, std::uint64_t token, std::uint64_t offset,
                         std::span<const std::byte> bytes) noexcept {
  // acquire: pairs with activate()
  CollectiveOperation* op = active_[collective % kActive].load(std::memory_order_acquire);
  KASANE_CHECK(op != nullptr && op->number == collective, "a chunk for a collective that is not under way");
  KASANE_CHECK_OP(token, <, op->schedule.steps().size());
  CollectiveStep& s = op->schedule.steps()[token];
  KASANE_CHECK(s.kind == CollectiveStep::Kind::receive && offset + bytes.size() <= s.bytes,
               "a chunk beyond the message that was asked for");
  std::memcpy(s.into + offset, bytes.data(), bytes.size());
  // release: pairs with receive(). The last access: the operation may be destroyed after it.
  std::atomic_ref(s.moved).fetch_add(bytes.size(), std::memory_order_release);
}

// ---- messages ---------------------------------------------------------------------------------------------

CollectiveHeader GroupState::header(CollectiveHeader::Kind kind, const Peer& p, const CollectiveOperation& op,
                                    const CollectiveStep& s) const noexcept {
  return {.kind = kind,
          .phase = s.phase,
          .slot = p.slot,
          .generation = p.generation,
          .from = me_,
          .collective = op.number,
          .word = 0,
          .token = 0};
}

bool GroupState::message(const CollectiveHeader& h, Rank to, std::span<const std::byte> data) noexcept {
  alignas(8) std::byte payload[kMaxPayload];
  std::memcpy(payload, &h, sizeof(h));
  if (!data.empty()) std::memcpy(payload + sizeof(h), data.data(), data.size());
  return transport_.send(to, HandlerId{0}, {payload, sizeof(h) + data.size()}) != Post::again;
}

void GroupState::handle(const CollectiveHeader& h, std::span<const std::byte> data) noexcept {
  inside_.fetch_add(1, std::memory_order_seq_cst);  // seq_cst: see close()
  // A message that fails this check is late, and of a group that has failed.
  if (generation_.load(std::memory_order_seq_cst) == h.generation &&
      !failed_.load(std::memory_order_seq_cst)) {
    KASANE_CHECK_OP(h.from, <, members_);
    CollectivePeerArea& from = own_->from(h.from);
    Peer& p = peers_[h.from];
    // release: publishes only itself; before the stamp below, which makes a thread step.
    if (h.ask != 0) p.asked.store(h.collective + 1 - h.ask + 1, std::memory_order_release);
    switch (h.kind) {
      case CollectiveHeader::Kind::cell: {
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
      case CollectiveHeader::Kind::ready: {
        CollectiveReady& ready = from.ready[h.collective % kActive][h.phase & 1];
        ready.signature = h.word;
        ready.token = h.token;
        ready.stamp.store(h.collective + 1, std::memory_order_release);  // release: publishes the note
        break;
      }
      case CollectiveHeader::Kind::chunk: arrived(h.collective, h.token, h.word, data); break;
      case CollectiveHeader::Kind::ask: break;
      // release: pairs with has_room(): the cells below the floor were taken.
      case CollectiveHeader::Kind::floor: p.floor.store(h.word, std::memory_order_release); break;
    }
  }
  inside_.fetch_sub(1, std::memory_order_release);  // release: pairs with close() and fail_all()
}

// ---- the floor: how far behind a peer may be --------------------------------------------------------------

/// May message `number` be put into the peer's cell?
bool GroupState::has_room(Peer& p, std::uint64_t number) noexcept {
  // acquire, both: the cell's last message was taken, see complete().
  if (number < p.floor.load(std::memory_order_acquire) + kActive) return true;
  if (p.block == nullptr) {
    const CollectiveHeader h{.kind = CollectiveHeader::Kind::ask,
                             .phase = 0,
                             .slot = p.slot,
                             .generation = p.generation,
                             .from = me_,
                             .collective = number,
                             .word = 0,
                             .token = 0};
    // relaxed: only decides whether to ask
    if (p.asking <= p.floor.load(std::memory_order_relaxed)) send_and_ask(h, p, {});
    return false;
  }
  const std::uint64_t floor = p.block->floor.load(std::memory_order_acquire);
  // relaxed: for mapped peers only the stepping thread writes it
  p.floor.store(floor, std::memory_order_relaxed);
  return number < floor + kActive;
}

/// Sends a message, and requests the peer's floor along with it when half the room is used up and no request
/// is outstanding. The requested floor is at most the number of the message's collective, which the peer
/// cannot complete without that message: so the peer is still a member, and reaches the floor without further
/// progress here.
bool GroupState::send_and_ask(CollectiveHeader h, Peer& p, std::span<const std::byte> data) noexcept {
  const std::uint64_t floor = p.floor.load(std::memory_order_acquire);  // acquire: as in has_room()
  const bool ask = h.collective >= floor + kActive / 2 && p.asking <= floor;
  const std::uint64_t wanted = floor + kActive / 2;
  // The distance may exceed 16 bits where this member sent nothing to the peer for long: then a floor close
  // to the current collective is requested.
  if (ask) h.ask = static_cast<std::uint16_t>(std::min<std::uint64_t>(h.collective - wanted, kActive) + 1);
  if (!message(h, p.rank, data)) return false;
  if (ask) p.asking = h.collective + 1 - h.ask;
  return true;
}

/// Sends the floor to each peer whose requested floor is reached. False if a message could not be sent: try
/// again.
bool GroupState::send_floors() noexcept {
  bool all = true;
  for (std::uint32_t i = 0; i < members_; ++i) {
    Peer& p = peers_[i];
    const std::uint64_t asked = p.asked.load(std::memory_order_acquire);  // acquire: pairs with handle()
    if (asked == 0 || asked - 1 > floor_) continue;
    // relaxed: before the message, after which the peer may ask again
    p.asked.store(0, std::memory_order_relaxed);
    const CollectiveHeader h{.kind = CollectiveHeader::Kind::floor,
                             .phase = 0,
                             .slot = p.slot,
                             .generation = p.generation,
                             .from = me_,
                             .collective = 0,
                             .word = floor_,
                             .token = 0};
    if (message(h, p.rank, {})) continue;
    // relaxed: no other thread writes it until the floor was sent
    p.asked.store(asked, std::memory_order_relaxed);
    all = false;
  }
  return all;
}

// ---- failure ----------------------------------------------------------------------------------------------

void GroupState::peer_lost(Rank rank) noexcept {
  // seq_cst: so the group is not closed meanwhile; see close()
  inside_.fetch_add(1, std::memory_order_seq_cst);
  const bool open = generation_.load(std::memory_order_seq_cst) % 2 != 0;
  for (std::uint32_t i = 0; open && i < members_; ++i) {
    // seq_cst: against inside_ in fail_all()
    if (peers_[i].rank == rank) failed_.store(true, std::memory_order_seq_cst);
  }
  inside_.fetch_sub(1, std::memory_order_release);
}

void GroupState::fail_all() noexcept {
  if (inside_.load(std::memory_order_seq_cst) != 0) return;  // a handler may still be copying; next time
  for (bool more = true; more;) {
    activate();
    more = false;
    for (auto& active : active_) {
      // relaxed: only the stepping thread writes it
      CollectiveOperation* op = active.load(std::memory_order_relaxed);
      if (op == nullptr) continue;
      complete(*op, Status::peer_lost);
      more = true;
    }
  }
  mark_done();
}

void GroupState::check_same(const CollectiveOperation& op, std::uint32_t peer,
                            std::uint64_t theirs) const noexcept {
  if (op.signature == theirs) [[likely]]
    return;
  static char text[256];  // about to abort: neither stack nor allocation is needed
  std::snprintf(text, sizeof(text),
                "members of group %u differ in collective %llu: rank %u calls %s (root %u, %u bytes, "
                "type/operation %u), rank %u calls %s (root %u, %u bytes, type/operation %u)",
                slot_, static_cast<unsigned long long>(op.number), raw(transport_.rank()),
                name_of(op.signature), static_cast<unsigned>(op.signature >> 32 & 0xFFFFF),
                static_cast<unsigned>(op.signature), static_cast<unsigned>(op.signature >> 52 & 0xFF),
                raw(peers_[peer].rank), name_of(theirs), static_cast<unsigned>(theirs >> 32 & 0xFFFFF),
                static_cast<unsigned>(theirs), static_cast<unsigned>(theirs >> 52 & 0xFF));
  check_failed("every member calls the same collective", __FILE__, __LINE__, text);
}

}  // namespace kasane::comm
