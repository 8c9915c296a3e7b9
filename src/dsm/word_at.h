// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kasane::dsm {

/// The eight bytes at p, for any alignment of p.
[[nodiscard]] inline std::uint64_t word_at(const std::byte* p) noexcept {
  std::uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

}  // namespace kasane::dsm
