// SPDX-License-Identifier: Apache-2.0
// The threads of a rank that wait in PollWaiter at a time. Each event wakes all who sleep on the doorbell, so
// where a thousand wait, each answer would make a thousand look. So few have a *place*: they poll, and sleep
// on the doorbell. Who has none sleeps here until one with a place leaves, and looks by itself after a time
// that grows with their number, since those with places may wait for what it does.
//
// Thread safety: everything from any thread, also from a fault handler.
#pragma once

#include <atomic>
#include <cstdint>

namespace kasane::comm {

class Crowd {
 public:
  Crowd() noexcept;

  /// One thread, while it waits.
  class Member {
   public:
    explicit Member(Crowd&) noexcept;
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    /// Whether it has one, or gets one now.
    [[nodiscard]] bool has_place() noexcept;
    void sleep_without() const noexcept;

   private:
    Crowd& crowd_;
    bool has_place_ = false;
  };

 private:
  const std::uint32_t places_;
  std::atomic<std::uint32_t> waiting_{0}, taken_{0};
  std::atomic<std::uint32_t> nobody_{0};  ///< they sleep on it; it stays 0
};

}  // namespace kasane::comm
