// SPDX-License-Identifier: Apache-2.0
// A line of text as an element to sort: a pointer into the text, and its first bytes beside it so that most
// comparisons read no text. Order: bytewise, a prefix before what it begins, as sort(1) in the C locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace apps {

struct Line {
  std::uint64_t head;  ///< first 8 bytes, the first one most significant, zeros after the end
  const char* text;
  std::uint64_t length;  ///< without the newline

  friend bool operator<(const Line& a, const Line& b) noexcept {
    if (a.head != b.head) return a.head < b.head;
    const std::size_t common = a.length < b.length ? a.length : b.length;
    if (common > sizeof head) {
      const int order = std::memcmp(a.text + sizeof head, b.text + sizeof head, common - sizeof head);
      if (order != 0) return order < 0;
    }
    // Equal so far. Heads that are equal only by their zeros ("a" and "a\0") are told apart by length.
    return a.length < b.length;
  }
};

[[nodiscard]] inline Line line_at(const char* text, std::size_t length) noexcept {
  unsigned char bytes[8] = {};
  std::memcpy(bytes, text, length < 8 ? length : 8);
  std::uint64_t head = 0;
  for (unsigned char b : bytes) head = head << 8 | b;
  return {head, text, length};
}

/// Where the line that starts at `start` ends: at its newline, or at the end of the text.
[[nodiscard]] inline const char* end_of_line(const char* start, const char* end) noexcept {
  const void* newline = std::memchr(start, '\n', static_cast<std::size_t>(end - start));
  return newline == nullptr ? end : static_cast<const char*>(newline);
}

/// Calls f(start) for each line that starts in [first, last) of text [begin, end).
template <class F>
void for_line_starts(const char* begin, const char* end, const char* first, const char* last, F&& f) {
  const char* at = first;
  if (at != begin) {
    // A line starts after each newline: look for the one just before.
    const void* newline = std::memchr(at - 1, '\n', static_cast<std::size_t>(last - at + 1));
    if (newline == nullptr) return;
    at = static_cast<const char*>(newline) + 1;
  }
  while (at < last && at < end) {
    f(at);
    const void* newline = std::memchr(at, '\n', static_cast<std::size_t>(last - at));
    if (newline == nullptr) return;
    at = static_cast<const char*>(newline) + 1;
  }
}

}  // namespace apps
