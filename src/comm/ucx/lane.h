// SPDX-License-Identifier: Apache-2.0
// A lane: one ucp_worker, its endpoints to every peer's lane 0, and the operations under way on it.
//
//   post ─▶ op from the pool ─▶ UCX ─▶ callback ─▶ finished ─▶ turn() hands it out ─▶ its completion runs, outside the lock
//                                └ a write waits on its endpoint for a flush that began after it ─┘
//
// A put of UCX is complete when its buffer may be reused; a write of ours when the bytes are in the target's memory. So a write waits on its
// endpoint; turn() starts a flush for all that wait there, at most one an endpoint at a time, and its end finishes them. Many writes share one.
//
// Thread safety: everything between lock.try_lock() and unlock() unless it says otherwise. UCX calls back only inside that, since the worker
// makes progress only there; callbacks queue and nothing else.
// Invariants: an op is in exactly one of: the free list, UCX's hands and/or an endpoint's waiting or covered list (parts counts which), finished.
// Nothing here allocates after create(), except UCX itself, the first use of an endpoint, and what replaces ops that UCX kept when a peer was lost.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/mailbox.h"
#include "comm/take_all_stack.h"
#include "comm/ucx/lane_lock.h"
#include "comm/ucx/ucx_library.h"
#include "comm/ucx/wire.h"

namespace kasane::comm::ucx {

inline constexpr unsigned kActiveMessage = 1;   ///< our id among UCX's active messages

class Lane;
struct Endpoint;

/// A fence over several lanes: done when its part on each of them is.
struct Fence {
  std::atomic<std::uint32_t> claimed{0};
  std::atomic<std::uint32_t> left{0};          ///< parts, and the poster until it has pushed them all
  std::atomic<std::uint32_t> lost{0};          ///< some part ended with peer_lost
  Completion* done = nullptr;
  /// True for the last one.
  bool part_ended() noexcept { return left.fetch_sub(1, std::memory_order_acq_rel) == 1; }   // acq_rel: all parts before the last one's look
};

/// One operation under way. UCX's own request lies behind it, so posting takes no memory from anywhere.
struct Op {
  enum class Kind : std::uint8_t { read, write, atomic, send, flush, fence, nothing };
  Op* next = nullptr;
  Lane* lane = nullptr;
  Endpoint* endpoint = nullptr;        ///< counted in its open, if counted
  Completion* done = nullptr;
  Fence* fence = nullptr;
  std::uint64_t* result = nullptr;
  std::uint64_t word[2] = {};          ///< operand or flag, sent from here; what an atomic fetched
  std::uint32_t peer = 0;              ///< of a fence
  std::int32_t buffer = -1;            ///< index of the send buffer it holds
  Kind kind = Kind::nothing;
  Width width = Width::eight;
  std::uint8_t parts = 0;              ///< what must still happen before it is finished
  bool counted = false;
  bool orphan = false;                 ///< ended by us: UCX may still have its request, so its memory is used no more
  Status status = Status::ok;
  std::uint32_t poster = 0;            ///< number of the thread that posted it
  std::byte small[2 * sizeof(Head)];   ///< a short message, sent from here
};

struct OpList {
  Op* first = nullptr;
  Op* last = nullptr;
  void push(Op& op) noexcept {
    op.next = nullptr;
    (first == nullptr ? first : last->next) = &op;
    last = &op;
  }
  Op* pop() noexcept {
    Op* op = first;
    if (op != nullptr) first = op->next;
    return op;
  }
};

struct Endpoint {
  Lane* lane = nullptr;
  ucp_ep_h ep = nullptr;               ///< null: not used yet, or failed
  std::uint32_t peer = 0;
  bool dirty = false;                  ///< in its lane's list of those with something in waiting
  bool failed = false;
  std::uint64_t given_up_ns = 0;       ///< when it was closed by force with ops in UCX's hands; 0 once these have ended
  ucs_status_t why = UCS_OK;
  OpList waiting;                      ///< for a flush that has not begun
  OpList covered;                      ///< by the flush under way
  Op* flush = nullptr;                 ///< reserved for it; its kind is `flush` while it is under way
  Endpoint* next_dirty = nullptr;
  std::atomic<std::uint32_t> open{0};  ///< writes and atomics under way
  std::array<ucp_rkey_h, kMaxRegions> rkeys{};
};

/// Where the lanes of a transport look up what they share. Constant while operations run, but for regions that become attached.
struct Peers {
  struct Region {
    ucp_mem_h handle = nullptr;
    std::vector<std::uint64_t> base;        ///< by rank
    std::vector<std::string> key;           ///< by rank, packed
  };
  Peers(std::uint32_t own_rank, std::uint32_t rank_count, const AttachedRegions& regions_here)
      : self(own_rank), ranks(rank_count), attached(regions_here), lost(new std::atomic<std::uint32_t>[rank_count]()) {}

