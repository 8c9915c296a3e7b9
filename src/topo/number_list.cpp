// SPDX-License-Identifier: Apache-2.0
#include "topo/number_list.h"

#include <algorithm>
#include <charconv>

namespace kasane::topo {

std::optional<std::vector<std::uint32_t>> parse_list(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::uint32_t first = 0;
    auto read = std::from_chars(at, end, first);
    std::uint32_t last = first;
    if (read.ec != std::errc()) return std::nullopt;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || last < first || last - first > 65535) return std::nullopt;
    for (std::uint32_t i = 0; i <= last - first; ++i) numbers.push_back(first + i);
    if (read.ptr == end) return numbers;
    if (*read.ptr != ',') return std::nullopt;
    at = read.ptr + 1;
  }
}

std::string list_text(std::vector<std::uint32_t> numbers) {
  std::ranges::sort(numbers);
  const auto same = std::ranges::unique(numbers);
  numbers.erase(same.begin(), same.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[first]);
    if (i != first) text += "-" + std::to_string(numbers[i]);
  }
  return text.empty() ? "none" : text;
}

}  // namespace kasane::topo
