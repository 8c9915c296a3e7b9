// SPDX-License-Identifier: Apache-2.0
// Levelled messages to standard error, each a line with time, level, rank and thread:
//
//   12:00:01.123456 warning [rank 2 worker 1] spill: /tmp is on a tmpfs
//
// The message is complete, in memory of its own, before the logger is entered. An argument may lie in the
// coherent view and fault while it is formatted, but never under the logger's lock (rule 10). Not for signal
// handlers, fault handlers or service threads: those use KASANE_CHECK or print nothing.
// Thread safety: any.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace kasane {

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error, off };

/// The names accepted by parse_log_level(), in order.
inline constexpr std::string_view kLogLevels[] = {"trace", "debug", "info", "warning", "error", "off"};
Result<LogLevel> parse_log_level(std::string_view name);

/// Messages below level are not formatted. `warning` until set.
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// Formats, then writes. Prefer log().
void vlog(LogLevel level, fmt::string_view format, fmt::format_args args);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) vlog(level, format, fmt::make_format_args(args...));
}

}  // namespace kasane
