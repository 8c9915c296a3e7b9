// SPDX-License-Identifier: Apache-2.0
// When have all posts of a group run? Pure (docs/design/posts.md has the table; tests/model walks it).
//
// The group's word W counts *credit* that is somewhere. A rank that has posts of the group, in buffers or
// running, has credit; so has each message that carries some. Nobody else has any. So W is 0 only when no
// post is left: what is posted by a running post finds credit at its rank.
//
//   a rank without credit has a post  ── grant ──▶ W += kGrant, before the post counts
//   a message leaves                               it takes half of the rank's credit, or all if the rank has
//                                                  nothing else of the group
//   a message arrives                              its credit is the rank's
//   the last post of the rank has run ── give back ▶ W -= all of the rank's credit
//
// So a message costs no access to W but when the rank has only one unit left to divide.
// Thread safety: pure. Invariant: W is the sum of all credit, and of the grants that are under way.
#pragma once

#include <cstdint>

namespace kasane::posts {

inline constexpr std::uint64_t kGrant = std::uint64_t{1} << 32;

/// What a rank knows of a group. The zero state is that of a rank without posts.
struct Share {
  std::uint64_t credit = 0;
  std::uint64_t parts = 0;  ///< of messages: being filled, or running here, that have posts of the group

  friend constexpr bool operator==(const Share&, const Share&) = default;
};

enum class Event : std::uint8_t {
  begin,     ///< a buffer gets its first post of the group
  granted,   ///< W has grown by the grant
  leave,     ///< the buffer leaves as a message
  arrive,    ///< a message is there, with credit
  ran,       ///< its last post of the group has run
  unneeded,  ///< a grant was for a buffer that another thread has sent meanwhile
};

enum class Action : std::uint8_t {
  none,
  grant,      ///< W += kGrant, then `granted`, then the same event again; the state is unchanged
  take,       ///< the message takes `amount`
  give_back,  ///< W -= amount, if it is not 0
};

struct Step {
  Share next;
  Action action = Action::none;
  std::uint64_t amount = 0;
};

/// amount: of granted and arrive.
[[nodiscard]] constexpr Step next(const Share& s, Event event, std::uint64_t amount = 0) noexcept {
  switch (event) {
    case Event::begin:
      if (s.credit == 0) return {s, Action::grant};
      return {{s.credit, s.parts + 1}};
    case Event::granted: return {{s.credit + amount, s.parts}};
    case Event::leave: {
      if (s.parts == 1) return {{}, Action::take, s.credit};
      if (s.credit < 2) return {s, Action::grant};
      const std::uint64_t half = s.credit / 2;
      return {{s.credit - half, s.parts - 1}, Action::take, half};
    }
    case Event::arrive: return {{s.credit + amount, s.parts + 1}};
    case Event::ran:
      if (s.parts == 1) return {{}, Action::give_back, s.credit};
      return {{s.credit, s.parts - 1}};
    case Event::unneeded:
      if (s.parts == 0) return {{}, Action::give_back, s.credit};
      break;
  }
  return {s};
}

}  // namespace kasane::posts
