// SPDX-License-Identifier: Apache-2.0
// --check threads: how many of the program's OS threads have run on this rank, what they and main have waited
// for, and which of their calls were made on other ranks, each of them a wait for a thread there.
//
// Thread safety: any OS thread; begin() before the program runs, text() when it has ended.
#pragma once

#include <cstdint>
#include <string>

namespace kasane::runtime {

class ThreadsCheck {
 public:
  static void begin() noexcept;
  // Nothing where it has not begun. Names are literals.
  static void add_thread() noexcept;
  static void add_wait(const char* call, std::uint64_t ns) noexcept;
  static void add_call_elsewhere(const char* call) noexcept;
  [[nodiscard]] static bool on() noexcept;
  /// Of this rank. Empty: it has not begun.
  [[nodiscard]] static std::string text();
};

}  // namespace kasane::runtime
