// SPDX-License-Identifier: Apache-2.0
// Collectives over active messages.
//
// Below them lies one ordered channel for each pair of ranks. Both ends call the same collectives in the same order, so
// the n-th chunk that a sends b is the n-th that b takes from a: the number alone matches them, however the transport
// reorders messages and however early one arrives.
//
//   sender                                            receiver
//   chunk n ── request {number n, …} ──► handler: copy into inbox[sender][n % kWindow]
//                                        caller:  take it from there, in order
//      ◄────────── reply: window moves ──────────┘
//
// The reply is sent when the chunk has been taken, and at most kWindow are unanswered: so there is always room in the
// inbox, it is allocated once, and a rank that is late holds its senders back without a message lost or refused.
//
// Thread safety: one thread a rank calls; the handler runs in any thread's progress(). They meet only in a cell's state.
// Invariants: cell n % kWindow holds chunk n or nothing; a chunk is sent only after number n - kWindow was answered.
#include "comm/collectives.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/assert.h"

namespace kasane::comm {
namespace {

constexpr std::uint64_t kWindow = 4;

struct ChunkHeader {
  std::uint64_t number;       ///< of this chunk in its channel, from 0
  std::uint64_t collective;   ///< of the call, from 0: differs if ranks do not call the same collectives
};
constexpr std::size_t kChunkBytes = kMaxPayload - sizeof(ChunkHeader);

struct InboxCell {
  std::atomic<bool> full{false};
  ChunkHeader header;
  ReplyToken token;
  std::size_t bytes;
  std::array<std::byte, kChunkBytes> data;
};

/// What this rank has to do with one peer.
struct Channel {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::array<PendingReply, kWindow> unanswered{};   ///< stamp 0: none
  std::array<InboxCell, kWindow> inbox;
};

std::uint64_t combine(Collectives::Reduce op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case Collectives::Reduce::sum: return a + b;
    case Collectives::Reduce::min: return std::min(a, b);
    case Collectives::Reduce::max: return std::max(a, b);
    case Collectives::Reduce::bit_or: return a | b;
    case Collectives::Reduce::bit_and: return a & b;
  }
  return a;
}

/// Bytes on their way through a channel. Even none at all travel as one (empty) chunk, so that they synchronise.
template <class Byte>
struct Stream {
  std::uint32_t peer = 0;
  std::span<Byte> bytes;
  std::size_t done = 0;
  bool finished = true;   ///< true from the start where there is nothing to do

  Stream() = default;
  Stream(std::uint32_t with, std::span<Byte> all) : peer(with), bytes(all), finished(false) {}
  [[nodiscard]] std::span<Byte> next() const { return bytes.subspan(done, std::min(kChunkBytes, bytes.size() - done)); }
  void advance(std::size_t n) {
    done += n;
    finished = done == bytes.size();
  }
};
using Outgoing = Stream<const std::byte>;
using Incoming = Stream<std::byte>;

}  // namespace

struct Collectives::State {
  State(Transport& t, Waiter& w)
      : transport(t), waiter(w), me(raw(t.rank())), ranks(t.ranks()), channels(std::make_unique_for_overwrite<Channel[]>(ranks)) {}

  /// Sends and receives at once, so that two ranks that exchange do not wait for each other.
  void transfer(Outgoing out, Incoming in);
  void send(std::uint32_t to, std::span<const std::byte> bytes) { transfer({to, bytes}, {}); }
  void receive(std::uint32_t from, std::span<std::byte> bytes) { transfer({}, {from, bytes}); }
  void drain();

  bool send_chunk(Outgoing&);
  bool receive_chunk(Incoming&);
  bool answered(PendingReply&) const;
  static void arrived(void* context, const Message&) noexcept;

  /// The k-th rank after this one, and before it.
  [[nodiscard]] std::uint32_t after(std::uint32_t k) const { return (me + k) % ranks; }
  [[nodiscard]] std::uint32_t before(std::uint32_t k) const { return (me + ranks - k) % ranks; }

  Transport& transport;
  Waiter& waiter;
  std::uint32_t me, ranks;
  std::uint64_t collective = 0;
  std::unique_ptr<Channel[]> channels;   ///< by peer
};

// ---- channels ----------------------------------------------------------------------------------------------------

void Collectives::State::arrived(void* context, const Message& m) noexcept {
  auto& self = *static_cast<State*>(context);
  KASANE_CHECK_OP(m.payload.size(), >=, sizeof(ChunkHeader));
  ChunkHeader header;
  std::memcpy(&header, m.payload.data(), sizeof(header));
  InboxCell& cell = self.channels[raw(m.from)].inbox[header.number % kWindow];
  // acquire: pairs with receive_chunk(), which has finished with the cell's last content.
  KASANE_CHECK(!cell.full.load(std::memory_order_acquire), "a peer overran its window");
  cell.header = header;
  cell.token = m.token;
  cell.bytes = m.payload.size() - sizeof(header);
  std::memcpy(cell.data.data(), m.payload.data() + sizeof(header), cell.bytes);
  cell.full.store(true, std::memory_order_release);  // release: publishes the cell
}

bool Collectives::State::answered(PendingReply& pending) const {
  if (pending.stamp == 0) return true;
  if (!transport.test(pending, nullptr)) return false;
  pending = {};
  return true;
}

