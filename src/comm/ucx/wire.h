// SPDX-License-Identifier: Apache-2.0
// What ranks say to each other in active messages of UCX: a head, then the payload, in one piece.
//
// | kind    | name (handler, slot)      | stamp, value           | who acts on it, where                                             |
// |---------|---------------------------|------------------------|-------------------------------------------------------------------|
// | message | handler                   |                        | copied; the handler runs later, through the gate; costs a credit  |
// | request | handler, slot of requester| stamp                  | as message; the token is (from, slot, stamp)                      |
// | reply   | slot                      | stamp; value = answer  | in place: the slot is filled, the messages doorbell rung; the     |
// |         |                           |                        | payload are bytes that the answer brings along                    |
// | credit  |                           | value = messages       | in place: that many more may be sent                              |
// | ring    | doorbell                  |                        | in place                                                          |
// | bye     |                           |                        | in place: the sender closes its endpoints; no failure             |
//
// "In place" is under the inbound lane's lock and never needs the gate: a fault handler that interrupted a message handler gets its answer.
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

/// Messages and requests that one rank may have on the way to another, or waiting there for their handlers.
inline constexpr std::uint32_t kCredits = 256;
/// Credits are given back so many at a time.
inline constexpr std::uint32_t kCreditBatch = kCredits / 4;
inline constexpr std::uint32_t kReplySlots = 1024;

}  // namespace kasane::comm::ucx
