// SPDX-License-Identifier: Apache-2.0
// Cuts vertices that are in ascending order of degree into parts with about as many edges. One part is what a
// build sorts at once, in the cache; and its edges are gathered from, or dealt to, some hundred runs.
//
// Thread safety: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace kasane::graph::detail {

/// Edges of a part: what is sorted at once. Large enough that few pages are written at the same time.
inline constexpr std::uint64_t kPart = 1 << 17;
inline constexpr std::uint32_t kMostParts = 512;

/// Vertices by steps, counted from the last one, of the highest degree: each of the first 256 has a step of
/// its own, and later ones are as many as a 256th of those before them.
struct Steps {
  static constexpr std::uint32_t kNumber = 25 * 256;

  [[nodiscard]] static std::uint32_t of(std::uint32_t from_last) noexcept {
    if (from_last < 256) return from_last;
    const auto high = 31 - static_cast<std::uint32_t>(__builtin_clz(from_last));
    return (high - 7) * 256 + (from_last >> (high - 8) & 255);
  }
  [[nodiscard]] static std::uint64_t first(std::uint32_t step) noexcept {
    return step < 256 ? step : std::uint64_t{256 + step % 256} << (step / 256 - 1);
  }
};

/// Runs of vertices with about as many edges, in ascending order; each begins with a step.
struct Parts {
  std::uint32_t number;
  std::uint16_t of_step[Steps::kNumber];
  std::uint64_t first[kMostParts + 1];  ///< vertex of each part; and the end

  void cut(const std::uint64_t* edges_of_steps, std::uint64_t vertices, std::uint32_t at_least) noexcept {
    std::uint64_t all = 0, sum = 0;
    for (std::uint32_t s = 0; s < Steps::kNumber; ++s) all += edges_of_steps[s];
    const std::uint64_t each = std::max(all / (kMostParts - 1), std::min(kPart, all / at_least)) + 1;
    number = 1;
    for (std::uint32_t s = 0; s < Steps::kNumber; ++s) {
      if (sum >= each) first[number++] = Steps::first(s), sum = 0;
      of_step[s] = static_cast<std::uint16_t>(number - 1);
      sum += edges_of_steps[s];
    }
    // Steps go from the last vertex to the first.
    first[0] = 0, first[number] = vertices;
    std::reverse(first, first + number + 1);
    for (std::uint32_t p = 0; p <= number; ++p) first[p] = vertices - std::min(vertices, first[p]);
    for (std::uint16_t& part : of_step) part = static_cast<std::uint16_t>(number - 1 - part);
  }
  [[nodiscard]] std::uint32_t of(std::uint32_t v) const noexcept {
    return of_step[Steps::of(static_cast<std::uint32_t>(first[number]) - 1 - v)];
  }
};

/// From numbers to where each begins; the sum.
template <class T>
inline T begin_each(T* numbers, std::size_t n) noexcept {
  T sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::exchange(numbers[i], sum);
  return sum;
}

}  // namespace kasane::graph::detail
