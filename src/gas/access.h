// SPDX-License-Identifier: Apache-2.0
// Direct, uncached access to global memory: the owner's copy is read and written one-sidedly, page by page. Where the page's location is
// cached (gas/address_cache.h) that is all; else this rank first becomes a holder of it and reads its entry. Nothing here touches V. Mixing direct
// and coherent access of one datum needs a fence between.
// Thread safety: any thread, given its own Blocking; `local` must not lie in an absent part of V (rule 10).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "gas/address_cache.h"

namespace kasane::gas {

Result<void> get(comm::Blocking&, AddressCache&, void* local, std::uint64_t offset, std::size_t bytes);
Result<void> put(comm::Blocking&, AddressCache&, std::uint64_t offset, const void* local, std::size_t bytes);

}  // namespace kasane::gas
