// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace kasane::bench {

Progress::Progress(std::size_t runs) : runs_(std::max<std::size_t>(runs, 1)), terminal_(::isatty(STDERR_FILENO) != 0), start_(now_ns()) {}

void Progress::begin(const std::string& what) {
  constexpr std::size_t kWidth = 24;
  if (terminal_) {
    const std::size_t full = std::min(kWidth, kWidth * done_ / runs_);
    const std::uint64_t passed = (now_ns() - start_) / 1'000'000'000;
    const std::string left = done_ == 0 ? "" : ", " + std::to_string(passed * (runs_ - std::min(runs_, done_)) / done_) + " s left";
    const std::string bar = std::string(full, '#') + std::string(kWidth - full, '.');
    std::fflush(stdout);   // what was printed before, which may be on the same terminal
    std::fprintf(stderr, "\r\033[K[%s] %zu/%zu %s%s", bar.c_str(), done_, runs_, what.c_str(), left.c_str());
  } else {
    std::fprintf(stderr, "%zu/%zu %s …\n", done_ + 1, runs_, what.c_str());
  }
  ++done_;
}

void Progress::pause() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

}  // namespace kasane::bench
