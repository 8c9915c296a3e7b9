// SPDX-License-Identifier: Apache-2.0
// The MPI transport.
//
//   rank a                                                   rank b
//   write(b, …) ─ window? put, flush: done
//              └─ else request {write, slot, data} ────────► poll(): memcpy, pushes an answer ──┐
//   poll(): ends slot's operation, Completion ◄───────────── answers {slot, …} ◄────────────────┘
//   send, request ─ request {handler, payload} ────────────► poll(): handler … reply(): pushes an answer
//
// Thread safety: any call from any thread of the rank, also from a fault handler. A posting thread takes a
// buffer and a slot without locks and queues the buffer (channel.h). The gate, which is only ever tried, is
// held for the length of poll(); inside it the library's lock is held around MPI calls only. So handlers and
// completions run in the gate and outside the lock: they may post and reply, and a nested progress() returns
// false.
//
// Invariants:
// - an operation's slot is held from its post to its end; its answer, bulk data and completion belong to it
//   alone;
// - slots bound the answers that a peer must send to this rank, and credits bound the messages that this rank
//   may send without an answer: so an MPI's queue of unexpected messages stays bounded.
#include "comm/mpi/mpi_transport.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/full_fence.h"
#include "comm/mailbox.h"
#include "comm/mailbox_own.h"
#include "comm/mailbox_replies.h"
#include "comm/mpi/channel.h"
#include "comm/mpi/op_ring.h"
#include "comm/mpi/windows.h"

namespace kasane::comm::mpi {
namespace {

/// a put or get up to this size is awaited: faster than a queue
constexpr std::size_t kInlineWindow = 64 * 1024;
/// tries of a taken lock before a message is sent instead
constexpr int kWindowSpins = 50;
/// A small put that takes longer met a target outside the MPI. A byte takes 1 ns at most.
constexpr std::uint64_t kAttentiveNs = 30'000;
/// For so long that target is then reached by messages before a window is tried again: twice as long after
/// each failure, up to the maximum, and half as long after each success.
constexpr std::uint32_t kByMessageForUs = 100;
constexpr std::uint32_t kByMessageAtMostUs = 64'000;
// Arrivals ring no doorbell, so a nap is how late a sleeping rank may notice one. It is a fraction of the
// silence before, so that waiting for messages becomes slower by that fraction at most. Each nap costs about
// 10 µs of CPU time.
constexpr std::int64_t kShortestNapNs = 20'000, kLongestNapNs = 10'000'000;
constexpr std::uint64_t kNapPart = 32;
constexpr std::uint32_t kSlotsOfAll = 32768;  ///< slots of one kind, shared by all peers
constexpr std::uint32_t kFewestSlots = 16;

constexpr std::uint32_t slots_for(std::uint32_t ranks) noexcept {
  return std::clamp(std::bit_floor(kSlotsOfAll / ranks), kFewestSlots, kMostSlots);
}

/// The slots of one peer.
struct Slots {
  explicit Slots(std::uint32_t count) : operations(count), replies(count) {}
  OpRing<> operations;
  ReplySlots replies;
};

class MpiTransport final : public MailboxTransport, public Library::AtEnd {
 public:
  MpiTransport(std::shared_ptr<Library> library, Bells& bells, Communicator communicator)
      : MailboxTransport(library->rank(), library->ranks(), bells),
        library_(std::move(library)),
        communicator_(communicator),
        slot_count_(slots_for(ranks())),
        peers_(ranks()),
        pending_answers_(ranks(), slot_count_),
        windows_(*library_, communicator),
        channel_(std::make_unique<Channel>(*library_, communicator, peers_, pending_answers_)) {
    for (std::uint32_t r = 0; r < ranks(); ++r) slots_.push_back(std::make_unique<Slots>(slot_count_));
    ended_.reserve(2 * BulkTable::kCapacity);
  }
  ~MpiTransport() override;
  void give_back() noexcept override;
  Result<void> start(Options options);

  Facts facts() const noexcept override;
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override;

  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept override;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept override;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion*) noexcept override;
  Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion*, Width) noexcept override;
  Post fence(Rank target, Completion*) noexcept override;

  Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept override;
  Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept override;
  void reply(ReplyToken, std::uint64_t value) noexcept override;
  bool test(PendingReply&, std::uint64_t* value) noexcept override;

  bool poll() noexcept override;

  void sleep(Doorbell, std::uint32_t seen, std::int64_t timeout_ns) noexcept override;
  void wake(Rank, Doorbell) noexcept override;

