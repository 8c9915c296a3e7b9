// SPDX-License-Identifier: Apache-2.0
// How far a checkpoint is, on standard error (--progress): a line that is written over and over on a terminal, else one every five seconds and one at the end.
// Whoever has just done a part of it shows the sum if it is time, so nobody waits only to look.
//
// Thread safety: all ranks at once, through three words of global memory that are only accessed directly.
#pragma once

#include <cstdint>
#include <kasane/kasane.h>
#include <string_view>

#include "base/progress_line.h"

namespace kasane::runtime {

class CheckpointProgress {
 public:
  /// mode: auto, on or off. Decided once, by the caller's rank.
  enum class Show : std::uint8_t { nothing, over_and_over, lines };
  [[nodiscard]] static Show show(std::string_view mode);

  /// In global memory.
  struct Words {
    std::uint64_t done, stored, shown;
  };
  static void clear(Words&) noexcept;

  /// Of one thread that takes part, by the clock of its host. verb: "persist" or "restore"; both texts outlive it.
  CheckpointProgress(Words&, Show, const char* verb, const char* path, std::uint64_t bytes, std::uint64_t start_ns);
  /// So many bytes more are done, so many of them in the file (the others are zeros).
  void add(std::uint64_t done, std::uint64_t stored);
  /// All is done. By one thread.
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
