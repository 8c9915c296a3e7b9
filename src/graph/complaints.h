// SPDX-License-Identifier: Apache-2.0
// What the members of a team find wrong: each keeps its first complaint, and the caller has the first
// member's.
//
// Thread safety: a member writes its own.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <kasane/team.hpp>
#include <string>

namespace kasane::graph::detail {

class Complaints {
 public:
  explicit Complaints(std::size_t members) : all_(make_array<Text>(members)), members_(members) {
    for (std::size_t i = 0; i < members; ++i) all_[i].text[0] = 0;
  }
  /// This member's, if it has none yet.
  [[gnu::cold, gnu::format(printf, 3, 4)]] void add(const member& me, const char* format, ...) const {
    char* const text = all_[me.index()].text;
    if (text[0] != 0) return;
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(Text), format, arguments);
    va_end(arguments);
  }
  [[nodiscard]] bool has(const member& me) const noexcept { return all_[me.index()].text[0] != 0; }
  /// Empty: there is none.
  [[nodiscard]] std::string first() const {
    for (std::size_t i = 0; i < members_; ++i)
      if (all_[i].text[0] != 0) return all_[i].text;
    return {};
  }

 private:
  struct Text {
    char text[192];
  };
  unique_array<Text> all_;
  std::size_t members_;
};

}  // namespace kasane::graph::detail
