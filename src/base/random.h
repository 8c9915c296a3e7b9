// SPDX-License-Identifier: Apache-2.0
// Seeded pseudo-random numbers, equal on every machine: xoshiro256** (David Blackman, Sebastiano Vigna,
// "Scrambled linear pseudorandom number generators") with its state filled by SplitMix64. Not for secrets.
// Thread safety: an object belongs to one thread.
#pragma once

#include <bit>
#include <cstdint>

namespace kasane {

/// One step of SplitMix64: advances state, returns 64 well-mixed bits. Also a good hash of a counter.
constexpr std::uint64_t splitmix64(std::uint64_t& state) noexcept {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// A UniformRandomBitGenerator, so the standard distributions take it too.
class Random {
 public:
  using result_type = std::uint64_t;

  explicit constexpr Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) word = splitmix64(seed);
  }

  constexpr std::uint64_t operator()() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, bound), without division (Daniel Lemire, "Fast random integer generation in an interval";
  /// the bias, below bound / 2^64, is kept). bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * bound) >> 64);
  }

  /// True once in n times on average. n > 0.
  constexpr bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

  static constexpr std::uint64_t min() noexcept { return 0; }
  static constexpr std::uint64_t max() noexcept { return ~std::uint64_t{0}; }

 private:
  std::uint64_t state_[4];
};

}  // namespace kasane
