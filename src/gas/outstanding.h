// SPDX-License-Identifier: Apache-2.0
// What an asynchronous access still waits for: a count of its parts, in one word that any rank may read.
//
//   word     generation 32 | failed 1 | taken 1 | parts under way 30
//
// generation and taken belong to whoever keeps many of these (gas/pending.h); a single one leaves them 0.
//
// Thread safety: everything from any thread. Invariant: nothing touches the word after its last part has ended, until its owner does.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/transport.h"

namespace kasane::gas {

class Outstanding {
 public:
  static constexpr std::uint64_t kParts = (std::uint64_t{1} << 30) - 1, kTaken = std::uint64_t{1} << 30, kFailed = std::uint64_t{1} << 31;
  static constexpr unsigned kGenerationShift = 32;

  explicit Outstanding(std::uint64_t word = 0) noexcept : word_(word) {}

  /// One part more will be under way: before it can end.
  void begin() noexcept { word_.fetch_add(1, std::memory_order_relaxed); }   // relaxed: the caller's own part, or the one that it begins, keeps it above 0
  /// A part has ended. release: what it brought is there for who sees the count.
  void end(comm::Status status) noexcept {
    if (status != comm::Status::ok) word_.fetch_or(kFailed, std::memory_order_relaxed);   // relaxed: published by the next line
    word_.fetch_sub(1, std::memory_order_acq_rel);   // acquire too: the last one hands all others' bytes on
  }
  [[nodiscard]] std::uint64_t word() const noexcept { return word_.load(std::memory_order_acquire); }   // acquire: pairs with end()
  [[nodiscard]] static bool done(std::uint64_t word) noexcept { return (word & kParts) == 0; }
  [[nodiscard]] bool done() const noexcept { return done(word()); }
  /// After it is done: did a part not arrive?
  [[nodiscard]] bool failed() const noexcept { return (word() & kFailed) != 0; }

  [[nodiscard]] std::atomic<std::uint64_t>& raw_word() noexcept { return word_; }

 private:
  std::atomic<std::uint64_t> word_;
};

}  // namespace kasane::gas
