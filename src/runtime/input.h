// SPDX-License-Identifier: Apache-2.0
// Standard input is rank 0's: one buffer, as in one process. A thread of another rank that reads it, by
// stdio, std::cin or read(2), goes to rank 0 first (input.cpp).
// Thread safety: before other threads exist.
#pragma once

namespace kasane::runtime {

/// On a rank whose threads have to go to rank 0 for standard input.
void input_is_elsewhere() noexcept;

}  // namespace kasane::runtime
