// SPDX-License-Identifier: Apache-2.0
// What fuzzers have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

/// libFuzzer's name for what is called with each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace kasane::fuzz {

/// What must hold for every input.
inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: not so: %s\n", what);
  std::abort();
}

/// Takes an input apart.
class Input {
 public:
  Input(const std::uint8_t* bytes, std::size_t size) : rest_(reinterpret_cast<const char*>(bytes), size) {}

  /// A number from [0, bound).
  std::uint32_t below(std::uint32_t bound) {
    std::uint8_t byte = 0;
    take_into(&byte, 1);
    return byte % bound;
  }
  /// What is missing is zero.
  void take_into(void* to, std::size_t bytes) {
    const std::size_t there = std::min(bytes, rest_.size());
    std::memset(to, 0, bytes);
    std::memcpy(to, rest_.data(), there);
    rest_.remove_prefix(there);
  }
  /// A text that its length, a byte, precedes.
  std::string text() {
    const std::size_t said = below(256), bytes = std::min(said, rest_.size());
    std::string t(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return t;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace kasane::fuzz
