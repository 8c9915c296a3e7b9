// SPDX-License-Identifier: Apache-2.0
// The communication engine: every operation of comm as one asynchronous, thread-safe call that never waits.
// After Endo, "distributed shared memory and user-level threads …" (thesis, 2017), §4.3 and §4.4.
//
//   try_read_async(params) ─ mapped here? ─ yes ─▶ loads, stores, callback   (no request, queue, lock)
//                          └ no ─ direct ──▶ Transport, by the caller ─▶ progress() of any thread ─▶ callback
//                               └ offload ─▶ command ring ─▶ executor: packs and posts, polls ─▶ callback
//
// **What every try_*_async promises.** false: a queue is full and nothing happened; try again later (nothing
// is dropped, nothing waits). true: accepted. on_complete runs exactly once, on the thread that completes the
// operation, perhaps before the call returns. Wrong arguments (a region that is not attached, a range beyond
// it, an unaligned atomic) are accepted too and complete at once with Status::refused, before anything is
// sent; explain_refusal() gives the reason. An operation towards a lost peer completes with
// Status::peer_lost. Where the target is mapped (transport().mapped() is not null; atomics: and coherent with
// the CPU's) reads, writes and atomics have completed when the call returns true: then no callback is needed.
// Buffers and result words must stay valid until on_complete; params, pieces, strides and payloads only until
// the call has returned.
//
// **Order.** None between any two operations, unless one is posted after the completion of the other.
// write_notify orders its own two parts. flush(rank) completes when everything that this rank posted to rank
// before it has completed. Completion of a write means remote completion.
//
// **Thread safety.** Every call from any thread, from callbacks and from handlers. No call waits, with one
// exception: an accumulate, where it is executed (here if mapped, else in the owner's progress()), spins
// while another thread adds to the same 4 KiB. So a handler of a signal or fault that may have interrupted an
// accumulate must not post one. A callback runs outside all locks of the engine and may post; it must not
// wait. Local addresses lie in regions that this rank attached (offsets, as §4.3.1: no registration per
// operation), or in private memory (kPrivateMemory), which the network may have to register or copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/copy.h"
#include "comm/cpu_atomic.h"
#include "comm/operations.h"

namespace kasane::comm {

/// Handlers from here to kMaxHandlers - 1 are the engine's own.
inline constexpr std::uint32_t kFirstEngineHandler = 48;
/// The engine attaches this region itself: the locks of accumulate. Operations on it are refused.
inline constexpr RegionId kLockRegion{kMaxRegions - 1};

/// The thread that issues operations that go over a network: the caller, or the engine's executor
/// (comm/offload).
enum class Mode : std::uint8_t { direct, offload };

struct EngineOptions {
  Mode mode = Mode::direct;
  /// offload: capacity of the ring, a power of two, at least 2; with operations: see create()
  std::uint32_t ring_commands = 1024;
  /// outstanding operations that are not inline, 2 … 16384, and as many of several steps; more: false
  std::uint32_t operations = 4096;
  /// outstanding messages that carry pieces of several operations, at least 1
  std::uint32_t packs = 64;
  /// outstanding operations whose pieces, head or payload had to be copied (kMaxPayload bytes each), at least
  /// 1
  std::uint32_t argument_buffers = 64;
  /// network writes and reads up to this many bytes may share a message; 0: never
  std::size_t pack_below = 512;
};

struct Bounds;

class Engine {
 public:
  class Core;

  /// One engine a transport; create it on every rank before the transport's first message and before other
  /// threads make progress. Collective: it attaches kLockRegion. Regions are attached through the engine. In
  /// mode offload the executor makes progress from here on: set all handlers before.
  /// Errors: options without room to count (2 · operations + ring_commands + 1024 ≤ 57344 always does), no
  /// memory, no threads.
  static Result<std::unique_ptr<Engine>> create(Transport&, const EngineOptions& = {});
  ~Engine();  ///< after everything has completed (flush) and a barrier, when no other thread makes progress
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Transport::attach, and decides once, for each peer, the path of this region. Operations of this rank on
  /// it may follow once it has returned.
  Result<void> attach(RegionId id, int fd, std::byte* local, std::size_t bytes);

