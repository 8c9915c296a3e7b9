// SPDX-License-Identifier: Apache-2.0
// What a rank of a player exposes to the other one: for each thread ("lane") the same areas, at the same
// offsets in every system.
//
//   together   56 bytes of data and the flag in one line
//   flag       a line of its own
//   word       for atomics, a line of its own
//   target     where the peer's data arrive, and what it reads; on pages of its own
//   source     what this lane sends, and where its reads go
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "order.h"

namespace kasane::bench {

class Window {
 public:
  Window(unsigned lanes, std::uint64_t max_bytes) noexcept
      : lanes_(lanes), area_((max_bytes + kPage - 1) / kPage * kPage) {}

  [[nodiscard]] std::uint64_t bytes() const noexcept { return lanes_ * stride(); }
  [[nodiscard]] unsigned lanes() const noexcept { return lanes_; }
  [[nodiscard]] std::uint64_t area() const noexcept { return area_; }

  [[nodiscard]] std::uint64_t target(unsigned lane) const noexcept { return lane * stride() + kPage; }
  [[nodiscard]] std::uint64_t source(unsigned lane) const noexcept { return target(lane) + area_; }
  [[nodiscard]] std::uint64_t word(unsigned lane) const noexcept { return lane * stride() + 128; }
  /// Where data and flag of a pingpong arrive.
  [[nodiscard]] std::uint64_t data(unsigned lane, bool together) const noexcept {
    return together ? lane * stride() : target(lane);
  }
  [[nodiscard]] std::uint64_t flag(unsigned lane, bool together) const noexcept {
    return lane * stride() + (together ? kTogetherBytes : 64);
  }
  /// Where operation number i of a window touches the areas: neighbours, so that small ones may be packed, as
  /// long as they fit.
  [[nodiscard]] std::uint64_t spread(std::uint64_t i, std::uint64_t op_bytes) const noexcept {
    return kWindow * op_bytes <= area_ ? i % kWindow * op_bytes : 0;
  }

  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kWindow = 64;  ///< most operations of one lane under way

 private:
  // One page beside the areas: lanes would otherwise lie at multiples of a power of two and share the sets of
  // the caches.
  [[nodiscard]] std::uint64_t stride() const noexcept { return 2 * area_ + 3 * kPage; }
  unsigned lanes_;
  std::uint64_t area_;
};

}  // namespace kasane::bench
