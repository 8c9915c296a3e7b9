// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the functions of Kasane throw. Included by kasane.hpp.
#pragma once

#include <kasane/kasane.h>

#include <new>
#include <stdexcept>
#include <string_view>

namespace kasane {

/// A call that could not do what it was asked.
class error : public std::runtime_error {
 public:
  error(int code, const char* message) : std::runtime_error(message), code_(code) {}
  /// As errno: EPERM (called where it makes no sense), EINVAL, EAGAIN (no thread slot or record left), EIO.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Global memory is exhausted; what() says how much was asked for.
class out_of_memory : public std::bad_alloc {
 public:
  /// Of `message` it keeps 239 bytes.
  explicit out_of_memory(const char* message) noexcept {
    std::string_view(message).copy(text_, sizeof text_ - 1);
  }
  [[nodiscard]] const char* what() const noexcept override { return text_; }

 private:
  char text_[240] = {};
};

namespace detail {
/// Throws the failure that the last C call on this worker reported.
[[noreturn, gnu::cold, gnu::noinline]] void throw_last_error();

inline void check(int code) {
  if (code != 0) [[unlikely]]
    throw_last_error();
}
}  // namespace detail

}  // namespace kasane
