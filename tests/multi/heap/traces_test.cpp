// SPDX-License-Identifier: Apache-2.0
// The allocator as programs on several ranks use it: threads allocate at every rank, pass what they have on,
// and free what others allocated; contents are checked. Trips are counted, not timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <kasane/kasane.hpp>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "support/counts.h"

namespace {

struct Piece {
  unsigned char* at;
  std::size_t bytes;
  unsigned char fill;
};

bool holds(const Piece& p) {
  return std::all_of(p.at, p.at + p.bytes, [&](unsigned char c) { return c == p.fill; });
}

TEST(HeapTraces, EveryRankAllocatesEverywhereAndFreesWhatOthersDid) {
  EXPECT_EQ(kasane::run([] {
              kasane::mutex mutex;
              std::vector<Piece> pool;
              int wrong = 0;
              kasane::parallel_for(
                  0, 24,
                  [&](int task) {
                    std::mt19937_64 random(static_cast<std::uint64_t>(task));
                    int seen_wrong = 0;
                    for (int i = 0; i < 60; ++i) {
                      if (random() % 8 != 0) {
                        const std::size_t bytes =
                            1 + (random() % 16 != 0 ? random() % 3000 : random() % 200'000);
                        const auto rank = static_cast<std::uint32_t>(random() % kasane::ranks());
                        const auto where =
                            random() % 3 == 0 ? kasane::placement::local : kasane::placement::on(rank);
                        Piece piece{static_cast<unsigned char*>(kasane::allocate(bytes, 16, where)), bytes,
                                    static_cast<unsigned char>(random())};
                        std::memset(piece.at, piece.fill, bytes);
                        const std::lock_guard lock(mutex);
                        pool.push_back(piece);
                      }
                      if (random() % 2 == 0) {
                        Piece piece{};
                        {
                          const std::lock_guard lock(mutex);
                          if (pool.empty()) continue;
                          std::swap(pool[random() % pool.size()], pool.back());
                          piece = pool.back();
                          pool.pop_back();
                        }
                        seen_wrong += holds(piece) ? 0 : 1;
                        kasane::deallocate(piece.at);
                      }
                    }
                    const std::lock_guard lock(mutex);
                    wrong += seen_wrong;
                  },
                  1);
              for (const Piece& piece : pool) {
                wrong += holds(piece) ? 0 : 1;
                kasane::deallocate(piece.at);
              }
              return wrong;
            }),
            0);
}

TEST(HeapTraces, TripsToAnotherRank) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "there is no other rank";
  constexpr int kRounds = 20, kEach = 100;
  const kasane::test::Counts before;
  kasane::run([] {
    const std::uint32_t other = (kasane::rank() + 1) % kasane::ranks();
    std::mt19937_64 random(1);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<void*> all(kEach);
      for (auto& p : all) p = kasane::allocate(1 + random() % 32'768, 16, kasane::placement::on(other));
      std::shuffle(all.begin(), all.end(), random);
      for (void* p : all) kasane::deallocate(p);
    }
  });
  const kasane::test::Counts after;
  const double operations = kRounds * kEach;
  const double allocate =
      static_cast<double>(after["remote_operations_allocate"] - before["remote_operations_allocate"]) /
      operations;
  const double free =
      static_cast<double>(after["remote_operations_free"] - before["remote_operations_free"]) / operations;
  std::printf("%.2f trips an allocation, %.2f a free\n", allocate, free);
  EXPECT_GT(allocate, 0.0);
  EXPECT_LE(allocate, 3.0);
  EXPECT_LE(free, 2.0);
}

// In a small space: one rank's share is used up, by any rank; the others, and later the same one, go on.
TEST(HeapTraces, AnExhaustedRankDoesNotEndTheJob) {
  EXPECT_TRUE(kasane::run([] {
    const std::uint32_t full = kasane::ranks() - 1;
    std::vector<void*> all;
    all.reserve(1000);  // before: with one rank it takes of the same share
    std::string message;
    for (;;) {
      void* p = kasane_allocate_at(1 << 20, 16, full);
      if (p == nullptr) {
        message = kasane_error_message();
        break;
      }
      all.push_back(p);
    }
    bool good = kasane_error_code() == ENOMEM &&
                message.find("rank " + std::to_string(full)) != std::string::npos &&
                message.find("1048576") != std::string::npos && message.find("are free") != std::string::npos;
    if (!good) std::puts(message.c_str());
    if (kasane::ranks() > 1) {
      void* p = kasane_allocate_at(1 << 20, 16, 0);
      good = good && p != nullptr;
      kasane::deallocate(p);
    }
    kasane::parallel_for(std::size_t{0}, all.size(), [&](std::size_t i) { kasane::deallocate(all[i]); }, 1);
    void* whole = kasane_allocate_at((all.size() << 20) / 4 * 3, 16, full);  // joined again
    good = good && whole != nullptr;
    kasane::deallocate(whole);
    return good;
  }));
}

}  // namespace
