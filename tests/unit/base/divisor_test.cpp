// SPDX-License-Identifier: Apache-2.0
#include "base/divisor.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace kasane {
namespace {

void expect_exact(std::uint32_t d, std::uint64_t n) {
  const auto [quotient, remainder] = Divisor(d).divide(n);
  ASSERT_EQ(quotient, n / d) << n << " / " << d;
  ASSERT_EQ(remainder, n % d) << n << " % " << d;
}

TEST(Divisor, DividesLikeTheProcessor) {
  for (std::uint32_t d = 1; d < 300; ++d) {
    for (std::uint64_t n = 0; n < 3000; ++n) expect_exact(d, n);
  }
}

// Rounding would show at multiples of the divisor and their neighbours, most of all at the end of the allowed
// range.
TEST(Divisor, IsExactUpToTheEndOfItsRange) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const auto d = static_cast<std::uint32_t>((random() >> (32 + random() % 32)) | 1);
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / d - 1, n = random() % most;
    for (const std::uint64_t near : {n / d * d, most / d * d}) {
      expect_exact(d, near);
      if (near != 0) expect_exact(d, near - 1);
    }
    expect_exact(d, most);
  }
}

}  // namespace
}  // namespace kasane
