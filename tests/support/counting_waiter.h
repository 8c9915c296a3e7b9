// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

#include "comm/waiter.h"

namespace kasane::test {

/// Polls, and counts the threads that wait in it: a test goes on when so many do.
class CountingWaiter final : public comm::Waiter {
 public:
  std::atomic<unsigned> waiting{0};

 protected:
  void wait(bool (*ready)(const void*), const void* argument) override {
    waiting.fetch_add(1);
    while (!ready(argument)) std::this_thread::yield();
    waiting.fetch_sub(1);
  }
};

}  // namespace kasane::test
