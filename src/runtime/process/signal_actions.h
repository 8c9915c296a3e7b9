// SPDX-License-Identifier: Apache-2.0
// What sigaction() of the program installs on one rank, all ranks take: a handler is code of the one image,
// and the thread that raises the signal may run on any rank.
//
//   a rank that calls sigaction()   takes the action itself; asks rank 0 for a number; tells all ranks,
//                                   itself included, and waits until each has it
//   a rank that is told             takes the action if its number is higher than that of the action that it
//                                   has for the signal (action_order.h)
//
// So calls of several ranks at the same time end with the same action everywhere: the one of the highest
// number. What a rank takes before it has a number is overtaken by that number's action.
//
// Thread safety: any thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "comm/blocking.h"
#include "comm/transport.h"

namespace kasane::runtime {

class SignalActions {
 public:
  explicit SignalActions(comm::Transport&);
  SignalActions(const SignalActions&) = delete;
  SignalActions& operator=(const SignalActions&) = delete;

  /// The calling rank has taken the action; returns when all ranks have it, or a later one.
  void tell_all(comm::Blocking&, int signal, const struct sigaction&);

 private:
  static void on_message(void* self, const comm::Message&) noexcept;

  comm::Transport& transport_;
  std::atomic<std::uint64_t> last_{0};  ///< on rank 0: the highest number
};

}  // namespace kasane::runtime
