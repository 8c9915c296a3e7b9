// SPDX-License-Identifier: Apache-2.0
// What a steal between ranks costs: a thread with 4 KiB of live stack is stolen again and again, each time
// from the rank that has it. The child keeps that rank's worker until then: it pauses GRAIN times (20), forks
// and joins a thread that does nothing, and so on. The time is the thieves' own (ns_steal): from the look at
// the deque to the thread about to run: claim, release, stack, acquire.
//   kasane run -n 2 --workers 1 -- player-steal STEALS [GRAIN]
// Prints one JSON object: the mean of each of ten rounds, in µs.
#include <kasane/kasane.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kLiveBytes = 4096;

void pause_for(unsigned pauses) {
  for (unsigned i = 0; i < pauses; ++i) asm volatile("pause");
}

/// Keeps its rank's worker for `pauses` in all, which forks every `grain` of them.
void keep_busy(unsigned pauses, unsigned grain) {
  for (unsigned done = 0; done < pauses; done += grain) {
    pause_for(grain);
    if (grain < pauses) kasane::thread([] {}).join();
  }
}

/// Returns on another rank.
void be_stolen(unsigned grain) {
  const std::uint32_t start = kasane::rank();
  while (kasane::rank() == start) kasane::thread([grain] { keep_busy(20'000, grain); }).join();
}

/// Steals with kLiveBytes of this frame's on the stack; false if a byte of them changed.
[[gnu::noinline]] bool round_of(unsigned steals, unsigned grain) {
  volatile unsigned char live[kLiveBytes];
  for (std::size_t i = 0; i < kLiveBytes; ++i) live[i] = static_cast<unsigned char>(i * 7);
  for (unsigned s = 0; s < steals; ++s) be_stolen(grain);
  bool same = true;
  for (std::size_t i = 0; i < kLiveBytes; ++i) same = same && live[i] == static_cast<unsigned char>(i * 7);
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned steals = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1000;
  const unsigned grain = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 20;
  bool verified = true;
  std::vector<double> us;
  for (int round = 0; round <= 10; ++round) {
    const std::uint64_t before = kasane::counter("steals_remote"), ns = kasane::counter("ns_steal");
    verified = kasane::run([steals, grain] { return round_of(steals, grain); }) && verified;
    const auto stolen = static_cast<double>(kasane::counter("steals_remote") - before);
    // the first one warms up
    if (round > 0) us.push_back(static_cast<double>(kasane::counter("ns_steal") - ns) / stolen / 1000);
  }
  std::printf("{\"verified\": %s, \"us\": [", verified ? "true" : "false");
  for (std::size_t i = 0; i < us.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", us[i]);
  std::puts("]}");
  return verified ? 0 : 1;
}
