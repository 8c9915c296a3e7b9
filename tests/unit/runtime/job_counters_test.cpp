// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/job_counters.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace kasane::runtime {
namespace {

TEST(JobCounters, ALineOfProgressHasRatesOfWhatChanged) {
  CounterSums before{}, now{};
  before[row_threads] = 7;
  now[row_threads] = 7 + 2 * 1'234'000;
  before[row_faults_read] = 10, before[row_faults_write] = 20;
  now[row_faults_read] = 11, now[row_faults_write] = 29;
  before[row_bytes_put] = now[row_bytes_put] = 4096;
  now[row_bytes_spilled] = std::uint64_t{464} << 20;
  EXPECT_EQ(progress_line(12.04, 2, before, now),
            "kasane: 12.0 s; a second: 1.23 M threads, 5 faults, 232 MiB spilled\n");
}

TEST(JobCounters, ALineOfProgressSaysWhereNothingChanged) {
  CounterSums sums{};
  sums.fill(1000);
  EXPECT_EQ(progress_line(3, 10, sums, sums), "kasane: 3.0 s; a second: nothing\n");
}

TEST(JobCounters, ARowHasAColumnARankAndIsLeftOutWhereNothingWasCounted) {
  constexpr std::array<std::uint64_t, 2> kTimes{0, 2'500'000}, kNone{};
  EXPECT_EQ(counter_row("ns_views", kTimes, Magnitude::nanoseconds, "time in views"),
            "time_views                      0        2.50 ms  time in views\n");
  EXPECT_EQ(counter_row("forks", kTimes, Magnitude::count, "threads forked"),
            "forks                           0        2500000  threads forked\n");
  EXPECT_EQ(counter_row("forks", kNone, Magnitude::count, "threads forked"), "");
}

TEST(JobCounters, TheTableHasARowACounterThatCountedAndRatesOfSpilling) {
  std::array<CounterSums, 2> of{};
  of[0][row_forks] = 3;
  of[1][row_bytes_spilled] = std::uint64_t{20} << 20;
  const std::string table = counter_table(of, 4);
  EXPECT_NE(table.find("forks                           3              0  threads forked\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("spill_rate                    0.0            5.0  MiB/s"), std::string::npos)
      << table;
  EXPECT_EQ(table.find("unspill_rate"), std::string::npos) << table;
  EXPECT_EQ(table.find("steals"), std::string::npos) << table;
}

}  // namespace
}  // namespace kasane::runtime
