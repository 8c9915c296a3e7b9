// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport.
//
//   rank a                                   rank b
//   write(b, …)  ── memcpy ───────────────►  region of b, mapped in a
//   send(b, …)   ── claim, fill, publish ──► ring of b ──► b's progress(): handler ──► reply(): slot of a
//                ── ring ──────────────────► doorbell of b               └── ring ──► doorbell of a
//
// Thread safety: any call from any thread of the rank, also from a fault handler. No locks: producers claim
// ring cells by compare-swap. A gate guards the consumer's side. It is only ever tried, so a thread that
// interrupts itself inside progress() gets false instead of a deadlock. Between the claim and the publication
// of a cell the producer reads only the payload. The payload must not lie in armed memory (rule 10): a fault
// there would wait behind its own unpublished cell.
//
// Invariants:
// - every position below head_ is consumed, every position in [head_, tail) is claimed;
// - after a message is published, its target's doorbell rings or a progress() of the target runs it; for a
//   request with a delayed doorbell within the delay, if its requester goes on testing;
// - a thread that leaves progress() while the head cell is published rings its own rank's doorbell.
#include "comm/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/full_fence.h"
#include "base/memory_file.h"
#include "comm/mailbox.h"
#include "comm/mailbox_replies.h"
#include "comm/shm/doorbell_delays.h"
#include "comm/shm/exchange.h"
#include "comm/shm/layout.h"

namespace kasane::comm::shm {
namespace {

/// The most messages that one progress() runs before it returns to its caller, which may wait for something
/// else.
constexpr int kBatch = 64;

constexpr std::size_t kOsPage = 4096;
constexpr std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + kOsPage - 1) / kOsPage * kOsPage;
}
/// Regions of the control plane lie at this offset in the job's file: neither plane knows how much of the
/// file the other one uses.
constexpr std::uint64_t kControlRegions = std::uint64_t{1} << 60;

RankArea* rank_areas(const SharedMap& shared, std::size_t plane_offset) noexcept {
  return reinterpret_cast<RankArea*>(shared.data() + plane_offset + sizeof(JobArea));
}
std::size_t position_in(const std::vector<Rank>& host, Rank rank) noexcept {
  return static_cast<std::size_t>(std::ranges::find(host, rank) - host.begin());
}
RankArea& own_area(const Job& job, const SharedMap& shared, std::size_t plane_offset) {
  return rank_areas(shared, plane_offset)[position_in(job.host_ranks(), job.rank)];
}

class ShmTransport final : public MailboxTransport {
 public:
  /// plane_offset: of this transport's JobArea in shared.
  ShmTransport(const Job& job, SharedMap shared, std::size_t plane_offset)
      : MailboxTransport(job.rank, job.ranks, own_area(job, shared, plane_offset).bells),
        shared_fd_(job.shared_fd),
        file_end_(job.shared_bytes + (plane_offset == 0 ? 0 : kControlRegions)),
        sockets_(job.sockets),
        host_(job.host_ranks()),
        areas_(job.ranks, nullptr),
        shared_(std::move(shared)),
        job_area_(reinterpret_cast<JobArea*>(shared_.data() + plane_offset)),
        own_position_(position_in(host_, job.rank)),
        own_(rank_areas(shared_, plane_offset) + own_position_),
        replies_(kReplySlots, own_->replies),
        doorbell_delays_(job.ranks) {
    for (std::size_t position = 0; position < host_.size(); ++position) {
      areas_[raw(host_[position])] = rank_areas(shared_, plane_offset) + position;
    }
  }

  ~ShmTransport() override {
    for (const Source& source : sources_)
      if (memory_limited_ && source.made != nullptr) ::munmap(source.made, source.made_bytes);
  }

  Facts facts() const noexcept override {
    return {.name = "shm",
            .target_cpu_needed = false,
            .puts_need_target = false,
            .atomics_coherent_with_cpu = true,
            .completes_inline = true,
            .ordered = true};
  }

  Result<std::byte*> make_memory(RegionId id, std::size_t bytes) override;
  void limit_memory() noexcept override { memory_limited_ = true; }
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
  /// Where a region's memory comes from.
  struct Source {
    /// from make_memory(): the memory of all ranks of this host, by position
    std::byte* made = nullptr;
    std::size_t made_bytes = 0;
    std::vector<SharedMap> peers;  ///< else, by rank: the mappings of this process
  };

