// SPDX-License-Identifier: Apache-2.0
// The offload engine (thesis, §4.4): requesters put commands into bounded rings and go on with their work; executors issue them; a completer polls the
// transport and runs callbacks.
//
//   requesters ──try_push──▶ ring 0 ──▶ executor 0 ──Issuer::issue──▶ Transport ──progress()──▶ callbacks
//              └───────────▶ ring 1 ──▶ executor 1 ──┘                    ▲ by executor 0, or by a completer of its own
//
// A requester's thread always uses the same ring. Nothing spins while there is nothing to do: each thread spins for some microseconds, yields, then sleeps
// on a doorbell until a command or an arrival rings it.
//
// Thread safety: try_push() from any thread, also from callbacks, handlers and fault handlers: it neither allocates nor waits nor locks. drain() and the
// destructor from threads that run no callbacks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/command.h"
#include "comm/offload/executor.h"
#include "comm/transport.h"

namespace kasane::comm {

class Offloader {
 public:
  struct Options {
    std::uint32_t executors = 1;         ///< threads that issue, each with a ring of its own
    bool separate_completer = false;     ///< true: a thread of its own polls, else the first executor does
    std::uint32_t ring_commands = 1024;  ///< capacity of a ring, a power of two, at least 2
  };

  /// Starts the threads. Both references must outlive the offloader. Errors: bad options, or no more threads.
  static Result<std::unique_ptr<Offloader>> start(Transport&, Issuer&, const Options&);
  /// Issues everything that was accepted, then ends the threads; nobody pushes any more, callbacks included. Operations may still be under way: their
  /// callbacks run in whoever calls progress().
  ~Offloader();
  Offloader(const Offloader&) = delete;
  Offloader& operator=(const Offloader&) = delete;

  /// Accepts a command whose arguments are valid; Issuer::issue will get it once until it says done. False: its ring is full, or its peer takes nothing at
  /// the moment; nothing happened, try again later.
  [[nodiscard]] bool try_push(const Command& command) noexcept {
    return executors_.size() == 1 ? executors_.front()->try_push(command) : own_executor().try_push(command);
  }

  /// Into the ring of that executor, for what has to go through all of them.
  [[nodiscard]] bool try_push(const Command& command, std::uint32_t executor) noexcept { return executors_[executor]->try_push(command); }
  [[nodiscard]] std::uint32_t executors() const noexcept { return static_cast<std::uint32_t>(executors_.size()); }
  /// Has everything accepted before the call been issued? Never waits.
  [[nodiscard]] bool issued_everything() const noexcept {
    return std::all_of(executors_.begin(), executors_.end(), [](const auto& e) { return e->issued_all_before(e->accepted()); });
  }

  /// Returns when everything accepted before the call has been issued (which is not to say completed).
  void drain() const;

 private:
  Offloader(Transport&, Issuer&, const Options&);
  Result<void> start_threads(bool separate_completer);
  [[nodiscard]] offload::Executor& own_executor() const noexcept;
  void complete() noexcept;

  Transport& transport_;
  const bool alone_;   ///< one core only: nobody spins
  std::vector<std::unique_ptr<offload::Executor>> executors_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace kasane::comm
