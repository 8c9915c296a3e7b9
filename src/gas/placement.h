// SPDX-License-Identifier: Apache-2.0
// Where the pages of an allocation live at first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"
#include "mem/space.h"

namespace kasane::gas {

struct Placement {
  enum class Kind : std::uint8_t {  // as kasane_placement_t
    local,                          ///< at the allocating rank
    block,                          ///< equal consecutive shares, the first at rank 0
    cyclic,                         ///< page by page in turn
    block_cyclic,                   ///< block_bytes by block_bytes in turn
    one_rank,                       ///< at `rank`
    /// at the rank that faults on a page first (gas/relocation.h); until then at the allocating rank
    first_touch = 6,
  };
  Kind kind = Kind::local;
  bool fixed = false;  ///< whole pages, whose owners do not change; not with first_touch
  Rank rank{0};
  std::uint64_t block_bytes = 0;               ///< a multiple of a page
  std::uint64_t page_bytes = mem::kPageBytes;  ///< which heap: of pages of this size
  std::uint32_t pool = 0;                      ///< which heap: of NUMA memory (runtime/rank/numa_memory.h)

  static const Placement local, block, cyclic, first_touch;
  [[nodiscard]] static constexpr Placement on(Rank rank) noexcept {
    return {.kind = Kind::one_rank, .rank = rank};
  }
  [[nodiscard]] static constexpr Placement block_cyclic(std::uint64_t bytes) noexcept {
    return {.kind = Kind::block_cyclic, .block_bytes = bytes};
  }

  /// Do all pages live at one rank?
  [[nodiscard]] constexpr bool together() const noexcept {
    return kind == Kind::local || kind == Kind::one_rank;
  }

  /// The owner of page `i` of `pages`, allocated by rank `me` of `ranks`.
  [[nodiscard]] constexpr Rank owner(std::uint64_t i, std::uint64_t pages, std::uint64_t bytes_a_page,
                                     Rank me, std::uint32_t ranks) const noexcept {
    switch (kind) {
      case Kind::block: return Rank{static_cast<std::uint32_t>(i * ranks / pages)};
      case Kind::cyclic: return Rank{static_cast<std::uint32_t>(i % ranks)};
      case Kind::block_cyclic:
        return Rank{
            static_cast<std::uint32_t>(i / std::max<std::uint64_t>(1, block_bytes / bytes_a_page) % ranks)};
      case Kind::one_rank: return rank;
      case Kind::local:
      case Kind::first_touch: break;
    }
    return me;
  }

  friend bool operator==(const Placement&, const Placement&) = default;
};

inline constexpr Placement Placement::local{.kind = Placement::Kind::local};
inline constexpr Placement Placement::block{.kind = Placement::Kind::block};
inline constexpr Placement Placement::cyclic{.kind = Placement::Kind::cyclic};
inline constexpr Placement Placement::first_touch{.kind = Placement::Kind::first_touch};

}  // namespace kasane::gas
