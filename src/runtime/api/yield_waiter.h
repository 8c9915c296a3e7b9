// SPDX-License-Identifier: Apache-2.0
// How a user-level thread waits for the network: its worker runs other threads meanwhile (latency hiding,
// Endo's thesis §4.3).
//
// For operations that complete later (Facts::completes_inline is false), on a user-level thread, and only
// where the thread holds nothing that another one could wait for: no block's bit, no pin, no use of a page
// that the engine has not taken over. So never in a fault handler (a thread that has left one may), and in
// dsm only before blocks are claimed, and not while a put is issued.
//
// Thread safety: belongs to the calling thread. Invariant: the thread continues on the worker where it began
// to wait, so buffers and completions on its stack, and the worker's context, remain valid (Pool::wait_here).
#pragma once

#include "base/counters.h"
#include "comm/waiter.h"

namespace kasane::runtime {

class YieldWaiter final : public comm::Waiter {
 public:
  /// counters: the calling thread's
  YieldWaiter(comm::Transport& transport, Counters& counters) noexcept
      : transport_(transport), poll_(transport), counters_(counters) {}

 protected:
  void wait(bool (*ready)(const void*), const void* arg) override;

 private:
  comm::Transport& transport_;
  comm::PollWaiter poll_;
  Counters& counters_;
};

}  // namespace kasane::runtime
