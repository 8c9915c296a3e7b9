// SPDX-License-Identifier: Apache-2.0
// Copies between memory that several ranks map: all sizes, and that a word is stored once.
#include "comm/copy.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace kasane::comm {
namespace {

using namespace std::chrono_literals;

TEST(Copy, MovesAllBytesAndNoOthers) {
  for (std::size_t bytes = 0; bytes <= 200; ++bytes) {
    std::array<std::byte, 256> from{}, to{};
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
    copy_out(to.data() + 8, from.data() + 8, bytes);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const bool copied = i >= 8 && i < 8 + bytes;
      EXPECT_EQ(to[i], copied ? from[i] : std::byte{0}) << bytes << " bytes, at " << i;
    }
  }
}

template <class Condition>
void spin(const Condition& condition) {
  for (int turn = 0; !condition(); ++turn)
    if (turn > 1000) ::sched_yield();
}

/// One thread copies 0 to a word, the other stores 1 as soon as it sees the 0: then it stays 1. As a flag
/// that a rank puts to say that the other may use something again.
template <class Word>
void overwrite_what_was_copied() {
  alignas(64) std::atomic<Word> word{1};
  alignas(64) std::atomic<std::uint32_t> begun{0}, ended{0};
  const std::size_t volatile bytes = sizeof(Word);  // known only when it runs, as in calls of programs
  const Word zero = 0;
  std::atomic<bool> stop{false};
  std::thread copies([&] {
    for (std::uint32_t round = 1;; ++round) {
      spin([&] { return begun.load() == round || stop.load(); });
      if (stop.load()) return;
      copy_out(reinterpret_cast<std::byte*>(&word), reinterpret_cast<const std::byte*>(&zero), bytes);
      ended.store(round);
    }
  });
  std::uint32_t lost = 0;
  const auto until = std::chrono::steady_clock::now() + 500ms;
  for (std::uint32_t round = 1; std::chrono::steady_clock::now() < until; ++round) {
    begun.store(round);
    spin([&] { return word.load() == 0; });
    word.store(1, std::memory_order_relaxed);
    spin([&] { return ended.load() == round; });
    if (word.exchange(1) != 1) ++lost;
  }
  stop.store(true);
  copies.join();
  EXPECT_EQ(lost, 0u) << sizeof(Word) << " bytes";
}

TEST(Copy, StoresAWordOnce) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "to the thread sanitizer a copy is no atomic store";
#endif
  overwrite_what_was_copied<std::uint64_t>();
  overwrite_what_was_copied<std::uint32_t>();
  overwrite_what_was_copied<std::uint16_t>();
  overwrite_what_was_copied<std::uint8_t>();
}

}  // namespace
}  // namespace kasane::comm
