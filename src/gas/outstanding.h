// SPDX-License-Identifier: Apache-2.0
// The number of parts that an asynchronous access still waits for, in one word that any rank may read.
//
//   word     generation 32 | failed 1 | taken 1 | outstanding parts 30
//
// generation and taken belong to tables of many of these (gas/pending.h); a single one leaves them 0.
//
// Thread safety: everything from any thread.
// Invariant: after its last part has ended, only its owner touches the word.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/transport.h"

namespace kasane::gas {

class Outstanding {
 public:
  static constexpr std::uint64_t kParts = (std::uint64_t{1} << 30) - 1, kTaken = std::uint64_t{1} << 30,
                                 kFailed = std::uint64_t{1} << 31;
  static constexpr unsigned kGenerationShift = 32;

  explicit Outstanding(std::uint64_t word = 0) noexcept : word_(word) {}

  /// Counts one part more; called before the part can end.
  // relaxed: the caller's own part, or the one that it begins, keeps it above 0
  void begin() noexcept { word_.fetch_add(1, std::memory_order_relaxed); }
  /// A part has ended. release: what it brought is visible to a thread that sees the count.
  void end(comm::Status status) noexcept {
    // relaxed: published by the next line
    if (status != comm::Status::ok) word_.fetch_or(kFailed, std::memory_order_relaxed);
    // acquire too: the last one passes the bytes of all parts on
    word_.fetch_sub(1, std::memory_order_acq_rel);
  }
  // acquire: pairs with end()
  [[nodiscard]] std::uint64_t word() const noexcept { return word_.load(std::memory_order_acquire); }
  [[nodiscard]] static bool done(std::uint64_t word) noexcept { return (word & kParts) == 0; }
  [[nodiscard]] bool done() const noexcept { return done(word()); }
  /// After it is done: did a part not arrive?
  [[nodiscard]] bool failed() const noexcept { return (word() & kFailed) != 0; }

  [[nodiscard]] std::atomic<std::uint64_t>& raw_word() noexcept { return word_; }

 private:
  std::atomic<std::uint64_t> word_;
};

}  // namespace kasane::gas
