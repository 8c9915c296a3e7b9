// SPDX-License-Identifier: Apache-2.0
// What a requester passes to the offload engine (comm/offload), and the interface that carries it out. After
// the thesis's §4.4: the requester copies its parameters into a command; the executor issues it and, polling,
// runs the callback.
//
//   Engine::try_*_async ─checks─▶ Command ─ring─▶ executor ─▶ Issuer::issue ─counts─▶ Transport
//                                                                          progress() ─▶ callback
//
// Both lie in comm so that the offloader need not include the engine: the engine builds an offloader, which
// knows the engine only as an Issuer.
//
// Thread safety: Command is plain data. The executor calls issue() with each command until it returns done,
// and hold() at most once for each command that it took from the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "comm/operations.h"

namespace kasane::comm {

/// One posted operation whose arguments have been checked. Short ones travel whole. For others (strides,
/// pieces, payloads) the requester has filled a record of the engine's pool, and the command names it.
struct Command {
  enum class Kind : std::uint8_t { read, write, write_notify, atomic, prepared };
  static constexpr std::uint8_t kUncounted = 0xFF;
  struct Transfer {
    LocalAddr local;
    std::uint64_t bytes;
    std::uint64_t flag_offset, value;  ///< write_notify only
  };
  struct Atomic {
    std::uint64_t operand, compare;
    std::uint64_t* result;
  };

  Kind kind;
  AtomicOp op;                      ///< atomic only
  Width width;                      ///< atomic only
  std::uint8_t epoch = kUncounted;  ///< the epoch of the peer's flush counters in which it counts
  std::uint32_t record;             ///< prepared only: index in the engine's pool
  /// remote.rank is its target, also where kind is prepared: a blocked peer should delay its own commands
  /// only
  RemoteAddr remote;
  Callback on_complete;
  union {
    Transfer transfer;
    Atomic atomic;
  };
};
static_assert(std::is_trivially_copyable_v<Command>, "cells of the ring are copied as bytes");
static_assert(sizeof(Command) <= 120, "with its turn a cell of the ring is at most two cache lines");

/// done: it was issued, its callback runs once (perhaps it ran already). again: a queue is full and nothing
/// happened; make progress, then try again.
enum class [[nodiscard]] Issued : std::uint8_t { done, again };

class Issuer {
 public:
  virtual Issued issue(const Command&) noexcept = 0;
  /// The command, or an older one of its peer, was answered again: it has left the ring and will be issued
  /// later. May change it.
  virtual void hold(Command&) noexcept = 0;

 protected:
  ~Issuer() = default;
};

}  // namespace kasane::comm
