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

}  // namespace

// The worker makes progress between other threads: perhaps no other OS thread is awake to do so.
void YieldWaiter::wait(bool (*ready)(const void*), const void* arg) {
  for (int turns = 0; transport_.progress(), !ready(arg); ++turns) {
    if (turns >= kPatience) ::sched_yield();
    if (ult::Pool::wait_here(ready, arg)) continue;
    std::optional<Spent> spent;
    if (counters_.places != nullptr) spent.emplace(counters_, Account::wait_network);
    poll_.until([&] { return ready(arg) || ult::Pool::others_here(); });
  }
}

}  // namespace kasane::runtime
