// SPDX-License-Identifier: Apache-2.0
// PollWaiter: spin, then yield, then nap. Async-signal-safe: no allocation, no lock, errno kept.
#include "comm/waiter.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"

namespace kasane::comm {
namespace {

constexpr int kYields = 8;
constexpr std::int64_t kFirstNapNs = 200'000;   // whatever rings no bell is seen at the latest after a nap
constexpr std::int64_t kLongestNapNs = 1'000'000;

}  // namespace

void PollWaiter::wait(bool (*ready)(const void*), const void* arg) {
  const int saved_errno = errno;
  std::uint64_t idle_since = now_ns();
  int yields = 0;
  std::int64_t nap_ns = kFirstNapNs;
  for (;;) {
    // Read before looking: what rings after this line ends the nap below at once.
    const std::uint32_t seen = transport_.activity(Doorbell::messages);
    const bool moved = transport_.progress();
    if (ready(arg)) break;
    if (moved) {
      idle_since = now_ns();
      yields = 0;
      nap_ns = kFirstNapNs;
    } else if (now_ns() - idle_since < static_cast<std::uint64_t>(spin_ns_)) {
      relax();
    } else if (yields < kYields) {
      ++yields;
      ::sched_yield();
    } else {
      transport_.sleep(Doorbell::messages, seen, nap_ns);
      nap_ns = std::min(nap_ns * 2, kLongestNapNs);
    }
  }
  errno = saved_errno;
}

}  // namespace kasane::comm
