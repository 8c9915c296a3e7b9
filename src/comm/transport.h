// SPDX-License-Identifier: Apache-2.0
// The contract that every transport keeps.
//
// A transport joins the ranks of one job. Each rank attaches memory *regions*: the same ids in the same order
// on every rank. Remote memory is named by (rank, region, offset), never by an address. One-sided operations
// (read, write, atomics) need no cooperation of the target's program. An active message runs a handler in the
// target's progress().
//
// **Order.** Two operations of one rank have no order, not even to the same target, with one exception: an
// operation that has *completed* is visible to every operation that is posted afterwards by a thread that
// learnt of the completion. fence(r) completes all writes and atomics that this rank posted to r. Messages
// may overtake each other and everything else.
//
// **Completion.** Post::done: the operation finished before the call returned; the Completion is not called.
// Post::pending: fn runs exactly once, later, inside some thread's progress(). Post::again: a local queue is
// full and nothing happened; call progress() and try again. Buffers must stay valid until completion. A write
// has completed when the bytes are in the target's memory.
//
// **Thread safety.** Every call from any thread of the rank, also from a fault handler on an alternate stack:
// no call allocates, logs or takes a lock that is held across a wait. Handlers and completions run inside
// progress(). They must not block. They may post operations, send() and reply(), but not wait for them.
//
// **Errors.** A region that is not attached, and an offset or size beyond it, are bugs of the caller:
// KASANE_CHECK (Engine, which stands on this contract, returns an error instead). When a peer disappears,
// what was posted to it, and what is posted later, completes with Status::peer_lost, and the peer-lost hook
// is called once with its rank and the network's words. On one host the supervisor ends the job first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bell.h"
#include "base/ids.h"
#include "base/result.h"
#include "comm/crowd.h"

namespace kasane::comm {

enum class RegionId : std::uint32_t {};
inline constexpr std::uint32_t kMaxRegions = 16;

/// A place in some rank's registered memory.
struct RemoteAddr {
  Rank rank;
  RegionId region;
  std::uint64_t offset;
};

enum class [[nodiscard]] Post : std::uint8_t { done, pending, again };

/// How an operation ended. refused: its arguments were wrong and nothing was sent (Engine only).
enum class Status : std::uint8_t { ok, refused, peer_lost };

struct Completion {
  void (*fn)(Completion*) noexcept = nullptr;
  Status status = Status::ok;  ///< set before fn runs
};

enum class AtomicOp : std::uint8_t { fetch_add, fetch_and, fetch_or, fetch_xor, swap, compare_swap };
/// The number of bytes of an atomic; its offset is a multiple of it.
enum class Width : std::uint8_t { four = 4, eight = 8 };

enum class HandlerId : std::uint32_t {};
inline constexpr std::uint32_t kMaxHandlers = 64;
/// Largest payload of an active message or request, in bytes.
inline constexpr std::size_t kMaxPayload = 3584;

/// Most bytes that come with an answer.
inline constexpr std::size_t kMaxAnswer = 4096;

/// Names one outstanding request at the responder. Plain data: it may be kept after the handler returned.
struct ReplyToken {
  Rank requester;
  std::uint32_t slot;
  std::uint64_t stamp;
};

/// A message as its handler sees it. The payload is valid until the handler returns; its alignment is 8.
struct Message {
  Rank from;
  std::span<const std::byte> payload;
  ReplyToken token;  ///< meaningful in handlers reached by request() only
};
using Handler = void (*)(void* context, const Message&) noexcept;

/// One outstanding request at the requester. Destroy it only after test() returned true.
struct PendingReply {
  std::uint32_t slot = 0;
  Status status = Status::ok;  ///< after test(): peer_lost if no answer can come any more
  std::uint64_t stamp = 0;
  /// Set before request() by a caller that then calls test() again and again. For so long no doorbell needs
  /// to ring, neither for the request, if a nudge can tell the target of it (Transport::set_nudge), nor for
  /// the answer. 0: doorbells ring at once. A transport may ignore it.
  std::uint32_t doorbell_delay_ns = 0;
  Rank to = kNoRank;  ///< the rank that was asked; set by request()
  /// when test() rings the target's doorbell, which was not rung yet; 0: it was
  std::uint64_t ring_at_ns = 0;
  /// Where bytes that come with the answer go; set before request() by a caller that can do without them
  /// (Facts::answers_bring). test() writes them.
  std::span<std::byte> into{};
  std::size_t brought = 0;  ///< after test(): how many bytes came; those beyond into are dropped
};

/// Each kind of event has its own sleepers, so that a message does not wake idle workers.
enum class Doorbell : std::uint32_t { messages, work };
/// A rank's doorbells, indexed by Doorbell.
using Bells = Bell[2];

/// What a user or a test wants to know about a transport (kasane info prints it).
struct Facts {
  std::string_view name;
  /// Must the target call progress() for reads, writes and atomics to complete?
  bool target_cpu_needed;
  /// Must the target call progress() for write and write_notify to complete? If so, a put is a message to the
  /// target's program.
  bool puts_need_target;
  /// May the owner use std::atomic on words that other ranks change by atomics? (rule 15)
  bool atomics_coherent_with_cpu;
  bool completes_inline;  ///< do read, write and atomics always return Post::done?
  /// do writes to one target become visible in the order posted? For information only
  bool ordered = false;
  bool pins_memory = false;  ///< does attach() pin the region's pages (rule 9)?
  /// 0: arrivals ring the doorbell. Else no arrival does, and this is the longest nap of sleep(messages) at
  /// present.
  std::int64_t poll_every_ns = 0;
  /// do bytes given to a reply arrive? An answer may come without them; false: all do
  bool answers_bring = false;
  /// What is underneath, e.g. "UCX 1.13.1: tcp/eth0"; lives as long as the transport.
  std::string_view detail = {};
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] virtual Facts facts() const noexcept = 0;

