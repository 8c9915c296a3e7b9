// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/own_code.h"

#include <cstdint>

// Where this library's code lies.
extern "C" [[gnu::visibility("hidden")]] const char __ehdr_start, etext;

namespace kasane::runtime {

bool is_code_of_runtime(const void* code) noexcept {
  return reinterpret_cast<std::uintptr_t>(code) - reinterpret_cast<std::uintptr_t>(&__ehdr_start) <
         static_cast<std::uintptr_t>(&etext - &__ehdr_start);
}

}  // namespace kasane::runtime
