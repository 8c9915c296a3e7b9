// SPDX-License-Identifier: Apache-2.0
// A std::exception_ptr as a word of shared memory: the pointer inside of it. Its reference moves with it.
// Thread safety: as exception_ptr.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>

namespace kasane {

/// 0 for a null one.
inline std::uint64_t word_of(std::exception_ptr&& exception) noexcept {
  std::uint64_t word;
  static_assert(sizeof exception == sizeof word);
  std::memcpy(&word, static_cast<const void*>(&exception), sizeof word);
  ::new (&exception) std::exception_ptr;  // its reference is the word's now
  return word;
}

/// Once for each word.
inline std::exception_ptr exception_of(std::uint64_t word) noexcept {
  std::exception_ptr exception;
  std::memcpy(static_cast<void*>(&exception), &word, sizeof word);
  return exception;
}

}  // namespace kasane