 private:
  /// An operation that is being prepared: the buffer of its request, and its slot, filled but for the
  /// completion.
  struct Draft {
    std::uint32_t buffer = IndexPool<>::kNone;
    std::uint64_t position = 0;
    explicit operator bool() const noexcept { return buffer != IndexPool<>::kNone; }
  };

  [[nodiscard]] std::int64_t nap_ns() const noexcept;
  bool by_window(const RemoteAddr& at) const noexcept {
    return use_windows_ && windows_.has(static_cast<std::uint16_t>(raw(at.region)));
  }
  template <class Call>
  bool through_window(std::uint32_t peer, std::size_t bytes, const Call& call) noexcept;

  bool attentive(std::uint32_t peer, std::uint64_t now) const noexcept;
  void note_attention(std::uint32_t peer, std::uint64_t begin_ns, std::size_t bytes) noexcept;
  Draft draft(RemoteAddr at, MessageKind kind, std::uint64_t bytes, Completion*,
              RmaOperation rest = {}) noexcept;
  Post post(RemoteAddr at, const Draft&, std::size_t inline_bytes) noexcept;
  Bulk bulk_for(RemoteAddr at, const Draft&, Bulk::Way, std::byte* memory,
                std::uint64_t bytes) const noexcept;
  Post write_by_message(RemoteAddr to, const void* from, std::size_t bytes, bool notify,
                        std::uint64_t flag_offset, std::uint64_t value, Completion*) noexcept;
  Post post_message(Rank to, MessageKind kind, HandlerId, std::span<const std::byte> payload,
                    std::uint32_t slot, std::uint64_t stamp) noexcept;
  std::byte* flag_at(Rank r, RegionId region, std::uint64_t offset) const noexcept {
    check_aligned(offset, 8);
    return here({r, region, offset}, 8);
  }

  // In the gate:
  bool run_self() noexcept;
  bool run_answers() noexcept;
  bool run_answer(const Channel::Incoming&) noexcept;
  bool run_requests() noexcept;
  bool run_request(const Channel::Incoming&) noexcept;
  bool answer_read(std::uint32_t peer, const RequestHead&) noexcept;
  bool answer_bulk(std::uint32_t peer, const RequestHead&) noexcept;
  bool run_ended() noexcept;
  bool run_fences() noexcept;
  bool run_losses() noexcept;
  void part_ended(std::uint32_t peer, std::uint16_t slot, Status) noexcept;
  void end(std::uint32_t peer, std::uint16_t slot, RmaOperation&, Status) noexcept;
  void credit(std::uint32_t peer) noexcept;

  std::shared_ptr<Library> library_;
  Communicator communicator_;
  std::uint32_t slot_count_;
  std::vector<Peer> peers_;
  AnswerStack<> pending_answers_;
  Windows windows_;
  bool use_windows_ = false, one_sided_ = false, pins_ = false;
  std::string detail_;
  std::vector<std::unique_ptr<Slots>> slots_;  ///< by peer
  std::unique_ptr<Channel> channel_;
  OwnMessages own_messages_;

  alignas(64) std::atomic<std::uint32_t> gate_{0};  ///< 1 while a thread of this rank is in poll()
  std::atomic<std::uint32_t> fences_{0};            ///< number of outstanding fences
  std::atomic<std::uint64_t> last_active_ns_{0};    ///< time of the last arrival; naps depend on it
  // In the gate:
  Channel::ReceivedMessages requests_, answers_;
  std::vector<Channel::Ended> ended_;
};

// ---- start and end ----------------------------------------------------------------------------------------

Result<void> MpiTransport::start(Options options) {
  WindowFindings found;
  if (options.rma != Options::Rma::messages) {
    auto probed = Windows::probe(*library_, communicator_);
    if (!probed) return tl::unexpected<Error>(std::move(probed).error());
    found = *probed;
  }
  const bool forced = options.rma == Options::Rma::windows;
  use_windows_ = found.created && (forced || !found.pins);
  one_sided_ = found.one_sided;
  pins_ = use_windows_ && found.pins;
  detail_ = std::string(library_->name()) + " " + std::string(library_->version()) + ": ";
  if (use_windows_) {
    detail_ += one_sided_ ? "reads and writes by one-sided windows"
                          : "reads and writes by windows while the target is attentive";
    detail_ += ", the rest by messages";
  } else {
    detail_ += "everything by messages";
    if (options.rma != Options::Rma::messages)
      detail_ += found.pins ? " (its windows pin memory)" : " (it refuses windows)";
  }
  library_->at_end().push_back(this);
  return channel_->open();
}

void MpiTransport::give_back() noexcept {
  windows_.close_locked();
  channel_->take_back_receives();
}

