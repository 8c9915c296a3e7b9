// SPDX-License-Identifier: Apache-2.0
// Keys of Pthreads for the program's threads on all ranks (pthread_keys.cpp). Thread safety: any thread.
#pragma once

#include <cstdint>

namespace kasane::runtime {

inline constexpr std::uint32_t kThreadKeys = 4096;
/// The destructor, may be null, of a key of that number. All ranks know it before a thread has the key.
void note_destructor(std::uint32_t number, void (*)(void*)) noexcept;
/// By the OS thread that ends: calls the destructors of what it has for the program's keys.
void run_destructors_of_keys() noexcept;

}  // namespace kasane::runtime
