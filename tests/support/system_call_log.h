// SPDX-License-Identifier: Apache-2.0
// Which system calls a thread makes while a function runs: a filter (seccomp) makes each of them a signal,
// whose handler notes it and then makes the call from the one place that the filter lets through. So nothing
// of the machine is needed, no tracer and no right, and no call escapes: neither those of libraries nor those
// made in signal handlers (except where SIGSYS is blocked: the kernel ends the process there).
//
// The filter stays on the thread, and on those that it begins later, until they end; each of their calls
// costs a signal then. Thread safety: during() by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kasane::test {

struct SystemCall {
  long number = 0;
  std::uint64_t arguments[6] = {};
  friend bool operator==(const SystemCall&, const SystemCall&) = default;
};

/// Can calls be logged here? Processor and kernel decide.
[[nodiscard]] bool system_calls_can_be_logged();
/// Those that this thread makes in `function`, at most 1024; calls that begin or end threads and processes
/// are not among them.
[[nodiscard]] std::vector<SystemCall> system_calls_during(const std::function<void()>& function);
/// "ioctl(0x5, 0xc020aa07, …)", as far as numbers have names here.
[[nodiscard]] std::string to_string(const SystemCall&);

}  // namespace kasane::test
