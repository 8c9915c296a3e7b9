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

bool is_network(const Step& s) noexcept { return s.kind == Step::Kind::send || s.kind == Step::Kind::receive; }

const char* name_of(std::uint64_t signature) noexcept {
  static constexpr const char* kNames[] = {"?", "barrier", "broadcast", "reduce", "allreduce", "gather", "allgather", "alltoall", "scan", "exclusive scan"};
  const std::uint64_t c = signature >> 60;
  return c < std::size(kNames) ? kNames[c] : "?";
}

}  // namespace

// ---- life --------------------------------------------------------------------------------------------------------

GroupState::~GroupState() { delete spare_.load(std::memory_order_relaxed); }  // relaxed: nobody else is left

void GroupState::open(std::uint32_t members, std::uint32_t me, CollectiveBlock* own, CollectiveBlock* shared) {
  // A thread that meant to step the group which was here before may still come: it must not meet a half-made one.
  while (gate_.exchange(1, std::memory_order_acquire) != 0) relax();  // acquire: as in step()
  members_ = members;
  me_ = me;
  own_ = own;
  shared_ = shared;
  peers_ = std::make_unique<Peer[]>(members);
  started_ = floor_ = completed_ = 0;
  failed_.store(false, std::memory_order_relaxed);             // relaxed: published by the generation
  generation_.fetch_add(1, std::memory_order_seq_cst);         // seq_cst: handlers that see it see the group; see close()
  gate_.store(0, std::memory_order_release);                   // release: for the next thread that steps
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
  KASANE_CHECK_OP(under_way_.load(std::memory_order_acquire), ==, 0u);
  shared_ = shared;
}

void GroupState::close(Waiter& waiter) {
  KASANE_CHECK_OP(under_way_.load(std::memory_order_acquire), ==, 0u);
  waiter.until([this] {
    for (std::uint32_t i = 0; i < members_; ++i) {
      // acquire: as in has_room(). A peer that is lost tells nothing.
      if (peers_[i].asking > peers_[i].floor.load(std::memory_order_acquire) && !failed_.load(std::memory_order_acquire)) return false;
    }
    return true;
  });
  // Handlers may be on their way out. seq_cst on both words: either a handler sees that the generation is over, or we see it inside.
  generation_.fetch_add(1, std::memory_order_seq_cst);
  while (inside_.load(std::memory_order_seq_cst) != 0) relax();
  // A thread may be stepping: it finds nothing to do, but it looks. Who comes later finds the gate taken until we have finished.
  while (gate_.exchange(1, std::memory_order_acquire) != 0) relax();  // acquire: what it did
  gate_.store(0, std::memory_order_release);  // release: for the next thread that steps
}

std::unique_ptr<Operation> GroupState::take_spare() {
  Operation* spare = spare_.exchange(nullptr, std::memory_order_acquire);  // acquire: pairs with give_spare()
  return spare == nullptr ? std::make_unique<Operation>() : std::unique_ptr<Operation>(spare);
}

void GroupState::give_spare(std::unique_ptr<Operation> op) noexcept {
  delete spare_.exchange(op.release(), std::memory_order_acq_rel);  // release: our use of it; acquire: the use of the one that goes
}

// ---- starting and stepping ---------------------------------------------------------------------------------------

void GroupState::start(Operation& op) noexcept {
  op.number = started_++;
  op.position = 0;
  op.status = Status::ok;
  op.done.store(false, std::memory_order_relaxed);      // relaxed: published by incoming_
  under_way_.fetch_add(1, std::memory_order_relaxed);   // relaxed: step() is called by the same thread, or by one that learns of it later
  op.next = incoming_.load(std::memory_order_relaxed);  // relaxed: the compare-swap decides
  while (!incoming_.compare_exchange_weak(op.next, &op, std::memory_order_release, std::memory_order_relaxed)) {}  // release: the operation
}

void GroupState::step() noexcept {
  if (under_way_.load(std::memory_order_relaxed) == 0) return;  // relaxed: only spares the gate
  if (gate_.load(std::memory_order_relaxed) != 0) return;       // relaxed: the same
  if (gate_.exchange(1, std::memory_order_acquire) != 0) return;  // acquire: what the last one did
  step_inside();
  gate_.store(0, std::memory_order_release);  // release: for the next one
}

