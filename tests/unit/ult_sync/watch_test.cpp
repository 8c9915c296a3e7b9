// SPDX-License-Identifier: Apache-2.0
// Waits for words to change, on one rank with 1, 2 and 4 workers, under random schedules: a change whose
// notification is lost is a hang.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "ult/sync/watch.h"
#include "unit/ult_sync/random_threads.h"

namespace kasane::ult {
namespace {

class WatchTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  /// body(t, random) in `threads` threads, with one seed after the other.
  template <class F>
  void for_seeds(std::uint32_t threads, const F& prepared) {
    for (unsigned seed = 1; seed <= 25 && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      TestPool pool(GetParam(), 256);
      pool.run([&] { random_threads(threads, seed, prepared()); });
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, WatchTest, ::testing::Values(1u, 2u, 4u));

void maybe_yield(std::minstd_rand& random) {
  if (random() % 4 == 0) Pool::yield();
}
void wait_while(const std::atomic<std::uint32_t>& word, const Watch& watch, std::uint32_t old) {
  for (;;) {
    const std::uint32_t epoch = watch.prepare();
    if (word.load() != old) return;
    watch.wait(epoch);
  }
}

// A ring of threads, each of which waits for the word of the one before: every notification counts.
TEST_P(WatchTest, EveryChangeIsSeen) {
  constexpr std::uint32_t kThreads = 8, kRounds = 25;
  std::vector<std::atomic<std::uint32_t>> words(kThreads);
  for_seeds(kThreads, [&words] {
    for (auto& w : words) w = 0;
    return [&words](std::uint32_t t, std::minstd_rand& random) {
      const std::uint32_t before = (t + kThreads - 1) % kThreads;
      const std::uint32_t ranks = Pool::current()->config().ranks;
      const Watch own(std::uint64_t{t} * 4, ranks), previous(std::uint64_t{before} * 4, ranks);
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        if (t != 0 || round != 0) wait_while(words[before], previous, t == 0 ? round - 1 : round);
        maybe_yield(random);
        words[t].fetch_add(1);
        if (random() % 2 == 0)
          own.notify_one(*Pool::current());
        else
          own.notify_all(*Pool::current());
      }
    };
  });
  for (const auto& w : words) EXPECT_EQ(w.load(), kRounds);
}

// As many notify_one as tokens: a woken thread that finds none waits again, and none is left. The highest
// word that there can be.
TEST_P(WatchTest, NotifyOneWakesEnough) {
  constexpr std::uint32_t kPairs = 6, kEach = 20;
  std::atomic<std::uint32_t> tokens{0};
  for_seeds(2 * kPairs, [&tokens] {
    return [&tokens](std::uint32_t t, std::minstd_rand& random) {
      const Watch watch(0x7FFF'FFFF'FFFC, Pool::current()->config().ranks);
      for (std::uint32_t i = 0; i < kEach; ++i) {
        maybe_yield(random);
        if (t % 2 == 0) {
          tokens.fetch_add(1);
          watch.notify_one(*Pool::current());
          continue;
        }
        for (std::uint32_t seen = tokens.load();;) {
          if (seen == 0) {
            wait_while(tokens, watch, 0);
            seen = tokens.load();
          } else if (tokens.compare_exchange_weak(seen, seen - 1)) {
            break;
          }
        }
      }
    };
  });
  EXPECT_EQ(tokens.load(), 0u);
}

}  // namespace
}  // namespace kasane::ult
