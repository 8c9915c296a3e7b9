// SPDX-License-Identifier: Apache-2.0
// Which places a check has reported already: a bounded set of numbers.
// Thread safety: everything from any thread, also in fault handlers; lock-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kasane::runtime {

template <std::size_t kMost>
class ReportedOnce {
 public:
  /// True once for each key other than 0, for the first kMost keys; later keys are not reported.
  bool first(std::uintptr_t key) noexcept {
    for (auto& slot : reported_) {
      // relaxed, here and below: a key says nothing about other memory.
      std::uintptr_t there = slot.load(std::memory_order_relaxed);
      if (there == 0 && slot.compare_exchange_strong(there, key, std::memory_order_relaxed)) return true;
      if (there == key) return false;
    }
    return false;
  }

 private:
  std::array<std::atomic<std::uintptr_t>, kMost> reported_{};
};

}  // namespace kasane::runtime
