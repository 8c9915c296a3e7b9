// SPDX-License-Identifier: Apache-2.0
// Where the pages of an allocation live at first.
#pragma once

#include <cstdint>

namespace kasane::gas {

enum class Placement : std::uint8_t {
  local,    ///< at the allocating rank
  block,    ///< equal consecutive shares
  cyclic,   ///< page by page in turn
};

}  // namespace kasane::gas
