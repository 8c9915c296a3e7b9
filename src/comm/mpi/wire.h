// SPDX-License-Identifier: Apache-2.0
// What ranks send each other over MPI. Two channels, told apart by tag, with receives posted ahead for each:
//
//   requests   RequestHead, data           from the poster to the owner of memory or handler; one a message
//   answers    AnswerHead, Record (data) … back; as many as are pending
//
// Sending answers never depends on receiving requests: a thread that takes answers sends nothing in return.
// So answers always progress, and therefore requests do (docs/design/comm_mpi.md). Large data travels
// separately, from memory to memory, under a tag of its operation's slot.
//
// All ranks run one build on one kind of machine (rule 14), so the structs are sent as they lie in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "comm/transport.h"

namespace kasane::comm::mpi {

/// Data up to this many bytes travels in the message itself. A block of the DSM fits, and the largest payload
/// of a message.
inline constexpr std::size_t kInline = 8192;
static_assert(kInline >= kMaxPayload);

enum class MessageKind : std::uint8_t {
  send,
  request,
  write,
  write_notify,
  read,
  atomic,
  bulk_write,
  bulk_write_notify,
  bulk_read
};

struct RequestHead {
  MessageKind kind;
  AtomicOp op = AtomicOp::fetch_add;
  Width width = Width::eight;
  std::uint8_t unused = 0;
  std::uint16_t slot;        ///< of the poster's operation or reply; its answer names it
  std::uint16_t name;        ///< handler or region
  std::uint64_t bytes;       ///< of the data, which is inline or in bulk
  std::uint64_t offset = 0;  ///< in the region
  std::uint64_t first = 0;   ///< operand | flag offset | the request's stamp
  std::uint64_t second = 0;  ///< compare | flag value
};

struct AnswerHead {
  std::uint32_t credits;  ///< sends of the receiver that were consumed since the last answer
  std::uint16_t rings;    ///< doorbells to be rung, a bit each
  std::uint16_t records;
};

enum class RecordKind : std::uint8_t { operation, reply, data };

struct Record {
  RecordKind kind;
  std::uint8_t unused = 0;
  std::uint16_t slot;
  std::uint32_t bytes = 0;  ///< data only: what follows, padded to 8
  std::uint64_t value = 0;  ///< the old value of an atomic, or the reply
};

static_assert(sizeof(RequestHead) == 40 && sizeof(AnswerHead) == 8 && sizeof(Record) == 16);
static_assert(std::is_trivially_copyable_v<RequestHead> && std::is_trivially_copyable_v<Record>);

/// A message of either channel.
struct alignas(64) Buffer {
  std::byte bytes[sizeof(RequestHead) + kInline];
};
inline constexpr std::size_t kAnswerBytes = sizeof(Buffer);
static_assert(sizeof(AnswerHead) + sizeof(Record) + kInline <= sizeof(Buffer));

inline constexpr int kRequestTag = 0, kAnswerTag = 1;
/// The tag of the bulk data of the operation in slot. The direction tells equal slots of the two ranks apart.
/// MPI guarantees tags up to 32767.
[[nodiscard]] constexpr int bulk_tag(std::uint16_t slot, bool to_poster) noexcept {
  return 2 + slot * 2 + (to_poster ? 1 : 0);
}
inline constexpr std::uint32_t kMostSlots = 512;
static_assert(bulk_tag(kMostSlots, true) <= 32767);

[[nodiscard]] constexpr std::size_t padded(std::size_t bytes) noexcept {
  return (bytes + 7) & ~std::size_t{7};
}

/// Is it a request of a rank of this job? The sender is another process, so what it wrote is looked at before
/// it is used as an index, a length or an offset. data: the bytes behind the head; slots: of a poster.
[[nodiscard]] constexpr bool well_formed(const RequestHead& h, std::size_t data,
                                         std::uint32_t slots) noexcept {
  if (h.slot >= slots) return false;
  switch (h.kind) {
    case MessageKind::send:
    case MessageKind::request: return h.name < kMaxHandlers && data <= kMaxPayload;
    case MessageKind::write:
    case MessageKind::write_notify: return h.bytes == data && data <= kInline;
    case MessageKind::atomic:
      return (h.width == Width::four || h.width == Width::eight) && h.op <= AtomicOp::compare_swap &&
             h.offset % static_cast<std::size_t>(h.width) == 0;
    case MessageKind::read: return h.bytes <= kInline;
    case MessageKind::bulk_write:
    case MessageKind::bulk_write_notify:
    case MessageKind::bulk_read: return true;  // here() knows the region
  }
  return false;
}

/// Takes the next record of an answer, and the data behind it, from `rest`. False: it is not whole.
[[nodiscard]] inline bool take(std::span<const std::byte>& rest, Record& r,
                               std::span<const std::byte>& data) noexcept {
  if (rest.size() < sizeof(r)) return false;
  std::memcpy(&r, rest.data(), sizeof(r));
  rest = rest.subspan(sizeof(r));
  const std::size_t bytes = r.kind == RecordKind::data ? r.bytes : 0;
  if (bytes > rest.size()) return false;
  data = rest.first(bytes);
  rest = rest.subspan(std::min(padded(bytes), rest.size()));
  return r.kind <= RecordKind::data && r.slot < kMostSlots;
}

}  // namespace kasane::comm::mpi
