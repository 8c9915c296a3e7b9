// SPDX-License-Identifier: Apache-2.0
// The active messages that ranks send each other over UCX: a head, then the payload, in one piece.
//
// | kind    | name             | stamp, value          | what the receiver does                            |
// |---------|------------------|-----------------------|---------------------------------------------------|
// | message | handler          |                       | copies it; the handler runs later, through the    |
// |         |                  |                       | gate; costs a credit                              |
// | request | handler          | stamp; with the slot  | as message; the token is (from, slot, stamp)      |
// | reply   | (slot)           | stamp; value = answer | at once: fills the slot, rings the messages       |
// |         |                  |                       | doorbell; the payload are the answer's bytes      |
// | credit  |                  | value = messages      | at once: it may send that many more               |
// | ring    | doorbell         |                       | at once                                           |
// | bye     |                  |                       | at once: the sender closes its endpoints; this is |
// |         |                  |                       | no failure                                        |
//
// "At once" is under lane 0's lock and never needs the gate, so a fault handler that interrupted a message
// handler gets its answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/transport.h"

namespace kasane::comm::ucx {

enum class Wire : std::uint16_t { message, request, reply, credit, ring, bye };

struct Head {
  std::uint32_t from;
  Wire kind;
  std::uint16_t name = 0;
  std::uint32_t slot = 0;
  std::uint32_t unused = 0;
  std::uint64_t stamp = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(Head) == 32);

inline constexpr std::size_t kMaxWire = sizeof(Head) + std::max(kMaxPayload, kMaxAnswer);

/// The most messages and requests of one rank that are in flight to another, or wait there for their
/// handlers.
inline constexpr std::uint32_t kCredits = 256;
/// Credits are returned in batches of so many.
inline constexpr std::uint32_t kCreditBatch = kCredits / 4;
inline constexpr std::uint32_t kReplySlots = 1024;

/// Is it a message of a rank of this job? The sender is another process, so what it wrote is looked at before
/// it is used as an index or a length.
[[nodiscard]] constexpr bool well_formed(const Head& h, std::size_t payload, std::uint32_t ranks) noexcept {
  if (h.from >= ranks) return false;
  switch (h.kind) {
    case Wire::message: return h.name < kMaxHandlers && payload <= kMaxPayload;
    case Wire::request: return h.name < kMaxHandlers && payload <= kMaxPayload && h.slot < kReplySlots;
    case Wire::reply: return h.slot < kReplySlots && payload <= kMaxAnswer;
    case Wire::ring: return h.name < 2;
    case Wire::credit:
    case Wire::bye: return true;
  }
  return false;
}

}  // namespace kasane::comm::ucx
