// SPDX-License-Identifier: Apache-2.0
// The contract every transport keeps, written before the variants.
//
// A transport joins the ranks of one job. Each rank attaches memory *regions* (the same ids in the same order on every
// rank); remote memory is named by (rank, region, offset), never by an address. One-sided operations (read, write,
// atomics) need no cooperation of the target's program; active messages run a handler in the target's progress().
//
// **Order.** Nothing orders two operations of one rank, not even to the same target, except: an operation that has
// *completed* is visible to every operation posted afterwards by anybody who learnt of the completion. fence(r) completes
// all writes and atomics that this rank posted to r. Messages may overtake each other and everything else.
//
// **Completion.** Post::done: finished before the call returned; the Completion is not called. Post::pending: fn runs
// exactly once, later, inside some thread's progress(). Post::again: a local queue is full and nothing happened; call
// progress() and try again. Buffers must stay valid until completion; a write has completed when the bytes are in the target's memory.
//
// **Thread safety.** Every call from any thread of the rank, also from a fault handler on an alternate stack: no call
// allocates, logs or takes a lock that is held across a wait. Handlers and completions run inside progress(), must not block, and
// may post operations, send() and reply() — but not wait for them.
//
// **Errors.** A region that is not attached, or an offset or size beyond it, is a bug of the caller: KASANE_CHECK (Engine, which stands on this,
// refuses it politely). A peer that disappears completes what was posted to it, and what is posted later, with
// Status::peer_lost, and the peer-lost hook is called once with its rank and what the network said. On one host the supervisor ends the job first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bell.h"
#include "base/ids.h"
#include "base/result.h"

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
  Status status = Status::ok;   ///< set before fn runs
};

enum class AtomicOp : std::uint8_t { fetch_add, fetch_and, fetch_or, fetch_xor, swap, compare_swap };
/// Bytes that an atomic works on; its offset is a multiple of it.
enum class Width : std::uint8_t { four = 4, eight = 8 };

enum class HandlerId : std::uint32_t {};
inline constexpr std::uint32_t kMaxHandlers = 64;
/// Largest payload of an active message or request, in bytes.
inline constexpr std::size_t kMaxPayload = 3584;

/// Most bytes that an answer brings along.
inline constexpr std::size_t kMaxAnswer = 4096;

/// Names one outstanding request at the responder; plain data, may be kept after the handler returned.
struct ReplyToken {
  Rank requester;
  std::uint32_t slot;
  std::uint64_t stamp;
};

/// A message as its handler sees it. The payload is valid until the handler returns; its alignment is 8.
struct Message {
  Rank from;
  std::span<const std::byte> payload;
  ReplyToken token;   ///< meaningful in handlers reached by request() only
};
using Handler = void (*)(void* context, const Message&) noexcept;

/// One outstanding request at the requester. Destroy only after test() returned true.
struct PendingReply {
  std::uint32_t slot = 0;
  Status status = Status::ok;   ///< after test(): peer_lost if no answer can come any more
  std::uint64_t stamp = 0;
  /// Set before request() by who will call test() again and again until the answer is there: so long no doorbell need ring, neither for the request, if a nudge
  /// can tell the target of it (Transport::set_nudge), nor for the answer. 0: they ring at once. Transports may ignore it.
  std::uint32_t doorbell_delay_ns = 0;
  Rank to = kNoRank;            ///< the rank that was asked; set by request()
  std::uint64_t ring_at_ns = 0;   ///< when test() ends the patience and rings that rank's doorbell; 0: it rang at once
  /// Where bytes that the answer brings along go; set before request(), by who can do without them (Facts::answers_bring). They are written in test().
  std::span<std::byte> into{};
  std::size_t brought = 0;      ///< after test(): how many came; those beyond into are dropped
};

/// What waits for what: each channel has its own sleepers, so that a message does not wake idle workers.
enum class Doorbell : std::uint32_t { messages, work };
/// A rank's, indexed by Doorbell.
using Bells = Bell[2];

