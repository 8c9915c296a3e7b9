// SPDX-License-Identifier: Apache-2.0
// While a thread waits for the network in kasane::get, its worker runs another one. Run on two ranks that do
// not map each other's memory, one worker each.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <mutex>
#include <vector>

namespace {

constexpr std::size_t kWords = 64 * 1024;  // several pages; every second one lies on the other rank

/// The value that word i has.
std::uint64_t value_of(std::size_t i) { return i * 0x9E3779B97F4A7C15u; }

TEST(Latency, AnotherThreadRunsWhileOneWaits) {
  ASSERT_EQ(kasane::workers(), 1u);
  kasane::run([] {
    auto* words = static_cast<std::uint64_t*>(
        kasane::allocate(kWords * sizeof(std::uint64_t), 16, kasane::placement::cyclic));
    std::vector<std::uint64_t> values(kWords);
    for (std::size_t i = 0; i < kWords; ++i) values[i] = value_of(i);
    kasane::put(words, values.data(), kWords);

    // More readers than workers, for the other rank steals some; all go on until one saw another one of its
    // rank go on during its get, so two of them share a worker however they are spread. Where that never
    // happens, they end all the same, and the test fails.
    static std::atomic<std::uint64_t> steps;  // of this process: of the threads that run on this rank
    bool seen = false;
    kasane::mutex guard;  // of seen
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto goes_on = [&] {
      const std::lock_guard lock(guard);
      return !seen && std::chrono::steady_clock::now() < deadline;
    };
    const auto reader = [&] {
      for (int round = 0; round < 50 || goes_on(); ++round) {
        for (std::size_t at = 0; at < kWords; at += kWords / 8) {
          std::uint64_t got[16];
          const unsigned rank = kasane::rank();
          const std::uint64_t before = steps.fetch_add(1) + 1;
          kasane::get(got, words + at, 16);
          ASSERT_EQ(kasane::rank(), rank) << "a thread that waits does not move";
          if (steps.load() != before) {
            const std::lock_guard lock(guard);
            seen = true;
          }
          for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(got[i], value_of(at + i));
        }
      }
    };
    std::vector<kasane::thread> readers;
    for (int i = 0; i < 4; ++i) readers.emplace_back([&reader] { reader(); });
    for (auto& thread : readers) thread.join();
    EXPECT_TRUE(seen) << "every get held its worker up";
    kasane::deallocate(words);
  });
}

// Buffers of a get and a put anywhere: in another page of the space, on the stack, in private memory; of any
// size.
TEST(Latency, BuffersMayLieInGlobalMemory) {
  kasane::run([] {
    constexpr std::size_t most = 200'000;
    auto* there = static_cast<unsigned char*>(kasane::allocate(most, 16, kasane::placement::cyclic));
    auto* here = static_cast<unsigned char*>(kasane::allocate(most, 16, kasane::placement::block));
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{65'537}, most}) {
      for (std::size_t i = 0; i < bytes; ++i) here[i] = static_cast<unsigned char>(i * 7 + bytes);
      kasane::put(there, here, bytes);
      std::vector<unsigned char> copy(bytes + 2, 0xAA);
      kasane::get(copy.data() + 1, there, bytes);
      EXPECT_EQ(copy.front(), 0xAA);
      EXPECT_EQ(copy.back(), 0xAA);
      for (std::size_t i = 0; i < bytes; ++i)
        ASSERT_EQ(copy[i + 1], static_cast<unsigned char>(i * 7 + bytes)) << i << " of " << bytes;
    }
    kasane::deallocate(here);
    kasane::deallocate(there);
  });
}

}  // namespace
