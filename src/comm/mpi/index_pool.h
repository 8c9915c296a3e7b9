// SPDX-License-Identifier: Apache-2.0
// Hands out the numbers 0 … count-1, each to one holder at a time. Thread safety: any thread, lock-free, also in a fault handler.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace kasane::comm::mpi {

class IndexPool {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  explicit IndexPool(std::uint32_t count) : words_((count + 63) / 64), used_(new std::atomic<std::uint64_t>[words_]) {
    for (std::uint32_t w = 0; w < words_; ++w) used_[w].store(0, std::memory_order_relaxed);  // relaxed: nobody else has it yet
    const std::uint32_t last = count % 64;
    if (last != 0) used_[words_ - 1].store(~std::uint64_t{0} << last, std::memory_order_relaxed);  // relaxed: as above; not ours to give
  }

  /// kNone if all are held.
  [[nodiscard]] std::uint32_t claim() noexcept {
    for (std::uint32_t w = 0; w < words_; ++w) {
      std::uint64_t bits = used_[w].load(std::memory_order_relaxed);  // relaxed: only a guess, the compare-swap decides
      while (bits != ~std::uint64_t{0}) {
        const auto bit = static_cast<std::uint32_t>(std::countr_one(bits));
        // acquire: pairs with release(), so the last holder has finished with it.
        if (used_[w].compare_exchange_weak(bits, bits | std::uint64_t{1} << bit, std::memory_order_acquire, std::memory_order_relaxed)) {
          return w * 64 + bit;
        }
      }
    }
    return kNone;
  }

  void release(std::uint32_t index) noexcept {
    // release: the holder's use is over before the next claim.
    used_[index / 64].fetch_and(~(std::uint64_t{1} << index % 64), std::memory_order_release);
  }

 private:
  std::uint32_t words_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> used_;
};

}  // namespace kasane::comm::mpi