MpiTransport::~MpiTransport() {
  std::erase(library_->at_end(), this);
  // Collective: pending answers are sent, then all ranks leave together.
  channel_->kick();
  Request left{};
  library_->locked([&] { return library_->table().barrier(communicator_, &left); });
  const bool together = static_cast<bool>(library_->finish(left, "leaving", [] {}));
  if (together) {
    library_->locked([&] {
      windows_.close_locked();
      return 0;
    });
  }
  if (!together || !channel_->close()) {
    (void)channel_.release();  // a peer must have gone while the MPI has the buffers: they are never freed
    return;
  }
  library_->locked([&] { return library_->table().free_communicator(&communicator_); });
}

Facts MpiTransport::facts() const noexcept {
  return {.name = "mpi",
          // for atomics and messages always, for reads and writes unless by windows
          .target_cpu_needed = true,
          .puts_need_target = true,  // write_notify is always a message
          .atomics_coherent_with_cpu = true,
          .completes_inline = false,
          .ordered = false,
          .pins_memory = pins_,
          .poll_every_ns = nap_ns(),
          .detail = detail_};
}

Result<void> MpiTransport::attach(RegionId id, int, std::byte* local, std::size_t bytes) {
  KASANE_TRY(may_attach(id, local, bytes));
  const std::string mine = std::to_string(raw(id)) + ":" + std::to_string(bytes);
  auto all = library_->out_of_band().allgather(mine);
  if (!all) return tl::unexpected<Error>(std::move(all).error());
  for (std::size_t r = 0; r < all->size(); ++r) {
    if ((*all)[r] == (*all)[0]) continue;
    return fail(Errc::invalid_argument, "ranks attach different regions (id:bytes): rank 0 " + (*all)[0] +
                                            ", rank " + std::to_string(r) + " " + (*all)[r]);
  }
  if (use_windows_) KASANE_TRY(windows_.open(id, local, bytes));
  (void)new_region(id, local);
  publish(id, bytes);
  // No rank may post an operation before the last rank knows its own region.
  all = library_->out_of_band().allgather("");
  if (!all) return tl::unexpected<Error>(std::move(all).error());
  return {};
}

// ---- one-sided operations, at the poster ------------------------------------------------------------------

/// Can a window reach peer at present?
bool MpiTransport::attentive(std::uint32_t peer, std::uint64_t now) const noexcept {
  // relaxed: a hint
  return one_sided_ || now >= peers_[peer].by_message_until_ns.load(std::memory_order_relaxed);
}

/// To be called after a put or get that began at begin_ns: decides whether the target had to be waited for.
/// relaxed, all: threads may overwrite each other's results, which are hints.
void MpiTransport::note_attention(std::uint32_t peer, std::uint64_t begin_ns, std::size_t bytes) noexcept {
  std::atomic<std::uint32_t>& pause = peers_[peer].by_message_for_us;
  const std::uint32_t pause_us = std::max(pause.load(std::memory_order_relaxed), kByMessageForUs);
  const std::uint64_t end_ns = now_ns();
  if (end_ns - begin_ns <= kAttentiveNs + bytes) {
    if (pause_us > kByMessageForUs) pause.store(pause_us / 2, std::memory_order_relaxed);
    return;
  }
  pause.store(std::min(2 * pause_us, kByMessageAtMostUs), std::memory_order_relaxed);
  peers_[peer].by_message_until_ns.store(end_ns + pause_us * std::uint64_t{1000}, std::memory_order_relaxed);
}

/// Runs call(table), which waits until the data has arrived, under the lock. False: send a message instead.
/// That is so while the lock stays taken. Where windows need the target inside the MPI, it is also so for a
/// while after the target was outside: a put would wait, with the lock held, until the target's service
/// thread wakes; with a message this rank can do other work meanwhile.
template <class Call>
bool MpiTransport::through_window(std::uint32_t peer, std::size_t bytes, const Call& call) noexcept {
  const std::uint64_t begin = one_sided_ ? 0 : now_ns();
  if (channel_->lost(peer) || !attentive(peer, begin)) return false;
  for (int i = 0; !library_->lock().try_lock(); ++i) {
    if (i == kWindowSpins) return false;
    relax();
  }
  const int code = call(library_->table());
  library_->lock().unlock();
  channel_->look_back();
  if (!one_sided_) note_attention(peer, begin, bytes);
  if (code != 0) channel_->lose(peer);
  return code == 0;
}