  // Where both ends are mapped, an operation is the copy itself, its bounds checks and the callback. Always
  // inline; params are copied for the path out of line, so that on this one they stay in registers: through
  // memory they cost 20 ns of a PingPong.
  [[nodiscard, gnu::always_inline]] bool try_read_async(const ReadParams& p) noexcept {
    const std::byte* from = mapped_at(p.from, p.bytes);
    std::byte* to = local_at(p.to, p.bytes);
    if (from == nullptr || to == nullptr) [[unlikely]]
      return read_slow(ReadParams(p));
    copy_in(to, from, p.bytes);
    return call(p.on_complete);
  }
  [[nodiscard, gnu::always_inline]] bool try_write_async(const WriteParams& p) noexcept {
    std::byte* to = mapped_at(p.to, p.bytes);
    const std::byte* from = local_at(p.from, p.bytes);
    if (from == nullptr || to == nullptr) [[unlikely]]
      return write_slow(WriteParams(p));
    copy_out(to, from, p.bytes);
    return call(p.on_complete);
  }
  [[nodiscard, gnu::always_inline]] bool try_write_notify_async(const WriteNotifyParams& p) noexcept {
    std::byte* to = mapped_at(p.to, p.bytes);
    std::byte* flag = mapped_at({p.to.rank, p.to.region, p.flag_offset}, 8);
    const std::byte* from = local_at(p.from, p.bytes);
    if (from == nullptr || to == nullptr || flag == nullptr || p.flag_offset % 8 != 0) [[unlikely]]
      return write_notify_slow(WriteNotifyParams(p));
    // Next to each other, so that the cache line is still held when the flag is stored.
    copy_bytes(to, from, p.bytes);
    // release: a thread that acquires the flag sees the bytes.
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(flag))
        .store(p.value, std::memory_order_release);
    return call(p.on_complete);
  }
  [[nodiscard, gnu::always_inline]] bool try_atomic_async(const AtomicParams& p) noexcept {
    const auto bytes = static_cast<std::size_t>(p.width);
    std::byte* at = mapped_at(p.at, bytes);
    if (at == nullptr || !cpu_atomics_ || (bytes != 8 && bytes != 4) || p.at.offset % bytes != 0) [[unlikely]]
      return atomic_slow(AtomicParams(p));
    const std::uint64_t old = cpu_atomic(p.op, p.width, at, p.operand, p.compare);
    if (p.result != nullptr) *p.result = old;
    return call(p.on_complete);
  }
  [[nodiscard]] bool try_read_strided_async(const StridedParams&) noexcept;
  [[nodiscard]] bool try_write_strided_async(const StridedParams&) noexcept;
  /// try_read_vector_async(), try_write_vector_async(): over a network more than 149 pieces cost an mmap
  [[nodiscard]] bool try_read_vector_async(const VectorParams&) noexcept;
  [[nodiscard]] bool try_write_vector_async(const VectorParams&) noexcept;
  /// flush: counts towards to.rank; to this rank: from.rank
  [[nodiscard]] bool try_copy_async(const CopyParams&) noexcept;
  [[nodiscard]] bool try_accumulate_async(const AccumulateParams&) noexcept;
  /// Accumulates contiguous elements at once; y is `to` as it is mapped here. False: the locks of to's rank
  /// are not mapped here, and nothing happened. Both sides are aligned to the element's part.
  [[nodiscard]] bool accumulate_here(RemoteAddr to, std::byte* y, const std::byte* x, std::size_t bytes,
                                     Element, std::complex<double> scale) noexcept;
  [[nodiscard]] bool try_send_async(const SendParams&) noexcept;
  [[nodiscard]] bool try_request_async(const RequestParams&) noexcept;
  [[nodiscard]] bool try_flush_async(const FlushParams&) noexcept;

  /// The transport. Its progress() also advances the engine (Transport::set_poll_hook), so that a thread that
  /// waits through a Waiter completes operations; in offload mode the executor does so, too, and sleeps when
  /// there is nothing.
  [[nodiscard]] Transport& transport() const noexcept { return transport_; }
  [[nodiscard]] Mode mode() const noexcept { return mode_; }
  /// Why the last refused operation of this thread was refused.
  [[nodiscard]] static const std::string& explain_refusal() noexcept;

 private:
  friend class Core;
  /// One region of one rank. bytes is 0 where it is not mapped.
  struct Path {
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::byte*> base{nullptr};
  };

  Engine(Transport&, const EngineOptions&);

  /// Null: not mapped here, or not within its region, or empty and not mapped.
  [[nodiscard, gnu::always_inline]] std::byte* mapped_at(RemoteAddr at, std::size_t bytes) const noexcept {
    if (raw(at.rank) >= ranks_ || raw(at.region) >= kMaxRegions) [[unlikely]]
      return nullptr;
    return within(paths_[raw(at.rank) * kMaxRegions + raw(at.region)], at.offset, bytes);
  }
  [[nodiscard, gnu::always_inline]] std::byte* local_at(LocalAddr at, std::size_t bytes) const noexcept {
    // Private memory: not checked, as any pointer.
    return at.region == kPrivateMemory ? reinterpret_cast<std::byte*>(at.offset) : registered_at(at, bytes);
  }
  /// For addresses in messages of other ranks: never private memory.
  [[nodiscard, gnu::always_inline]] std::byte* registered_at(LocalAddr at, std::size_t bytes) const noexcept {
    return raw(at.region) >= kMaxRegions ? nullptr : within(own_paths_[raw(at.region)], at.offset, bytes);
  }
  [[gnu::always_inline]] static std::byte* within(const Path& path, std::uint64_t offset,
                                                  std::size_t bytes) noexcept {
    // acquire: pairs with attach(), which sets base first
    const std::uint64_t size = path.bytes.load(std::memory_order_acquire);
    if (bytes > size || offset > size - bytes) [[unlikely]]
      return nullptr;
    // relaxed: ordered by bytes. Not mapped: null, at 0 of 0
    return path.base.load(std::memory_order_relaxed) + offset;
  }
  [[gnu::always_inline]] static bool call(const Callback& c) noexcept {
    if (c.fn != nullptr) c.fn(c.context, Status::ok);
    return true;
  }

  [[gnu::noinline]] bool read_slow(const ReadParams&) noexcept;
  [[gnu::noinline]] bool write_slow(const WriteParams&) noexcept;
  [[gnu::noinline]] bool write_notify_slow(const WriteNotifyParams&) noexcept;
  [[gnu::noinline]] bool atomic_slow(const AtomicParams&) noexcept;
  bool strided(const StridedParams&, bool reads) noexcept;
  bool vector(const VectorParams&, bool reads) noexcept;
  static void publish(Path&, std::byte* base, std::size_t bytes) noexcept;
  [[nodiscard]] Bounds bounds() const noexcept;

  Transport& transport_;
  std::uint32_t ranks_;
  Rank me_;
  bool cpu_atomics_;
  Mode mode_;
  std::unique_ptr<Path[]> paths_;  ///< by rank, then region
  Path* own_paths_;                ///< of this rank
  std::unique_ptr<Core> core_;
};

}  // namespace kasane::comm