  const std::uint32_t self, ranks;
  const AttachedRegions& attached;
  const Library* ucx = nullptr;             ///< this and the next two: before the first lane
  ucp_context_h context = nullptr;
  std::size_t request_bytes = 0;
  ucp_err_handling_mode_t error_mode = UCP_ERR_HANDLING_MODE_NONE;
  std::vector<std::string> address;         ///< of every rank's lane 0
  std::array<Region, kMaxRegions> regions;  ///< complete before they are attached
  std::unique_ptr<std::atomic<std::uint32_t>[]> lost;   ///< by rank: 1 once it has disappeared
  std::atomic<std::uint32_t> lost_count{0};
};

/// What a turn hands out, to be run after the lock was let go.
struct CompletionBatch {
  static constexpr std::size_t kBatch = 64;
  struct Done {
    Completion* completion;
    Status status;
  };
  std::array<Done, kBatch> done;
  std::size_t count = 0;
  std::uint32_t runner = 0;   ///< number of the thread whose turn it is
  bool for_others = false;    ///< something of another thread's has finished
  bool moved = false;
  void run() const noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      done[i].completion->status = done[i].status;
      done[i].completion->fn(done[i].completion);
    }
  }
};

class Lane {
 public:
  static Result<std::unique_ptr<Lane>> create(Peers&, std::uint32_t outstanding);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  LaneLock<> lock;
  std::atomic<std::uint32_t> polls{0};    ///< by threads whose own lane this is; a hint, may miss some

  // ---- any time, no lock
  [[nodiscard]] bool busy() const noexcept {
    // relaxed: a hint where to look; who sleeps goes by the lock and the worker's events.
    return open_.load(std::memory_order_relaxed) != 0 || !fences_.empty();
  }
  [[nodiscard]] bool used() const noexcept { return used_.load(std::memory_order_relaxed); }   // relaxed: a hint, as busy()
  [[nodiscard]] std::uint32_t open_to(std::uint32_t peer) const noexcept {
    return endpoints_[peer].open.load(std::memory_order_acquire);   // acquire: what is no longer counted has completed
  }
  [[nodiscard]] bool connected(std::uint32_t peer) const noexcept { return endpoints_[peer].ep != nullptr; }
  /// part.peer and part.fence are set. It is finished once all that was posted here to the peer before is.
  void push_fence(Op& part) noexcept {
    part.lane = this;
    fences_.push(&part);
  }
  [[nodiscard]] int event_fd() const noexcept { return event_fd_; }
  [[nodiscard]] ucp_worker_h worker() const noexcept { return worker_; }