/// What a user or a test wants to know about a transport (kasane info prints it).
struct Facts {
  std::string_view name;
  bool target_cpu_needed;        ///< must the target call progress() for read, write and atomics to complete?
  bool puts_need_target;         ///< … for write and write_notify? Atomics and reads aside; then a put is a message to a program anyway
  bool atomics_coherent_with_cpu;///< may the owner use std::atomic on words that others change by atomics? (rule 15)
  bool completes_inline;         ///< do read, write and atomics return Post::done always?
  bool ordered = false;          ///< do writes to one target become visible in the order posted? Nobody may rely on it; good to know
  bool pins_memory = false;      ///< does attach() pin the region's pages (rule 9)?
  std::int64_t poll_every_ns = 0;///< 0: arrivals ring the doorbell; else how long sleep(messages) naps at most, as things are now, since nothing announces them
  bool answers_bring = false;    ///< do bytes that are given to a reply arrive? Each answer may come without; false: all do
  std::string_view detail = {};  ///< what is underneath, e.g. "UCX 1.13.1: tcp/eth0"; lives as long as the transport
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
  /// order. For whatever needs no file of its own: on a host one mapping shows the memory of all its ranks.
  virtual Result<std::byte*> make_memory(RegionId id, std::size_t bytes);
  /// Registers [local, local + bytes), which maps memfd fd from offset 0 or comes from make_memory(), as
  /// region id of this rank.
  /// Collective: returns when every rank's region id can be reached. All ranks give the same size.
  virtual Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) = 0;
  /// Where rank's region is mapped here, or null if it is not; own regions always are. Loads, stores and CPU atomics
  /// on it are then as good as the operations below.
  [[nodiscard]] virtual std::byte* mapped(Rank rank, RegionId id) const noexcept = 0;

  virtual Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept = 0;
  virtual Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept = 0;
  /// As write(), and then the 64-bit word at flag_offset (% 8 == 0) of the same rank and region becomes value: whoever reads value there with
  /// acquire sees the bytes. The word is written whole. The cheapest way to pass data on: one line on a host if both share it.
  virtual Post write_notify(RemoteAddr to, const void* from, std::size_t bytes, std::uint64_t flag_offset, std::uint64_t value, Completion*) noexcept = 0;
  /// Atomic at the target, sequentially consistent among atomics on the same word (of the same width). *result, unless null, receives the old
  /// value, zero-extended. compare is used by compare_swap only.
  virtual Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result, Completion*,
                      Width = Width::eight) noexcept = 0;
  /// Done when every write and atomic this rank posted before to target has completed.
  virtual Post fence(Rank target, Completion*) noexcept = 0;

  /// Before the first message can arrive: set all handlers, then a barrier.
  virtual void set_handler(HandlerId, Handler, void* context) noexcept = 0;
  /// One-way active message; to oneself is allowed. The payload is copied before the call returns (done) or not at all (again).
  virtual Post send(Rank to, HandlerId, std::span<const std::byte> payload) noexcept = 0;
  /// As send(), and one 64-bit answer comes back: Post::pending once sent (test() it), or again.
  virtual Post request(Rank to, HandlerId, std::span<const std::byte> payload, PendingReply&) noexcept = 0;
  /// Answers a request, from any thread, once. Never again: its credit was reserved by the request (rule 8).
  virtual void reply(ReplyToken, std::uint64_t value) noexcept = 0;
  /// The same with at most kMaxAnswer bytes, copied before the call returns, for PendingReply::into. They may be left out: the requester learns how many came.
  virtual void reply_with(ReplyToken token, std::uint64_t value, std::span<const std::byte> /*bytes*/) noexcept { reply(token, value); }
  /// True exactly once, when the answer has come; then *value holds it and the slot is free.
  [[nodiscard]] virtual bool test(PendingReply&, std::uint64_t* value) noexcept = 0;

  /// Runs what has arrived: handlers and completions. False if there was nothing (or another thread is at it).
  bool progress() noexcept {
    const bool any = poll();
    return run_poll_hook() || any;
  }
  /// The hook's part of progress() alone.
  bool run_poll_hook() noexcept { return poll_hook_ != nullptr && poll_hook_(poll_hook_context_); }
  /// What else each progress() does: for the one layer on top that has work of its own to move on (Engine). Any thread, also several at once; must not
  /// wait. Set it before there are other threads.
  using PollHook = bool (*)(void* context) noexcept;
  void set_poll_hook(PollHook fn, void* context) noexcept {
    poll_hook_ = fn;
    poll_hook_context_ = context;
  }

  /// Tells rank `to` of a request that was just sent, without a system call: somebody there may look, and soon. For the one layer on top that knows what
  /// the ranks of this host are doing (sched). Set it before the first request.
  using Nudge = void (*)(void* context, Rank to) noexcept;
  virtual void set_nudge(Nudge fn, void* context) noexcept {
    nudge_ = fn;
    nudge_context_ = context;
  }

  /// Asks for a ring of the messages doorbell at the next arrival; false if something may be there already (make progress first).
  /// sleep(messages) does it by itself; who sleeps elsewhere calls this before. Always true where arrivals ring anyway.
  virtual bool arm() noexcept { return true; }

  /// The number of events on this rank's doorbell so far. Read it, look for work, then sleep(): no wake-up is lost.
  [[nodiscard]] virtual std::uint32_t activity(Doorbell) const noexcept = 0;
  /// Sleeps until activity(d) != seen, or timeout_ns passed (< 0: no limit). May return early.
  virtual void sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept = 0;
  /// Adds an event to the doorbell of rank (also oneself) and wakes its sleepers. Never blocks, never fails.
  virtual void wake(Rank rank, Doorbell d) noexcept = 0;

  /// Has peer disappeared? What it had sent before may still arrive. The messages doorbell rings after the answer has become true; never true where the
  /// transport notices no lost peers. Unlike the hook below it tells of those too that said goodbye.
  [[nodiscard]] virtual bool lost(Rank) const noexcept { return false; }
  /// Called once for each peer that disappears, inside progress(); must not wait. Set it before the first message can arrive.
  using PeerLost = void (*)(void* context, Rank peer, std::string_view why) noexcept;
  virtual void set_peer_lost(PeerLost fn, void* context) noexcept {
    peer_lost_ = fn;
    peer_lost_context_ = context;
  }

  /// For who waits (comm/waiter.cpp): does giving the core away still cost little here?
  [[nodiscard]] bool yields_pay(std::uint64_t now) const noexcept { return now >= yields_from_ns_.load(std::memory_order_relaxed); }   // relaxed, both: a hint
  void no_yields_before(std::uint64_t ns) noexcept { yields_from_ns_.store(ns, std::memory_order_relaxed); }

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
};

}  // namespace kasane::comm
