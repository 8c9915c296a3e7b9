// SPDX-License-Identifier: Apache-2.0
// The engine's records: one for each operation that did not complete at once, and one for each outstanding
// message that carries pieces of several operations. They lie in tables made at start (IndexPool names the
// free ones), so posting never allocates.
//
// A record is taken by the poster, then driven by one thread at a time (drive.cpp) until everything is
// posted. In the thread that completes the last piece `left` reaches 0: the record is freed, then its
// callback runs.
//
// Thread safety: plain fields belong to the driver, and after `left` = 0 to the thread that brought it to 0.
#pragma once

#include <array>
#include <atomic>
#include <complex>

#include "comm/command.h"
#include "comm/engine/cursor.h"
#include "comm/engine/engine.h"
#include "comm/engine/wire.h"

namespace kasane::comm {

/// A request whose answer the poll hook looks for.
struct OutstandingRequest {
  /// on the list of outstanding requests (Operation has another `next` for other lists)
  OutstandingRequest* next = nullptr;
  PendingReply reply{};
  std::uint64_t value = 0;  ///< the answer
  void (*answered)(Engine::Core&, OutstandingRequest&, std::uint64_t value, Status) noexcept = nullptr;
};

inline constexpr std::uint32_t kNoRecord = 0xFFFFFFFFu;

/// Holds the parameters that an operation needs after the call has returned: payload, head or pieces.
struct ArgumentBuffer {
  alignas(8) std::array<std::byte, kMaxPayload> bytes;
};

struct Operation : Completion, OutstandingRequest {
  enum class Kind : std::uint8_t {
    transfer,
    child,
    read_pieces,
    write_pieces,
    accumulate,
    copy,
    request,
    send,
    flush
  };

  Engine::Core* core = nullptr;
  Operation* next = nullptr;  ///< on the retry list, or on the list of waiting flushes
  std::uint32_t index = 0;
  std::uint32_t parent = kNoRecord;  ///< child only
  std::uint32_t arguments = kNoRecord;
  Kind kind = Kind::transfer;
  std::uint8_t epoch = 0;
  Rank peer{};                         ///< the rank towards which it counts
  std::atomic<std::uint32_t> left{0};  ///< outstanding pieces, and one for the driver
  std::atomic<Status> worst{Status::ok};
  std::atomic<bool> completion_out{false};  ///< the transport holds our Completion
  Callback on_complete{};

  /// pieces, accumulate: where offsets count from. copy: the destination
  RemoteAddr remote{};
  LocalAddr local{};
  Cursor cursor{};
  /// pieces that no buffer holds, in mapped pages (a fault handler must not call malloc)
  Piece* many = nullptr;
  std::size_t many_bytes = 0;
  Element element{};
  std::complex<double> scale{};
  RemoteAddr source{};      ///< copy
  std::uint64_t bytes = 0;  ///< copy: the bytes. request, send: of the payload
  HandlerId handler{};
  std::uint64_t* answer = nullptr;
  std::uint32_t generation = 0;  ///< flush: the generation of peer that it waits for
  bool all = false;              ///< flush: the ranks after peer too
};

/// The operation that one part of a pack belongs to. Neighbouring parts of one write operation are merged.
struct PackPart {
  std::uint32_t operation;
  std::uint32_t pieces;
  std::uint32_t bytes;  ///< read only
  std::byte* to;        ///< read only
};

/// One message with pieces of several operations towards one peer.
struct Pack : OutstandingRequest {
  enum class Kind : std::uint8_t { write, read };
  // Bits of `state` of a read: its data and its answer come in either order, or the peer is lost. Above them
  // is its stamp, which changes with each use. Claiming the data is a compare-swap of both, so data that
  // comes too late claims nothing.
  static constexpr std::uint64_t kClaimed = 1, kDelivered = 2, kAnswered = 4;
  static constexpr std::uint32_t kStampShift = 32;

  std::uint32_t index = 0;
  Kind kind = Kind::write;
  Rank peer{};
  std::uint32_t used = 0;  ///< of payload
  std::uint32_t parts = 0;
  std::uint32_t answer_bytes = 0;  ///< read: the size of the data message
  std::uint32_t stamp = 0;         ///< read: of this use
  std::atomic<std::uint64_t> state{kClaimed};
  std::array<PackPart, wire::kMaxEntries> part;
  alignas(8) std::array<std::byte, kMaxPayload> payload;
};

}  // namespace kasane::comm
