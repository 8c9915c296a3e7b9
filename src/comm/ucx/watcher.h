// SPDX-License-Identifier: Apache-2.0
// The thread that is told when a descriptor of UCX has an event. It rings the messages doorbell if that
// concerns threads of this rank, so that one sleep of theirs serves both. It sleeps in epoll_wait. A
// descriptor is reported once and is then disabled until it, or a thread that goes to sleep, enables it again
// (lane_lock.h).
//
// Thread safety: enable() from any thread, async-signal-safe. The thread blocks all signals.
#pragma once

#include <cstdint>
#include <thread>

#include "base/result.h"

namespace kasane::comm::ucx {

class Watcher {
 public:
  /// on_event(context, index): descriptor `index` had an event and is disabled now.
  using OnEvent = void (*)(void* context, std::uint32_t index) noexcept;

  Watcher() = default;
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  Result<void> start(OnEvent, void* context);
  void stop() noexcept;
  /// Adds fd, disabled.
  Result<void> add(int fd, std::uint32_t index);
  void enable(int fd, std::uint32_t index) const noexcept;

 private:
  void loop() const noexcept;
  int epoll_ = -1;
  int stop_ = -1;
  OnEvent on_event_ = nullptr;
  void* context_ = nullptr;
  std::thread thread_;
};

}  // namespace kasane::comm::ucx