void GroupState::step_inside() noexcept {
  take_started();
  if (failed_.load(std::memory_order_acquire)) return fail_all();  // acquire: pairs with peer_lost()
  activate();
  tell_floor();   // to a peer that asked for what is reached already; hand_back() makes sure
  // The end moves along: what becomes active now may be able to complete at once.
  for (std::uint64_t n = floor_; n < floor_ + kActive; ++n) {
    Operation* op = active_[n % kActive].load(std::memory_order_relaxed);  // relaxed: ours
    if (op == nullptr || op->number != n || !advance(*op)) continue;
    complete(*op, Status::ok);
    activate();
  }
  hand_back();
}

/// What was started, in order, behind the queue.
void GroupState::take_started() noexcept {
  if (incoming_.load(std::memory_order_relaxed) == nullptr) return;          // relaxed: a look
  Operation* top = incoming_.exchange(nullptr, std::memory_order_acquire);   // acquire: the operations
  Operation* last = top;
  Operation* first = nullptr;
  while (top != nullptr) {
    Operation* below = top->next;
    top->next = first;
    first = top;
    top = below;
  }
  if (first == nullptr) return;
  (queue_last_ == nullptr ? queue_first_ : queue_last_->next) = first;
  queue_last_ = last;
}

void GroupState::activate() noexcept {
  while (queue_first_ != nullptr && queue_first_->number < floor_ + kActive) {
    Operation* op = queue_first_;
    queue_first_ = op->next;
    if (queue_first_ == nullptr) queue_last_ = nullptr;
    // release: a handler that meets a chunk for it sees its steps.
    active_[op->number % kActive].store(op, std::memory_order_release);
  }
}

bool GroupState::advance(Operation& op) noexcept {
  auto& steps = op.schedule.steps();
  for (;;) {
    std::size_t i = op.position;
    bool all = true;
    for (; i < steps.size() && is_network(steps[i]); ++i) {
      if (!steps[i].done) steps[i].done = move(op, i);
      all = all && steps[i].done;
    }
    if (!all) return false;
    for (; i < steps.size() && !is_network(steps[i]); ++i) {
      const Step& s = steps[i];
      if (s.bytes == 0) continue;
      if (s.kind == Step::Kind::copy) std::memcpy(s.into, s.from, s.bytes);
      else op.schedule.reduction()(s.into, s.from, s.right, s.bytes);
    }
    op.position = i;
    if (i == steps.size()) return true;
  }
}

bool GroupState::move(Operation& op, std::size_t index) noexcept {
  Step& s = op.schedule.steps()[index];
  return s.kind == Step::Kind::send ? send(op, s) : receive(op, s, index);
}

void GroupState::complete(Operation& op, Status status) noexcept {
  active_[op.number % kActive].store(nullptr, std::memory_order_relaxed);  // relaxed: no handler looks for it any more, all has arrived
  completed_ |= std::uint64_t{1} << (op.number - floor_);
  while ((completed_ & 1) != 0) {
    completed_ >>= 1;
    ++floor_;
  }
  // release: for peers that map it: the cells below it were read.
  if (shared_ != nullptr) shared_->floor.store(floor_, std::memory_order_release);
  op.status = status;
  op.next = completed_first_;
  completed_first_ = &op;
}

/// What is complete is done once everybody who asked knows: whoever leaves owes nothing.
void GroupState::hand_back() noexcept {
  if (completed_first_ == nullptr) return;
  if (!tell_floor() && !failed_.load(std::memory_order_acquire)) return;   // acquire: as in step_inside()
  while (completed_first_ != nullptr) {
    Operation* op = completed_first_;
    completed_first_ = op->next;
    under_way_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: close() comes after done
    op->done.store(true, std::memory_order_release);     // release: its results. Last: the owner may take it away now.
  }
}

// ---- the two ends of a message -----------------------------------------------------------------------------------

