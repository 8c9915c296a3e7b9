// SPDX-License-Identifier: Apache-2.0
#include "runtime/table_row.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace kasane::runtime {
namespace {

TEST(TableRow, NumbersHaveUnitsAndThreeDigitsThatCount) {
  EXPECT_EQ(in_units(0, Unit::bytes), "0");
  EXPECT_EQ(in_units(266644, Unit::count), "266644");
  EXPECT_EQ(in_units(999, Unit::thousands), "999");
  EXPECT_EQ(in_units(1000, Unit::thousands), "1.00 k");
  EXPECT_EQ(in_units(26'664'400, Unit::thousands), "26.7 M");
  EXPECT_EQ(in_units(1, Unit::bytes), "1 B");
  EXPECT_EQ(in_units(1023, Unit::bytes), "1023 B");
  EXPECT_EQ(in_units(1024, Unit::bytes), "1.00 KiB");
  EXPECT_EQ(in_units(10239, Unit::bytes), "10.0 KiB");
  EXPECT_EQ(in_units(131072, Unit::bytes), "128 KiB");
  EXPECT_EQ(in_units((std::uint64_t{1} << 20) - 1, Unit::bytes), "1.00 MiB");
  EXPECT_EQ(in_units(std::uint64_t{3} << 49, Unit::bytes), "1536 TiB");
  EXPECT_EQ(in_units(999, Unit::nanoseconds), "999 ns");
  EXPECT_EQ(in_units(12'340, Unit::nanoseconds), "12.3 µs");
  EXPECT_EQ(in_units(5'346'426'050, Unit::nanoseconds), "5.35 s");
  EXPECT_EQ(in_units(999'999'999, Unit::nanoseconds), "1.00 s");
  EXPECT_EQ(in_units(5'000'000'000'000, Unit::nanoseconds), "5000 s");
}

TEST(TableRow, HasAColumnARankAndIsLeftOutWhereNothingWasCounted) {
  constexpr std::array<std::uint64_t, 2> kTimes{0, 2'500'000}, kNone{};
  EXPECT_EQ(table_row("ns_release", kTimes, Unit::nanoseconds, "time in release_all"), "time_release                    0        2.50 ms  time in release_all\n");
  EXPECT_EQ(table_row("forks", kTimes, Unit::count, "threads forked"), "forks                           0        2500000  threads forked\n");
  EXPECT_EQ(table_row("forks", kNone, Unit::count, "threads forked"), "");
}

}  // namespace
}  // namespace kasane::runtime
