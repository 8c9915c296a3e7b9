// SPDX-License-Identifier: Apache-2.0
// PollWaiter: spin, then yield, then nap. Async-signal-safe: no allocation, no lock, errno kept.
//
// A thread that yields its core is not woken: where other threads compute on the core, it returns only after
// their time slices, and has given up its own. Eight yields per operation made thefts between two ranks ten
// times slower beside two programs that compute. So a rank that has met a long yield sleeps instead, for a
// while: the event that a sleeper waits for wakes it at once.
#include "comm/waiter.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace kasane::comm {
namespace {

constexpr int kYields = 8;
// another thread ran meanwhile, for longer than an answer takes
constexpr std::uint64_t kLongYieldNs = 200'000;
constexpr std::uint64_t kNoYieldsNs = 100'000'000;  // after a long yield: sleep at once, for so long
constexpr std::int64_t kFirstNapNs = 200'000;  // events that ring no bell are seen at the latest after a nap
constexpr std::int64_t kLongestNapNs = 1'000'000;

}  // namespace

void PollWaiter::wait(bool (*ready)(const void*), const void* arg) {
  const int saved_errno = errno;
  std::uint64_t idle_since = now_ns();
  int yields = 0;
  std::int64_t nap_ns = kFirstNapNs;
  Crowd::Member self(transport_.waiting_threads());
  for (;;) {
    // Read before looking: what rings after this line ends the nap below at once.
    const std::uint32_t seen = transport_.activity(Doorbell::messages);
    const bool moved = transport_.progress();
    if (ready(arg)) break;
    if (!self.has_place()) {
      self.sleep_without();
    } else if (moved) {
      idle_since = now_ns();
      yields = 0;
      nap_ns = kFirstNapNs;
    } else if (now_ns() - idle_since < static_cast<std::uint64_t>(spin_ns_)) {
      relax();
    } else if (yields < kYields && transport_.yields_pay(now_ns())) {
      ++yields;
      const std::uint64_t start = now_ns();
      ::sched_yield();
      if (const std::uint64_t end = now_ns(); end - start > kLongYieldNs)
        transport_.no_yields_before(end + kNoYieldsNs);
    } else {
      // Who waits for an answer asks for its ring, also where sleepers leave arrivals to those who poll:
      // they may all be about to sleep.
      if (transport_.arm()) transport_.sleep(Doorbell::messages, seen, nap_ns);
      nap_ns = std::min(nap_ns * 2, kLongestNapNs);
    }
  }
  errno = saved_errno;
}

}  // namespace kasane::comm
