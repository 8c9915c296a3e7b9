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

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/transport.h"

namespace kasane::comm {

struct LocalAddr {
  RegionId region;
  std::uint64_t offset;
};

struct Callback {
  void (*fn)(void* context, Status) noexcept = nullptr;   ///< null: nobody wants to know
  void* context = nullptr;
};

struct ReadParams {
  RemoteAddr from;
  LocalAddr to;
  std::size_t bytes;
  Callback on_complete;
};

struct WriteParams {
  RemoteAddr to;
  LocalAddr from;
  std::size_t bytes;
  Callback on_complete;
};

/// The bytes, then the word at flag_offset of the same rank and region becomes value (Transport::write_notify). bytes and flag in one 64-byte line of the
/// target travel as one line on a host.
struct WriteNotifyParams {
  RemoteAddr to;
  LocalAddr from;
  std::size_t bytes;
  std::uint64_t flag_offset;
  std::uint64_t value;
  Callback on_complete;
};

inline constexpr std::size_t kMaxDimensions = 8;
/// A patch: count[0] contiguous bytes, count[i] times at distances of stride[i-1] bytes (as ARMCI and GASNet-EX name it). dimensions = 1 is contiguous.
struct Strides {
  std::uint32_t dimensions = 1;
  std::uint64_t count[kMaxDimensions] = {};
  std::uint64_t remote_stride[kMaxDimensions - 1] = {};
  std::uint64_t local_stride[kMaxDimensions - 1] = {};
};
struct StridedParams {
  RemoteAddr remote;
  LocalAddr local;
  Strides shape;
  Callback on_complete;
};

struct Piece {
  std::uint64_t remote_offset, local_offset, bytes;
};
struct VectorParams {
  Rank rank;
  RegionId remote_region, local_region;
  std::span<const Piece> pieces;
  Callback on_complete;
};

/// Third-party copy (as acp_copy): the caller is neither source nor destination, or either.
struct CopyParams {
  RemoteAddr from, to;
  std::size_t bytes;
  Callback on_complete;
};

struct AtomicParams {
  AtomicOp op;
  Width width;
  RemoteAddr at;
  std::uint64_t operand;
  std::uint64_t compare = 0;          ///< compare_swap only
  std::uint64_t* result = nullptr;    ///< old value, zero-extended; null: not wanted, which is cheaper (add, and, or, xor)
  Callback on_complete;
};

enum class Element : std::uint8_t { int32, int64, float32, float64, complex64, complex128 };
[[nodiscard]] constexpr std::size_t element_bytes(Element e) noexcept {
  return e == Element::complex128 ? 16 : e == Element::int32 || e == Element::float32 ? 4 : 8;
}
/// y += a · x, element by element, atomic with respect to other accumulates of the same element type. Integers use the real part of scale, truncated.
struct AccumulateParams {
  RemoteAddr to;                      ///< y, aligned to its element (complex: to its part)
  LocalAddr from;                     ///< x
  Element element;
  std::complex<double> scale{1.0, 0.0};
  Strides shape;                      ///< in bytes; count[0] is a multiple of element_bytes
  Callback on_complete;
};

/// Active message, copied before the call returns: short and medium, up to kMaxPayload bytes. Handlers: Transport::set_handler, ids below kFirstEngineHandler.
struct SendParams {
  Rank to;
  HandlerId handler;
  std::span<const std::byte> payload;
  Callback on_complete;               ///< the payload may be reused; says nothing about the handler
};

/// Long active message: bytes go into `into` (a region posted for it), then the handler runs with LongHead and header as its payload.
struct LongHead {
  RegionId region;
  std::uint32_t header_bytes;
  std::uint64_t offset, bytes;
};
inline constexpr std::size_t kMaxLongHeader = 256;
struct SendLongParams {
  RemoteAddr into;
  LocalAddr from;
  std::size_t bytes;
  HandlerId handler;
  std::span<const std::byte> header;
  Callback on_complete;               ///< the bytes are there; says nothing about the handler
};

/// As SendParams, with one 64-bit answer (Transport::reply).
struct RequestParams {
  Rank to;
  HandlerId handler;
  std::span<const std::byte> payload;
  std::uint64_t* answer;
  Callback on_complete;
};

struct FlushParams {
  Rank rank;                          ///< kNoRank: all
  Callback on_complete;
};

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
