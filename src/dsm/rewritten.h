// SPDX-License-Identifier: Apache-2.0
// Which blocks this rank changes again and again: those stay writable over its releases and acquires, so that
// the next store costs neither a fault nor a twin (LU with two threads' blocks in a page: each release 400
// blocks, each of which is stored to again before the next).
//
//   changed at 5 releases, each at most 2 after the one before      stays open
//   open, and unchanged at 2 releases in a row                      is protected again
//
// A guess: blocks that share a place forget each other. Who is forgotten is protected
// by the next release, and what stays open without being stored to is compared with its twin a few times.
//
// Thread safety: every call from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "mem/block_table.h"

namespace kasane::dsm {

class Rewritten {
 public:
  /// releases: how often a block is changed until it stays open.
  explicit Rewritten(std::uint8_t releases) noexcept : until_open_(releases) {}

  /// A release begins.
  void begin_release() noexcept { round_.fetch_add(1, std::memory_order_relaxed); }  // relaxed: a guess

  /// A release finds the block dirty. differs(): does it differ from its twin?
  /// True: it stays open.
  template <class Differs>
  bool stays_open(BlockId b, const Differs& differs) noexcept {
    Entry e = changed(b);
    if (e.changes < until_open_) return false;
    const std::uint16_t now = round(), ago = static_cast<std::uint16_t>(now - e.round);
    if (differs())
      e.round = now;
    else if (ago >= kPatience)
      e.changes = 0;
    put(e);
    return e.changes != 0;
  }
  /// The same of an acquire: what was just released is unchanged.
  bool stays_open(BlockId b) noexcept { return changed(b).changes >= until_open_; }

 private:
  static constexpr std::uint16_t kPatience = 2;  ///< releases
  static constexpr unsigned kPlaceBits = 14;

  struct Entry {
    std::uint64_t block;  ///< 40 bits
    std::uint16_t round;  ///< when it was last changed
    std::uint8_t changes;
    [[nodiscard]] static Entry of(std::uint64_t w) noexcept {
      return {w >> 24, static_cast<std::uint16_t>(w >> 8), static_cast<std::uint8_t>(w)};
    }
    [[nodiscard]] std::uint64_t word() const noexcept {
      return block << 24 | static_cast<std::uint64_t>(round) << 8 | changes;
    }
  };
  [[nodiscard]] std::uint16_t round() const noexcept {
    return static_cast<std::uint16_t>(round_.load(std::memory_order_relaxed));  // relaxed: a guess
  }
  void put(const Entry& e) noexcept {
    places_[place(BlockId{e.block})].store(e.word(), std::memory_order_relaxed);  // relaxed: a guess
  }
  /// What is known of a dirty block, with its change in this round.
  Entry changed(BlockId b) noexcept {
    const std::uint16_t now = round();
    Entry e = Entry::of(places_[place(b)].load(std::memory_order_relaxed));  // relaxed: a guess
    if (e.block == raw(b) && e.changes >= until_open_) return e;
    const auto ago = static_cast<std::uint16_t>(now - e.round);
    if (e.block != raw(b) || ago > kPatience) e.changes = 0;
    if (e.changes == 0 || ago != 0) put(e = {raw(b), now, static_cast<std::uint8_t>(e.changes + 1)});
    return e;
  }
  [[nodiscard]] static std::size_t place(BlockId b) noexcept {
    return (raw(b) * 0x9E3779B97F4A7C15u) >> (64 - kPlaceBits);
  }

  const std::uint8_t until_open_;
  std::atomic<std::uint64_t> round_{0};
  std::array<std::atomic<std::uint64_t>, 1u << kPlaceBits> places_{};
};

}  // namespace kasane::dsm
