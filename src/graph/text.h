// SPDX-License-Identifier: Apache-2.0
// Lines of a text file, and the numbers and words in them.
//
// Thread safety: values.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace kasane::graph::detail {

/// What is left of a line.
class Line {
 public:
  explicit Line(std::string_view text) noexcept : text_(text) {
    if (!text_.empty() && text_.back() == '\r') text_.remove_suffix(1);
    skip();
  }
  /// Nothing is left.
  [[nodiscard]] bool empty() const noexcept { return text_.empty(); }
  [[nodiscard]] char front() const noexcept { return text_.front(); }
  [[nodiscard]] bool is_comment() const noexcept { return empty() || front() == '#' || front() == '%'; }

  /// Takes what comes to the next blank; empty: the line is over.
  std::string_view word() noexcept {
    std::size_t n = 0;
    while (n < text_.size() && !is_blank(text_[n])) ++n;
    const std::string_view w = text_.substr(0, n);
    text_.remove_prefix(n);
    skip();
    return w;
  }
  /// Takes a number that T holds; false: there is none, or it does not hold it.
  template <class T>
  [[nodiscard]] bool number(T& value) noexcept {
    const std::string_view w = word();
    const std::from_chars_result r = std::from_chars(w.data(), w.data() + w.size(), value);
    return r.ec == std::errc() && r.ptr == w.data() + w.size() && !w.empty();
  }

 private:
  [[nodiscard]] static bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }
  void skip() noexcept {
    while (!text_.empty() && is_blank(text_.front())) text_.remove_prefix(1);
  }
  std::string_view text_;
};

/// Takes the next line of a text, without its end.
inline std::string_view next_line(std::string_view& text) noexcept {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace kasane::graph::detail