  RankArea& area(Rank r) const noexcept {
    KASANE_CHECK_OP(raw(r), <, ranks());
    RankArea* found = areas_[raw(r)];
    KASANE_CHECK(found != nullptr, "the rank is on another host");
    return *found;
  }
  Cell& own_cell(std::uint64_t position) const noexcept { return own_->cells[position & (kRingCells - 1)]; }
  std::byte* address(RemoteAddr at, std::size_t bytes) const noexcept {
    std::byte* base = checked(at, bytes).base[raw(at.rank)];
    KASANE_CHECK(base != nullptr, "the rank is on another host");
    return base + at.offset;
  }
  Post put(Rank to, HandlerId, std::span<const std::byte> payload, std::uint32_t slot,
           std::uint64_t stamp) noexcept;
  void end_delay(PendingReply&) noexcept;
  bool run_batch() noexcept;

  int shared_fd_;
  /// where the next region's memory begins in that file; the same on all ranks
  std::uint64_t file_end_;
  std::vector<Job::SocketPair> sockets_;
  std::vector<Rank> host_;        ///< the ranks of this host, ascending
  std::vector<RankArea*> areas_;  ///< by rank; null: on another host
  SharedMap shared_;
  JobArea* job_area_;
  std::size_t own_position_;  ///< of this rank in host_
  RankArea* own_;
  std::array<Source, kMaxRegions> sources_;
  bool memory_limited_ = false;
  ReplySlots replies_;
  DoorbellDelays doorbell_delays_;
  alignas(kLine) std::atomic<std::uint32_t> gate_{0};  ///< 1 while a thread of this rank consumes
  /// next position to consume; written inside the gate only
  std::atomic<std::uint64_t> head_{0};
};

constexpr std::uint64_t empty_turn(std::uint64_t position) noexcept { return position / kRingCells * 2; }
constexpr std::uint64_t full_turn(std::uint64_t position) noexcept { return position / kRingCells * 2 + 1; }

// ---- regions ----------------------------------------------------------------------------------------------

Result<std::byte*> ShmTransport::make_memory(RegionId id, std::size_t bytes) {
  if (raw(id) >= kMaxRegions || bytes == 0 || sources_[raw(id)].made != nullptr) {
    return fail(Errc::invalid_argument, "memory of " + std::to_string(bytes) + " bytes for region " +
                                            std::to_string(raw(id)) + ": ids go up to " +
                                            std::to_string(kMaxRegions - 1) +
                                            " and have memory once, bytes from 1");
  }
  const std::size_t each = whole_pages(bytes), all = each * host_.size();
  KASANE_TRY(
      check_file_limit("the job's shared memory with region " + std::to_string(raw(id)), file_end_ + all));
  const RaisedFileLimit raised;
  // fallocate only lengthens the file; with ftruncate a late rank would shorten it. It populates the last
  // page.
  if (::fallocate(shared_fd_, 0, static_cast<off_t>(file_end_ + all - kOsPage), kOsPage) != 0) {
    return fail_errno(Errc::limit, "the job's shared memory cannot have " + std::to_string(all) +
                                       " bytes more for region " + std::to_string(raw(id)) +
                                       " (fallocate; see ulimit -f)");
  }
  auto map = SharedMap::map(shared_fd_, all, "memory of the host's ranks", file_end_);
  KASANE_TRY(map);
  file_end_ += all;
  // With huge pages neighbours would share a page, and sparse memory would be committed 512 times faster than
  // it is used.
  (void)::madvise(map->data(), all, MADV_NOHUGEPAGE);
  sources_[raw(id)].made = std::move(*map).keep();
  sources_[raw(id)].made_bytes = all;
  return sources_[raw(id)].made + own_position_ * each;
}

Result<void> ShmTransport::attach(RegionId id, int fd, std::byte* local, std::size_t bytes) {
  KASANE_TRY(may_attach(id, local, bytes));
  Source& source = sources_[raw(id)];
  const std::size_t each = whole_pages(bytes);
  if (fd < 0 && (source.made == nullptr || local != source.made + own_position_ * each)) {
    return fail(Errc::invalid_argument,
                "attach of region " + std::to_string(raw(id)) +
                    " without a descriptor, of memory that make_memory() did not make for it");
  }
  Exchange exchange{.self = rank(), .host = host_, .sockets = sockets_, .area = *job_area_};
  KASANE_TRY(exchange.run(id, fd, bytes, source.peers));
  std::vector<std::byte*>& base = new_region(id, local);
  for (std::size_t position = 0; position < host_.size(); ++position) {
    const std::uint32_t r = raw(host_[position]);
    if (position != own_position_) base[r] = fd < 0 ? source.made + position * each : source.peers[r].data();
  }
  publish(id, bytes);
  return {};
}