/// Sends the next chunk if the window and the transport have room; false if not.
bool Collectives::State::send_chunk(Outgoing& out) {
  Channel& channel = channels[out.peer];
  PendingReply& pending = channel.unanswered[channel.sent % kWindow];
  if (!answered(pending)) return false;
  const auto chunk = out.next();
  const ChunkHeader header{.number = channel.sent, .collective = collective};
  alignas(8) std::array<std::byte, kMaxPayload> message;
  std::memcpy(message.data(), &header, sizeof(header));
  if (!chunk.empty()) std::memcpy(message.data() + sizeof(header), chunk.data(), chunk.size());
  const std::span<const std::byte> payload(message.data(), sizeof(header) + chunk.size());
  if (transport.request(Rank{out.peer}, kCollectiveHandler, payload, pending) == Post::again) {
    pending = {};
    return false;
  }
  ++channel.sent;
  out.advance(chunk.size());
  return true;
}

/// Takes the next chunk if it has arrived; false if not.
bool Collectives::State::receive_chunk(Incoming& in) {
  Channel& channel = channels[in.peer];
  InboxCell& cell = channel.inbox[channel.received % kWindow];
  if (!cell.full.load(std::memory_order_acquire)) return false;  // acquire: pairs with arrived()
  const auto chunk = in.next();
  // Ranks that call different collectives, or with different sizes, are caught here.
  KASANE_CHECK_OP(cell.header.number, ==, channel.received);
  KASANE_CHECK_OP(cell.header.collective, ==, collective);
  KASANE_CHECK_OP(cell.bytes, ==, chunk.size());
  if (!chunk.empty()) std::memcpy(chunk.data(), cell.data.data(), chunk.size());
  const ReplyToken token = cell.token;
  // release: we have read the cell. Before the reply, which lets the sender fill it again.
  cell.full.store(false, std::memory_order_release);
  ++channel.received;
  transport.reply(token, 0);
  in.advance(chunk.size());
  return true;
}

void Collectives::State::transfer(Outgoing out, Incoming in) {
  waiter.until([&] {
    while (!out.finished && send_chunk(out)) {}
    while (!in.finished && receive_chunk(in)) {}
    return out.finished && in.finished;
  });
}

/// Waits until every chunk sent was taken: its answer would arrive in memory that we give up.
void Collectives::State::drain() {
  waiter.until([&] {
    bool all = true;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (PendingReply& pending : channels[r].unanswered) all = answered(pending) && all;
    }
    return all;
  });
}

// ---- the collectives ---------------------------------------------------------------------------------------------

Collectives::Collectives(Transport& transport, Waiter& waiter) : state_(std::make_unique<State>(transport, waiter)) {
  transport.set_handler(kCollectiveHandler, &State::arrived, state_.get());
}

Collectives::~Collectives() { state_->drain(); }

// Dissemination: after the round of distance d, every rank has heard (through others) of the 2d - 1 ranks before it.
void Collectives::barrier() {
  State& s = *state_;
  for (std::uint32_t d = 1; d < s.ranks; d *= 2) s.transfer({s.after(d), {}}, {s.before(d), {}});
  ++s.collective;
}

// Binomial tree. With v = rank - root (mod ranks), the parent of v is v without its lowest set bit, and the children of v
// are v plus each smaller power of two.
void Collectives::broadcast(Rank root, std::span<std::byte> bytes) {
  State& s = *state_;
  KASANE_CHECK_OP(raw(root), <, s.ranks);
  const std::uint32_t v = (s.me + s.ranks - raw(root)) % s.ranks;
  std::uint32_t bit = 1;
  while (bit < s.ranks && (v & bit) == 0) bit *= 2;
  if (v != 0) s.receive((raw(root) + v - bit) % s.ranks, bytes);
  for (bit /= 2; bit != 0; bit /= 2) {
    if (v + bit < s.ranks) s.send((raw(root) + v + bit) % s.ranks, bytes);
  }
  ++s.collective;
}

// The same tree upwards to rank 0, then a broadcast. Integers only, so the order of combination does not matter.
void Collectives::allreduce(Reduce op, std::span<std::uint64_t> values) {
  State& s = *state_;
  std::vector<std::uint64_t> other(values.size());
  for (std::uint32_t bit = 1; bit < s.ranks; bit *= 2) {
    if ((s.me & bit) != 0) {
      s.send(s.me - bit, std::as_bytes(values));
      break;
    }
    if (s.me + bit >= s.ranks) continue;
    s.receive(s.me + bit, std::as_writable_bytes(std::span(other)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = combine(op, values[i], other[i]);
  }
  broadcast(Rank{0}, std::as_writable_bytes(values));
}

// Bruck's algorithm: after the round of distance d a rank holds the blocks of 2d ranks, its own first.
void Collectives::allgather(std::span<const std::byte> in, std::span<std::byte> out) {
  State& s = *state_;
  const std::size_t block = in.size();
  KASANE_CHECK_OP(out.size(), ==, block * s.ranks);
  std::vector<std::byte> held(out.size());   // block i is that of rank me + i
  std::copy(in.begin(), in.end(), held.begin());
  for (std::uint32_t d = 1; d < s.ranks; d *= 2) {
    const std::size_t bytes = std::min(d, s.ranks - d) * block;
    s.transfer({s.before(d), std::span(held).first(bytes)}, {s.after(d), std::span(held).subspan(d * block, bytes)});
  }
  for (std::uint32_t i = 0; i < s.ranks; ++i) {
    std::copy_n(held.begin() + static_cast<std::ptrdiff_t>(i * block), block,
                out.begin() + static_cast<std::ptrdiff_t>(s.after(i) * block));
  }
  ++s.collective;
}

}  // namespace kasane::comm
