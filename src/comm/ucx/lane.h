// SPDX-License-Identifier: Apache-2.0
// A lane: one ucp_worker, its endpoints to every peer's lane 0, and the operations outstanding on it.
//
//   post ─▶ op from the pool ─▶ UCX ─▶ callback ─▶ finished ─▶ progress() takes it out ─▶ completion
//                                └ a write waits on its endpoint for a flush that began after it ─┘
//
// UCX completes a put when its buffer may be reused; a write of the contract has completed when the bytes are
// in the target's memory. So a write waits on its endpoint. progress() starts a flush for all writes that
// wait there, at most one flush an endpoint at a time; its end finishes them. Many writes share one flush.
//
// Thread safety: everything under the lock unless it says otherwise. UCX calls back only under the lock,
// since the worker makes progress only there; callbacks queue and do nothing else.
// Invariants: an op is in exactly one of: the free list; UCX and/or an endpoint's waiting or covered list
// (parts counts which); the finished list. Nothing here allocates after create(), with three exceptions: UCX
// itself, the first use of an endpoint, and the replacement of ops that UCX kept when a peer was lost.
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

inline constexpr unsigned kActiveMessage = 1;  ///< Kasane's id among UCX's active messages

class Lane;
struct Endpoint;

/// A fence over several lanes. It is done when its part on each of them is.
struct Fence {
  std::atomic<std::uint32_t> claimed{0};
  std::atomic<std::uint32_t> left{0};  ///< parts not done, + 1 until the poster has pushed them all
  std::atomic<std::uint32_t> lost{0};  ///< some part ended with peer_lost
  Completion* done = nullptr;
  /// True for the last one. acq_rel: all parts come before the last one's look.
  bool part_ended() noexcept { return left.fetch_sub(1, std::memory_order_acq_rel) == 1; }
};

/// One outstanding operation. UCX's own request lies behind it, so a post allocates nothing.
struct Op {
  enum class Kind : std::uint8_t { read, write, atomic, send, flush, fence, nothing };
  Op* next = nullptr;
  Lane* lane = nullptr;
  Endpoint* endpoint = nullptr;  ///< if counted: counted in its `open`
  Completion* done = nullptr;
  Fence* fence = nullptr;
  std::uint64_t* result = nullptr;
  std::uint64_t word[2] = {};  ///< operand or flag, sent from here; an atomic's old value
  std::uint32_t peer = 0;      ///< of a fence
  std::int32_t buffer = -1;    ///< index of the op's send buffer
  Kind kind = Kind::nothing;
  Width width = Width::eight;
  std::uint8_t parts = 0;  ///< events that must still happen before it is finished
  bool counted = false;
  bool orphan = false;  ///< ended without UCX, which may still use the request: never reused
  Status status = Status::ok;
  std::uint32_t poster = 0;           ///< number of the thread that posted it
  std::byte small[2 * sizeof(Head)];  ///< a short message is sent from here
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
  ucp_ep_h ep = nullptr;  ///< null: not used yet, or failed
  std::uint32_t peer = 0;
  bool dirty = false;  ///< in the lane's list of endpoints with something in waiting
  bool failed = false;
  /// when it was closed by force while UCX had ops; 0 once these have ended
  std::uint64_t given_up_ns = 0;
  ucs_status_t why = UCS_OK;
  OpList waiting;  ///< ops that wait for a flush that has not begun
  OpList covered;  ///< ops that wait for the outstanding flush
  /// reserved for the flush; its kind is `flush` while that is outstanding
  Op* flush = nullptr;
  Endpoint* next_dirty = nullptr;
  std::atomic<std::uint32_t> open{0};  ///< outstanding writes and atomics
  std::array<ucp_rkey_h, kMaxRegions> rkeys{};
};

/// What the lanes of a transport share. Constant while operations run, except that regions become attached.
struct Peers {
  struct Region {
    ucp_mem_h handle = nullptr;
    std::vector<std::uint64_t> base;  ///< by rank
    std::vector<std::string> key;     ///< by rank, packed
  };
  Peers(std::uint32_t own_rank, std::uint32_t rank_count, const AttachedRegions& regions_here)
      : self(own_rank),
        ranks(rank_count),
        attached(regions_here),
        lost(new std::atomic<std::uint32_t>[rank_count]()) {}

  const std::uint32_t self, ranks;
  const AttachedRegions& attached;
  const Library* ucx = nullptr;  ///< set before the first lane, as the next two
  ucp_context_h context = nullptr;
  std::size_t request_bytes = 0;
  ucp_err_handling_mode_t error_mode = UCP_ERR_HANDLING_MODE_NONE;
  std::vector<std::string> address;                    ///< of every rank's lane 0
  std::array<Region, kMaxRegions> regions;             ///< each is complete before the region is attached
  std::unique_ptr<std::atomic<std::uint32_t>[]> lost;  ///< by rank: 1 once the peer has disappeared
  std::atomic<std::uint32_t> lost_count{0};
};

