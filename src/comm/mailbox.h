// SPDX-License-Identifier: Apache-2.0
// What every transport needs to receive messages and to find memory, once for all of them: the table of
// handlers, the table of attached regions, the operations of a rank on its own memory, and the checks of
// arguments. Each transport adds how bytes travel.
//
//   attach()            ─▶ may_attach(), [the ranks exchange what they need], new_region(), publish()
//   read, write, …      ─▶ checked() or here()      if it is mapped here ─▶ read_here(), write_here(), …
//   [a message arrives] ─▶ run_handler()
//
// Thread safety: may_attach(), new_region(), publish() and set_handler(): one thread, at start. The rest: any
// thread, also a fault handler.
// Invariants: a region's bases do not change once its size is published; a handler runs only after its
// arguments were checked.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"
#include "comm/copy.h"
#include "comm/cpu_atomic.h"
#include "comm/transport.h"

namespace kasane::comm {

/// A region of the job, as one rank sees it.
struct AttachedRegion {
  std::atomic<std::size_t> bytes{0};  ///< 0: not attached. Published last.
  std::vector<std::byte*> base;       ///< by rank; null: not mapped here
};
using AttachedRegions = std::array<AttachedRegion, kMaxRegions>;

/// A transport with these tables; the base class of all transports that move bytes themselves.
class MailboxTransport : public Transport {
 public:
  [[nodiscard]] std::byte* mapped(Rank r, RegionId id) const noexcept final {
    KASANE_CHECK_OP(raw(r), <, ranks());
    KASANE_CHECK_OP(raw(id), <, kMaxRegions);
    const AttachedRegion& region = regions_[raw(id)];
    // acquire: pairs with publish().
    return region.bytes.load(std::memory_order_acquire) == 0 ? nullptr : region.base[raw(r)];
  }
  void set_handler(HandlerId id, Handler fn, void* context) noexcept final {
    KASANE_CHECK_OP(raw(id), <, kMaxHandlers);
    handlers_[raw(id)] = {fn, context};
  }
  [[nodiscard]] std::uint32_t activity(Doorbell d) const noexcept final { return bells_[raw(d)].activity(); }

  /// This rank's doorbells.
  [[nodiscard]] Bells& bells() const noexcept { return bells_; }

 protected:
  /// bells: this rank's doorbells; they outlive the transport.
  MailboxTransport(Rank rank, std::uint32_t ranks, Bells& bells) noexcept
      : Transport(rank, ranks), bells_(bells) {}

  [[nodiscard]] bool own(Rank r) const noexcept { return r == rank(); }
  void ring_messages() noexcept { bells_[raw(Doorbell::messages)].ring(); }

  // ---- regions

  [[nodiscard]] const AttachedRegions& regions() const noexcept { return regions_; }
  /// Are these arguments of attach() valid, and is id free?
  [[nodiscard]] Result<void> may_attach(RegionId id, const std::byte* local, std::size_t bytes) const;
  /// The bases of region id, null for all ranks but this one. Complete them before publish().
  std::vector<std::byte*>& new_region(RegionId id, std::byte* local);
  /// From now on the region is attached here.
  void publish(RegionId id, std::size_t bytes) noexcept {
    // release: a thread that sees the size sees the bases.
    regions_[raw(id)].bytes.store(bytes, std::memory_order_release);
  }

  /// The region of `at`. It is attached and contains [at.offset, at.offset + bytes): else the caller has a
  /// bug.
  [[nodiscard]] const AttachedRegion& checked(const RemoteAddr& at, std::size_t bytes) const noexcept {
    KASANE_CHECK_OP(raw(at.rank), <, ranks());
    KASANE_CHECK_OP(raw(at.region), <, kMaxRegions);
    const AttachedRegion& region = regions_[raw(at.region)];
    const std::size_t size = region.bytes.load(std::memory_order_acquire);  // acquire: pairs with publish()
    KASANE_CHECK(size != 0, "the region is not attached");
    KASANE_CHECK_OP(at.offset, <=, size);
    KASANE_CHECK_OP(bytes, <=, size - at.offset);
    return region;
  }
  /// The place that `at` names, but in this rank's own memory, whichever rank `at` names: regions have one
  /// size on all ranks.
  [[nodiscard]] std::byte* here(const RemoteAddr& at, std::size_t bytes) const noexcept {
    return checked(at, bytes).base[raw(rank())] + at.offset;
  }

  // ---- operations on memory that is mapped here; all are done when they return

  static Post read_here(void* to, const std::byte* from, std::size_t bytes) noexcept {
    copy_in(static_cast<std::byte*>(to), from, bytes);
    return Post::done;
  }
  static Post write_here(std::byte* to, const void* from, std::size_t bytes) noexcept {
    copy_out(to, static_cast<const std::byte*>(from), bytes);
    return Post::done;
  }
  static void set_flag(std::byte* word, std::uint64_t value) noexcept {
    // release: a thread that acquires the flag sees the bytes.
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(word))
        .store(value, std::memory_order_release);
  }
  static Post write_notify_here(std::byte* to, const void* from, std::size_t bytes, std::byte* flag,
                                std::uint64_t value) noexcept {
    copy_bytes(to, static_cast<const std::byte*>(from), bytes);
    set_flag(flag, value);
    return Post::done;
  }
  static Post atomic_here(AtomicOp op, std::byte* at, std::uint64_t operand, std::uint64_t compare,
                          std::uint64_t* result, Width width) noexcept {
    const std::uint64_t old = cpu_atomic(op, width, at, operand, compare);
    if (result != nullptr) *result = old;
    return Post::done;
  }
  static void check_aligned(std::uint64_t offset, std::size_t bytes) noexcept {
    KASANE_CHECK_OP(offset % bytes, ==, 0u);
  }

  // ---- messages

  static void check_message(HandlerId id, std::span<const std::byte> payload) noexcept {
    KASANE_CHECK_OP(raw(id), <, kMaxHandlers);
    KASANE_CHECK_OP(payload.size(), <=, kMaxPayload);
  }
  /// The arguments come from another process, so they are checked before they are used as an index or a
  /// length.
  void run_handler(std::uint32_t name, std::uint32_t from, std::span<const std::byte> payload,
                   std::uint32_t slot, std::uint64_t stamp) const noexcept {
    check_message(HandlerId{name}, payload);
    KASANE_CHECK_OP(from, <, ranks());
    const HandlerEntry& handler = handlers_[name];
    KASANE_CHECK(handler.fn != nullptr, "a message for a handler that was never set");
    handler.fn(handler.context, Message{.from = Rank{from},
                                        .payload = payload,
                                        .token = {.requester = Rank{from}, .slot = slot, .stamp = stamp}});
  }

 private:
  struct HandlerEntry {
    Handler fn = nullptr;
    void* context = nullptr;
  };

  Bells& bells_;
  AttachedRegions regions_;
  std::array<HandlerEntry, kMaxHandlers> handlers_{};
};

}  // namespace kasane::comm
