// SPDX-License-Identifier: Apache-2.0
#include "base/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

namespace kasane {

ProgressLine::ProgressLine() noexcept : terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(std::string_view text) const {
  std::fflush(stdout);  // what was printed before, which may be on the same terminal
  std::fputs((terminal_ ? fmt::format("\r\033[K{}", text) : fmt::format("{}\n", text)).c_str(), stderr);
}

void ProgressLine::clear() const {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

std::string ProgressLine::bar(double part) {
  constexpr std::size_t kWidth = 24;
  const auto full = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * kWidth);
  return "[" + std::string(full, '#') + std::string(kWidth - full, '.') + "]";
}

}  // namespace kasane
