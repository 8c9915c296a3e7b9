// SPDX-License-Identifier: Apache-2.0
#include "base/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace kasane {
namespace {

/// value of the first unit, in the largest of which it is at least one.
std::string scaled(std::uint64_t value, double step, std::span<const std::string_view> units) {
  auto v = static_cast<double>(value);
  std::size_t unit = 0;
  while (unit + 1 < units.size() && v >= step - 0.5) {   // what is rounded to a whole step is the next unit's
    v /= step;
    ++unit;
  }
  const int decimals = unit == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", v, decimals, units[unit]);
}

}  // namespace

std::string in_units(std::uint64_t value, Magnitude magnitude) {
  static constexpr std::string_view kBytes[] = {"B", "KiB", "MiB", "GiB", "TiB"}, kTimes[] = {"ns", "µs", "ms", "s"}, kThousands[] = {"", "k", "M", "G"};
  if (value == 0 || magnitude == Magnitude::count) return fmt::format("{}", value);
  if (magnitude == Magnitude::thousands) return value < 1000 ? fmt::format("{}", value) : scaled(value, 1000, kThousands);
  return magnitude == Magnitude::bytes ? scaled(value, 1024, kBytes) : scaled(value, 1000, kTimes);
}

std::string TextTable::line(std::span<const std::string> cells) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(cells.size(), widths_.size()); ++i) {
    if (i != 0) text += ' ';
    const auto to = std::back_inserter(text);
    if (widths_[i] < 0) fmt::format_to(to, "{:<{}}", cells[i], -widths_[i]);
    else fmt::format_to(to, "{:>{}}", cells[i], widths_[i]);
  }
  return text + "\n";
}

}  // namespace kasane
