// SPDX-License-Identifier: Apache-2.0
// The system call of one of libc's functions that is one, with its arguments in their own types
// (call_wrappers.cpp, waiting_calls.cpp). Thread safety: any thread.
#pragma once

#include <type_traits>

#include "runtime/process/system_calls.h"

namespace kasane::runtime {

template <class T>
[[nodiscard]] long word_of(T value) noexcept {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<long>(value);
  else
    return static_cast<long>(value);
}
template <class... T>
[[nodiscard]] traps::CaughtCall call_of(long number, T... arguments) noexcept {
  return {number, {word_of(arguments)...}, 0, 0, 0, 0};
}
/// Where calls_are_wrapped().
template <class... T>
[[nodiscard]] long wrapped(long number, T... arguments) noexcept {
  return make_wrapped_call(call_of(number, arguments...));
}

/// The caller is the program: it does not close or replace the runtime's descriptors.
[[nodiscard]] inline bool in_user_code() noexcept { return calls() == Calls::caught; }

}  // namespace kasane::runtime
