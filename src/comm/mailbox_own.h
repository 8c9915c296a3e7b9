// SPDX-License-Identifier: Apache-2.0
// Messages of a rank to itself, for transports whose network does not carry them: slots that any thread
// claims and fills, in no order.
//
//   used: claimed      ready: filled, waits for its handler      neither: free
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
    for (std::uint32_t w = 0; w < kWords; ++w) {
      // relaxed: a guess, the compare-swap decides
      std::uint64_t bits = used_[w].load(std::memory_order_relaxed);
      while (bits != ~std::uint64_t{0}) {
        const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
        const std::uint64_t mask = std::uint64_t{1} << bit;
        // acquire: pairs with pop(): the handler has finished with the payload that is overwritten here.
        if (!used_[w].compare_exchange_weak(bits, bits | mask, std::memory_order_acquire,
                                            std::memory_order_relaxed))
          continue;
        OwnMessage& m = messages_[w * 64 + bit];
        m.handler = raw(handler);
        m.bytes = static_cast<std::uint32_t>(payload.size());
        m.slot = slot;
        m.stamp = stamp;
        if (!payload.empty()) std::memcpy(m.payload, payload.data(), payload.size());
        ready_[w].fetch_or(mask, std::memory_order_seq_cst);  // seq_cst: publishes the message; see empty()
        return true;
      }
    }
    return false;
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
    used_[taken_ / 64].fetch_and(~mask, std::memory_order_release);   // release: pairs with put()
  }

 private:
  static constexpr std::uint32_t kMessages = 256, kWords = kMessages / 64;
  std::array<std::atomic<std::uint64_t>, kWords> used_{}, ready_{};
  std::uint32_t turn_ = 0, taken_ = 0;  ///< used by the consumer only
  // not zeroed, so unused ones cost no DRAM
  std::unique_ptr<OwnMessage[]> messages_{new OwnMessage[kMessages]};
};

}  // namespace kasane::comm
