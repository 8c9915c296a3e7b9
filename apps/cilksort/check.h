// SPDX-License-Identifier: Apache-2.0
// Is an array sorted, and does it still hold what it held? The order-independent sum of the elements' hashes
// tells the latter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cilksort/line.h"
#include "common/random.h"

namespace apps {

/// What a sort must keep, and whether a range is in order.
struct Summary {
  std::uint64_t hash = 0;
  bool sorted = true;
  friend Summary operator+(const Summary& a, const Summary& b) noexcept {
    return {a.hash + b.hash, a.sorted && b.sorted};
  }
};

[[nodiscard]] inline std::uint64_t hash_of(std::uint64_t key) noexcept { return mix(key + 1); }
[[nodiscard]] inline std::uint64_t hash_of(const Line& line) noexcept {
  std::uint64_t h = line.length + 1;
  for (std::size_t i = 0; i < line.length; ++i)
    h = (h ^ static_cast<unsigned char>(line.text[i])) * 0x100000001B3u;
  return mix(h);
}

/// Element i of a: in order after the one before it?
template <class T>
[[nodiscard]] Summary summary_at(const T* a, std::size_t i) noexcept {
  return {hash_of(a[i]), i == 0 || !(a[i] < a[i - 1])};
}

}  // namespace apps
