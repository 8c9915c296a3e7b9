// SPDX-License-Identifier: Apache-2.0
// An OS thread that is no worker and waits in a watch list (ult/sync/watch.h) has a slot of its rank
// meanwhile, by which the list names it, and sleeps on a word of that slot's control block.
//
//   OS thread    awake := 0 ─► joins the list ─► sleeps while awake = 0
//   who wakes    takes it out of the list ─► awake := 1 ─► wakes who sleeps there
//
// It is in a list until somebody takes it out, and who takes it out wakes it, once. So where its deadline
// has passed it takes itself out by the list's own protocol (WatchNotify::late), and then sleeps until it is
// woken, by that or by another, before it uses the slot again.
//
// Thread safety: any thread of any rank that maps the region.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/futex.h"
#include "ult/layout.h"

namespace kasane::ult {

/// The word on which it sleeps, the lower half of SlotControl::awake.
[[nodiscard]] inline std::atomic<std::uint32_t>& awake_of(SlotControl& control) noexcept {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(reinterpret_cast<std::byte*>(&control) +
                                                        offsetof(SlotControl, awake));
}

/// region: that of the slot's birth rank.
inline void wake_os_thread(std::byte* region, const Layout& layout, SlotId slot) noexcept {
  std::atomic<std::uint32_t>& awake =
      awake_of(*reinterpret_cast<SlotControl*>(region + layout.control(slot)));
  // release: what the OS thread sees once it goes on. From here on the slot may be another's: who sleeps
  // there is woken for nothing, and sleeps on.
  awake.store(1, std::memory_order_release);
  futex_wake_all(awake);
}

}  // namespace kasane::ult
