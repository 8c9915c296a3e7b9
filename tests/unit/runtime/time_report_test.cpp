// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/time_report.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace kasane::runtime {
namespace {

void spin_ms(std::uint64_t ms) {
  const std::uint64_t end = now_ns() + ms * 1'000'000;
  while (now_ns() < end) relax();
}

std::uint64_t ns_of(Counters& counters, Account account) { return counter_of(counters, account).load(); }

TEST(Spent, ATimeIsInOneAccount) {
  Counters counters;
  const std::uint64_t begin = now_ns();
  std::uint64_t told = 0;
  {
    Spent outer(counters, Account::idle);
    spin_ms(2);
    {
      const Spent inner(counters, Account::steal);
      spin_ms(3);
      const Spent innermost(counters, Account::load_faults);
      spin_ms(4);
    }
    {
      Spent nothing(counters, Account::views);
      {
        const Spent inner(counters, Account::load_faults);
        spin_ms(1);
      }
      nothing.cancel();
    }
    told = outer.end();
  }
  const std::uint64_t all = now_ns() - begin;
  EXPECT_GE(ns_of(counters, Account::idle), 2'000'000u);
  EXPECT_GE(ns_of(counters, Account::steal), 3'000'000u);
  EXPECT_GE(ns_of(counters, Account::load_faults), 5'000'000u);
  EXPECT_EQ(ns_of(counters, Account::views), 0u);
  EXPECT_EQ(told, ns_of(counters, Account::idle));
  std::uint64_t sum = 0;
  for (std::size_t a = 0; a < kAccounts; ++a) sum += ns_of(counters, static_cast<Account>(a));
  EXPECT_LE(sum, all);
}

// A canceled account's own time is the outer one's.
TEST(Spent, WhatIsCanceledStaysWhereItWas) {
  Counters counters;
  {
    const Spent outer(counters, Account::idle);
    Spent theft(counters, Account::steal);
    spin_ms(2);
    theft.cancel();
  }
  EXPECT_GE(ns_of(counters, Account::idle), 2'000'000u);
  EXPECT_EQ(ns_of(counters, Account::steal), 0u);
}

std::uintptr_t g_here = 0;

TEST(PlaceTable, KeepsAPlaceOfEachAccountAndTellsWhatItLost) {
  constexpr std::uint64_t kPlaces = 2000;  // more than there is room for
  const auto table = std::make_unique<PlaceTable>();
  table->open([]() noexcept { return g_here; });
  for (int round = 0; round < 2; ++round) {
    for (g_here = 0x7f00'0000'1000; g_here < 0x7f00'0000'1000 + 3 * kPlaces; g_here += 3) {
      table->add(Account::load_faults, 5);
      table->add(Account::wait_locks, 7);
    }
  }
  std::map<std::pair<Account, std::uintptr_t>, std::uint64_t> kept;
  std::uint64_t sum = table->lost_ns();
  table->for_each([&](Account account, std::uintptr_t code, std::uint64_t ns) {
    EXPECT_TRUE(kept.insert({{account, code}, ns}).second);
    EXPECT_EQ(ns, account == Account::load_faults ? 10u : 14u) << code;
    sum += ns;
  });
  EXPECT_GT(kept.size(), 400u);
  EXPECT_GT(table->lost_ns(), 0u);
  EXPECT_EQ(sum, 2 * kPlaces * (5 + 7));
  EXPECT_TRUE(kept.contains({Account::load_faults, 0x7f00'0000'1000}));
}

// Only accounts of the program's own calls and accesses have places.
TEST(PlaceTable, IsNotAskedForIdleTime) {
  const auto table = std::make_unique<PlaceTable>();
  table->open([]() noexcept -> std::uintptr_t { return 0x1000; });
  Counters counters;
  counters.places = table.get();
  spend(counters, Account::idle, 3);
  spend(counters, Account::steal, 3);
  spend(counters, Account::fence_asked, 3);
  spend(counters, Account::wait_others, 4);
  std::size_t places = 0;
  table->for_each([&](Account account, std::uintptr_t, std::uint64_t ns) {
    ++places;
    EXPECT_EQ(account, Account::wait_others);
    EXPECT_EQ(ns, 4u);
  });
  EXPECT_EQ(places, 1u);
  EXPECT_EQ(counters.places, table.get());
}

WorkersTime time_of(std::uint64_t all, std::uint64_t loads, std::uint64_t locks, std::uint64_t idle) {
  CounterSums sums{};
  sums[row_ns_workers] = all;
  sums[row_ns_load_faults] = loads;
  sums[row_ns_wait_locks] = locks;
  sums[row_ns_idle] = idle;
  return workers_time(sums);
}

TEST(TimeTable, SumsToAHundredAndNamesTheMostExpensivePlaces) {
  const std::array<WorkersTime, 2> of{time_of(1'000'000, 333'333, 0, 1'000),
                                      time_of(1'000'000, 333'333, 333'333, 0)};
  const std::vector<TimedPlace> places{
      {Account::load_faults, 1, 100'000, "f a.c:1"},     {Account::load_faults, 2, 300'000, "g a.c:2"},
      {Account::load_faults, 3, 150'000, "f a.c:1"},     {Account::load_faults, 4, 60'000, "h a.c:3"},
      {Account::load_faults, 5, 50'000, "fourth a.c:4"}, {Account::wait_locks, 5, 900, "lock a.c:9"}};
  EXPECT_EQ(time_table(of, 1, places, 5'000),
            "\nwhere the time of 2 workers went\n"
            " 49.9 %  compute (most: 66.6 %, rank 0)\n"
            " 33.3 %  load faults (most: 33.3 %, rank 0)\n"
            "          15.0 %  g a.c:2\n"
            "          12.5 %  f a.c:1\n"
            "           3.0 %  h a.c:3\n"
            " 16.7 %  waits for locks (most: 33.3 %, rank 1)\n"
            "  0.1 %  idle (most: 0.1 %, rank 0)\n"
            "the places of 0.3 % found no room in the workers' tables\n");
}

TEST(TimeTable, OfOneRankHasNoLargestOne) {
  const std::array<WorkersTime, 1> of{time_of(1'000'000, 0, 0, 500'000)};
  EXPECT_EQ(time_table(of, 1, {}, 0), "\nwhere the time of 1 worker went\n 50.0 %  compute\n 50.0 %  idle\n");
}

// A thread may serve faults for others, so accounts may have more than the workers.
TEST(TimeTable, MoreThanAllIsAHundred) {
  const std::array<WorkersTime, 1> of{time_of(1'000, 3'000, 0, 1'000)};
  EXPECT_EQ(time_table(of, 2, {}, 0),
            "\nwhere the time of 2 workers went\n  0.0 %  compute\n 75.0 %  load faults\n 25.0 %  idle\n");
}

TEST(TimeTable, IsLeftOutWhereNoWorkerHasEnded) {
  const std::array<WorkersTime, 2> of{};
  EXPECT_EQ(time_table(of, 1, {}, 0), "");
}

}  // namespace
}  // namespace kasane::runtime
