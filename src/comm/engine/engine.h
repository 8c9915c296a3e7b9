// SPDX-License-Identifier: Apache-2.0
// The communication engine: every operation of comm as one asynchronous, thread-safe call that never waits.
// After Endo, "distributed shared memory and user-level threads …" (thesis, 2017), §4.3 and §4.4.
//
//   try_read_async(params) ─ mapped here? ──────────── yes ─▶ loads and stores, callback, true      (no request, no queue, no lock)
//                          └ no ─ direct ──▶ Transport, by the caller ─▶ progress() of any thread ─▶ callback
//                               └ offload ─▶ command ring ─▶ executor: packs and posts ─▶ completer: polls ─▶ callback
//
// **What every try_*_async promises.** false: a queue is full and nothing happened; try again later (nothing is dropped, nothing waits).
// true: accepted; on_complete runs exactly once, on whichever thread completes it, perhaps before the call returns. Wrong
// arguments (a region that is not attached, a range beyond it, an unaligned atomic) are accepted too and complete at once with Status::refused, before
// anything is sent; explain_refusal() says why. A lost peer completes with Status::peer_lost.
// Buffers and result words stay valid until on_complete; params, pieces, strides and payloads may go when the call has returned.
//
// **Order.** None, between any two operations, unless one is posted after the completion of the other; write_notify orders its own two parts;
// flush(rank) completes when everything that this rank posted to rank before it has completed. Completion of a write means remote completion.
//
// **Thread safety.** Every call from any thread, from callbacks and from handlers (none of them waits). A callback runs outside all locks of the engine and may
// post; it must not wait. Local addresses lie in regions that this rank attached (offsets, as §4.3.1: no registration on the way).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/operations.h"

namespace kasane::comm {

/// Handlers from here to kMaxHandlers - 1 are the engine's own.
inline constexpr std::uint32_t kFirstEngineHandler = 48;

enum class Mode : std::uint8_t { direct, offload, automatic };

struct EngineOptions {
  Mode mode = Mode::automatic;         ///< automatic: offload only where a core is idle and the path is a network
  std::uint32_t executors = 1;         ///< offload: threads that issue, each with a ring of its own
  bool separate_completer = false;     ///< offload: completions on a thread of their own, else on the executor's
  std::uint32_t ring_commands = 1024;  ///< offload: capacity of a ring, a power of two, at least 2
  std::uint32_t operations = 4096;     ///< outstanding operations that are not inline, at least 2; more: false
  std::size_t pack_below = 512;        ///< network writes and reads up to this many bytes may share a message; 0: never
};

class Engine {
 public:
  /// One engine a transport; create it on every rank before the transport's first message. Regions are attached through the engine.
  static Result<std::unique_ptr<Engine>> create(Transport&, const EngineOptions& = {});
  ~Engine();   ///< after everything has completed (flush) and a barrier

  /// Transport::attach, and decides once, for each peer, the path of this region.
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes);

  [[nodiscard]] bool try_read_async(const ReadParams&) noexcept;
  [[nodiscard]] bool try_write_async(const WriteParams&) noexcept;
  [[nodiscard]] bool try_write_notify_async(const WriteNotifyParams&) noexcept;
  [[nodiscard]] bool try_read_strided_async(const StridedParams&) noexcept;
  [[nodiscard]] bool try_write_strided_async(const StridedParams&) noexcept;
  [[nodiscard]] bool try_read_vector_async(const VectorParams&) noexcept;
  [[nodiscard]] bool try_write_vector_async(const VectorParams&) noexcept;
  [[nodiscard]] bool try_copy_async(const CopyParams&) noexcept;
  [[nodiscard]] bool try_atomic_async(const AtomicParams&) noexcept;
  [[nodiscard]] bool try_accumulate_async(const AccumulateParams&) noexcept;
  [[nodiscard]] bool try_send_async(const SendParams&) noexcept;
  [[nodiscard]] bool try_send_long_async(const SendLongParams&) noexcept;
  [[nodiscard]] bool try_request_async(const RequestParams&) noexcept;
  [[nodiscard]] bool try_flush_async(const FlushParams&) noexcept;

  /// The transport, whose progress() also moves the engine on (Transport::set_poll_hook), so that whoever waits by a Waiter completes operations;
  /// in offload mode the engine's own threads do it too, and sleep when there is nothing.
  [[nodiscard]] Transport& transport() const noexcept;
  [[nodiscard]] Mode mode() const noexcept;   ///< direct or offload: what automatic came to
  /// Why the last operation that this thread posted was refused.
  [[nodiscard]] static const std::string& explain_refusal() noexcept;
};

}  // namespace kasane::comm
