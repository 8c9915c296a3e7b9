// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/yield_waiter.h"

#include <sched.h>

#include <optional>

#include "base/time_spent.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

/// fruitless turns before the worker yields the core to other OS threads (the service thread, other ranks)
constexpr int kPatience = 64;

struct Question {
  comm::Transport& transport;
  bool (*ready)(const void*);
  const void* arg;
};

/// The worker calls it between other threads: perhaps no other OS thread is awake to make progress.
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
    if (ult::Pool::wait_here(answered, &question)) continue;
    std::optional<Spent> spent;
    if (counters_.places != nullptr) spent.emplace(counters_, Account::wait_network);
    poll_.until([&] { return ready(arg) || ult::Pool::others_here(); });
  }
}

}  // namespace kasane::runtime
