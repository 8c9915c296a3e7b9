// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <iterator>
#include <memory>

#include "base/malloc_allocator.h"
#include "base/process.h"

namespace kasane {
namespace {

std::atomic<LogLevel> least_level{LogLevel::warning};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::trace: return spdlog::level::trace;
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: break;
  }
  return spdlog::level::off;
}

// Never destroyed: threads may log until the process ends.
spdlog::logger& logger() {
  static auto* made = [] {
    auto* fresh = new spdlog::logger("kasane", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    fresh->set_level(spdlog::level::trace);  // least_level decides
    fresh->set_pattern("%H:%M:%S.%f %l %v");
    fresh->flush_on(spdlog::level::trace);
    return fresh;
  }();
  return *made;
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kLogLevels); ++i)
    if (kLogLevels[i] == name) return static_cast<LogLevel>(i);
  return fail(Errc::invalid_argument,
              fmt::format("log level {}: expected one of {}", name, fmt::join(kLogLevels, ", ")));
}

// relaxed, both: a filter; a message that crosses a change of level may go either way.
void set_log_level(LogLevel level) noexcept { least_level.store(level, std::memory_order_relaxed); }
bool log_enabled(LogLevel level) noexcept {
  return level != LogLevel::off && level >= least_level.load(std::memory_order_relaxed);
}

void vlog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  // Grows on libc's heap only: where operator new is global memory, a long message must not lie there.
  fmt::basic_memory_buffer<char, 512, MallocAllocator<char>> line;
  char self[64];
  const std::size_t bytes = describe_self(self, sizeof self);
  fmt::format_to(std::back_inserter(line), "[{}] ", std::string_view(self, bytes));
  fmt::vformat_to(std::back_inserter(line), format, args);
  logger().log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace kasane
