// SPDX-License-Identifier: Apache-2.0
// Direct, uncached access to global memory: the owner's copy is read and written one-sidedly, page by page (a hop to the
// directory each; address caches come later). Nothing here touches V. Mixing direct and coherent access of one datum needs a fence between.
// Thread safety: any thread, given its own Blocking; `local` must not lie in an absent part of V (rule 10).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "gas/directory.h"

namespace kasane::gas {

Result<void> get(comm::Blocking&, const Directory&, void* local, std::uint64_t offset, std::size_t bytes);
Result<void> put(comm::Blocking&, const Directory&, std::uint64_t offset, const void* local, std::size_t bytes);

}  // namespace kasane::gas
