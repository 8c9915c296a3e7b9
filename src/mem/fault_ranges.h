// SPDX-License-Identifier: Apache-2.0
// Registers all parts of V for faults (mem/signal_dispatch.h).
//
// Thread safety: as register_range().
#pragma once

#include "mem/signal_dispatch.h"
#include "mem/space.h"

namespace kasane::mem {

inline void unregister_ranges(const AddressMap& map) noexcept {
  for (const Window& part : map.parts()) unregister_range(part.at);
}

inline Result<void> register_ranges(const AddressMap& map, FaultFunction function, void* context,
                                    FaultSignals signals = FaultSignals::segv) {
  for (const Window& part : map.parts()) {
    auto registered = register_range(part.at, part.bytes, function, context, signals);
    if (registered) continue;
    for (const Window& before : map.parts()) {
      if (before.at == part.at) break;
      unregister_range(before.at);
    }
    return registered;
  }
  return {};
}

}  // namespace kasane::mem