/// Takes a buffer and a slot, or neither.
MpiTransport::Draft MpiTransport::draft(RemoteAddr at, MessageKind kind, std::uint64_t bytes,
                                        Completion* completion, RmaOperation rest) noexcept {
  const std::uint32_t buffer = channel_->claim();
  if (buffer == IndexPool<>::kNone) return {};
  OpRing<>& ring = slots_[raw(at.rank)]->operations;
  const auto position = ring.claim();
  if (!position) {
    channel_->release(buffer);
    return {};
  }
  rest.completion = completion;
  rest.bytes = bytes;
  ring.at(*position) = rest;
  channel_->head(buffer) = {.kind = kind,
                            .slot = ring.index(*position),
                            .name = static_cast<std::uint16_t>(raw(at.region)),
                            .bytes = bytes,
                            .offset = at.offset};
  channel_->outgoing(buffer) = {.peer = raw(at.rank), .bytes = sizeof(RequestHead)};
  return {.buffer = buffer, .position = *position};
}

Post MpiTransport::post(RemoteAddr at, const Draft& d, std::size_t inline_bytes) noexcept {
  channel_->outgoing(d.buffer).bytes += static_cast<std::uint32_t>(inline_bytes);
  slots_[raw(at.rank)]->operations.publish(d.position);
  channel_->push(d.buffer);
  channel_->kick();
  return Post::pending;
}

Bulk MpiTransport::bulk_for(RemoteAddr at, const Draft& d, Bulk::Way way, std::byte* memory,
                            std::uint64_t bytes) const noexcept {
  const std::uint16_t slot = slots_[raw(at.rank)]->operations.index(d.position);
  Bulk bulk;
  bulk.way = way;
  bulk.mine = true;
  bulk.slot = slot;
  bulk.peer = raw(at.rank);
  bulk.at = memory;
  bulk.left = bytes;
  bulk.window = windows_.of(static_cast<std::uint16_t>(raw(at.region)));
  bulk.offset = at.offset;
  bulk.tag = bulk_tag(slot, way == Bulk::Way::receive);
  return bulk;
}

Post MpiTransport::read(RemoteAddr from, void* to, std::size_t bytes, Completion* completion) noexcept {
  const std::byte* source = here(from, bytes);
  if (bytes == 0) return Post::done;
  if (own(from.rank)) return read_here(to, source, bytes);
  const std::uint32_t peer = raw(from.rank);
  const bool window = by_window(from);
  if (window && bytes <= kInlineWindow) {
    const Window w = windows_.of(static_cast<std::uint16_t>(raw(from.region)));
    const auto part = static_cast<std::uint32_t>(bytes);
    if (through_window(peer, bytes, [&](const Module& t) {
          const int code = t.get(w, to, part, peer, from.offset);
          return code == 0 ? t.flush(w, peer) : code;
        })) {
      return Post::done;
    }
  }
  const bool small = bytes <= kInline;
  const Draft d =
      draft(from, small ? MessageKind::read : MessageKind::bulk_read, bytes, completion, {.to = to});
  if (!d) return Post::again;
  if (!small) {
    Channel::Outgoing& o = channel_->outgoing(d.buffer);
    const bool get = window && attentive(peer, now_ns());
    o.bulk = bulk_for(from, d, get ? Bulk::Way::get : Bulk::Way::receive, static_cast<std::byte*>(to), bytes);
    if (get) o.bytes = 0;
  }
  return post(from, d, 0);
}

Post MpiTransport::write(RemoteAddr to, const void* from, std::size_t bytes,
                         Completion* completion) noexcept {
  std::byte* target = here(to, bytes);
  if (bytes == 0) return Post::done;
  if (own(to.rank)) return write_here(target, from, bytes);
  const std::uint32_t peer = raw(to.rank);
  // A large put through a window that needs its target could only be awaited, since MPI has no test for the
  // end of a flush. A message need not be awaited.
  if (!by_window(to) || (bytes > kInlineWindow && !one_sided_))
    return write_by_message(to, from, bytes, false, 0, 0, completion);
  if (bytes <= kInlineWindow) {
    const Window w = windows_.of(static_cast<std::uint16_t>(raw(to.region)));
    const auto part = static_cast<std::uint32_t>(bytes);
    if (through_window(peer, bytes, [&](const Module& t) {
          const int code = t.put(w, from, part, peer, to.offset);
          return code == 0 ? t.flush(w, peer) : code;
        })) {
      return Post::done;
    }
    return write_by_message(to, from, bytes, false, 0, 0, completion);
  }
  const Draft d = draft(to, MessageKind::bulk_write, bytes, completion);
  if (!d) return Post::again;
  Channel::Outgoing& o = channel_->outgoing(d.buffer);
  o.bytes = 0;
  o.bulk = bulk_for(to, d, Bulk::Way::put, static_cast<std::byte*>(const_cast<void*>(from)), bytes);
  return post(to, d, 0);
}

