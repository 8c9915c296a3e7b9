// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/peer_lost.h"

#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "runtime/rank/crash_text.h"
#include "runtime/rank/process_state.h"

namespace kasane::runtime {
namespace {

const std::uint64_t g_start_ns = now_ns();
std::atomic<bool> g_expected{false};
std::atomic_flag g_said;

}  // namespace

// relaxed: a barrier of the job comes after it
void expect_peers_to_leave(bool yes) noexcept { g_expected.store(yes, std::memory_order_relaxed); }

void end_of_peer(void*, Rank peer, std::string_view why) noexcept {
  // relaxed: a thread that does not see it yet has not left the barrier either.
  if (g_expected.load(std::memory_order_relaxed)) return;
  // relaxed: only one of several threads is to speak.
  if (g_said.test_and_set(std::memory_order_relaxed)) return;
  const std::uint64_t ms = (now_ns() - g_start_ns) / 1'000'000;
  char reason[256];
  const std::size_t n = why.copy(reason, sizeof reason - 1);
  reason[n] = '\0';
  CrashText text;
  if (process().status == nullptr) text.add("kasane: ");
  text.add("rank ")
      .decimal(raw(process().rank))
      .add(" has lost rank ")
      .decimal(raw(peer))
      .add(" ")
      .decimal(ms / 1000)
      .add(".")
      .decimal(ms % 1000 / 100);
  text.add(" s after the start: ").add(reason).add("; the job cannot go on without it\n");
  tell(text.data(), text.size());
  // relaxed: set_phase() is a release
  if (process().status != nullptr) process().status->lost.store(raw(peer) + 1, std::memory_order_relaxed);
  set_phase(diagnostics::Phase::gave_up);
  ::_exit(1);
}

}  // namespace kasane::runtime
