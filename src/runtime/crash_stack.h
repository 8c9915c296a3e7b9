// SPDX-License-Identifier: Apache-2.0
// Stack traces for crash reports. Async-signal-safe as far as that can be: no allocation, no locks; the unwinder may fault on a
// destroyed stack, for which the caller must be ready.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/crash_text.h"

namespace kasane::runtime {

struct Frame {
  std::uintptr_t address;
  bool exact;             ///< the instruction itself (where a signal came), not a return address
  std::uint32_t times;    ///< so often in a row: a recursion
};
inline constexpr std::size_t kMaxFrames = 48;

struct Backtrace {
  Frame frames[kMaxFrames];
  std::size_t count = 0;
  std::uintptr_t stack_pointer = 0;   ///< of the code that the signal interrupted; 0: no signal did
};

/// The frames of the code that a signal interrupted; in no handler, those of the caller. registers: the handler's ucontext, or null.
void unwind(const void* registers, Backtrace& out) noexcept;

/// Appends "function+0x12 (/path/of/object+0x1234)", as much of it as is known.
void describe(CrashText& text, Frame frame) noexcept;

}  // namespace kasane::runtime