bool GroupState::send(Operation& op, Step& s) noexcept {
  if (s.bytes <= kShortBytes) return put_cell(op, s, {s.from, s.bytes});
  if (!s.announced) s.announced = put_cell(op, s, {});
  const CollectiveReady& ready = area(s.peer).ready[op.number % kActive][s.phase];
  if (ready.stamp.load(std::memory_order_acquire) != op.number + 1) return false;  // acquire: the note
  check_same(op, s.peer, ready.signature);
  return s.announced && send_chunks(op, s, ready.token);
}

bool GroupState::receive(Operation& op, Step& s, std::size_t index) noexcept {
  const CollectiveCell& cell = area(s.peer).cells[op.number % kActive][s.phase];
  const bool told = cell.stamp.load(std::memory_order_acquire) == op.number + 1;  // acquire: the message
  if (told) check_same(op, s.peer, cell.signature);
  if (s.bytes <= kShortBytes) {
    if (told && s.bytes != 0) std::memcpy(s.into, cell.data, s.bytes);
    return told;
  }
  if (!s.announced) s.announced = put_ready(op, s, index);
  if (peers_[s.peer].block != nullptr) drain_stream(s.peer);
  // acquire: pairs with arrived(), whose bytes we hand on.
  return told && s.announced && std::atomic_ref(s.moved).load(std::memory_order_acquire) == s.bytes;
}

bool GroupState::put_cell(Operation& op, const Step& s, std::span<const std::byte> data) noexcept {
  Peer& p = peers_[s.peer];
  if (!has_room(p, op.number)) return false;
  if (p.block == nullptr) {
    CollectiveHeader h = header(CollectiveHeader::Kind::cell, p, op, s);
    h.word = op.signature;
    return message_asking(h, p, data);
  }
  CollectiveCell& cell = p.block->from(me_).cells[op.number % kActive][s.phase];
  cell.signature = op.signature;
  if (!data.empty()) std::memcpy(cell.data, data.data(), data.size());
  cell.stamp.store(op.number + 1, std::memory_order_release);  // release: publishes the message
  transport_.wake(p.rank, Doorbell::messages);
  return true;
}

bool GroupState::put_ready(Operation& op, const Step& s, std::uint64_t token) noexcept {
  Peer& p = peers_[s.peer];
  if (!has_room(p, op.number)) return false;
  if (p.block == nullptr) {
    CollectiveHeader h = header(CollectiveHeader::Kind::ready, p, op, s);
    h.word = op.signature;
    h.token = token;
    return message_asking(h, p, {});
  }
  CollectiveReady& ready = p.block->from(me_).ready[op.number % kActive][s.phase];
  ready.signature = op.signature;
  ready.token = token;
  ready.stamp.store(op.number + 1, std::memory_order_release);  // release: publishes the note
  transport_.wake(p.rank, Doorbell::messages);
  return true;
}

bool GroupState::send_chunks(Operation& op, Step& s, std::uint64_t token) noexcept {
  const bool mapped = peers_[s.peer].block != nullptr;
  while (s.moved < s.bytes) {
    if (!(mapped ? stream_chunk(op, s, token) : message_chunk(op, s, token))) return false;
  }
  return true;
}

bool GroupState::message_chunk(Operation& op, Step& s, std::uint64_t token) noexcept {
  const Peer& p = peers_[s.peer];
  CollectiveHeader h = header(CollectiveHeader::Kind::chunk, p, op, s);
  h.word = s.moved;
  h.token = token;
  const std::size_t bytes = std::min(kMessageChunk, s.bytes - s.moved);
  if (!message(h, p.rank, {s.from + s.moved, bytes})) return false;
  s.moved += bytes;
  return true;
}

