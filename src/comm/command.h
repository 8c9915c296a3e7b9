// SPDX-License-Identifier: Apache-2.0
// What a requester hands to the offload engine (comm/offload), and who carries it out. After the thesis's §4.4: the requester copies its parameters into
// a command, the executor issues it, the completer runs the callback.
//
//   Engine::try_*_async ──checks──▶ Command ──ring──▶ executor ──▶ Issuer::issue (the Engine's) ──counts──▶ Transport ──▶ progress() ──▶ callback
//
// Both lie in comm so that neither the engine nor the offloader includes the other's folder the wrong way round: the engine builds an offloader,
// which knows of the engine no more than Issuer.
//
// Thread safety: Command is plain data. issue() is called by any number of executors at once, each command once until it says done; hold() at
// most once for each, by the executor that took it from its ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "comm/operations.h"

namespace kasane::comm {

/// One posted operation whose arguments have been checked. Short ones travel whole; what does not fit (strides, pieces, payloads) was put into a record
/// of the engine's pool by the requester, and the command names it.
struct Command {
  enum class Kind : std::uint8_t { read, write, write_notify, atomic, prepared };
  static constexpr std::uint8_t kUncounted = 0xFF;
  struct Transfer {
    LocalAddr local;
    std::uint64_t bytes;
    std::uint64_t flag_offset, value;   ///< write_notify only
  };
  struct Atomic {
    std::uint64_t operand, compare;
    std::uint64_t* result;
  };

  Kind kind;
  AtomicOp op;                 ///< atomic only
  Width width;                 ///< atomic only
  std::uint8_t epoch = kUncounted;   ///< of the peer's flush counters in which it counts
  std::uint32_t record;        ///< prepared only: index in the engine's pool
  RemoteAddr remote;           ///< remote.rank is whom it goes to, also where kind is prepared: a blocked peer should hold up its own commands only
  Callback on_complete;
  union {
    Transfer transfer;
    Atomic atomic;
  };
};
static_assert(std::is_trivially_copyable_v<Command>, "cells of the ring are copied as bytes");
static_assert(sizeof(Command) <= 120, "with its turn a cell of the ring is at most two cache lines");

/// done: it is on its way, its callback runs once (perhaps it ran already). again: a queue is full and nothing happened; make progress, then try again.
enum class [[nodiscard]] Issued : std::uint8_t { done, again };

class Issuer {
 public:
  virtual Issued issue(const Command&) noexcept = 0;
  /// It was answered again, or its peer's older ones were: the command has left the ring and will be issued later. May change it.
  virtual void hold(Command&) noexcept = 0;

 protected:
  ~Issuer() = default;
};

}  // namespace kasane::comm
