// SPDX-License-Identifier: Apache-2.0
// Notes of several threads are taken once each, in the order in which each thread added them; a full list
// refuses.
#include "base/notes.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kasane {
namespace {

TEST(Notes, AreTakenInOrderAndRefusedWhenFull) {
  Notes<int, 3> notes;
  int taken = 0;
  EXPECT_FALSE(notes.any());
  EXPECT_FALSE(notes.take(taken));
  for (int round = 0; round < 5; ++round) {  // past the end of its array
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(notes.add(round * 10 + i));
    EXPECT_FALSE(notes.add(99));
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(notes.any());
      ASSERT_TRUE(notes.take(taken));
      EXPECT_EQ(taken, round * 10 + i);
    }
  }
  EXPECT_FALSE(notes.any());
}

TEST(Notes, OfManyThreadsAreTakenOnce) {
  constexpr int kThreads = 4, kEach = 20'000;
  struct Note {
    int thread, number;
  };
  Notes<Note, 8> notes;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&notes, t] {
      for (int i = 0; i < kEach; ++i) {
        while (!notes.add({t, i})) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kThreads, 0);
  for (int all = 0; all < kThreads * kEach;) {
    Note note{};
    if (!notes.take(note)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(note.number, next[static_cast<std::size_t>(note.thread)]++);
    ++all;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(notes.any());
}

}  // namespace
}  // namespace kasane