/// Completions that progress() took out, to be run after the lock was released.
struct CompletionBatch {
  static constexpr std::size_t kBatch = 64;
  struct Done {
    Completion* completion;
    Status status;
  };
  std::array<Done, kBatch> done;
  std::size_t count = 0;
  std::uint32_t runner = 0;  ///< number of the thread that makes progress
  bool for_others = false;   ///< an operation of another thread has finished
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
  std::atomic<std::uint32_t> polls{0};  ///< by threads whose own lane this is; a hint, may miss some

  // ---- any time, without the lock
  [[nodiscard]] bool busy() const noexcept {
    // relaxed: a hint where to poll; sleeping threads rely on the lock and the worker's events instead.
    return open_.load(std::memory_order_relaxed) != 0 || !fences_.empty();
  }
  // relaxed: a hint, as busy()
  [[nodiscard]] bool used() const noexcept { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t open_to(std::uint32_t peer) const noexcept {
    // acquire: operations no longer counted have completed
    return endpoints_[peer].open.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool connected(std::uint32_t peer) const noexcept { return endpoints_[peer].ep != nullptr; }
  /// Adds a fence's part, with peer and fence set. It is finished once all operations that were posted here
  /// to the peer before are.
  void push_fence(Op& part) noexcept {
    part.lane = this;
    fences_.push(&part);
  }
  [[nodiscard]] int event_fd() const noexcept { return event_fd_; }
  [[nodiscard]] ucp_worker_h worker() const noexcept { return worker_; }

  // ---- under the lock: posts. again: no op is free (or UCX has no memory), and nothing happened
  /// The number of the thread that posts next.
  void set_poster(std::uint32_t thread) noexcept { poster_ = thread; }
  Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept;
  Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept;
  Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                    std::uint64_t value, Completion*) noexcept;
  Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result,
              Completion*, Width) noexcept;
  /// Completes with peer_lost in a later progress().
  Post lost(Completion*) noexcept;
  /// The message is copied before it returns; done or again. To a lost peer: done, and the message is
  /// dropped.
  Post send(std::uint32_t to, const Head&, std::span<const std::byte> payload) noexcept;

  /// True once after a post whose effects another thread must handle: a worker that no thread has armed yet,
  /// or a finished op.
  bool take_ring_needed() noexcept {
    return std::exchange(ring_needed_, false) || finished_.first != nullptr;
  }
  /// Makes progress once and takes out what has finished.
  void progress(CompletionBatch&) noexcept;
  /// Asks UCX for an event; false if there may be something to do already.
  bool arm() noexcept;
  /// Does for peers what UCX does by itself (their reads, writes and atomics of this rank's memory), then
  /// arms. False: there is more to do, for threads that make progress().
  bool serve() noexcept;
  /// Has an endpoint of this lane failed that take_failed() has not returned?
  [[nodiscard]] bool any_failed() const noexcept { return any_failed_; }
  /// The first peer on this lane whose endpoint has failed and was not returned yet, or kNoRank.
  Rank take_failed(ucs_status_t& why) noexcept;
  /// Closes the connection to peer: outstanding operations finish with peer_lost.
  void abandon(std::uint32_t peer) noexcept;
  /// flush_all() begins to flush what was posted on any endpoint, close_all() to close all of them. ended():
  /// UCX has finished with both.
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
  /// The result of a call of UCX: 0 finished, 1 outstanding, -1 refused for lack of memory, -2 failed.
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
  std::vector<Endpoint> endpoints_;  ///< by rank
  std::byte* memory_ = nullptr;      ///< ops, then send buffers
  std::size_t memory_bytes_ = 0, op_bytes_ = 0;
  OpList free_;
  std::vector<std::int32_t> free_buffers_;
  OpList finished_;
  Endpoint* dirty_ = nullptr;
  bool any_failed_ = false;
  std::uint32_t given_up_ = 0;  ///< endpoints with given_up_ns
  struct Block;
  Block* blocks_ = nullptr;  ///< ops mapped later, which replace orphans
  bool ring_needed_ = false;
  std::uint32_t poster_ = 0;
  std::uint32_t lost_seen_ = 0;
  std::vector<void*> ending_;  ///< requests of closing endpoints and of the last flushes
  std::atomic<bool> used_{false};
  /// ops outstanding, or finished and not taken out; written under the lock
  std::atomic<std::uint32_t> open_{0};
  TakeAllStack<Op> fences_;  ///< parts pushed by other threads
};

}  // namespace kasane::comm::ucx