  // ---- under the lock: posts. again: no op is free (or UCX has no memory), and nothing happened
  /// Whose posts the next ones are: the number of the calling thread.
  void set_poster(std::uint32_t thread) noexcept { poster_ = thread; }
  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset, std::uint64_t value,
                    Completion*) noexcept;
  Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result, Completion*, Width) noexcept;
  /// Completes with peer_lost in a later turn().
  Post lost(Completion*) noexcept;
  /// Copied before it returns; done or again. To a peer that is lost: done, and dropped.
  Post send(std::uint32_t to, const Head&, std::span<const std::byte> payload) noexcept;

  /// True once after a post that left something for somebody else's look: a worker that nobody has armed yet, or a finished op.
  bool take_ring_needed() noexcept { return std::exchange(ring_needed_, false) || finished_.first != nullptr; }
  /// Makes progress once and takes out what has finished.
  void progress(CompletionBatch&) noexcept;
  /// Asks for an event; false if there may be something to do already.
  bool arm() noexcept;
  /// Has an endpoint of this lane failed that take_failed() has not told of?
  [[nodiscard]] bool any_failed() const noexcept { return any_failed_; }
  /// The first peer on this lane whose endpoint has failed and was not taken yet, or kNoRank.
  Rank take_failed(ucs_status_t& why) noexcept;
  /// Ends everything with peer: what is under way there finishes with peer_lost.
  void abandon(std::uint32_t peer) noexcept;
  /// Begins to flush what was posted on any endpoint, or to close all of them. ended() once UCX has done what was begun.
  void flush_all() noexcept;
  void close_all() noexcept;
  bool ended() noexcept;

 private:
  Lane(Peers&, std::uint32_t outstanding);
  Result<void> start();
  Op* take(Op::Kind, Endpoint&, Completion*) noexcept;
  void give(Op&) noexcept;
  void finish(Op&) noexcept;
  void part_done(Op&) noexcept;
  void wait_for_flush(Op&) noexcept;
  void begin_flush(Endpoint&) noexcept;
  void flush_dirty() noexcept;
  void abandon_lost() noexcept;
  void end_flush(Endpoint&, bool ok) noexcept;
  void fail_waiting(Endpoint&) noexcept;
  void fail_doubtful() noexcept;
  void end_orphans() noexcept;
  void orphan(Endpoint&) noexcept;
  bool replace(std::uint32_t ops) noexcept;
  template <class F>
  void for_each_op(const F&) noexcept;
  Endpoint* endpoint(std::uint32_t peer) noexcept;
  bool connect(Endpoint&) noexcept;
  ucp_rkey_h rkey(Endpoint&, RegionId) noexcept;
  ucp_mem_h handle_of(const void* address, std::size_t bytes) const noexcept;
  ucp_request_param_t params(Op&) const noexcept;
  ucp_request_param_t params(Op&, const void* local, std::size_t bytes) const noexcept;
  /// What became of a call of UCX: 0 finished, 1 under way, -1 refused for want of memory, -2 failed.
  int outcome(Endpoint&, ucs_status_ptr_t) noexcept;
  void* request_of(Op& op) const noexcept;
  std::byte* buffer(std::int32_t index) const noexcept;
  static void on_done(void* request, ucs_status_t status, void* op) noexcept;
  static void on_error(void* endpoint, ucp_ep_h, ucs_status_t status) noexcept;

  Peers& peers_;
  const Library& ucx_;
  std::uint32_t outstanding_;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::vector<Endpoint> endpoints_;       ///< by rank
  std::byte* memory_ = nullptr;           ///< ops, then send buffers
  std::size_t memory_bytes_ = 0, op_bytes_ = 0;
  OpList free_;
  std::vector<std::int32_t> free_buffers_;
  OpList finished_;
  Endpoint* dirty_ = nullptr;
  bool any_failed_ = false;
  std::uint32_t given_up_ = 0;            ///< endpoints with given_up_ns
  struct Block;
  Block* blocks_ = nullptr;               ///< of ops made since, for those that are orphans
  bool ring_needed_ = false;
  std::uint32_t poster_ = 0;
  std::uint32_t lost_seen_ = 0;
  std::vector<void*> ending_;             ///< requests of endpoints that are being closed, and of flushes at the end
  std::atomic<bool> used_{false};
  std::atomic<std::uint32_t> open_{0};    ///< ops under way or finished and not handed out; written under the lock
  TakeAllStack<Op> fences_;               ///< parts pushed by other threads
};

}  // namespace kasane::comm::ucx
