// SPDX-License-Identifier: Apache-2.0
// A million threads before the first join in little memory, and the error that a program gets that makes too
// many.
#include <gtest/gtest.h>
#include <kasane/kasane.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

/// Of this process, in KiB. Pages of the space count twice: V and the runtime's own view both map them.
long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  return -1;
}

long maps() {
  std::ifstream file("/proc/self/maps");
  long lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

/// Returns on another rank: its child keeps this rank's worker until another rank has stolen the caller.
void go_elsewhere() {
  const std::uint32_t start = kasane::rank();
  while (kasane::rank() == start) {
    kasane::thread([] {
      const std::uint64_t spins = 1'000'000;
      for (std::uint64_t i = 0; i < spins; ++i) asm volatile("pause");
    }).join();
  }
}

TEST(ManyThreads, AMillionBeforeTheFirstJoin) {
  constexpr std::uint32_t kThreads = 1'000'000;
  struct Seen {
    long resident = 0, maps = 0;
  };
  const auto [wrong, seen] = kasane::run([] {
    const auto done = kasane::make_array<std::uint8_t>(kThreads);
    std::uint8_t* const flags = done.get();
    std::vector<kasane::thread> threads;
    threads.reserve(kThreads);
    for (std::uint32_t i = 0; i < kThreads; ++i)
      threads.emplace_back([flags, i] { flags[i] = static_cast<std::uint8_t>(i % 251 + 1); });
    std::vector<Seen> at(kasane::ranks());
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      if (r > 0) go_elsewhere();
      at[kasane::rank()] = {resident_kib(), maps()};
    }
    for (auto& t : threads) t.join();
    std::uint32_t bad = 0;
    for (std::uint32_t i = 0; i < kThreads; ++i) bad += flags[i] != i % 251 + 1;
    return std::pair(bad, at);
  });
  EXPECT_EQ(wrong, 0u);
  for (const Seen& s : seen) {
    EXPECT_GT(s.resident, 0);
    EXPECT_LE(s.resident, 1024 * 1024) << "KiB";
    EXPECT_LT(s.maps, 5000);
  }
}

/// Forks a child that forks a child … until there is no stack left. Returns how deep it came; why: the
/// error's text.
int fork_ever_deeper(int depth, std::string& why) {
  try {
    int reached = 0;
    kasane::thread child([&] { reached = fork_ever_deeper(depth + 1, why); });
    child.join();
    return reached;
  } catch (const kasane::error& e) {
    if (e.code() != EAGAIN) throw;
    why = e.what();
    return depth;
  }
}

TEST(ManyThreads, AForkBombIsToldSo) {
  const auto [depth, why, after] = kasane::run([] {
    std::string text;
    const int reached = fork_ever_deeper(0, text);
    long sum = 0;
    kasane::thread([&] { sum = 42; }).join();  // and life goes on
    return std::tuple(reached, text, sum);
  });
  EXPECT_GT(depth, 10'000);
  // The message's source, once; the rank; and both names of the option.
  EXPECT_EQ(why.rfind("kasane::thread: rank ", 0), 0U) << why;
  for (const char* part : {" has no call stack left", "--slots", "KASANE_SLOTS"})
    EXPECT_NE(why.find(part), std::string::npos) << why;
  EXPECT_EQ(after, 42);
}

}  // namespace
