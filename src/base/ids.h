// SPDX-License-Identifier: Apache-2.0
// The distinct integer types of the design's terms. A value of one type never converts to another by
// accident; raw() returns the number.
#pragma once

#include <cstdint>
#include <type_traits>

namespace kasane {

enum class Rank : std::uint32_t {};     ///< A process of the job, one coherence domain: 0 … ranks-1.
enum class PageId : std::uint64_t {};   ///< in the order of their offsets, over all segments (mem/pages.h)
enum class BlockId : std::uint64_t {};  ///< offset in the space / block size
/// A thread's control block, and so a thread, numbered over the whole job
enum class SlotId : std::uint32_t {};
enum class StackId : std::uint32_t {};  ///< a call stack, numbered over the whole job

inline constexpr Rank kNoRank{0xFFFFFFFFu};
inline constexpr SlotId kNoSlot{0xFFFFFFFFu};

template <class E>
  requires std::is_enum_v<E>
[[nodiscard]] constexpr std::underlying_type_t<E> raw(E e) noexcept {
  return static_cast<std::underlying_type_t<E>>(e);
}

}  // namespace kasane
