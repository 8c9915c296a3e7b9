// SPDX-License-Identifier: Apache-2.0
// Tables for readers: lines of cells in columns, and numbers with units. Programs that want the numbers
// themselves have kasane::counter() and reports in JSON.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kasane {

/// count: to the last digit; thousands: as the others
enum class Magnitude : std::uint8_t { count, thousands, bytes, nanoseconds };

/// Three digits that count, and a unit: "4711", "4.71 k", "1.50 MiB", "5.35 s", "0".
[[nodiscard]] std::string in_units(std::uint64_t value, Magnitude);

/// The text in lines of at most 100 characters, broken at spaces, each with a line feed. The first begins
/// with `first`, the others with `rest`.
[[nodiscard]] std::string wrapped(std::string_view first, std::string_view rest, std::string_view text);

class TextTable {
 public:
  /// The columns' widths in characters; below 0 the cells begin at the left. The last one holds for all
  /// further columns, too.
  explicit TextTable(std::vector<int> widths) : widths_(std::move(widths)) {}
  /// The cells, a space between two, and a line feed. A cell that is wider than its column shifts those
  /// behind it.
  [[nodiscard]] std::string line(std::span<const std::string> cells) const;

 private:
  std::vector<int> widths_;
};

}  // namespace kasane
