// SPDX-License-Identifier: Apache-2.0
#include "runtime/yield_waiter.h"

#include <sched.h>

#include "ult/pool.h"

namespace kasane::runtime {
namespace {

constexpr int kPatience = 64;   ///< turns in vain after which other OS threads (the service thread, other ranks) get the core

struct Question {
  comm::Transport& transport;
  bool (*ready)(const void*);
  const void* arg;
};

/// Asked by the worker between other threads: nobody else may be awake to move the operation on.
bool answered(const void* p) {
  const auto& q = *static_cast<const Question*>(p);
  q.transport.progress();
  return q.ready(q.arg);
}

}  // namespace

void YieldWaiter::wait(bool (*ready)(const void*), const void* arg) {
  const Question question{transport_, ready, arg};
  for (int turns = 0; !answered(&question); ++turns) {
    if (turns >= kPatience) ::sched_yield();
    if (!ult::Pool::wait_here(answered, &question)) poll_.until([&] { return ready(arg) || ult::Pool::others_here(); });
  }
}

}  // namespace kasane::runtime
