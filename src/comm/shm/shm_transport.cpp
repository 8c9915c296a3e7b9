// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport.
//
//   rank a                                   rank b
//   write(b, …)  ── memcpy ───────────────►  region of b, mapped in a
//   send(b, …)   ── claim, fill, publish ──► ring of b ──► b's progress(): handler ──► reply(): reply slot of a
//                ── ring ──────────────────► doorbell of b               └── ring ──► doorbell of a
//
// Thread safety: any call from any thread of the rank, also from a fault handler. No locks: producers claim ring cells by compare-swap;
// the consumer's side is guarded by a gate that is only ever tried, so a thread that interrupts itself inside
// progress() gets false instead of a deadlock. Between the claim and the publication of a cell only the payload is
// read: it must not lie in armed memory (rule 10), for a fault there would wait behind its own unpublished cell.
//
// Invariants:
// - every position below head_ is consumed, every position in [head_, tail) is claimed;
// - a published message is either followed by a ring of its target's doorbell, or by a progress() that runs it (that of a patient request within its
//   patience, if its requester goes on testing);
// - who leaves progress() never leaves a published head cell behind without ringing its own doorbell.
#include "comm/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory_file.h"
#include "comm/cpu_atomic.h"
#include "comm/shm/exchange.h"
#include "comm/shm/layout.h"
#include "comm/shm/patience.h"

namespace kasane::comm::shm {
namespace {

/// Messages a progress() runs at most before it returns to its caller, who may be waiting for something else.
constexpr int kBatch = 64;

constexpr std::size_t kOsPage = 4096;
constexpr std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + kOsPage - 1) / kOsPage * kOsPage;
}
/// Regions of the control plane lie so much further in the job's file: the planes do not know how much of it
/// the other has.
constexpr std::uint64_t kControlRegions = std::uint64_t{1} << 60;

