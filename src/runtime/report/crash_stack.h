// SPDX-License-Identifier: Apache-2.0
// Stack traces for crash reports. Async-signal-safe as far as possible: no allocation, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/rank/crash_text.h"

namespace kasane::runtime {

struct Frame {
  std::uintptr_t address;
  bool exact;           ///< the instruction itself (where a signal came), not a return address
  std::uint32_t times;  ///< consecutive occurrences: a recursion
};
inline constexpr std::size_t kMaxFrames = 48;

struct Backtrace {
  Frame frames[kMaxFrames];
  std::size_t count = 0;
  std::uintptr_t stack_pointer = 0;  ///< of the code that the signal interrupted; 0: no signal
};

/// The frames of the code that a signal interrupted; outside of a handler those of the caller. registers: the
/// handler's ucontext, or null.
void unwind(const void* registers, Backtrace& out) noexcept;

/// unwind() of a stack that may be destroyed, or a stale copy. False: it faulted; out has the frames before.
bool try_unwind(const void* registers, Backtrace& out) noexcept;
/// First in each handler of faults: in try_unwind() it goes back there, and does not return.
void leave_try_unwind() noexcept;

/// unwind() by the chain of frame pointers alone, which reads no memory that may be missing.
void follow_frame_pointers(const void* registers, Backtrace& out) noexcept;

/// Of the code that a signal interrupted.
[[nodiscard]] std::uintptr_t stack_pointer_of(const void* registers) noexcept;

/// Drops the frames of libkasane at both ends.
void leave_out_runtime(Backtrace&) noexcept;

/// Drops those of abort() and of a throw at the beginning: libc's and libstdc++'s, and libkasane's before
/// them.
void leave_out_end(Backtrace&) noexcept;

/// The frames where the exception was thrown that the calling thread handles, or that nobody catches, if they
/// were noted (base/throw_site.h).
void find_throw(Backtrace&) noexcept;

/// Appends the name of the variable at address, if a symbol covers it. False: none does.
bool describe_variable(CrashText& text, const void* address) noexcept;

/// Appends the name of the program's thread_local at this offset in each thread's block. False: none is.
bool describe_thread_local(CrashText& text, std::uintptr_t offset) noexcept;

/// Appends the address of data, and behind it the name of the variable there, in brackets, if it has one.
CrashText& describe_data(CrashText& text, const void* address) noexcept;

struct CodeInFile {
  std::string file;  ///< of the object
  std::uintptr_t address;
};
/// Where the code at address comes from; none: nothing is loaded there. Not in a handler: allocates.
[[nodiscard]] std::optional<CodeInFile> code_in_file(std::uintptr_t address);

/// Appends "function+0x12 (/path/of/object+0x1234)", as much of it as is known.
void describe(CrashText& text, Frame frame) noexcept;

}  // namespace kasane::runtime
