// SPDX-License-Identifier: Apache-2.0
// How a thread comes to hold several blocks, and how it lets go of them, as pure functions
// (docs/design/dsm.md). src/dsm/held.h and src/dsm/fence.cpp drive them; tests/model walks them.
//
//   claim ──held──▶ show ─▶ shown ─▶ finish ─▶ free
//     └──refused──▶ gives back ────────────────▲
//
// show before finish: what a free word says of V is so. Bytes that V is to show are there before show; those
// that are sent, or lost with their frame, are so when V does not show them any more: shown.
#pragma once

#include <cstdint>

#include "dsm/protocol.h"

namespace kasane::dsm {

/// What becomes of a claim of several blocks, in ascending order, if one of them cannot be claimed.
enum class Way : std::uint8_t {
  all,      ///< it waits until that is free. Without a step for it: none of them
  try_all,  ///< none of them
  try_own,  ///< without a step for it: the others. Else none of them
  each,     ///< the others
};

enum class Claiming : std::uint8_t {
  next,       ///< goes on with the next block
  wait,       ///< waits until the block is free, and tries again
  give_back,  ///< gives back what is held
};

[[nodiscard]] constexpr Claiming next(Way way, Verdict verdict) noexcept {
  if (verdict == Verdict::proceed) return Claiming::next;
  switch (way) {
    case Way::all: return verdict == Verdict::wait ? Claiming::wait : Claiming::give_back;
    case Way::try_all: break;
    case Way::try_own: return verdict == Verdict::done ? Claiming::next : Claiming::give_back;
    case Way::each: return Claiming::next;
  }
  return Claiming::give_back;
}

/// Of blocks that are held, when the holder has done with M and T.
enum class HeldState : std::uint8_t {
  show,    ///< V comes to allow what the words will say
  shown,   ///< what V does not show any more is the holder's
  finish,  ///< the words say so, which frees the bits
  free,
};

[[nodiscard]] constexpr HeldState next(HeldState state) noexcept {
  switch (state) {
    case HeldState::show: return HeldState::shown;
    case HeldState::shown: return HeldState::finish;
    case HeldState::finish:
    case HeldState::free: break;
  }
  return HeldState::free;
}

/// Drives it.
template <class Show, class Shown, class Finish>
void let_go(const Show& show, const Shown& shown, const Finish& finish) {
  for (HeldState state = HeldState::show; state != HeldState::free; state = next(state)) {
    if (state == HeldState::show) show();
    if (state == HeldState::shown) shown();
    if (state == HeldState::finish) finish();
  }
}

}  // namespace kasane::dsm