Post MpiTransport::write_by_message(RemoteAddr to, const void* from, std::size_t bytes, bool notify,
                                    std::uint64_t flag_offset, std::uint64_t value,
                                    Completion* completion) noexcept {
  const bool small = bytes <= kInline;
  const MessageKind kind = small ? (notify ? MessageKind::write_notify : MessageKind::write)
                                 : (notify ? MessageKind::bulk_write_notify : MessageKind::bulk_write);
  // Bulk: two parts. The data has left, and the owner says that it has arrived. Until the first, the MPI uses
  // the buffer.
  const Draft d = draft(to, kind, bytes, completion, {.parts = static_cast<std::uint8_t>(small ? 1 : 2)});
  if (!d) return Post::again;
  RequestHead& head = channel_->head(d.buffer);
  head.first = flag_offset;
  head.second = value;
  if (small) {
    if (bytes != 0) std::memcpy(channel_->buffer(d.buffer) + sizeof(RequestHead), from, bytes);
    return post(to, d, bytes);
  }
  channel_->outgoing(d.buffer).bulk =
      bulk_for(to, d, Bulk::Way::send, static_cast<std::byte*>(const_cast<void*>(from)), bytes);
  return post(to, d, 0);
}

Post MpiTransport::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                                std::uint64_t value, Completion* completion) noexcept {
  std::byte* target = here(to, bytes);
  std::byte* flag = flag_at(to.rank, to.region, flag_offset);
  if (own(to.rank)) return write_notify_here(target, from, bytes, flag, value);
  return write_by_message(to, from, bytes, true, flag_offset, value, completion);
}

Post MpiTransport::atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                          std::uint64_t* result, Completion* completion, Width width) noexcept {
  const auto bytes = static_cast<std::size_t>(width);
  check_aligned(at.offset, bytes);
  std::byte* word = here(at, bytes);
  if (own(at.rank)) return atomic_here(op, word, operand, compare, result, width);
  const Draft d = draft(at, MessageKind::atomic, bytes, completion, {.result = result});
  if (!d) return Post::again;
  RequestHead& head = channel_->head(d.buffer);
  head.op = op;
  head.width = width;
  head.first = operand;
  head.second = compare;
  return post(at, d, 0);
}

Post MpiTransport::fence(Rank target, Completion* completion) noexcept {
  KASANE_CHECK_OP(raw(target), <, ranks());
  full_fence();  // later loads, too, come after the writes fenced here
  OpRing<>& ring = slots_[raw(target)]->operations;
  if (ring.idle()) return Post::done;
  const auto position = ring.claim();
  if (!position) return Post::again;
  ring.at(*position) = {.completion = completion, .fence = true};
  ring.publish(*position);
  fences_.fetch_add(1, std::memory_order_release);  // release: a thread that sees the count sees the fence
  return Post::pending;
}

// ---- messages ---------------------------------------------------------------------------------------------

Post MpiTransport::post_message(Rank to, MessageKind kind, HandlerId id, std::span<const std::byte> payload,
                                std::uint32_t slot, std::uint64_t stamp) noexcept {
  check_message(id, payload);
  if (own(to)) {
    if (!own_messages_.put(id, payload, slot, stamp)) return Post::again;
    ring_messages();
    return Post::done;
  }
  const std::uint32_t buffer = channel_->claim();
  if (buffer == IndexPool<>::kNone) return Post::again;
  channel_->head(buffer) = {.kind = kind,
                            .slot = static_cast<std::uint16_t>(slot),
                            .name = static_cast<std::uint16_t>(raw(id)),
                            .bytes = payload.size(),
                            .first = stamp};
  if (!payload.empty())
    std::memcpy(channel_->buffer(buffer) + sizeof(RequestHead), payload.data(), payload.size());
  channel_->outgoing(buffer) = {.peer = raw(to),
                                .bytes = static_cast<std::uint32_t>(sizeof(RequestHead) + payload.size())};
  channel_->push(buffer);
  channel_->kick();
  return Post::done;
}

Post MpiTransport::send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  if (own(to)) return post_message(to, MessageKind::send, id, payload, 0, 0);
  std::atomic<std::uint32_t>& uncredited = peers_[raw(to)].uncredited;
  // relaxed: a count, it orders nothing
  if (uncredited.fetch_add(1, std::memory_order_relaxed) >= slot_count_) {
    uncredited.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a count
    return Post::again;
  }
  const Post posted = post_message(to, MessageKind::send, id, payload, 0, 0);
  if (posted == Post::again) uncredited.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a count
  return posted;
}

