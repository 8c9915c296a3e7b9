// SPDX-License-Identifier: Apache-2.0
// How a worker sleeps where a wake-up could be lost: in naps, and one sleeper of the rank, the watcher, looks
// for work after each nap (docs/design/sched.md, "Idling"). Pure: says what to do next, and gets its result.
//
//   take role ─▶ sleep ─ nap over ─▶ watches? look ─ nothing ─▶ sleep, twice as long
//                  │                 else: take role ─ taken ─▶ look
//                  │                                 └ not ───▶ sleep
//                  └ rung, or a timer is due ─▶ (give role) ─▶ done ◀─ found ─ look
//
// Invariant: a watcher that leaves gives the role back, and each sleeper asks for it after each nap. So as
// long as any worker of the rank sleeps, one of them looks: at the latest after one nap of a sleeper and one
// of the watcher.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kasane::sched {

struct Naps {
  std::int64_t first_ns, longest_ns;
};

class NapWait {
 public:
  enum class Kind : std::uint8_t { take_role, sleep, look, give_role, done };
  struct Step {
    Kind kind;
    std::int64_t nap_ns = 0;  ///< of sleep
  };

  /// The first step.
  [[nodiscard]] constexpr Step begin() noexcept { return go(Kind::take_role); }
  /// What follows. yes: the role was taken; the sleep is over for another reason than that the nap is; the
  /// look found something.
  [[nodiscard]] constexpr Step next(bool yes, const Naps& naps) noexcept {
    switch (at_) {
      case Kind::take_role:
        watches_ = yes;
        if (yes && slept_) return go(Kind::look);
        // a worker that takes the role later has slept long already
        nap_ns_ = yes ? naps.first_ns : naps.longest_ns;
        return sleep();
      case Kind::sleep:
        if (yes) return leave();
        return go(watches_ ? Kind::look : Kind::take_role);
      case Kind::look:
        if (yes) return leave();
        nap_ns_ = std::min(nap_ns_ * 2, naps.longest_ns);
        return sleep();
      case Kind::give_role:
      case Kind::done: break;
    }
    return go(Kind::done);
  }
  [[nodiscard]] constexpr Kind at() const noexcept { return at_; }

 private:
  constexpr Step go(Kind kind) noexcept {
    at_ = kind;
    return {kind};
  }
  constexpr Step sleep() noexcept {
    at_ = Kind::sleep;
    slept_ = true;
    return {Kind::sleep, nap_ns_};
  }
  constexpr Step leave() noexcept { return go(watches_ ? Kind::give_role : Kind::done); }

  std::int64_t nap_ns_ = 0;
  Kind at_ = Kind::take_role;
  bool watches_ = false, slept_ = false;
  [[maybe_unused]] std::uint8_t unused_[5] = {};  ///< no padding: walks compare bytes
};

}  // namespace kasane::sched
