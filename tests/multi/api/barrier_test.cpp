// SPDX-License-Identifier: Apache-2.0
// kasane::barrier on several ranks: phases of plain variables in global memory, passed at once or in two
// steps, by threads some of which drop out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <memory>
#include <random>
#include <type_traits>
#include <utility>

#include "multi/api/everywhere.h"

namespace {

using kasane::test::everywhere, kasane::test::for_seeds, kasane::test::kThreads, kasane::test::linger;

static_assert(!std::is_copy_constructible_v<kasane::barrier::arrival_token> &&
              std::is_nothrow_move_constructible_v<kasane::barrier::arrival_token>);

int code_of(auto&& call) {
  try {
    call();
    return 0;
  } catch (const kasane::error& e) {
    return e.code();
  }
}

// In each phase each thread writes its own word; after it each sees the words of all threads that are still
// there. Between arrival and wait a thread does other things.
TEST(Barrier, TokensAndThoseWhoDropOut) {
  for_seeds([](unsigned seed) {
    constexpr std::uint64_t kPhases = 12;
    struct Data {
      kasane::barrier wrote{kThreads}, read{kThreads};
      std::uint64_t word[kThreads] = {};
      std::uint64_t last[kThreads] = {};  // the phase in which it drops out
    };
    const auto data = std::make_unique<Data>();
    std::minstd_rand plan(seed);
    for (std::uint32_t t = 0; t < kThreads; ++t) data->last[t] = t % 3 == 0 ? 1 + plan() % kPhases : kPhases;
    return everywhere(seed, [&](std::uint32_t t, std::minstd_rand& random) {
      int bad = 0;
      const auto pass = [&random](kasane::barrier& b) {
        if (random() % 2 == 0) return b.arrive_and_wait();
        auto token = b.arrive();
        linger(random);
        auto moved = std::move(token);
        b.wait(std::move(moved));
      };
      for (std::uint64_t phase = 1;; ++phase) {
        linger(random);
        data->word[t] = phase;
        if (phase == data->last[t] && phase != kPhases) {
          data->wrote.arrive_and_drop();
          data->read.arrive_and_drop();
          return bad;
        }
        pass(data->wrote);
        for (std::uint32_t other = 0; other < kThreads; ++other)
          bad += data->word[other] == std::min(phase, data->last[other]) ? 0 : 1;
        if (phase == kPhases) return bad;
        pass(data->read);
      }
    });
  });
}

// One thread arrives for three; the last to arrive does not wait, and another thread may wait with the token.
TEST(Barrier, ArrivesForOthers) {
  EXPECT_EQ(kasane::run([] {
              int wrong = 0;
              kasane::barrier b(4);
              std::uint64_t value = 0;
              for (std::uint64_t round = 1; round <= 50; ++round) {
                auto first = b.arrive(3);
                kasane::thread other(
                    [&value, round,
                     token = std::make_unique<kasane::barrier::arrival_token>(std::move(first)), &b, &wrong] {
                      b.wait(std::move(*token));
                      wrong += value == round ? 0 : 1;
                    });
                if (round % 3 == 0) kasane::this_thread::yield();
                value = round;
                auto last = b.arrive();
                b.wait(std::move(last));
                other.join();
              }
              return wrong;
            }),
            0);
}

TEST(Barrier, RefusesWhatCannotBe) {
  EXPECT_EQ(kasane::run([] {
              int wrong = 0;
              const auto refused = [&wrong](auto&& call) { wrong += code_of(call) == EINVAL ? 0 : 1; };
              refused([] { kasane::barrier b(0); });
              refused([] { kasane::barrier b(kasane::barrier::max() + 1); });
              kasane::barrier b(2);
              refused([&b] { static_cast<void>(b.arrive(0)); });
              refused([&b] { static_cast<void>(b.arrive(3)); });
              b.arrive_and_drop();
              b.arrive_and_drop();  // this one ends the phase
              refused([&b] { b.arrive_and_wait(); });
              refused([&b] { b.arrive_and_drop(); });
              refused([&b] { static_cast<void>(b.arrive()); });
              return wrong;
            }),
            0);
}

}  // namespace