// std::atomic_thread_fence by another name: GCC warns that the thread sanitizer does not model fences. That only makes it
// blind to orders which rest on them; all of ours inside one process also rest on atomics.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
void fence_acquire() noexcept { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
void fence_release() noexcept { __atomic_thread_fence(__ATOMIC_RELEASE); }
void fence_seq_cst() noexcept { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

class ReplySlots {
 public:
  /// Claims a slot of this rank, or kNoReply if all are in use.
  std::uint32_t claim() noexcept;
  void release(std::uint32_t slot) noexcept;

 private:
  // One bit a slot, set while claimed. Own rank only, hence not in shared memory.
  std::array<std::atomic<std::uint64_t>, kReplySlots / 64> used_{};
};

std::uint32_t ReplySlots::claim() noexcept {
  for (std::uint32_t w = 0; w < used_.size(); ++w) {
    std::uint64_t bits = used_[w].load(std::memory_order_relaxed);  // relaxed: only a guess, the compare-swap decides
    while (bits != ~std::uint64_t{0}) {
      const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
      // acquire: pairs with release(), so the slot's last user has finished with it.
      if (used_[w].compare_exchange_weak(bits, bits | std::uint64_t{1} << bit, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
        return w * 64 + bit;
      }
    }
  }
  return kNoReply;
}

void ReplySlots::release(std::uint32_t slot) noexcept {
  // release: the value was read before the slot can be claimed again.
  used_[slot / 64].fetch_and(~(std::uint64_t{1} << slot % 64), std::memory_order_release);
}

class ShmTransport final : public Transport {
 public:
  /// plane_offset: where in shared this transport's JobArea lies.
  ShmTransport(const Job& job, SharedMap shared, std::size_t plane_offset)
      : Transport(job.rank, job.ranks),
        shared_fd_(job.shared_fd),
        file_end_(job.shared_bytes + (plane_offset == 0 ? 0 : kControlRegions)),
        postbox_(job.sockets),
        host_(job.host_ranks()),
        areas_(job.ranks, nullptr),
        shared_(std::move(shared)),
        job_area_(reinterpret_cast<JobArea*>(shared_.data() + plane_offset)),
        patience_(job.ranks) {
    auto* first = reinterpret_cast<RankArea*>(shared_.data() + plane_offset + sizeof(JobArea));
    for (std::size_t position = 0; position < host_.size(); ++position) areas_[raw(host_[position])] = first + position;
    own_position_ = static_cast<std::size_t>(std::ranges::find(host_, rank()) - host_.begin());
    own_ = areas_[raw(rank())];
  }

  Bells& own_bells() const noexcept { return own_->bells; }

  Facts facts() const noexcept override {
    return {.name = "shm", .target_cpu_needed = false, .puts_need_target = false, .atomics_coherent_with_cpu = true,
            .completes_inline = true, .ordered = true};
  }

  Result<std::byte*> make_memory(RegionId id, std::size_t bytes) override;
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) override;
  std::byte* mapped(Rank rank, RegionId id) const noexcept override;

  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept override;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept override;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset, std::uint64_t value, Completion*) noexcept override;
  Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result, Completion*,
              Width) noexcept override;
  Post fence(Rank target, Completion*) noexcept override;

  void set_handler(HandlerId, Handler, void* context) noexcept override;
  Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept override;
  Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept override;
  void reply(ReplyToken, std::uint64_t value) noexcept override;
  bool test(PendingReply&, std::uint64_t* value) noexcept override;

  bool poll() noexcept override;

  std::uint32_t activity(Doorbell) const noexcept override;
  void sleep(Doorbell, std::uint32_t seen, std::int64_t timeout_ns) noexcept override;
  void wake(Rank, Doorbell) noexcept override;

 private:
  struct Region {
    std::atomic<std::size_t> bytes{0};   ///< 0: not attached. Published last.
    /// by make_memory(): the memory of all ranks of this host, by position
    std::byte* made = nullptr;
    std::vector<SharedMap> peers;         ///< by rank; what we mapped, to be unmapped
    std::vector<std::byte*> base;        ///< by rank
  };
  struct HandlerEntry {
    Handler fn = nullptr;
    void* context = nullptr;
  };

  RankArea& area(Rank r) const noexcept {
    KASANE_CHECK_OP(raw(r), <, ranks());
    RankArea* found = areas_[raw(r)];
    KASANE_CHECK(found != nullptr, "the rank is on another host");
    return *found;
  }
  Cell& own_cell(std::uint64_t position) const noexcept { return own_->cells[position & (kRingCells - 1)]; }
  std::byte* address(RemoteAddr at, std::size_t bytes) const noexcept;
  Post put(Rank to, HandlerId, std::span<const std::byte> payload, std::uint32_t slot, std::uint64_t stamp) noexcept;
  void end_patience(PendingReply&, ReplySlot&) noexcept;
  bool run_batch() noexcept;
  void run(const Cell&) const noexcept;

  int shared_fd_;
  /// where the next region's memory begins in that file, the same on all ranks
  std::uint64_t file_end_;
  std::vector<Job::SocketPair> postbox_;
  std::vector<Rank> host_;           ///< the ranks of this host, ascending
  std::size_t own_position_ = 0;     ///< among them
  std::vector<RankArea*> areas_;     ///< by rank; null: on another host
  SharedMap shared_;
  JobArea* job_area_;
  RankArea* own_;
  std::array<Region, kMaxRegions> regions_;
  std::array<HandlerEntry, kMaxHandlers> handlers_{};
  ReplySlots slots_;
  Patience patience_;
  alignas(kLine) std::atomic<std::uint32_t> gate_{0};   ///< 1 while a thread of this rank consumes
  std::atomic<std::uint64_t> head_{0};                  ///< next position to consume; written inside the gate only
};

constexpr std::uint64_t empty_turn(std::uint64_t position) noexcept { return position / kRingCells * 2; }
constexpr std::uint64_t full_turn(std::uint64_t position) noexcept { return position / kRingCells * 2 + 1; }

// ---- regions -----------------------------------------------------------------------------------------------------

