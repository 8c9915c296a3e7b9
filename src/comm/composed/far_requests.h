// SPDX-License-Identifier: Apache-2.0
// The outstanding requests of the network part, by number.
//
// An entry is claimed before its request is sent and given back when test() has taken the answer. In between it belongs to the network part, which
// fills it before the message leaves, and to whoever tests it (one thread at a time, as the contract says).
//
// Thread safety: claim(), release() from any thread, lock-free. Invariant: bit i of used_ is set while entry i has an owner.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "comm/transport.h"

namespace kasane::comm::composed {

class FarRequests {
 public:
  static constexpr std::uint32_t kEntries = 1024;

  /// The number of an entry that is now the caller's; empty if all are in use.
  std::optional<std::uint32_t> claim() noexcept {
    for (std::uint32_t w = 0; w < used_.size(); ++w) {
      std::uint64_t bits = used_[w].load(std::memory_order_relaxed);  // relaxed: a guess, the compare-swap decides
      while (bits != ~std::uint64_t{0}) {
        const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
        // acquire: pairs with release(), so the entry's last user has finished with it.
        if (used_[w].compare_exchange_weak(bits, bits | std::uint64_t{1} << bit, std::memory_order_acquire, std::memory_order_relaxed)) {
          return w * 64 + bit;
        }
      }
    }
    return std::nullopt;
  }

  void release(std::uint32_t entry) noexcept {
    // release: pairs with claim().
    used_[entry / 64].fetch_and(~(std::uint64_t{1} << entry % 64), std::memory_order_release);
  }

  [[nodiscard]] PendingReply& operator[](std::uint32_t entry) noexcept { return entries_[entry]; }

 private:
  std::array<std::atomic<std::uint64_t>, kEntries / 64> used_{};
  std::array<PendingReply, kEntries> entries_{};
};

}  // namespace kasane::comm::composed
