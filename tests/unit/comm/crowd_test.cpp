// SPDX-License-Identifier: Apache-2.0
// Of many threads that wait few have a place; who leaves one wakes another thread.
#include "comm/crowd.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace kasane::comm {
namespace {

using namespace std::chrono_literals;

/// As many as take places, and the first of the others.
int take_all_places(std::deque<Crowd::Member>& members, Crowd& crowd) {
  int taken = 0;
  while (members.emplace_back(crowd).has_place()) ++taken;
  return taken;
}

TEST(Crowd, FewHaveAPlace) {
  Crowd crowd;
  std::deque<Crowd::Member> members;
  EXPECT_GE(take_all_places(members, crowd), 4);
  EXPECT_FALSE(members.back().has_place());
  members.pop_front();
  EXPECT_TRUE(members.back().has_place());
  EXPECT_TRUE(members.back().has_place());  // it keeps it
  EXPECT_FALSE(Crowd::Member(crowd).has_place());
}

/// So many that a thread looks by itself only after a minute.
TEST(Crowd, WhoLeavesWakesAnotherAndSoDoesWhoNeedsNoPlace) {
  Crowd crowd;
  std::deque<Crowd::Member> members;
  take_all_places(members, crowd);
  while (members.size() < 3'000'000) members.emplace_back(crowd);

  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const Crowd::Member self(crowd);
      self.sleep_without();
      ++woken;
    });
  std::this_thread::sleep_for(50ms);  // they may sleep or not: who does not yet is woken by the next try
  const auto begin = std::chrono::steady_clock::now();
  members.pop_front();
  while (woken != 3 && std::chrono::steady_clock::now() - begin < 30s) {
    std::this_thread::sleep_for(1ms);
    const Crowd::Member leaves(crowd);
  }
  EXPECT_EQ(woken, 3);
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace kasane::comm
