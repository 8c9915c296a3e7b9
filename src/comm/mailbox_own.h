// SPDX-License-Identifier: Apache-2.0
// Messages of a rank to itself, for transports whose network does not carry them: slots that any thread
// claims and fills, in no order.
//
//   free_ ── put() ─▶ filled, ready, waits for its handler ── pop() ─▶ free_
//
// Thread safety: put(), empty(): any thread, also a fault handler that interrupted put(). front(), pop(): one
// thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "comm/index_pool.h"
#include "comm/transport.h"

namespace kasane::comm {

struct OwnMessage {
  std::uint32_t handler, bytes, slot;  ///< slot, stamp: of a request
  std::uint64_t stamp;
  alignas(8) std::byte payload[kMaxPayload];
};

class OwnMessages {
 public:
  /// Copies the message into a slot; false if all are in use.
  bool put(HandlerId handler, std::span<const std::byte> payload, std::uint32_t slot,
           std::uint64_t stamp) noexcept {
    // The handler has finished with the payload that is overwritten here: take() pairs with pop()'s put().
    const std::uint32_t free = free_.take();
    if (free == IndexPool<>::kNone) return false;
    OwnMessage& m = messages_[free];
    m.handler = raw(handler);
    m.bytes = static_cast<std::uint32_t>(payload.size());
    m.slot = slot;
    m.stamp = stamp;
    if (!payload.empty()) std::memcpy(m.payload, payload.data(), payload.size());
    // seq_cst: publishes the message; see empty()
    ready_[free / 64].fetch_or(std::uint64_t{1} << free % 64, std::memory_order_seq_cst);
    return true;
  }

  [[nodiscard]] bool empty() const noexcept {
    // seq_cst: a thread that has left the transport's gate looks here afterwards.
    return std::all_of(ready_.begin(), ready_.end(),
                       [](const auto& word) { return word.load(std::memory_order_seq_cst) == 0; });
  }
  /// A message, or null; it stays in place until pop(). Each call starts at the next word, so no message
  /// starves.
  const OwnMessage* front() noexcept {
    for (std::uint32_t i = 0; i < kWords; ++i) {
      const std::uint32_t w = (turn_ + i) % kWords;
      const std::uint64_t bits = ready_[w].load(std::memory_order_acquire);  // acquire: pairs with put()
      if (bits == 0) continue;
      taken_ = w * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      turn_ = w + 1;
      return &messages_[taken_];
    }
    return nullptr;
  }
  /// Frees the slot of the last front().
  void pop() noexcept {
    const std::uint64_t mask = std::uint64_t{1} << taken_ % 64;
    ready_[taken_ / 64].fetch_and(~mask, std::memory_order_seq_cst);  // seq_cst: see empty()
    free_.put(taken_);
  }

 private:
  static constexpr std::uint32_t kMessages = 256, kWords = kMessages / 64;
  IndexPool<> free_{kMessages};
  std::array<std::atomic<std::uint64_t>, kWords> ready_{};
  std::uint32_t turn_ = 0, taken_ = 0;  ///< used by the consumer only
  // not zeroed, so unused ones cost no DRAM
  std::unique_ptr<OwnMessage[]> messages_{new OwnMessage[kMessages]};
};

}  // namespace kasane::comm
