// SPDX-License-Identifier: Apache-2.0
// Accesses that wait within a library (libmisses_sums.so): its worker runs other threads meanwhile if
// --code-of names it, and else does not. What is computed is the same.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <vector>

extern "C" {
std::uint64_t library_sum(const std::uint64_t* first, std::size_t stride, std::size_t n);
std::uint64_t library_copy(std::uint64_t* to, const std::uint64_t* from, std::size_t bytes);
}

namespace {

constexpr std::size_t kBlock = 4096, kWords = kBlock / 8;
constexpr std::uint64_t kBlocks = 4096, kThreads = 16, kTimes = 60;

/// Blocks that are not here: of the other rank, or more than the budget holds. Word 0 of each is its number.
std::uint64_t* blocks_elsewhere() {
  const std::uint32_t there = kasane::ranks() > 1 ? 1 : 0;
  auto* const words =
      static_cast<std::uint64_t*>(kasane::allocate(kBlocks * kBlock, kBlock, kasane::placement::on(there)));
  kasane::thread(kasane::at{there}, [words] {
    for (std::uint64_t i = 0; i < kBlocks; ++i) words[i * kWords] = i;
  }).join();
  return words;
}

/// call(words, block) on blocks of their own by many threads of rank 0. Returns how many accesses of it let
/// others run.
template <class Call>
std::uint64_t left_during(const Call& call) {
  std::uint64_t left = 0;
  kasane::run([&] {
    std::uint64_t* const words = blocks_elsewhere();
    while (kasane::rank() != 0) kasane::this_thread::move_to(0);
    const std::uint64_t before = kasane::counter("faults_left");
    std::vector<kasane::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&call, words, t] {
        while (kasane::rank() != 0) kasane::this_thread::move_to(0);
        for (std::uint64_t n = 0; n < kTimes; ++n) call(words, (t * kTimes + n) * 1237 % (kBlocks - 1));
      });
    for (auto& t : threads) t.join();
    while (kasane::rank() != 0) kasane::this_thread::move_to(0);
    left = kasane::counter("faults_left") - before;
    kasane::deallocate(words);
  });
  return left;
}

void expect_left(std::uint64_t left) {
  const char* const named = std::getenv("KASANE_CODE_OF");
  if (named != nullptr && std::strstr(named, "misses_sums") != nullptr) {
    EXPECT_GT(left, kThreads);
  } else {
    EXPECT_LT(left, kThreads);  // the threads' own accesses
  }
}

TEST(Library, Loads) {
  expect_left(left_during([](std::uint64_t* words, std::uint64_t block) {
    EXPECT_EQ(library_sum(words + block * kWords, kWords, 2), 2 * block + 1);
  }));
}

TEST(Library, Memcpy) {
  expect_left(left_during([](std::uint64_t* words, std::uint64_t block) {
    std::uint64_t copy[kWords];
    EXPECT_EQ(library_copy(copy, words + block * kWords, kBlock), block);
  }));
}

}  // namespace