Post MpiTransport::request(Rank to, HandlerId id, std::span<const std::byte> payload,
                           PendingReply& pending) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  return slots_[raw(to)]->replies.request(to, pending, [&](std::uint32_t slot, std::uint64_t stamp) {
    return post_message(to, MessageKind::request, id, payload, slot, stamp);
  });
}

void MpiTransport::reply(ReplyToken token, std::uint64_t value) noexcept {
  const std::uint32_t peer = raw(token.requester);
  KASANE_CHECK_OP(peer, <, ranks());
  KASANE_CHECK_OP(token.slot, <, slot_count_);
  if (own(token.requester)) {
    KASANE_CHECK(slots_[peer]->replies.answer(token.slot, token.stamp, value),
                 "a request was answered twice");
    return ring_messages();
  }
  pending_answers_.reply(peer, static_cast<std::uint16_t>(token.slot), value);
  channel_->kick();
}

bool MpiTransport::test(PendingReply& pending, std::uint64_t* value) noexcept {
  KASANE_CHECK(pending.stamp != 0,
               "test() of a request that was not sent, or whose answer was taken already");
  return slots_[raw(pending.to)]->replies.test(pending, value,
                                               [this](Rank r) { return channel_->lost(raw(r)); });
}

// ---- progress ---------------------------------------------------------------------------------------------

bool MpiTransport::poll() noexcept {
  // relaxed: a look that saves the exchange. acquire: what the gate's last holder did. False if another
  // thread, or an outer frame of this one, is inside.
  if (gate_.load(std::memory_order_relaxed) != 0 || gate_.exchange(1, std::memory_order_acquire) != 0)
    return false;
  // the lock was taken: poll again before sleeping
  bool any = !channel_->collect(requests_, answers_, ended_);
  any |= run_answers();
  any |= run_ended();
  any |= run_requests();
  any |= run_self();
  any |= run_fences();
  any |= run_losses();
  channel_->settle();
  gate_.store(0, std::memory_order_release);  // release: hands on what the gate guards
  if (any) {
    last_active_ns_.store(now_ns(), std::memory_order_relaxed);  // relaxed: a hint for naps
    // other threads may sleep until what has just ended
    ring_messages();
  }
  return any;
}

bool MpiTransport::run_answers() noexcept {
  bool any = false;
  for (; !answers_.empty(); answers_.pop()) {
    any |= run_answer(answers_.front());
    channel_->repost_answer(answers_.front().buffer);
  }
  return any;
}

bool MpiTransport::run_answer(const Channel::Incoming& in) noexcept {
  KASANE_CHECK_OP(in.source, <, ranks());
  KASANE_CHECK_OP(in.bytes, >=, sizeof(AnswerHead));
  std::span<const std::byte> rest{channel_->answer(in.buffer), in.bytes}, data;
  AnswerHead head;
  std::memcpy(&head, rest.data(), sizeof(head));
  rest = rest.subspan(sizeof(head));
  // relaxed: a count
  if (head.credits != 0) peers_[in.source].uncredited.fetch_sub(head.credits, std::memory_order_relaxed);
  for (std::uint32_t d = 0; d < 2; ++d) {
    if ((head.rings >> d & 1) != 0) bells()[d].ring();
  }
  for (std::uint32_t n = 0; n < head.records; ++n) {
    Record record;
    KASANE_CHECK(take(rest, record, data), "an answer with a record that is not whole");
    if (record.kind == RecordKind::reply) {
      slots_[in.source]->replies.answer_waiting(record.slot, record.value);
      continue;
    }
    RmaOperation* op = slots_[in.source]->operations.under_way(record.slot);
    if (op == nullptr) continue;  // ended before, as lost
    if (record.kind == RecordKind::data) {
      KASANE_CHECK_OP(data.size(), ==, op->bytes);
      std::memcpy(op->to, data.data(), data.size());
    } else if (op->result != nullptr) {
      *op->result = record.value;
    }
    part_ended(in.source, record.slot, Status::ok);
  }
  return true;
}

void MpiTransport::part_ended(std::uint32_t peer, std::uint16_t slot, Status status) noexcept {
  RmaOperation* op = slots_[peer]->operations.under_way(slot);
  if (op == nullptr) return;  // ended before, as lost
  if (--op->parts == 0) end(peer, slot, *op, status);
}