Result<std::byte*> ShmTransport::make_memory(RegionId id, std::size_t bytes) {
  if (raw(id) >= kMaxRegions || bytes == 0 || regions_[raw(id)].made != nullptr) {
    return fail(Errc::invalid_argument, "memory of " + std::to_string(bytes) + " bytes for region " +
                                            std::to_string(raw(id)) + ": ids go up to " +
                                            std::to_string(kMaxRegions - 1) +
                                            " and have memory once, bytes from 1");
  }
  const std::size_t each = whole_pages(bytes), all = each * host_.size();
  KASANE_TRY(check_file_limit("the job's shared memory with region " + std::to_string(raw(id)), file_end_ + all));
  const RaisedFileLimit raised;
  // Unlike ftruncate, which a rank that is late would shorten the file with, this only lengthens it. Its last page is populated by it.
  if (::fallocate(shared_fd_, 0, static_cast<off_t>(file_end_ + all - kOsPage), kOsPage) != 0) {
    return fail_errno(Errc::limit, "the job's shared memory cannot have " + std::to_string(all) +
                                       " bytes more for region " + std::to_string(raw(id)) +
                                       " (see ulimit -f)");
  }
  auto map = SharedMap::map(shared_fd_, all, "memory of the host's ranks", file_end_);
  KASANE_TRY(map);
  file_end_ += all;
  // Neighbours' memory would share huge pages, and sparse memory be committed 512 times faster than it is
  // used.
  (void)::madvise(map->data(), all, MADV_NOHUGEPAGE);
  regions_[raw(id)].made = std::move(*map).keep();
  return regions_[raw(id)].made + own_position_ * each;
}

Result<void> ShmTransport::attach(RegionId id, int fd, std::byte* local, std::size_t bytes) {
  if (raw(id) >= kMaxRegions || bytes == 0 || local == nullptr) {
    return fail(Errc::invalid_argument, "attach of region " + std::to_string(raw(id)) + " with " + std::to_string(bytes) +
                                            " bytes: ids go up to " + std::to_string(kMaxRegions - 1) + ", bytes from 1");
  }
  Region& region = regions_[raw(id)];
  if (region.bytes.load(std::memory_order_relaxed) != 0) {  // relaxed: attaching one id twice at once is refused by contract
    return fail(Errc::invalid_argument, "region " + std::to_string(raw(id)) + " is attached already");
  }
  const std::size_t each = whole_pages(bytes);
  if (fd < 0 && (region.made == nullptr || local != region.made + own_position_ * each)) {
    return fail(Errc::invalid_argument,
                "attach of region " + std::to_string(raw(id)) +
                    " without a descriptor, of memory that make_memory() did not make for it");
  }
  Exchange exchange{.self = rank(), .host = host_, .sockets = postbox_, .area = *job_area_};
  KASANE_TRY(exchange.run(id, fd, bytes, region.peers));
  region.base.assign(ranks(), nullptr);
  for (std::size_t position = 0; position < host_.size(); ++position) {
    const std::uint32_t r = raw(host_[position]);
    region.base[r] = fd < 0 ? region.made + position * each : region.peers[r].data();
  }
  region.base[raw(rank())] = local;
  region.bytes.store(bytes, std::memory_order_release);  // release: who sees the size sees base
  return {};
}

std::byte* ShmTransport::mapped(Rank r, RegionId id) const noexcept {
  KASANE_CHECK_OP(raw(r), <, ranks());
  KASANE_CHECK_OP(raw(id), <, kMaxRegions);
  const Region& region = regions_[raw(id)];
  // acquire: pairs with attach()'s release.
  return region.bytes.load(std::memory_order_acquire) == 0 ? nullptr : region.base[raw(r)];
}

std::byte* ShmTransport::address(RemoteAddr at, std::size_t bytes) const noexcept {
  KASANE_CHECK_OP(raw(at.rank), <, ranks());
  KASANE_CHECK_OP(raw(at.region), <, kMaxRegions);
  const Region& region = regions_[raw(at.region)];
  const std::size_t size = region.bytes.load(std::memory_order_acquire);  // acquire: pairs with attach()'s release
  KASANE_CHECK(size != 0, "the region is not attached");
  KASANE_CHECK_OP(at.offset, <=, size);
  KASANE_CHECK_OP(bytes, <=, size - at.offset);
  std::byte* base = region.base[raw(at.rank)];
  KASANE_CHECK(base != nullptr, "the rank is on another host");
  return base + at.offset;
}

// ---- one-sided operations: complete before they return -----------------------------------------------------------

Post ShmTransport::read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept {
  const std::byte* source = address(from, bytes);
  // acquire, before: a flag that the caller read relaxed orders these loads. After: loads that the caller makes next
  // (a version word, say) come after them. Both are compiler barriers only on x86.
  fence_acquire();
  if (bytes != 0) std::memcpy(to, source, bytes);
  fence_acquire();
  return Post::done;
}

