// SPDX-License-Identifier: Apache-2.0
// Threads that move about all ranks under random schedules, one seed after the other: what the tests of
// synchronisation share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <kasane/kasane.hpp>
#include <random>
#include <string>
#include <vector>

namespace kasane::test {

inline constexpr std::uint32_t kThreads = 12;

/// Calls body(thread, random) in kThreads threads that move about. Returns how many wrong things they saw in
/// all.
template <class F>
int everywhere(unsigned seed, const F& body) {
  std::vector<int> wrong(kThreads, 0);
  std::vector<kasane::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&body, &wrong, seed, t] {
      std::minstd_rand random(seed * 1009u + t + 1u);
      wrong[t] = body(t, random);
    });
  }
  for (auto& t : threads) t.join();
  int sum = 0;
  for (const int w : wrong) sum += w;
  return sum;
}
/// Lets others run, here or, while this worker computes, on other ranks.
inline void linger(std::minstd_rand& random) {
  if (random() % 4 == 0) kasane::this_thread::yield();
  if (random() % 8 == 0) kasane::thread([] { kasane::this_thread::yield(); }).join();
}

template <class F>
void for_seeds(const F& body) {
  for (unsigned seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_EQ(kasane::run([&body, seed] { return body(seed); }), 0);
  }
}

}  // namespace kasane::test