void MpiTransport::end(std::uint32_t peer, std::uint16_t slot, RmaOperation& op, Status status) noexcept {
  Completion* completion = op.completion;
  slots_[peer]->operations.end(slot);  // before the completion, which may post into the slot
  if (completion == nullptr) return;
  completion->status = status;
  if (completion->fn != nullptr) completion->fn(completion);
}

bool MpiTransport::run_ended() noexcept {
  if (ended_.empty()) return false;
  for (const Channel::Ended& e : ended_) {
    const Bulk& b = e.bulk;
    if (b.mine) {
      part_ended(b.peer, b.slot, e.failed ? Status::peer_lost : Status::ok);
    } else if (b.way == Bulk::Way::receive && !e.failed) {
      // nothing to do after a send: the poster notes its end
      if (b.notify) set_flag(flag_at(rank(), RegionId{b.region}, b.flag_offset), b.flag_value);
      pending_answers_.operation(b.peer, b.slot, 0);
    }
  }
  ended_.clear();
  return true;
}

bool MpiTransport::run_fences() noexcept {
  if (fences_.load(std::memory_order_acquire) == 0) return false;  // acquire: pairs with fence()
  bool any = false;
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
    OpRing<>& ring = slots_[peer]->operations;
    while (const auto slot = ring.take_fence()) {
      fences_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: only the gate's holders subtract
      end(peer, *slot, ring.in_slot(*slot), channel_->lost(peer) ? Status::peer_lost : Status::ok);
      any = true;
    }
  }
  return any;
}

// ---- requests of other ranks ------------------------------------------------------------------------------

bool MpiTransport::run_self() noexcept {
  bool any = false;
  for (std::uint32_t n = 0; n < Channel::kOut; ++n) {
    const OwnMessage* m = own_messages_.front();
    if (m == nullptr) return any;
    run_handler(m->handler, raw(rank()), {m->payload, m->bytes}, m->slot, m->stamp);
    own_messages_.pop();
    any = true;
  }
  return any;
}

bool MpiTransport::run_requests() noexcept {
  bool any = false;
  for (; !requests_.empty(); requests_.pop()) {
    // no room for its answer: it and the later ones wait for a free buffer
    if (!run_request(requests_.front())) return any;
    channel_->repost_request(requests_.front().buffer);
    any = true;
  }
  return any;
}

bool MpiTransport::run_request(const Channel::Incoming& in) noexcept {
  KASANE_CHECK_OP(in.source, <, ranks());
  KASANE_CHECK_OP(in.bytes, >=, sizeof(RequestHead));
  RequestHead head;
  std::memcpy(&head, channel_->request(in.buffer), sizeof(head));
  const std::span<const std::byte> data{channel_->request(in.buffer) + sizeof(RequestHead),
                                        in.bytes - sizeof(RequestHead)};
  KASANE_CHECK(well_formed(head, data.size(), slot_count_), "a message that no rank of this job sends");
  const RemoteAddr at{rank(), RegionId{head.name}, head.offset};
  switch (head.kind) {
    case MessageKind::send:
      run_handler(head.name, in.source, data, 0, 0);
      credit(in.source);
      return true;
    case MessageKind::request:
      pending_answers_.open(in.source, head.slot);
      run_handler(head.name, in.source, data, head.slot, head.first);
      return true;
    case MessageKind::write:
    case MessageKind::write_notify:
      if (!data.empty()) std::memcpy(here(at, data.size()), data.data(), data.size());
      if (head.kind == MessageKind::write_notify)
        set_flag(flag_at(rank(), RegionId{head.name}, head.first), head.second);
      pending_answers_.operation(in.source, head.slot, 0);
      return true;
    case MessageKind::atomic: {
      const auto bytes = static_cast<std::size_t>(head.width);
      pending_answers_.operation(in.source, head.slot,
                                 cpu_atomic(head.op, head.width, here(at, bytes), head.first, head.second));
      return true;
    }
    case MessageKind::read: return answer_read(in.source, head);
    case MessageKind::bulk_read:
    case MessageKind::bulk_write:
    case MessageKind::bulk_write_notify: return answer_bulk(in.source, head);
  }
  return true;
}

bool MpiTransport::answer_read(std::uint32_t peer, const RequestHead& head) noexcept {
  const std::byte* from = here({rank(), RegionId{head.name}, head.offset}, head.bytes);
  const std::uint32_t buffer = channel_->claim_answer();
  if (buffer == IndexPool<>::kNone) return false;
  const AnswerHead answer{.credits = 0, .rings = 0, .records = 1};
  const Record record{
      .kind = RecordKind::data, .slot = head.slot, .bytes = static_cast<std::uint32_t>(head.bytes)};
  std::byte* to = channel_->buffer(buffer);
  std::memcpy(to, &answer, sizeof(answer));
  std::memcpy(to + sizeof(answer), &record, sizeof(record));
  std::memcpy(to + sizeof(answer) + sizeof(record), from, head.bytes);
  channel_->outgoing(buffer) = {
      .peer = peer,
      .bytes = static_cast<std::uint32_t>(sizeof(answer) + sizeof(record) + padded(head.bytes))};
  channel_->push(buffer);
  return true;
}

