// SPDX-License-Identifier: Apache-2.0
// Serves a rank's messages beside a test, and sleeps without limit in between: whatever the doorbells lose is
// a hang. Thread safety: constructed and destroyed by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "comm/transport.h"

namespace kasane::test {

class ServiceThread {
 public:
  explicit ServiceThread(comm::Transport& t) : transport_(t), thread_([this] { loop(); }) {}
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread() {
    stop_.store(true, std::memory_order_seq_cst);  // before the wake-up below
    transport_.wake(transport_.rank(), comm::Doorbell::messages);
    thread_.join();
  }

 private:
  void loop() {
    for (;;) {
      const std::uint32_t seen = transport_.activity(comm::Doorbell::messages);
      while (transport_.progress()) {
      }
      if (stop_.load(std::memory_order_seq_cst)) return;
      transport_.sleep(comm::Doorbell::messages, seen, -1);
    }
  }
  comm::Transport& transport_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace kasane::test
