// SPDX-License-Identifier: Apache-2.0
// Where the simulator's decisions come from, and where they are recorded. Thread safety: none.
#pragma once

#include <cstdint>

namespace kasane::comm::sim {

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators"): any seed gives a good
/// sequence.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// A number below bound; bound > 0. The tiny bias of the remainder does not matter here.
  std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
  bool permille(std::uint32_t p) noexcept { return below(1000) < p; }

 private:
  std::uint64_t state_;
};

/// A running FNV-1a hash over the words of the history.
class Trace {
 public:
  template <class... Words>
  void mix(Words... words) noexcept {
    (mix_one(static_cast<std::uint64_t>(words)), ...);
  }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  void mix_one(std::uint64_t word) noexcept { hash_ = (hash_ ^ word) * 0x100000001B3u; }
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

}  // namespace kasane::comm::sim
