// SPDX-License-Identifier: Apache-2.0
#include "base/text_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

namespace kasane {
namespace {

TEST(TextTable, NumbersHaveUnitsAndThreeDigitsThatCount) {
  EXPECT_EQ(in_units(0, Magnitude::bytes), "0");
  EXPECT_EQ(in_units(266644, Magnitude::count), "266644");
  EXPECT_EQ(in_units(999, Magnitude::thousands), "999");
  EXPECT_EQ(in_units(1000, Magnitude::thousands), "1.00 k");
  EXPECT_EQ(in_units(26'664'400, Magnitude::thousands), "26.7 M");
  EXPECT_EQ(in_units(1, Magnitude::bytes), "1 B");
  EXPECT_EQ(in_units(1023, Magnitude::bytes), "1023 B");
  EXPECT_EQ(in_units(1024, Magnitude::bytes), "1.00 KiB");
  EXPECT_EQ(in_units(10239, Magnitude::bytes), "10.0 KiB");
  EXPECT_EQ(in_units(131072, Magnitude::bytes), "128 KiB");
  EXPECT_EQ(in_units((std::uint64_t{1} << 20) - 1, Magnitude::bytes), "1.00 MiB");
  EXPECT_EQ(in_units(std::uint64_t{3} << 49, Magnitude::bytes), "1536 TiB");
  EXPECT_EQ(in_units(999, Magnitude::nanoseconds), "999 ns");
  EXPECT_EQ(in_units(12'340, Magnitude::nanoseconds), "12.3 µs");
  EXPECT_EQ(in_units(5'346'426'050, Magnitude::nanoseconds), "5.35 s");
  EXPECT_EQ(in_units(999'999'999, Magnitude::nanoseconds), "1.00 s");
  EXPECT_EQ(in_units(5'000'000'000'000, Magnitude::nanoseconds), "5000 s");
}

TEST(TextTable, CellsStandInColumns) {
  const TextTable table({-6, 5, 0});
  EXPECT_EQ(table.line(std::array<std::string, 3>{"name", "µs", "what it is"}), "name      µs what it is\n")
      << "a letter is a column";
  EXPECT_EQ(table.line(std::array<std::string, 3>{"longer name", "123456", "x"}), "longer name 123456 x\n");
  EXPECT_EQ(table.line(std::array<std::string, 2>{"short", "1"}), "short      1\n");
  EXPECT_EQ(TextTable({-3, 4}).line(std::array<std::string, 4>{"a", "1", "2", "3"}), "a      1    2    3\n");
}

TEST(TextTable, LongTextIsWrapped) {
  EXPECT_EQ(wrapped("- ", "  ", "short"), "- short\n");
  const std::string fifty(50, 'x');
  std::string dots;
  for (int i = 0; i < 49; ++i) dots += "…";  // of three bytes each
  EXPECT_EQ(wrapped("", "  ", fifty + " " + dots + " y"), fifty + " " + dots + "\n  y\n");
  EXPECT_EQ(wrapped("", "  ", std::string(120, 'z') + " y"), std::string(120, 'z') + "\n  y\n")
      << "a word is not broken";
}

}  // namespace
}  // namespace kasane
