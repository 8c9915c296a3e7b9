// SPDX-License-Identifier: Apache-2.0
// The guard of a function static (Itanium C++ ABI, 3.3.3), pure (docs/design/atomics.md): one thread of the
// job initialises, others wait until it has done so, or has failed.
//
//   word   ready 8 | done 1 | busy 1 | awaited 1 | … | thread 32
//
// Compilers test the byte `ready` inline before they call, by a plain load. That a rank sees it does not mean
// that it sees the object. So it is set only where all that can load it are one rank: of a guard in memory of
// several ranks the byte stays 0, and `done` says it to callers of __cxa_guard_acquire.
//
// Thread safety: pure. Invariants: busy ⇒ neither ready nor done; a thread that waits has set awaited, and
// what clears busy then wakes all that wait.
#pragma once

#include <cstdint>

namespace kasane::ult {

struct GuardWord {
  bool ready = false, done = false, busy = false, awaited = false;
  std::uint32_t thread = 0;  ///< while busy

  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return std::uint64_t{ready} | std::uint64_t{done} << 8 | std::uint64_t{busy} << 9 |
           std::uint64_t{awaited} << 10 | std::uint64_t{thread} << 32;
  }
  [[nodiscard]] static constexpr GuardWord unpack(std::uint64_t w) noexcept {
    return {(w & 0xFF) != 0, (w & 0x100) != 0, (w & 0x200) != 0, (w & 0x400) != 0,
            static_cast<std::uint32_t>(w >> 32)};
  }
  friend constexpr bool operator==(GuardWord, GuardWord) = default;
};

enum class GuardEvent : std::uint8_t {
  acquire,         ///< thread `self` wants the object
  release,         ///< it is initialised, and this rank alone can see the guard
  release_shared,  ///< it is initialised, and what this rank wrote is released
  abort,           ///< its initialisation threw
};

enum class GuardAction : std::uint8_t {
  initialised,
  initialise,  ///< self does, and calls release or abort
  wait,        ///< until the word changes
  recursive,   ///< self initialises it already
  none,
  wake,  ///< all that wait
};

/// May a thread that has said that it waits, and has prepared, sleep now? Not if another thread has begun to
/// initialise since: that one does not know of it.
[[nodiscard]] constexpr bool may_sleep(GuardWord w) noexcept { return w.busy && w.awaited; }

struct GuardStep {
  GuardWord next;
  GuardAction action;
};

[[nodiscard]] constexpr GuardStep next(GuardWord w, GuardEvent event, std::uint32_t self = 0) noexcept {
  if (event == GuardEvent::acquire) {
    if (w.ready || w.done) return {w, GuardAction::initialised};
    if (!w.busy) return {{.busy = true, .thread = self}, GuardAction::initialise};
    if (w.thread == self) return {w, GuardAction::recursive};
    w.awaited = true;
    return {w, GuardAction::wait};
  }
  const GuardAction action = w.awaited ? GuardAction::wake : GuardAction::none;
  return {{.ready = event == GuardEvent::release, .done = event == GuardEvent::release_shared}, action};
}

}  // namespace kasane::ult