bool GroupState::stream_chunk(Operation& op, Step& s, std::uint64_t token) noexcept {
  Peer& p = peers_[s.peer];
  CollectiveStream& stream = p.block->from(me_).stream;
  if (p.streamed - p.stream_taken == CollectiveStream::kChunks) {
    p.stream_taken = stream.taken.load(std::memory_order_acquire);  // acquire: the consumer has read what we overwrite
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

/// Takes every chunk that has arrived, of whatever collective: each was asked for.
void GroupState::drain_stream(std::uint32_t peer) noexcept {
  Peer& p = peers_[peer];
  CollectiveStream& stream = shared_->from(peer).stream;
  for (;;) {
    const std::uint64_t i = p.taken % CollectiveStream::kChunks;
    const CollectiveStream::Head& head = stream.slots[i].head;
    if (head.full.load(std::memory_order_acquire) != p.taken + 1) return;  // acquire: the chunk
    arrived(head.collective, head.token, head.offset, {stream.data[i], head.bytes});
    stream.taken.store(++p.taken, std::memory_order_release);  // release: we have read it
    transport_.wake(p.rank, Doorbell::messages);
  }
}

/// By the stepper, or by a handler: the bytes of one chunk go where they belong.
void GroupState::arrived(std::uint64_t collective, std::uint64_t token, std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
  Operation* op = active_[collective % kActive].load(std::memory_order_acquire);  // acquire: pairs with activate()
  KASANE_CHECK(op != nullptr && op->number == collective, "a chunk for a collective that is not under way");
  KASANE_CHECK_OP(token, <, op->schedule.steps().size());
  Step& s = op->schedule.steps()[token];
  KASANE_CHECK(s.kind == Step::Kind::receive && offset + bytes.size() <= s.bytes, "a chunk beyond the message that was asked for");
  std::memcpy(s.into + offset, bytes.data(), bytes.size());
  // release: pairs with receive(). The last access: the operation may be gone after it.
  std::atomic_ref(s.moved).fetch_add(bytes.size(), std::memory_order_release);
}

// ---- messages ----------------------------------------------------------------------------------------------------

CollectiveHeader GroupState::header(CollectiveHeader::Kind kind, const Peer& p, const Operation& op, const Step& s) const noexcept {
  return {.kind = kind, .phase = s.phase, .slot = p.slot, .generation = p.generation, .from = me_, .collective = op.number, .word = 0, .token = 0};
}

bool GroupState::message(const CollectiveHeader& h, Rank to, std::span<const std::byte> data) noexcept {
  alignas(8) std::byte payload[kMaxPayload];
  std::memcpy(payload, &h, sizeof(h));
  if (!data.empty()) std::memcpy(payload + sizeof(h), data.data(), data.size());
  return transport_.send(to, HandlerId{0}, {payload, sizeof(h) + data.size()}) != Post::again;
}

void GroupState::handle(const CollectiveHeader& h, std::span<const std::byte> data) noexcept {
  inside_.fetch_add(1, std::memory_order_seq_cst);  // seq_cst: see close()
  // What comes late belongs to a group that has failed.
  if (generation_.load(std::memory_order_seq_cst) == h.generation && !failed_.load(std::memory_order_seq_cst)) {
    KASANE_CHECK_OP(h.from, <, members_);
    CollectivePeerArea& from = own_->from(h.from);
    Peer& p = peers_[h.from];
    // release: publishes nothing but itself; before the stamp below, which brings the stepper here.
    if (h.ask != 0) p.asked.store(h.collective + 1 - h.ask + 1, std::memory_order_release);
    switch (h.kind) {
      case CollectiveHeader::Kind::cell: {
        CollectiveCell& cell = from.cells[h.collective % kActive][h.phase & 1];
        KASANE_CHECK_OP(data.size(), <=, kShortBytes);
        // relaxed: it was taken before the sender was told so by our floor.
        KASANE_CHECK_OP(cell.stamp.load(std::memory_order_relaxed), <=, h.collective);   // else a peer overran
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

// ---- the floor: how far behind may a peer be ---------------------------------------------------------------------

/// May message `number` be put into the peer's cell?
bool GroupState::has_room(Peer& p, std::uint64_t number) noexcept {
  // acquire, both: the cell's last message was taken, see complete().
  if (number < p.floor.load(std::memory_order_acquire) + kActive) return true;
  if (p.block == nullptr) {
    const CollectiveHeader h{.kind = CollectiveHeader::Kind::ask, .phase = 0, .slot = p.slot, .generation = p.generation, .from = me_,
                             .collective = number, .word = 0, .token = 0};
    if (p.asking <= p.floor.load(std::memory_order_relaxed)) message_asking(h, p, {});  // relaxed: only whether to ask
    return false;
  }
  const std::uint64_t floor = p.block->floor.load(std::memory_order_acquire);
  p.floor.store(floor, std::memory_order_relaxed);   // relaxed: of mapped peers only the stepper writes it
  return number < floor + kActive;
}

/// Sends a message, and asks along with it for the floor when half the room is used up and nothing was asked yet. What is asked for is at most the number of the collective
/// that the message belongs to, which the peer cannot complete without it: so the peer is there, and comes to it without us getting any further.
bool GroupState::message_asking(CollectiveHeader h, Peer& p, std::span<const std::byte> data) noexcept {
  const std::uint64_t floor = p.floor.load(std::memory_order_acquire);  // acquire: as in has_room()
  const bool ask = h.collective >= floor + kActive / 2 && p.asking <= floor;
  const std::uint64_t wanted = floor + kActive / 2;
  // The distance may exceed 16 bits where this member had nothing to say to the peer for long: then the peer's floor is asked for as of now.
  if (ask) h.ask = static_cast<std::uint16_t>(std::min<std::uint64_t>(h.collective - wanted, kActive) + 1);
  if (!message(h, p.rank, data)) return false;
  if (ask) p.asking = h.collective + 1 - h.ask;
  return true;
}

/// Tells all who asked for a floor that is reached. False if a message could not be sent: try again.
bool GroupState::tell_floor() noexcept {
  bool all = true;
  for (std::uint32_t i = 0; i < members_; ++i) {
    Peer& p = peers_[i];
    const std::uint64_t asked = p.asked.load(std::memory_order_acquire);  // acquire: as the stamp that came with it
    if (asked == 0 || asked - 1 > floor_) continue;
    p.asked.store(0, std::memory_order_relaxed);  // relaxed: before the message, after which it may ask again
    const CollectiveHeader h{.kind = CollectiveHeader::Kind::floor, .phase = 0, .slot = p.slot, .generation = p.generation, .from = me_,
                             .collective = 0, .word = floor_, .token = 0};
    if (message(h, p.rank, {})) continue;
    p.asked.store(asked, std::memory_order_relaxed);  // relaxed: nobody else writes it until it was told
    all = false;
  }
  return all;
}

// ---- failure -----------------------------------------------------------------------------------------------------

void GroupState::peer_lost(Rank rank) noexcept {
  inside_.fetch_add(1, std::memory_order_seq_cst);  // seq_cst: the group is not closed under us; see close()
  const bool open = generation_.load(std::memory_order_seq_cst) % 2 != 0;
  for (std::uint32_t i = 0; open && i < members_; ++i) {
    if (peers_[i].rank == rank) failed_.store(true, std::memory_order_seq_cst);  // seq_cst: against inside_ in fail_all()
  }
  inside_.fetch_sub(1, std::memory_order_release);
}

void GroupState::fail_all() noexcept {
  if (inside_.load(std::memory_order_seq_cst) != 0) return;  // a handler may still be copying; next time
  for (bool more = true; more;) {
    activate();
    more = false;
    for (auto& active : active_) {
      Operation* op = active.load(std::memory_order_relaxed);  // relaxed: ours
      if (op == nullptr) continue;
      complete(*op, Status::peer_lost);
      more = true;
    }
  }
  hand_back();
}

void GroupState::check_same(const Operation& op, std::uint32_t peer, std::uint64_t theirs) const noexcept {
  if (op.signature == theirs) [[likely]] return;
  static char text[256];   // we are about to abort: no stack or allocation games
  std::snprintf(text, sizeof(text), "members of group %u differ in collective %llu: rank %u calls %s (root %u, %u bytes, type/operation %u), rank %u calls %s (root %u, %u bytes, type/operation %u)",
                slot_, static_cast<unsigned long long>(op.number), raw(transport_.rank()), name_of(op.signature), static_cast<unsigned>(op.signature >> 32 & 0xFFFFF),
                static_cast<unsigned>(op.signature), static_cast<unsigned>(op.signature >> 52 & 0xFF), raw(peers_[peer].rank), name_of(theirs),
                static_cast<unsigned>(theirs >> 32 & 0xFFFFF), static_cast<unsigned>(theirs), static_cast<unsigned>(theirs >> 52 & 0xFF));
  check_failed("every member calls the same collective", __FILE__, __LINE__, text);
}

}  // namespace kasane::comm
