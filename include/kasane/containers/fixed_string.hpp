// SPDX-License-Identifier: Apache-2.0
/// @file
/// A string of at most N bytes that is trivially copyable: a key or value of kasane's containers.
///
///     kasane::unordered_map<kasane::fixed_string<31>, std::uint64_t> words;      // keys of 32 bytes
///     words.add("word", 1);
///
/// Thread safety: as of a built-in type. Errors: error EINVAL: the text is longer than N bytes.
#pragma once

#include <kasane/error.hpp>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <functional>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

namespace kasane {

/// A text of at most kMost bytes, all within the object. A longer one throws error EINVAL.
template <std::size_t kMost>
class fixed_string {
  static_assert(kMost >= 1 && kMost <= 255, "its length is a byte");

 public:
  constexpr fixed_string() noexcept = default;
  constexpr fixed_string(std::string_view text) {
    if (text.size() > kMost)
      throw error(EINVAL, ("kasane::fixed_string: a text of " + std::to_string(text.size()) +
                           " bytes, of at most " + std::to_string(kMost))
                              .c_str());
    size_ = static_cast<unsigned char>(text.size());
    std::copy(text.begin(), text.end(), text_);
  }
  constexpr fixed_string(const char* text) : fixed_string(std::string_view(text)) {}
  fixed_string(const std::string& text) : fixed_string(std::string_view(text)) {}

  [[nodiscard]] static constexpr std::size_t max_size() noexcept { return kMost; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  /// Not terminated by a 0.
  [[nodiscard]] constexpr const char* data() const noexcept { return text_; }
  [[nodiscard]] constexpr const char* begin() const noexcept { return text_; }
  [[nodiscard]] constexpr const char* end() const noexcept { return text_ + size_; }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text_, size_}; }
  [[nodiscard]] constexpr operator std::string_view() const noexcept { return view(); }
  [[nodiscard]] std::string str() const { return std::string(view()); }

  friend constexpr bool operator==(const fixed_string& a, const fixed_string& b) noexcept {
    return a.view() == b.view();
  }
  friend constexpr std::strong_ordering operator<=>(const fixed_string& a, const fixed_string& b) noexcept {
    return a.view() <=> b.view();
  }
  friend std::ostream& operator<<(std::ostream& out, const fixed_string& s) { return out << s.view(); }
  /// A word; one that is too long sets failbit.
  friend std::istream& operator>>(std::istream& in, fixed_string& s) {
    std::string word;
    if (!(in >> word)) return in;
    if (word.size() > kMost)
      in.setstate(std::ios::failbit);
    else
      s = fixed_string(word);
    return in;
  }

 private:
  // Behind the text there are zeros, so that equal strings have equal bytes.
  unsigned char size_ = 0;
  char text_[kMost] = {};
};
static_assert(std::is_trivially_copyable_v<fixed_string<31>> && sizeof(fixed_string<31>) == 32);
static_assert(std::has_unique_object_representations_v<fixed_string<31>>);

}  // namespace kasane

// Doxygen 1.9 knows no such specialisation.

/// @cond
template <std::size_t kMost>
struct std::hash<kasane::fixed_string<kMost>> {
  [[nodiscard]] std::size_t operator()(const kasane::fixed_string<kMost>& s) const noexcept {
    return std::hash<std::string_view>{}(s.view());
  }
};
/// @endcond
