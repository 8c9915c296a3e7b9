// SPDX-License-Identifier: Apache-2.0
// The runtime's side of libkasane_malloc.so (runtime/language/malloc): --malloc space.
// Thread safety: at the start and end of the runtime.
#pragma once

#include "base/result.h"
#include "runtime/rank/runtime.h"

namespace kasane::runtime {

/// Gives the library its hooks, if the options ask for it. An error says how to start the program where the
/// library is not loaded.
Result<void> attach_malloc(Runtime&);
/// The runtime ends: memory of the space cannot be asked for any more.
void detach_malloc() noexcept;

}  // namespace kasane::runtime
