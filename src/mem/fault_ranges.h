// SPDX-License-Identifier: Apache-2.0
// Registers all parts of V for faults (traps/signal_dispatch.h).
//
// Thread safety: as traps::register_range().
#pragma once

#include "mem/space.h"
#include "traps/signal_dispatch.h"

namespace kasane::mem {

inline void unregister_ranges(const AddressMap& map) noexcept {
  for (const ViewPart& part : map.parts()) traps::unregister_range(part.at);
}

inline Result<void> register_ranges(const AddressMap& map, traps::FaultFunction function, void* context,
                                    traps::FaultSignals signals = traps::FaultSignals::segv) {
  for (const ViewPart& part : map.parts()) {
    auto registered = traps::register_range(part.at, part.bytes, function, context, signals);
    if (registered) continue;
    for (const ViewPart& before : map.parts()) {
      if (before.at == part.at) break;
      traps::unregister_range(before.at);
    }
    return registered;
  }
  return {};
}

}  // namespace kasane::mem
