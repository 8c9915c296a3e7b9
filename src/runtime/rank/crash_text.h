// SPDX-License-Identifier: Apache-2.0
// A line of text built without allocation, locale or locks, for signal handlers. What does not fit is cut.
// One thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kasane::runtime {

class CrashText {
 public:
  CrashText& add(const char* text) noexcept { return add(text, std::strlen(text)); }
  CrashText& add(const char* text, std::size_t bytes) noexcept {
    const std::size_t room = sizeof text_ - size_;
    const std::size_t taken = bytes < room ? bytes : room;
    std::memcpy(text_ + size_, text, taken);
    size_ += taken;
    return *this;
  }
  CrashText& decimal(std::uint64_t value) noexcept { return number(value, 10); }
  CrashText& signed_decimal(std::int64_t value) noexcept {
    return value < 0 ? add("-").decimal(~static_cast<std::uint64_t>(value) + 1)
                     : decimal(static_cast<std::uint64_t>(value));
  }
  CrashText& hex(std::uint64_t value) noexcept { return add("0x").number(value, 16); }
  CrashText& address(const void* p) noexcept { return hex(reinterpret_cast<std::uintptr_t>(p)); }

  [[nodiscard]] const char* data() const noexcept { return text_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  CrashText& number(std::uint64_t value, int base) noexcept {
    char digits[20];
    const char* const end = std::to_chars(digits, digits + sizeof digits, value, base).ptr;
    return add(digits, static_cast<std::size_t>(end - digits));
  }

  char text_[512];
  std::size_t size_ = 0;
};

}  // namespace kasane::runtime
