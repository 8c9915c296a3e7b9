// SPDX-License-Identifier: Apache-2.0
#include "runtime/table_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace kasane::runtime {
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

std::string in_units(std::uint64_t value, Unit unit) {
  static constexpr std::string_view kBytes[] = {"B", "KiB", "MiB", "GiB", "TiB"}, kTimes[] = {"ns", "µs", "ms", "s"}, kThousands[] = {"", "k", "M", "G"};
  if (value == 0 || unit == Unit::count) return fmt::format("{}", value);
  if (unit == Unit::thousands) return value < 1000 ? fmt::format("{}", value) : scaled(value, 1000, kThousands);
  return unit == Unit::bytes ? scaled(value, 1024, kBytes) : scaled(value, 1000, kTimes);
}

std::string table_row(std::string_view name, std::span<const std::uint64_t> values, Unit unit, std::string_view help) {
  if (std::ranges::all_of(values, [](std::uint64_t v) { return v == 0; })) return {};
  const bool time = name.starts_with("ns_");
  std::string line = fmt::format("{:<18}", fmt::format("{}{}", time ? "time_" : "", time ? name.substr(3) : name));
  for (const std::uint64_t v : values) fmt::format_to(std::back_inserter(line), " {:>14}", in_units(v, unit));
  return fmt::format("{}  {}\n", line, help);
}

}  // namespace kasane::runtime