  /// Memory for region id of this rank, to be given to attach() with descriptor -1: zeros, from an OS page
  /// on, sparse. It lives as long as the process. All ranks make the same calls with the same sizes in one
  /// order. For regions that need no file of their own: on a host one mapping shows the memory of all its
  /// ranks.
  virtual Result<std::byte*> make_memory(RegionId id, std::size_t bytes);
  /// What make_memory() gave lives no longer than this object.
  virtual void limit_memory() noexcept {}
  /// Registers [local, local + bytes), which maps memfd fd from offset 0 or comes from make_memory(), as
  /// region id of this rank.
  /// Collective: returns when every rank's region id can be reached. All ranks give the same size.
  virtual Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) = 0;
  /// Where rank's region is mapped here, or null if it is not; own regions always are. Loads, stores and CPU
  /// atomics on it are then as good as the operations below.
  [[nodiscard]] virtual std::byte* mapped(Rank rank, RegionId id) const noexcept = 0;

  virtual Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept = 0;
  virtual Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept = 0;
  /// As write(), and then the 64-bit word at flag_offset (% 8 == 0) of the same rank and region becomes
  /// value: a thread that reads value there with acquire sees the bytes. The word is written whole. The
  /// cheapest way to pass data on: one cache line on a host if both share it.
  virtual Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset,
                            std::uint64_t value, Completion*) noexcept = 0;
  /// Atomic at the target, sequentially consistent among atomics on the same word (of the same width).
  /// *result, unless null, receives the old value, zero-extended. compare is used by compare_swap only.
  virtual Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare,
                      std::uint64_t* result, Completion*, Width = Width::eight) noexcept = 0;
  /// Done when every write and atomic that this rank posted before to target has completed.
  virtual Post fence(Rank target, Completion*) noexcept = 0;

  /// Before the first message can arrive: set all handlers, then a barrier.
  virtual void set_handler(HandlerId, Handler, void* context) noexcept = 0;
  /// One-way active message, also to this rank itself. The payload is copied before the call returns (done)
  /// or not at all (again).
  virtual Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept = 0;
  /// As send(), and one 64-bit answer comes back: Post::pending once sent (test() it), or again.
  virtual Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept = 0;
  /// Answers a request, from any thread, once. Never refused: the request reserved the answer's credit (rule
  /// 8).
  virtual void reply(ReplyToken, std::uint64_t value) noexcept = 0;
  /// As reply(), with at most kMaxAnswer bytes for PendingReply::into, which are copied before the call
  /// returns. A transport may leave the bytes out: the requester learns how many came.
  virtual void reply_with(ReplyToken token, std::uint64_t value,
                          std::span<const std::byte> /*bytes*/) noexcept {
    reply(token, value);
  }
  /// True exactly once, when the answer has come; then *value holds it and the slot is free.
  [[nodiscard]] virtual bool test(PendingReply&, std::uint64_t* value) noexcept = 0;

  /// Runs the handlers and completions of what has arrived. False if there was nothing, or if another thread
  /// runs them now.
  bool progress() noexcept {
    const bool any = poll();
    return run_poll_hook() || any;
  }
  /// The hook's part of progress() alone.
  bool run_poll_hook() noexcept { return poll_hook_ != nullptr && poll_hook_(poll_hook_context_); }
  /// Called by each progress(), for the one layer on top that has work of its own to move on (Engine). Called
  /// by any thread, also by several at once; must not wait. Set it before there are other threads.
  using PollHook = bool (*)(void* context) noexcept;
  void set_poll_hook(PollHook fn, void* context) noexcept {
    poll_hook_ = fn;
    poll_hook_context_ = context;
  }

  /// Tells rank `to` without a system call that a request was just sent to it: a thread there may look soon.
  /// For the one layer on top that knows what the ranks of this host are doing (sched). Set it before the
  /// first request.
  using Nudge = void (*)(void* context, Rank to) noexcept;
  virtual void set_nudge(Nudge fn, void* context) noexcept {
    nudge_ = fn;
    nudge_context_ = context;
  }

  /// Asks for a ring of the messages doorbell at the next arrival. False if something may have arrived
  /// already: make progress first. sleep(messages) calls it; a thread that sleeps elsewhere must call it
  /// before. Always true where arrivals ring anyway.
  virtual bool arm() noexcept { return true; }

  /// The number of events on this rank's doorbell so far. Read it, look for work, then sleep(): no wake-up is
  /// lost.
  [[nodiscard]] virtual std::uint32_t activity(Doorbell) const noexcept = 0;
  /// Sleeps until activity(d) != seen, or timeout_ns passed (< 0: no limit). May return early.
  virtual void sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept = 0;
  /// Adds an event to the doorbell of rank (also this one) and wakes its sleepers. Never blocks, never fails.
  virtual void wake(Rank rank, Doorbell d) noexcept = 0;

  /// Has the peer disappeared? What it had sent before may still arrive. The messages doorbell rings after
  /// the answer has become true. Never true where the transport notices no lost peers. Unlike the hook below
  /// it is also true for peers that said goodbye.
  [[nodiscard]] virtual bool lost(Rank) const noexcept { return false; }
  /// Called once for each peer that disappears, inside progress(); must not wait. Set it before the first
  /// message can arrive.
  using PeerLost = void (*)(void* context, Rank peer, std::string_view why) noexcept;
  virtual void set_peer_lost(PeerLost fn, void* context) noexcept {
    peer_lost_ = fn;
    peer_lost_context_ = context;
  }

  /// For waiting threads (comm/waiter.cpp): is sched_yield() still cheap here? relaxed, both: a hint.
  [[nodiscard]] bool yields_pay(std::uint64_t now) const noexcept {
    return now >= yields_from_ns_.load(std::memory_order_relaxed);
  }
  void no_yields_before(std::uint64_t ns) noexcept { yields_from_ns_.store(ns, std::memory_order_relaxed); }
  [[nodiscard]] Crowd& waiting_threads() noexcept { return waiting_threads_; }

 protected:
  Transport(Rank rank, std::uint32_t ranks) noexcept : rank_(rank), ranks_(ranks) {}
  /// The transport's own part of progress().
  virtual bool poll() noexcept = 0;
  void report_lost(Rank peer, std::string_view why) const noexcept {
    if (peer_lost_ != nullptr) peer_lost_(peer_lost_context_, peer, why);
  }
  [[nodiscard]] bool can_nudge() const noexcept { return nudge_ != nullptr; }
  void nudge(Rank to) const noexcept { nudge_(nudge_context_, to); }

 private:
  Rank rank_;
  std::uint32_t ranks_;
  PollHook poll_hook_ = nullptr;
  void* poll_hook_context_ = nullptr;
  PeerLost peer_lost_ = nullptr;
  void* peer_lost_context_ = nullptr;
  Nudge nudge_ = nullptr;
  void* nudge_context_ = nullptr;
  std::atomic<std::uint64_t> yields_from_ns_{0};
  Crowd waiting_threads_;
};

}  // namespace kasane::comm
