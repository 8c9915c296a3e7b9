// SPDX-License-Identifier: Apache-2.0
// A line on standard error that says how far something is: written over and over where that is a terminal,
// else a new line each time.
//
// Thread safety: one thread at a time. Invariant: the terminal's line is clean after clear().
#pragma once

#include <string>
#include <string_view>

namespace kasane {

class ProgressLine {
 public:
  ProgressLine() noexcept;
  explicit ProgressLine(bool terminal) noexcept : terminal_(terminal) {}

  [[nodiscard]] bool terminal() const noexcept { return terminal_; }
  /// How often a reader wants to see it, in seconds.
  [[nodiscard]] double interval() const noexcept { return terminal_ ? 0.2 : 5.0; }
  void show(std::string_view text) const;
  void clear() const;
  /// "[######..................]"; part: 0 to 1, more counts as 1.
  [[nodiscard]] static std::string bar(double part);

 private:
  bool terminal_;
};

}  // namespace kasane
