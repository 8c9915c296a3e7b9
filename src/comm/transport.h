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
// **Errors.** A region that is not attached, or an offset or size beyond it, is a bug of the caller: KASANE_CHECK. A peer that
// died ends the job through the supervisor, so no operation reports it yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace kasane::comm {

enum class RegionId : std::uint32_t {};
inline constexpr std::uint32_t kMaxRegions = 16;

/// A place in some rank's registered memory. Atomics need offset % 8 == 0.
struct RemoteAddr {
  Rank rank;
  RegionId region;
  std::uint64_t offset;
};

enum class [[nodiscard]] Post : std::uint8_t { done, pending, again };

struct Completion {
  void (*fn)(Completion*) noexcept = nullptr;
};

enum class AtomicOp : std::uint8_t { fetch_add, fetch_and, fetch_or, swap, compare_swap };

enum class HandlerId : std::uint32_t {};
inline constexpr std::uint32_t kMaxHandlers = 64;
/// Largest payload of an active message or request, in bytes.
inline constexpr std::size_t kMaxPayload = 3584;

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
  std::uint64_t stamp = 0;
};

/// What waits for what: each channel has its own sleepers, so that a message does not wake idle workers.
enum class Doorbell : std::uint32_t { messages, work };

/// What a user or a test wants to know about a transport (kasane info prints it).
struct Facts {
  std::string_view name;
  bool target_cpu_needed;        ///< must the target call progress() for read, write and atomics to complete?
  bool atomics_coherent_with_cpu;///< may the owner use std::atomic on words that others change by atomics? (rule 15)
  bool completes_inline;         ///< do read, write and atomics return Post::done always?
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] virtual Facts facts() const noexcept = 0;

  /// Registers [local, local + bytes), which maps memfd fd from offset 0, as region id of this rank.
  /// Collective: returns when every rank's region id can be reached. All ranks give the same size.
  virtual Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes) = 0;
  /// Where rank's region is mapped here, or null if it is not; own regions always are. Loads, stores and CPU atomics
  /// on it are then as good as the operations below.
  [[nodiscard]] virtual std::byte* mapped(Rank rank, RegionId id) const noexcept = 0;

  virtual Post read(RemoteAddr from, void* to, std::size_t bytes, Completion*) noexcept = 0;
  virtual Post write(RemoteAddr to, const void* from, std::size_t bytes, Completion*) noexcept = 0;
  /// 64-bit atomic at the target, sequentially consistent among atomics on the same word; *result receives the old value. compare is used by compare_swap only.
  virtual Post atomic(AtomicOp, RemoteAddr at, std::uint64_t operand, std::uint64_t compare, std::uint64_t* result, Completion*) noexcept = 0;
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
  /// True exactly once, when the answer has come; then *value holds it and the slot is free.
  [[nodiscard]] virtual bool test(PendingReply&, std::uint64_t* value) noexcept = 0;

  /// Runs what has arrived: handlers and completions. False if there was nothing (or another thread is at it).
  virtual bool progress() noexcept = 0;

  /// The number of events on this rank's doorbell so far. Read it, look for work, then sleep(): no wake-up is lost.
  [[nodiscard]] virtual std::uint32_t activity(Doorbell) const noexcept = 0;
  /// Sleeps until activity(d) != seen, or timeout_ns passed (< 0: no limit). May return early.
  virtual void sleep(Doorbell d, std::uint32_t seen, std::int64_t timeout_ns) noexcept = 0;
  /// Adds an event to the doorbell of rank (also oneself) and wakes its sleepers. Never blocks, never fails.
  virtual void wake(Rank rank, Doorbell d) noexcept = 0;

 protected:
  Transport(Rank rank, std::uint32_t ranks) noexcept : rank_(rank), ranks_(ranks) {}

 private:
  Rank rank_;
  std::uint32_t ranks_;
};

}  // namespace kasane::comm