bool MpiTransport::answer_bulk(std::uint32_t peer, const RequestHead& head) noexcept {
  const bool read = head.kind == MessageKind::bulk_read;
  Bulk bulk;
  bulk.way = read ? Bulk::Way::send : Bulk::Way::receive;
  bulk.slot = head.slot;
  bulk.peer = peer;
  bulk.at = here({rank(), RegionId{head.name}, head.offset}, head.bytes);
  bulk.left = head.bytes;
  bulk.tag = bulk_tag(head.slot, read);
  bulk.notify = head.kind == MessageKind::bulk_write_notify;
  bulk.region = head.name;
  bulk.flag_offset = head.first;
  bulk.flag_value = head.second;
  return channel_->start_at_owner(bulk);
}

/// Counts one consumed send of peer. The peer is told when it has used half of its credits.
void MpiTransport::credit(std::uint32_t peer) noexcept {
  // seq_cst: before flow_control() looks whether a message about credits is pending already.
  if (peers_[peer].consumed.fetch_add(1, std::memory_order_seq_cst) + 1 >= slot_count_ / 2)
    pending_answers_.flow_control(peer);
}

// ---- loss -------------------------------------------------------------------------------------------------

/// Ends the outstanding operations towards peers that the MPI cannot reach any more; called again for those
/// posted since. test() ends requests by itself.
bool MpiTransport::run_losses() noexcept {
  if (!channel_->any_lost()) return false;
  bool any = false;
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
    std::atomic<std::uint32_t>& loss = peers_[peer].loss;
    if (loss.load(std::memory_order_acquire) == Peer::reachable) continue;  // acquire: pairs with lose()
    // once: this thread holds the gate
    if (loss.exchange(Peer::reported, std::memory_order_acq_rel) == Peer::failed) {
      report_lost(Rank{peer}, detail_);
      any = true;
    }
    for (std::uint32_t slot = 0; slot < slot_count_; ++slot) {
      const auto index = static_cast<std::uint16_t>(slot);
      RmaOperation* op = slots_[peer]->operations.under_way(index);
      if (op != nullptr && !op->fence) {
        end(peer, index, *op, Status::peer_lost);
        any = true;
      }
    }
    peers_[peer].uncredited.store(0, std::memory_order_relaxed);  // relaxed: a count; sends to it are dropped
  }
  return any;
}

// ---- doorbells --------------------------------------------------------------------------------------------

// Naps are short while there is traffic.
std::int64_t MpiTransport::nap_ns() const noexcept {
  // relaxed: a hint. It is read before the clock, so the clock's time is later.
  const std::uint64_t last = last_active_ns_.load(std::memory_order_relaxed);
  const std::uint64_t quiet_ns = now_ns() - last;
  return std::clamp(static_cast<std::int64_t>(quiet_ns / kNapPart), kShortestNapNs, kLongestNapNs);
}

void MpiTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  if (d == Doorbell::messages && ranks() > 1)
    timeout_ns = timeout_ns < 0 ? nap_ns() : std::min(timeout_ns, nap_ns());
  bells()[raw(d)].sleep(seen, timeout_ns);
}

void MpiTransport::wake(Rank to, Doorbell d) noexcept {
  KASANE_CHECK_OP(raw(to), <, ranks());
  if (own(to)) return bells()[raw(d)].ring();
  // seq_cst: before flow_control() looks
  peers_[raw(to)].rings.fetch_or(1u << raw(d), std::memory_order_seq_cst);
  pending_answers_.flow_control(raw(to));
  channel_->kick();
}

}  // namespace

Result<std::unique_ptr<Transport>> create(std::shared_ptr<Library> library, Bells& bells, Options options) {
  Communicator communicator{};
  std::uint32_t rank = 0, ranks = 0;
  const int code =
      library->locked([&] { return library->table().communicator(nullptr, &communicator, &rank, &ranks); });
  if (code != 0) return library->failed(code, "duplicating the world");
  auto transport = std::make_unique<MpiTransport>(std::move(library), bells, communicator);
  KASANE_TRY(transport->start(options));
  return transport;
}

}  // namespace kasane::comm::mpi
