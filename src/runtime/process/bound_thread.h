// SPDX-License-Identifier: Apache-2.0
// A bound thread is an OS thread of the program that runs on a rank of the runtime's choice
// (bound_threads.h). Its end meets its joiner in one word, which the atomics of the program change:
//
//   event       running        awaited      detached     ended          over
//   join        awaited: wait  refused      refused      gone: free     refused
//   try_join    busy           refused      refused      gone: free     refused
//   detach      detached       refused      refused      gone: free     refused
//   look ¹      -              wait         -            -              gone: free
//   give_up ²   -              running      -            -              gone: free
//   end ³       ended          over: wake   gone: free   -              -
//
// over: it has ended, and its joiner has yet to look. ¹ of the joiner that waits, after a wake-up. ² its
// deadline has come. ³ of the thread, once. Who is told to free has the record alone.
// tests/model/bound_thread_test.cpp walks it.
#pragma once

#include <cstdint>

namespace kasane::runtime {

enum class BoundState : std::uint32_t { running, awaited, detached, ended, over, gone };
enum class BoundEvent : std::uint8_t { join, try_join, detach, look, give_up, end };
enum class BoundAction : std::uint8_t { none, wait, wake, free, busy, refused };
struct BoundStep {
  BoundState next = BoundState::running;
  BoundAction action = BoundAction::none;
};

[[nodiscard]] constexpr BoundStep next(BoundState state, BoundEvent event) noexcept {
  using enum BoundState;
  switch (event) {
    case BoundEvent::look:
      return state == over ? BoundStep{gone, BoundAction::free} : BoundStep{state, BoundAction::wait};
    case BoundEvent::give_up:
      return state == over ? BoundStep{gone, BoundAction::free} : BoundStep{running, BoundAction::busy};
    case BoundEvent::end:
      if (state == detached) return {gone, BoundAction::free};
      return state == awaited ? BoundStep{over, BoundAction::wake} : BoundStep{ended, BoundAction::none};
    case BoundEvent::join:
    case BoundEvent::try_join:
    case BoundEvent::detach: break;
  }
  if (state == ended) return {gone, BoundAction::free};
  if (state != running) return {state, BoundAction::refused};
  if (event == BoundEvent::try_join) return {running, BoundAction::busy};
  return event == BoundEvent::join ? BoundStep{awaited, BoundAction::wait}
                                   : BoundStep{detached, BoundAction::none};
}

}  // namespace kasane::runtime