Post ShmTransport::write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept {
  std::byte* target = address(to, bytes);
  if (bytes != 0) std::memcpy(target, from, bytes);
  // release: whatever flag this rank sets next, even relaxed, is seen after the bytes. (The C library's memcpy
  // ends its non-temporal stores with a store fence, so large copies are covered too.)
  fence_release();
  return Post::done;
}

Post ShmTransport::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset, std::uint64_t value,
                                Completion*) noexcept {
  KASANE_CHECK_OP(flag_offset % 8, ==, 0u);
  std::byte* target = address(to, bytes);
  std::atomic_ref<std::uint64_t> flag(*reinterpret_cast<std::uint64_t*>(address({to.rank, to.region, flag_offset}, 8)));
  if (bytes != 0) std::memcpy(target, from, bytes);
  flag.store(value, std::memory_order_release);  // release: who acquires the flag sees the bytes
  return Post::done;
}

Post ShmTransport::atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
                          Completion*, Width width) noexcept {
  const auto bytes = static_cast<std::size_t>(width);
  KASANE_CHECK_OP(at.offset % bytes, ==, 0u);
  const std::uint64_t old = cpu_atomic(op, width, address(at, bytes), operand, compare);
  if (result != nullptr) *result = old;
  return Post::done;
}

Post ShmTransport::fence(Rank target, Completion*) noexcept {
  KASANE_CHECK_OP(raw(target), <, ranks());
  // Everything completed inline; seq_cst, so that also later loads come after the writes fenced here.
  fence_seq_cst();
  return Post::done;
}

// ---- messages ----------------------------------------------------------------------------------------------------

void ShmTransport::set_handler(HandlerId id, Handler fn, void* context) noexcept {
  KASANE_CHECK_OP(raw(id), <, kMaxHandlers);
  handlers_[raw(id)] = {fn, context};
}

Post ShmTransport::put(Rank to, HandlerId id, std::span<const std::byte> payload, std::uint32_t slot,
                       std::uint64_t stamp) noexcept {
  KASANE_CHECK_OP(raw(id), <, kMaxHandlers);
  KASANE_CHECK_OP(payload.size(), <=, kMaxPayload);
  RankArea& target = area(to);
  std::uint64_t position = target.tail.load(std::memory_order_relaxed);  // relaxed: the cell's turn decides
  Cell* cell;
  for (;;) {
    cell = &target.cells[position & (kRingCells - 1)];
    // acquire: pairs with the consumer's release, so its handler has finished with the payload that we overwrite.
    const std::uint64_t turn = cell->turn.load(std::memory_order_acquire);
    if (turn == empty_turn(position)) {
      // relaxed: claims the cell; its content is published by turn.
      if (target.tail.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) break;
    } else if (turn < empty_turn(position)) {
      return Post::again;  // still holds the message of one lap ago: the ring is full
    } else {
      position = target.tail.load(std::memory_order_relaxed);  // relaxed: someone else claimed it, look anew
    }
  }
  cell->from = raw(rank());
  cell->handler = raw(id);
  cell->bytes = static_cast<std::uint32_t>(payload.size());
  cell->reply_slot = slot;
  cell->reply_stamp = stamp;
  if (!payload.empty()) std::memcpy(cell->payload, payload.data(), payload.size());
  cell->turn.store(full_turn(position), std::memory_order_release);  // release: publishes the message
  return Post::done;
}

Post ShmTransport::send(Rank to, HandlerId id, std::span<const std::byte> payload) noexcept {
  if (put(to, id, payload, kNoReply, 0) == Post::again) return Post::again;
  wake(to, Doorbell::messages);
  return Post::done;
}

