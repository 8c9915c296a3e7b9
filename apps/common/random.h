// SPDX-License-Identifier: Apache-2.0
// A counter-based generator: element i of a sequence without the ones before, so that threads fill an array
// in any order. The mixing function is that of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
// Number Generators, 2014).
#pragma once

#include <cstdint>

namespace apps {

[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Element `index` of the sequence named `seed`.
[[nodiscard]] constexpr std::uint64_t random_at(std::uint64_t seed, std::uint64_t index) noexcept {
  return mix(mix(seed + 0x9E3779B97F4A7C15u) + (index + 1) * 0x9E3779B97F4A7C15u);
}

}  // namespace apps
