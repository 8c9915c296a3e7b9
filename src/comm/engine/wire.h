// SPDX-License-Identifier: Apache-2.0
// The messages between engines of different ranks.
//
//   kPack      request: entries, each with its data; the owner applies them in order and answers 0
//   kReadPack  request: ReadPackHead, entries; the owner sends kReadData and then answers 0
//   kReadData  message: ReadDataHead, the data of the entries in order
//   kCopy      request: CopyRequest; the owner of the source writes to the destination and answers the Status
//
// Every part is padded to 8 bytes, so that data and heads stay aligned.
// Thread safety: plain data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/engine/engine.h"

namespace kasane::comm::wire {

inline constexpr HandlerId kPack{kMaxHandlers - 1}, kReadPack{kMaxHandlers - 2}, kReadData{kMaxHandlers - 3},
    kCopy{kMaxHandlers - 4};

enum class EntryKind : std::uint8_t { write, flag, accumulate };

struct Entry {
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint8_t region;
  EntryKind kind;
  Element element;  ///< accumulate only
  std::uint8_t unused = 0;
};
struct ReadPackHead {
  std::uint32_t pack;
  std::uint32_t stamp;         ///< of its use of the pack
  std::uint32_t answer_bytes;  ///< of kReadData's payload
  std::uint32_t unused = 0;
};
struct ReadDataHead {
  std::uint32_t pack, stamp;  ///< of the ReadPackHead
};
struct CopyRequest {
  std::uint64_t from_offset, to_offset, bytes;
  std::uint32_t from_region, to_region, to_rank, unused = 0;
};
static_assert(sizeof(Entry) == 16 && sizeof(ReadPackHead) == 16 && sizeof(ReadDataHead) == 8 &&
                  sizeof(CopyRequest) == 40,
              "no padding travels");

[[nodiscard]] constexpr std::size_t padded(std::size_t bytes) noexcept {
  return (bytes + 7) & ~std::size_t{7};
}
/// The largest data of one entry of kPack.
inline constexpr std::size_t kMaxEntryData = (kMaxPayload - sizeof(Entry)) & ~std::size_t{15};
/// The largest data of one entry of kPack that a flag follows.
inline constexpr std::size_t kMaxNotified = kMaxEntryData - 2 * sizeof(Entry);
inline constexpr std::uint32_t kMaxEntries = kMaxPayload / sizeof(Entry);

/// Takes the next entry of kPack, and its data, from `rest`. False: it is not whole, or none that this engine
/// sends. Whether its place lies in a region is not looked at.
[[nodiscard]] inline bool take(std::span<const std::byte>& rest, Entry& e,
                               std::span<const std::byte>& data) noexcept {
  if (rest.size() < sizeof(e)) return false;
  std::memcpy(&e, rest.data(), sizeof(e));
  rest = rest.subspan(sizeof(e));
  if (e.bytes > rest.size()) return false;
  data = rest.first(e.bytes);
  rest = rest.subspan(std::min(padded(e.bytes), rest.size()));
  switch (e.kind) {
    case EntryKind::write: return true;
    case EntryKind::flag: return e.bytes == sizeof(std::uint64_t) && e.offset % sizeof(std::uint64_t) == 0;
    case EntryKind::accumulate:
      return e.element <= Element::complex128 && e.bytes % element_bytes(e.element) == 0 &&
             e.offset % part_bytes(e.element) == 0;
  }
  return false;
}

}  // namespace kasane::comm::wire
