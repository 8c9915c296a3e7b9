// SPDX-License-Identifier: Apache-2.0
// Decides which changed blocks of other ranks' pages are sent before a release, so that a rank that asks for
// a release does not wait for megabytes. A rank keeps the newest blocks up to a limit and sends the oldest
// (the write buffer of Kaxiras et al., Turning Centralized Coherence and Distributed Critical-Section
// Execution on their Head, 2015). What a program stores to again and again stays; what it has swept over
// leaves while it is in the processor's cache.
//
//   noted:  oldest [run][run] … [run] newest          sum of blocks > limit: the oldest are taken
//
// A block that was sent, and stored to again with no release between, was sent in vain and raises the limit.
// Each release lowers the limit a little towards the configured one. All of this is a heuristic: a block that
// is forgotten here goes with the next release, and one that is sent too early is sent twice.
//
// Thread safety: every call from any thread, also in a fault handler; a flag guards the runs for a few
// instructions.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "mem/block_table.h"

namespace kasane::dsm {

class WriteBuffer {
 public:
  /// blocks: to keep; 0: nothing is ever sent early.
  explicit WriteBuffer(std::uint64_t blocks) noexcept : least_(blocks), limit_(blocks) {}
  [[nodiscard]] bool on() const noexcept { return least_ != 0; }
  /// How many blocks are kept at the moment.
  // relaxed: a guess
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }

  /// These blocks are changed from now on.
  void note(mem::BlockRange run) noexcept {
    const Held held(*this);
    if (end_ - first_ == kRuns) forget(runs_[first_ % kRuns].count);  // it goes with the release
    runs_[end_++ % kRuns] = run;
    noted_ += run.count;
  }
  /// Moves the oldest blocks beyond the limit to `oldest`, as many as fit, if there are enough to be worth
  /// it; never one of the last `newest` blocks that were noted. Returns how many.
  std::size_t take(std::span<BlockId> oldest, std::uint64_t newest) noexcept {
    const Held held(*this);
    const std::uint64_t keep = std::max(limit(), newest);
    const std::uint64_t n = noted_ >= keep + std::min(kTogether, least_)
                                ? std::min<std::uint64_t>(noted_ - keep, oldest.size())
                                : 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      oldest[i] = runs_[first_ % kRuns].first;
      forget(1);
    }
    return n;
  }
  /// A release begins: it sends all that is changed.
  void released() noexcept {
    const Held held(*this);
    first_ = end_;
    noted_ = 0;
    // relaxed: a guess; the flag is held
    limit_.store(std::max<std::uint64_t>(least_, limit() - limit() / 16), std::memory_order_relaxed);
    rounds_.fetch_add(1, std::memory_order_relaxed);
  }

  /// b is sent before a release.
  // relaxed: a guess
  void sent(BlockId b) noexcept { sent_[place(b)].store(name(b), std::memory_order_relaxed); }
  /// b is stored to again. True: it was sent in vain.
  bool stored_again(BlockId b) noexcept {
    auto& word = sent_[place(b)];
    if (word.load(std::memory_order_relaxed) != name(b)) return false;
    word.store(0, std::memory_order_relaxed);
    limit_.fetch_add(2, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr std::uint64_t kRuns = 1024, kPlaces = 4096;
  static constexpr std::uint64_t kTogether = 16;  ///< blocks: fewer are not sent, unless the limit is small
  struct Held {
    explicit Held(WriteBuffer& b) noexcept : buffer(b) {
      while (buffer.held_.test_and_set(std::memory_order_acquire)) relax();
    }
    ~Held() { buffer.held_.clear(std::memory_order_release); }
    WriteBuffer& buffer;
  };

  /// The first `blocks` of the oldest run.
  void forget(std::uint64_t blocks) noexcept {
    mem::BlockRange& run = runs_[first_ % kRuns];
    run = {BlockId{raw(run.first) + blocks}, run.count - blocks};
    noted_ -= blocks;
    if (run.count == 0) ++first_;
  }
  [[nodiscard]] static std::size_t place(BlockId b) noexcept { return (raw(b) * 0x9E3779B97F4A7C15u) >> 52; }
  static_assert(kPlaces == 1u << (64 - 52));
  [[nodiscard]] std::uint64_t name(BlockId b) const noexcept {
    return rounds_.load(std::memory_order_relaxed) << 40 | (raw(b) + 1);
  }

  std::atomic_flag held_;
  std::uint64_t first_ = 0, end_ = 0, noted_ = 0;
  std::array<mem::BlockRange, kRuns> runs_;
  const std::uint64_t least_;
  std::atomic<std::uint64_t> limit_, rounds_{0};
  /// of the blocks that share a place, the one that was sent last, and in which round
  std::array<std::atomic<std::uint64_t>, kPlaces> sent_{};
};

}  // namespace kasane::dsm
