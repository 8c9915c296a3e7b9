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
  while (unit + 1 < units.size() && v >= step - 0.5) {  // what is rounded to a whole step is the next unit's
    v /= step;
    ++unit;
  }
  const int decimals = unit == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", v, decimals, units[unit]);
}

}  // namespace

std::string in_units(std::uint64_t value, Magnitude magnitude) {
  static constexpr std::string_view kBytes[] = {"B", "KiB", "MiB", "GiB", "TiB"},
                                    kTimes[] = {"ns", "µs", "ms", "s"}, kThousands[] = {"", "k", "M", "G"};
  if (value == 0 || magnitude == Magnitude::count) return fmt::format("{}", value);
  if (magnitude == Magnitude::thousands)
    return value < 1000 ? fmt::format("{}", value) : scaled(value, 1000, kThousands);
  return magnitude == Magnitude::bytes ? scaled(value, 1024, kBytes) : scaled(value, 1000, kTimes);
}

std::string wrapped(std::string_view first, std::string_view rest, std::string_view text) {
  constexpr std::size_t kColumns = 100;
  std::string lines(first);
  std::size_t used = first.size();
  for (bool begins = true; !text.empty(); begins = false) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    // Bytes of UTF-8 that continue a character take no column.
    const auto width =
        static_cast<std::size_t>(std::ranges::count_if(word, [](char c) { return (c & 0xC0) != 0x80; }));
    if (!begins && used + 1 + width > kColumns) {
      lines.append("\n").append(rest);
      used = rest.size();
    } else if (!begins) {
      lines += ' ';
      ++used;
    }
    lines += word;
    used += width;
  }
  return lines + "\n";
}

std::string TextTable::line(std::span<const std::string> cells) const {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i != 0) text += ' ';
    const int width = widths_[std::min(i, widths_.size() - 1)];
    const auto to = std::back_inserter(text);
    if (width < 0)
      fmt::format_to(to, "{:<{}}", cells[i], -width);
    else
      fmt::format_to(to, "{:>{}}", cells[i], width);
  }
  return text + "\n";
}

}  // namespace kasane
