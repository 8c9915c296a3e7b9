// SPDX-License-Identifier: Apache-2.0
// --check races: a rank's changes go to the owner word by word, each by a compare-swap against what the owner
// had when this rank began to write (the twin). If a byte that this rank changed differs at the owner too,
// another rank has changed it since the fetch, with no fence between. For if the other change had come first,
// this rank would have acquired it and fetched anew; if this rank's change had come first, it would have been
// put before the other rank fetched. So what is reported is a race of the program, perhaps of another thread
// of the same rank. Not reported: races within a rank (its threads share one copy), stores that leave a byte
// as it was, and stores of the owner itself after a change has arrived.
//
// Thread safety: no state. A listener is called on any thread, also in fault handlers and while a put is
// under way: it must not touch V, allocate or wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/blocking.h"
#include "dsm/word_at.h"

namespace kasane::dsm {

/// Of the 8 bytes at a global offset: `bytes` (0xFF for each) went from `before` to `mine` here, and to
/// `theirs` on another rank.
struct Race {
  std::uint64_t offset, bytes, before, mine, theirs;
};

class RaceListener {
 public:
  virtual void race(const Race&) noexcept = 0;

 protected:
  ~RaceListener() = default;
};

/// What the owner's word `theirs` becomes when exactly the bytes that changed from `before` to `mine` are put
/// into it (rule 3).
[[nodiscard]] constexpr std::uint64_t merged(std::uint64_t before, std::uint64_t mine,
                                             std::uint64_t theirs) noexcept {
  const std::uint64_t ours = differing_bytes(before, mine);
  return (theirs & ~ours) | (mine & ours);
}

/// The bytes that both changed.
[[nodiscard]] constexpr std::uint64_t raced_bytes(std::uint64_t before, std::uint64_t mine,
                                                  std::uint64_t theirs) noexcept {
  return differing_bytes(before, mine) & differing_bytes(before, theirs);
}

/// Puts the bytes of a block in which `now` differs from `base` to `to`; they are remotely complete when it
/// returns. Returns how many bytes that were. Counts races.
std::size_t put_checked(comm::Blocking&, RaceListener&, comm::RemoteAddr to, const std::byte* now,
                        const std::byte* base);

/// Reports the bytes of [0, bytes) that both this rank (from base to mine) and the owner (from base to
/// theirs) changed. bytes: a multiple of 8.
void tell_races(Counters*, RaceListener&, std::uint64_t offset, std::size_t bytes, const std::byte* base,
                const std::byte* mine, const std::byte* theirs) noexcept;

}  // namespace kasane::dsm
