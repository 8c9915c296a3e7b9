// SPDX-License-Identifier: Apache-2.0
/// @file
/// The lock word of kasane::deque and kasane::list, pure: tests/model walks it (docs/design/containers.md has
/// the tables).
///
/// word locked 1 | exclusive 1 | version 30 | checksum 32 of the header's fields, behind it
///
/// As a bucket, a header verifies itself, so that one read tells whether its bytes belong together. A writer
/// compare-swaps the word as it was read to the same with `locked`: that proves the fields that it has read.
/// Then it changes what the header leads to, and the fields, then it stores the new word. An exclusive call
/// does the same, but it waits for no lock, and its own says so: either of two calls that meet is refused.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kasane::detail::versioned {

using Word = std::uint64_t;

inline constexpr Word kLocked = Word{1} << 63;
/// Only with kLocked.
inline constexpr Word kExclusive = Word{1} << 62;
[[nodiscard]] constexpr bool locked(Word w) noexcept { return (w & kLocked) != 0; }
[[nodiscard]] constexpr bool exclusive(Word w) noexcept { return (w & kExclusive) != 0; }
/// The unlocked word after the one that was `before`.
[[nodiscard]] constexpr Word changed(Word before, std::uint32_t sum) noexcept {
  constexpr Word versions = Word{0x3FFFFFFF} << 32;
  return ((before + (Word{1} << 32)) & versions) | sum;
}
/// What a read of a header is worth.
enum class Look : std::uint8_t {
  good,
  again,  ///< another call has it, or changed it meanwhile
  busy,   ///< an exclusive call has it
};
/// whole: the fields belong to the word.
[[nodiscard]] constexpr Look judge(Word w, bool whole) noexcept {
  if (!locked(w) && whole) [[likely]]
    return Look::good;
  return exclusive(w) ? Look::busy : Look::again;
}
[[nodiscard]] constexpr Look judge(Word w, std::uint32_t sum) noexcept {
  return judge(w, static_cast<std::uint32_t>(w) == sum);
}

/// Of n fields, each of which counts by itself, so that their multiplications overlap.
[[nodiscard]] constexpr std::uint32_t sum_of(const Word* fields, std::size_t n) noexcept {
  Word sum = 0x9E3779B97F4A7C15u;
  for (std::size_t i = 0; i < n; ++i)
    sum ^= (fields[i] + i * 0xC2B2AE3D27D4EB4Fu) * (0xD6E8FEB86659FD93u + 2 * i);
  return static_cast<std::uint32_t>(sum >> 32 ^ sum);
}

/// The steps of an operation. Each is complete at the owner before the next.
enum class Step : std::uint8_t {
  read,
  lock,
  change,   ///< nodes and fields
  publish,  ///< the next word
  restore,  ///< the word as it was: nothing has changed
  done,
  refused,  ///< EBUSY; nothing has changed
};
/// After `read`. alone: of an exclusive call.
[[nodiscard]] constexpr Step next(Look look, bool alone) noexcept {
  if (look == Look::good) return Step::lock;
  return look == Look::busy || alone ? Step::refused : Step::read;
}
/// ok: of lock: the word was as it had been read; of change: it was made.
[[nodiscard]] constexpr Step next(Step step, bool ok, bool alone) noexcept {
  switch (step) {
    case Step::lock: return ok ? Step::change : alone ? Step::refused : Step::read;
    case Step::change: return ok ? Step::publish : Step::restore;
    case Step::read:
    case Step::publish:
    case Step::restore:
    case Step::done: break;
    case Step::refused: return Step::refused;
  }
  return Step::done;
}
/// The word of a header that is taken.
[[nodiscard]] constexpr Word taken(Word seen, bool alone) noexcept {
  return seen | kLocked | (alone ? kExclusive : 0);
}

}  // namespace kasane::detail::versioned
