// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <fmt/format.h>

namespace kasane::bench {

void Progress::begin(const std::string& what) {
  if (line_.terminal()) {
    const std::uint64_t passed = (now_ns() - start_) / 1'000'000'000;
    const std::string left =
        done_ == 0 ? "" : fmt::format(", {} s left", passed * (runs_ - std::min(runs_, done_)) / done_);
    line_.show(fmt::format("{} {}/{} {}{}",
                           ProgressLine::bar(static_cast<double>(done_) / static_cast<double>(runs_)), done_,
                           runs_, what, left));
  } else {
    line_.show(fmt::format("{}/{} {} …", done_ + 1, runs_, what));
  }
  ++done_;
}

}  // namespace kasane::bench