Post ShmTransport::request(Rank to, HandlerId id, std::span<const std::byte> payload, PendingReply& pending) noexcept {
  const std::uint32_t index = slots_.claim();
  if (index == kNoReply) return Post::again;
  ReplySlot& slot = own_->replies[index];
  // relaxed: the slot is ours alone until the message that names it is published (release) in put().
  const std::uint64_t stamp = slot.state.load(std::memory_order_relaxed) / 2 + 1;
  slot.state.store(stamp * 2, std::memory_order_relaxed);
  const std::uint32_t patience_ns = pending.patience_ns != 0 && can_nudge() && to != rank() && patience_.pays(to) ? pending.patience_ns : 0;
  slot.watched.store(patience_ns != 0, std::memory_order_relaxed);
  // Filled before the message can be answered: another thread may be handed `pending` by then.
  pending = {.slot = index, .stamp = stamp, .patience_ns = pending.patience_ns};
  if (patience_ns != 0) {
    pending.to = to;
    pending.ring_at_ns = now_ns() + patience_ns;
  }
  if (put(to, id, payload, index, stamp) == Post::again) {
    pending = {.patience_ns = pending.patience_ns};
    slots_.release(index);
    return Post::again;
  }
  if (patience_ns != 0) {
    nudge(to);
  } else {
    wake(to, Doorbell::messages);
  }
  return Post::pending;
}

void ShmTransport::reply(ReplyToken token, std::uint64_t value) noexcept {
  KASANE_CHECK_OP(token.slot, <, kReplySlots);
  ReplySlot& slot = area(token.requester).replies[token.slot];
  // relaxed: the token reached us through the message that was published after the slot was set to waiting.
  KASANE_CHECK_OP(slot.state.load(std::memory_order_relaxed), ==, token.stamp * 2);  // else answered twice
  slot.value.store(value, std::memory_order_relaxed);                 // relaxed: published by the next line
  // release: also what the handler did before. seq_cst, both: either we see that nobody watches, or who stops watching sees the answer (end_patience).
  slot.state.store(token.stamp * 2 + 1, std::memory_order_seq_cst);
  if (slot.watched.load(std::memory_order_seq_cst) == 0) wake(token.requester, Doorbell::messages);
}

bool ShmTransport::test(PendingReply& pending, std::uint64_t* value) noexcept {
  KASANE_CHECK(pending.stamp != 0, "test() of a request that was not sent, or whose answer was taken already");
  ReplySlot& slot = own_->replies[pending.slot];
  std::uint64_t state = slot.state.load(std::memory_order_acquire);  // acquire: pairs with reply()'s release
  if (state == pending.stamp * 2) {
    if (pending.to == kNoRank || now_ns() < pending.ring_at_ns) return false;
    end_patience(pending, slot);
    // seq_cst: after watched in one order with reply()'s two accesses.
    state = slot.state.load(std::memory_order_seq_cst);
    if (state == pending.stamp * 2) return false;
  }
  KASANE_CHECK_OP(state, ==, pending.stamp * 2 + 1);
  if (pending.to != kNoRank) patience_.answered_in_time(pending.to);
  if (value != nullptr) *value = slot.value.load(std::memory_order_relaxed);  // relaxed: ordered by state
  slots_.release(pending.slot);
  pending = {};
  return true;
}

/// The request is still unanswered: from now on doorbells ring as for any other.
void ShmTransport::end_patience(PendingReply& pending, ReplySlot& slot) noexcept {
  slot.watched.store(0, std::memory_order_seq_cst);   // seq_cst: see reply()
  wake(pending.to, Doorbell::messages);
  patience_.in_vain(pending.to);
  pending.to = kNoRank;
}

// ---- progress ----------------------------------------------------------------------------------------------------

// No message is left lying. Let M be a message that was published, and its doorbell rung, before some thread S read the
// doorbell's activity and called progress(), which returned false; S then sleeps. Either
// (a) S found the head cell in its empty turn. All before head is consumed, so M lies behind a cell that is claimed but
//     not published; its producer will ring after publishing it. (A stale head_ cannot look empty: its cell was consumed,
//     so its turn has moved on.) Or
// (b) S found the gate taken, by an exchange that W's leaving exchange reads or follows in the release sequence: so W,
//     after it left, sees M's cell published. If the head cell W left is published, W rings and S wakes. If not, M lies behind an
//     unpublished cell (as in a), or another thread entered after W and consumes from there on; it leaves by the same rule.
bool ShmTransport::poll() noexcept {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);  // relaxed: a stale head is caught, see (a)
  if (own_cell(head).turn.load(std::memory_order_acquire) == empty_turn(head)) return false;  // acquire: as in run_batch()
  // acquire: what the last consumer did; release: see (b).
  if (gate_.exchange(1, std::memory_order_acq_rel) != 0) return false;
  const bool any = run_batch();
  const std::uint64_t left_at = head_.load(std::memory_order_relaxed);  // relaxed: we wrote it
  gate_.exchange(0, std::memory_order_acq_rel);  // release: our consumption; acquire: see (b)
  if (own_cell(left_at).turn.load(std::memory_order_acquire) == full_turn(left_at)) wake(rank(), Doorbell::messages);
  return any;
}

