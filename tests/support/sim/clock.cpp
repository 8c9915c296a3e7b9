// SPDX-License-Identifier: Apache-2.0
// The clock of a program that simulates times: what the shipping code reads by base/clock.h is the clock of
// the simulated thread that reads it. It replaces libc's function in the program that links this.
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/sim/in_time.h"

namespace {

constexpr std::uint64_t kReadNs = 20;  ///< so that loops which wait for a time come to an end
constexpr std::uint64_t kYieldNs = 300;

}  // namespace

extern "C" int clock_gettime(clockid_t id, timespec* t) noexcept {
  kasane::comm::sim::InTime* const world = kasane::comm::sim::world_in_time();
  if (world == nullptr || id != CLOCK_MONOTONIC) return static_cast<int>(::syscall(SYS_clock_gettime, id, t));
  world->spend(kReadNs);
  const std::uint64_t now = 1'000'000'000 + world->clock();  // 0 means "never" to some
  t->tv_sec = static_cast<time_t>(now / 1'000'000'000);
  t->tv_nsec = static_cast<long>(now % 1'000'000'000);
  return 0;
}

extern "C" int sched_yield() noexcept {
  kasane::comm::sim::InTime* const world = kasane::comm::sim::world_in_time();
  if (world == nullptr) return static_cast<int>(::syscall(SYS_sched_yield));
  world->spend(kYieldNs);
  return 0;
}
