// SPDX-License-Identifier: Apache-2.0
// The C++ runtime keeps "which exceptions are being handled" per OS thread (__cxa_eh_globals). For us it
// belongs to the user-level thread: one that blocks or is stolen inside a catch block must find its own when
// it goes on (rule 13).
//
// Thread safety: the calling OS thread's state only. Invariant: between two user-level threads an OS thread's
// state is empty.
#pragma once

#include <cxxabi.h>

#include <cstdint>

#include "ult/layout.h"

namespace kasane::ult {

/// The C++ ABI's __cxa_eh_globals (Itanium C++ ABI: Exception Handling, §2.2.2), which <cxxabi.h> only
/// declares.
struct ExceptionState {
  void* caught;           ///< stack of exceptions being handled
  unsigned int uncaught;  ///< thrown and not yet caught

  // one branch: forks ask
  [[nodiscard]] bool empty() const noexcept {
    return (reinterpret_cast<std::uintptr_t>(caught) | uncaught) == 0;
  }

  /// The state of the calling OS thread, which stays at one address for the thread's whole life.
  [[nodiscard]] static ExceptionState* of_os_thread() noexcept {
    return reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
  }
  void move_to(Word (&eh)[2]) noexcept {
    eh[0] = reinterpret_cast<Word>(caught);
    eh[1] = uncaught;
    *this = {};
  }
  void take(Word first, Word second) noexcept {
    caught = reinterpret_cast<void*>(first);
    uncaught = static_cast<unsigned int>(second);
  }
};

}  // namespace kasane::ult