bool ShmTransport::run_batch() noexcept {
  std::uint64_t head = head_.load(std::memory_order_relaxed);  // relaxed: ordered by the gate
  for (int n = 0; n < kBatch; ++n) {
    Cell& cell = own_cell(head);
    // acquire: pairs with put()'s publication.
    if (cell.turn.load(std::memory_order_acquire) != full_turn(head)) return n != 0;
    run(cell);
    cell.turn.store(empty_turn(head + kRingCells), std::memory_order_release);  // release: we are done with the payload
    head_.store(++head, std::memory_order_relaxed);  // relaxed: ordered by the gate; outside it only a hint
  }
  return true;
}

void ShmTransport::run(const Cell& cell) const noexcept {
  // A peer is another process: what it wrote is checked before it is used as an index or a length.
  KASANE_CHECK_OP(cell.handler, <, kMaxHandlers);
  KASANE_CHECK_OP(cell.from, <, ranks());
  KASANE_CHECK_OP(cell.bytes, <=, kMaxPayload);
  const HandlerEntry& handler = handlers_[cell.handler];
  KASANE_CHECK(handler.fn != nullptr, "a message for a handler that was never set");
  const Rank from{cell.from};
  handler.fn(handler.context, Message{.from = from,
                                      .payload = {cell.payload, cell.bytes},
                                      .token = {.requester = from, .slot = cell.reply_slot, .stamp = cell.reply_stamp}});
}

// ---- doorbells ---------------------------------------------------------------------------------------------------

std::uint32_t ShmTransport::activity(Doorbell d) const noexcept { return own_->bells[raw(d)].activity(); }

void ShmTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  own_->bells[raw(d)].sleep(seen, timeout_ns);
}

void ShmTransport::wake(Rank to, Doorbell d) noexcept { area(to).bells[raw(d)].ring(); }

std::size_t plane_bytes(std::size_t host_ranks) { return sizeof(JobArea) + host_ranks * sizeof(RankArea); }

std::string named(const Job& job) { return "rank " + std::to_string(raw(job.rank)) + " of a job of " + std::to_string(job.ranks) + " ranks"; }

}  // namespace

std::size_t job_bytes(std::uint32_t host_ranks) { return 2 * plane_bytes(host_ranks); }

Result<std::unique_ptr<Transport>> create(const Job& job, Plane plane) {
  if (raw(job.rank) >= job.ranks) return fail(Errc::invalid_argument, named(job));
  if (job.sockets.size() != job.ranks || !job.on_this_host(job.rank)) {
    return fail(Errc::invalid_argument, named(job) + " needs a socket pair of its own among " + std::to_string(job.ranks) + ", got " +
                                            std::to_string(job.sockets.size()));
  }
  const auto host_ranks = static_cast<std::uint32_t>(job.host_ranks().size());
  if (job.shared_bytes < job_bytes(host_ranks)) {
    return fail(Errc::invalid_argument, named(job) + ", " + std::to_string(host_ranks) + " of them on this host, needs " +
                                            std::to_string(job_bytes(host_ranks)) + " shared bytes, got " + std::to_string(job.shared_bytes));
  }
  auto shared = SharedMap::map(job.shared_fd, job_bytes(host_ranks), "the job's shared memory");
  if (!shared) return tl::unexpected<Error>(std::move(shared).error());
  return std::make_unique<ShmTransport>(job, std::move(*shared), plane == Plane::data ? 0 : plane_bytes(host_ranks));
}

Bells& bells(Transport& transport) noexcept {
  auto* ours = dynamic_cast<ShmTransport*>(&transport);
  KASANE_CHECK(ours != nullptr, "doorbells of a transport that shm::create() did not make");
  return ours->own_bells();
}

}  // namespace kasane::comm::shm
