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
  bool exact;   ///< the instruction itself (where a signal came), not a return address
};
inline constexpr std::size_t kMaxFrames = 48;

/// The frames of the code that a signal interrupted; in no handler, those of the caller. registers: the handler's ucontext, or null.
std::size_t unwind(const void* registers, Frame* frames, std::size_t room) noexcept;

/// Appends "function+0x12 (/path/of/object+0x1234)", as much of it as is known.
void describe(CrashText& text, Frame frame) noexcept;

}  // namespace kasane::runtime
