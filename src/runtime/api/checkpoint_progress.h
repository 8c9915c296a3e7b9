// SPDX-License-Identifier: Apache-2.0
// How far a checkpoint is, on standard error (--progress): a line that is overwritten on a terminal, else one
// line every five seconds and one at the end.
// A thread that has just done a part shows the sum when it is time; no thread waits for it.
//
// Thread safety: all ranks at once, through three words of global memory that are accessed by the direct view
// only.
#pragma once

#include <kasane/kasane.h>
#include <cstdint>
#include <string_view>

#include "base/progress_line.h"

namespace kasane::runtime {

class CheckpointProgress {
 public:
  /// mode: auto, on or off. The caller's rank decides once.
  enum class Show : std::uint8_t { nothing, over_and_over, lines };
  [[nodiscard]] static Show show(std::string_view mode);

  /// In global memory.
  struct Words {
    std::uint64_t done, stored, shown;
  };
  static void clear(Words&) noexcept;

  /// For one thread that takes part, by the clock of its host. verb: "persist" or "restore"; both texts
  /// outlive the object.
  CheckpointProgress(Words&, Show, const char* verb, const char* path, std::uint64_t bytes,
                     std::uint64_t start_ns);
  /// Adds bytes that are done, and how many of them are in the file (the others are zeros).
  void add(std::uint64_t done, std::uint64_t stored);
  /// All is done. Called by one thread.
  void end();

 private:
  [[nodiscard]] double seconds() const noexcept;
  Words& words_;
  Show show_;
  ProgressLine line_;
  const char* verb_;
  const char* path_;
  std::uint64_t bytes_, start_ns_;
};

}  // namespace kasane::runtime
