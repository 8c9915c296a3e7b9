// SPDX-License-Identifier: Apache-2.0
// The page size that a stress program allocates its data in: STRESS_PAGE of the environment, which all ranks
// have alike.
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdlib>

#include <kasane/kasane.hpp>

namespace kasane::stress {

inline std::size_t page_bytes() {
  static const std::size_t bytes = [] {
    const char* text = std::getenv("STRESS_PAGE");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : page_default;
  }();
  return bytes;
}

}  // namespace kasane::stress
