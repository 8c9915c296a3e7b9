// SPDX-License-Identifier: Apache-2.0
// The engine's records: one for each operation that did not complete at once, and one for each message under way that carries pieces of several.
// They lie in tables made at start (IndexPool says which are free), so that posting never allocates.
//
// A record's life: taken by the poster ─▶ driven by one thread at a time (drive.cpp) until everything is posted ─▶ `left` reaches 0 in whichever thread completes
// the last piece ─▶ free, then its callback runs.
//
// Thread safety: plain fields belong to the driver, and after `left` = 0 to who brought it there.
#pragma once

#include <array>
#include <atomic>
#include <complex>

#include "comm/command.h"
#include "comm/engine/cursor.h"
#include "comm/engine/engine.h"
#include "comm/engine/wire.h"

namespace kasane::comm {

/// A request under way whose answer the poll hook looks for.
struct Awaiting {
  Awaiting* next = nullptr;   ///< on the list of those that wait (Operation has a `next` of its own for other lists)
  PendingReply reply{};
  std::uint64_t value = 0;    ///< the answer
  void (*answered)(Engine::Core&, Awaiting&, std::uint64_t value, Status) noexcept = nullptr;
};

inline constexpr std::uint32_t kNoRecord = 0xFFFFFFFFu;

/// Keeps what a prepared operation needs of its parameters after the call has returned: payload, head or pieces.
struct Parcel {
  alignas(8) std::array<std::byte, kMaxPayload> bytes;
};

struct Operation : Completion, Awaiting {
  enum class Kind : std::uint8_t { transfer, child, read_pieces, write_pieces, accumulate, copy, request, send, send_long, flush };

  Engine::Core* core = nullptr;
  Operation* next = nullptr;              ///< on the list of what is tried again, or of flushes that wait
  std::uint32_t index = 0;
  std::uint32_t parent = kNoRecord;       ///< child only
  std::uint32_t parcel = kNoRecord;
  Kind kind = Kind::transfer;
  std::uint8_t epoch = 0;
  bool posted = false;                    ///< send_long: the bytes are out
  Rank peer{};                            ///< whom it counts towards
  std::atomic<std::uint32_t> left{0};     ///< pieces under way, and one for the driver
  std::atomic<Status> worst{Status::ok};
  std::atomic<bool> completion_out{false};///< the transport holds our Completion
  Callback on_complete{};

  RemoteAddr remote{};                    ///< pieces, accumulate, send_long: where offsets count from. copy: the destination
  LocalAddr local{};
  Cursor cursor{};
  Piece* many = nullptr;                  ///< pieces that no parcel holds, in pages of their own (malloc is not for fault handlers)
  std::size_t many_bytes = 0;
  Element element{};
  std::complex<double> scale{};
  RemoteAddr source{};                    ///< copy
  std::uint64_t bytes = 0;                ///< copy, send_long: the bytes. request, send: of the payload
  HandlerId handler{};
  std::uint64_t* answer = nullptr;
  std::uint32_t generation = 0;           ///< flush: what it waits for at peer
  bool all = false;                       ///< flush: the ranks after peer too
};

/// What one part of a shipment belongs to. Neighbouring parts of one operation that needs nothing more are one.
struct Part {
  std::uint32_t operation;
  std::uint32_t pieces;
  std::uint32_t bytes;     ///< read only
  std::byte* to;           ///< read only
};

/// One message with pieces of several operations towards one peer.
struct Shipment : Awaiting {
  enum class Kind : std::uint8_t { write, read };
  // Bits of `state` of a read: its data and its answer come in either order, or the peer is lost. Above them its stamp, which is another at each use:
  // claiming the data is a compare-swap of both, so data that comes too late claims nothing.
  static constexpr std::uint64_t kClaimed = 1, kDelivered = 2, kAnswered = 4;
  static constexpr std::uint32_t kStampShift = 32;

  std::uint32_t index = 0;
  Kind kind = Kind::write;
  Rank peer{};
  std::uint32_t used = 0;          ///< of payload
  std::uint32_t parts = 0;
  std::uint32_t answer_bytes = 0;  ///< read: what the data will take
  std::uint32_t stamp = 0;         ///< read: of this use
  std::atomic<std::uint64_t> state{kClaimed};
  std::array<Part, wire::kMaxEntries> part;
  alignas(8) std::array<std::byte, kMaxPayload> payload;
};

}  // namespace kasane::comm