// ---- one-sided operations: complete before they return ----------------------------------------------------

Post ShmTransport::read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept {
  return read_here(to, address(from, bytes), bytes);
}

Post ShmTransport::write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept {
  return write_here(address(to, bytes), from, bytes);
}

Post ShmTransport::write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                                std::uint64_t value, Completion*) noexcept {
  check_aligned(flag_offset, 8);
  return write_notify_here(address(to, bytes), from, bytes, address({to.rank, to.region, flag_offset}, 8),
                           value);
}

Post ShmTransport::atomic(AtomicOp op, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                          std::uint64_t* result, Completion*, Width width) noexcept {
  const auto bytes = static_cast<std::size_t>(width);
  check_aligned(at.offset, bytes);
  return atomic_here(op, address(at, bytes), operand, compare, result, width);
}

Post ShmTransport::fence(Rank target, Completion*) noexcept {
  KASANE_CHECK_OP(raw(target), <, ranks());
  full_fence();  // all operations completed inline; later loads must come after them, too
  return Post::done;
}

// ---- messages ---------------------------------------------------------------------------------------------

Post ShmTransport::put(Rank to, HandlerId id, std::span<const std::byte> payload, std::uint32_t slot,
                       std::uint64_t stamp) noexcept {
  check_message(id, payload);
  RankArea& target = area(to);
  std::uint64_t position = target.tail.load(std::memory_order_relaxed);  // relaxed: the cell's turn decides
  Cell* cell;
  for (;;) {
    cell = &target.cells[position & (kRingCells - 1)];
    // acquire: pairs with the consumer's release, so its handler has finished with the payload to be
    // overwritten.
    const std::uint64_t turn = cell->turn.load(std::memory_order_acquire);
    if (turn == empty_turn(position)) {
      // relaxed: claims the cell; its content is published by turn.
      if (target.tail.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) break;
    } else if (turn < empty_turn(position)) {
      return Post::again;  // the cell still holds the message of one lap before: the ring is full
    } else {
      // relaxed: another thread claimed it; try the next
      position = target.tail.load(std::memory_order_relaxed);
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

Post ShmTransport::request(Rank to, HandlerId id, std::span<const std::byte> payload,
                           PendingReply& pending) noexcept {
  const bool delayed =
      pending.doorbell_delay_ns != 0 && can_nudge() && to != rank() && doorbell_delays_.may_delay(to);
  const std::uint64_t ring_at_ns = delayed ? now_ns() + pending.doorbell_delay_ns : 0;
  const auto send = [&](std::uint32_t slot, std::uint64_t stamp) {
    return put(to, id, payload, slot, stamp);
  };
  if (replies_.request(to, pending, send, ring_at_ns) == Post::again) return Post::again;
  if (delayed) {
    nudge(to);
  } else {
    wake(to, Doorbell::messages);
  }
  return Post::pending;
}

void ShmTransport::reply(ReplyToken token, std::uint64_t value) noexcept {
  KASANE_CHECK_OP(token.slot, <, kReplySlots);
  ReplySlot& slot = area(token.requester).replies[token.slot];
  // seq_cst, both: either this thread sees that the requester does not watch, or the requester, which stops
  // watching, sees the answer (end_delay).
  KASANE_CHECK(slot.answer(token.stamp, value, std::memory_order_seq_cst), "a request was answered twice");
  if (slot.watched.load(std::memory_order_seq_cst) == 0) wake(token.requester, Doorbell::messages);
}

bool ShmTransport::test(PendingReply& pending, std::uint64_t* value) noexcept {
  if (!replies_.answered(pending)) {
    if (pending.ring_at_ns == 0 || now_ns() < pending.ring_at_ns) return false;
    end_delay(pending);
    if (!replies_.answered(pending)) return false;
  }
  if (pending.ring_at_ns != 0) doorbell_delays_.answered_in_time(pending.to);
  replies_.take(pending, value);
  return true;
}

/// The request is still unanswered: from now on doorbells ring as for other requests.
void ShmTransport::end_delay(PendingReply& pending) noexcept {
  replies_.slot(pending.slot).watched.store(0, std::memory_order_seq_cst);  // seq_cst: see reply()
  wake(pending.to, Doorbell::messages);
  doorbell_delays_.expired(pending.to);
  pending.ring_at_ns = 0;
}

// ---- progress ---------------------------------------------------------------------------------------------

// No message is left unprocessed. Let M be a message that was published, and its doorbell rung, before some
// thread S read the doorbell's activity and called progress(), which returned false; S then sleeps. Either
// (a) S found the head cell in its empty turn. All cells before head are consumed, so M lies behind a cell
//     that is claimed but not published; its producer will ring after publishing it. (A stale head_ cannot
//     look empty: its cell was consumed, so its turn has moved on.) Or
// (b) S found the gate taken, by an exchange that the leaving exchange of the gate's holder W reads or
//     follows in the release sequence: so W, after it left, sees M's cell published. If the head cell that W
//     left is published, W rings and S wakes. If not, M lies behind an unpublished cell (as in a), or another
//     thread entered after W and consumes from there on; it leaves by the same rule.
bool ShmTransport::poll() noexcept {
  // relaxed: a stale head is caught, see (a)
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  // acquire: as in run_batch()
  if (own_cell(head).turn.load(std::memory_order_acquire) == empty_turn(head)) return false;
  // acquire: what the last consumer did; release: see (b).
  if (gate_.exchange(1, std::memory_order_acq_rel) != 0) return false;
  const bool any = run_batch();
  const std::uint64_t left_at = head_.load(std::memory_order_relaxed);  // relaxed: this thread wrote it
  gate_.exchange(0, std::memory_order_acq_rel);  // release: what this thread consumed; acquire: see (b)
  // acquire: as in run_batch().
  if (own_cell(left_at).turn.load(std::memory_order_acquire) == full_turn(left_at))
    wake(rank(), Doorbell::messages);
  return any;
}

bool ShmTransport::run_batch() noexcept {
  std::uint64_t head = head_.load(std::memory_order_relaxed);  // relaxed: ordered by the gate
  for (int n = 0; n < kBatch; ++n) {
    Cell& cell = own_cell(head);
    // acquire: pairs with put()'s publication.
    if (cell.turn.load(std::memory_order_acquire) != full_turn(head)) return n != 0;
    run_handler(cell.handler, cell.from, {cell.payload, cell.bytes}, cell.reply_slot, cell.reply_stamp);
    // release: this thread has finished with the payload.
    cell.turn.store(empty_turn(head + kRingCells), std::memory_order_release);
    head_.store(++head, std::memory_order_relaxed);  // relaxed: ordered by the gate; outside it only a hint
  }
  return true;
}

// ---- doorbells --------------------------------------------------------------------------------------------

void ShmTransport::sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept {
  bells()[raw(d)].sleep(seen, timeout_ns);
}

void ShmTransport::wake(Rank to, Doorbell d) noexcept { area(to).bells[raw(d)].ring(); }

std::size_t plane_bytes(std::size_t host_ranks) { return sizeof(JobArea) + host_ranks * sizeof(RankArea); }

std::string named(const Job& job) {
  return "rank " + std::to_string(raw(job.rank)) + " of a job of " + std::to_string(job.ranks) + " ranks";
}

}  // namespace

std::size_t job_bytes(std::uint32_t host_ranks) { return 2 * plane_bytes(host_ranks); }

Result<std::unique_ptr<Transport>> create(const Job& job, Plane plane) {
  if (raw(job.rank) >= job.ranks) return fail(Errc::invalid_argument, named(job));
  if (job.sockets.size() != job.ranks || !job.on_this_host(job.rank)) {
    return fail(Errc::invalid_argument, named(job) + " needs a socket pair of its own among " +
                                            std::to_string(job.ranks) + ", got " +
                                            std::to_string(job.sockets.size()));
  }
  const auto host_ranks = static_cast<std::uint32_t>(job.host_ranks().size());
  if (job.shared_bytes < job_bytes(host_ranks)) {
    return fail(Errc::invalid_argument, named(job) + ", " + std::to_string(host_ranks) +
                                            " of them on this host, needs " +
                                            std::to_string(job_bytes(host_ranks)) + " shared bytes, got " +
                                            std::to_string(job.shared_bytes));
  }
  auto shared = SharedMap::map(job.shared_fd, job_bytes(host_ranks), "the job's shared memory");
  if (!shared) return tl::unexpected<Error>(std::move(shared).error());
  return std::make_unique<ShmTransport>(job, std::move(*shared),
                                        plane == Plane::data ? 0 : plane_bytes(host_ranks));
}

Bells& bells(Transport& transport) noexcept {
  auto* ours = dynamic_cast<ShmTransport*>(&transport);
  KASANE_CHECK(ours != nullptr, "doorbells of a transport that shm::create() did not make");
  return ours->bells();
}

}  // namespace kasane::comm::shm
