// SPDX-License-Identifier: Apache-2.0
// The mutexes of programs (lock_calls.cpp). Thread safety: any thread, if it does not say otherwise.
#pragma once

#include <cstddef>
#include <span>

namespace kasane::runtime {

/// From now on objects of the program's are not libc's; an empty space: they are again. Before threads of the
/// program run, and after. stacks: the part of the space that has them.
void own_locks_of_program(std::span<const std::byte> space, std::span<const std::byte> stacks) noexcept;

}  // namespace kasane::runtime
