// SPDX-License-Identifier: Apache-2.0
// Says on standard error how far a suite is, a run at a time: a bar where that is a terminal, else a line a
// run. Standard output is left to the results.
//
//   Progress progress(cases.size() * repetitions);
//   for (…) progress.begin("stencil N = 512"), …;
//
// Thread safety: one thread. Invariant: the terminal's line is clean when it has gone, and after pause().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/progress_line.h"

namespace kasane::bench {

class Progress {
 public:
  explicit Progress(std::size_t runs) : runs_(std::max<std::size_t>(runs, 1)) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { pause(); }

  /// The next run begins.
  void begin(const std::string& what);
  /// Takes the bar away, so that something else may be written; until the next begin().
  void pause() { line_.clear(); }

 private:
  const std::size_t runs_;
  const ProgressLine line_;
  const std::uint64_t start_ = now_ns();
  std::size_t done_ = 0;
};

}  // namespace kasane::bench
