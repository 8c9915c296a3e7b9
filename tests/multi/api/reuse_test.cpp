// SPDX-License-Identifier: Apache-2.0
// Memory that is freed and allocated again with another placement, where ranks still have copies of what it was: a store reaches the owner also where the new
// value is what such a copy holds.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <kasane/kasane.hpp>

namespace {

constexpr std::size_t kPageWords = 65536 / sizeof(std::uint32_t), kGrain = 1000;

/// Of few different bytes, so that many are what they were in an earlier array.
std::uint32_t value(std::size_t i, std::uint32_t seed) { return i / kPageWords % 3 == 1 ? 0 : static_cast<std::uint32_t>(i * 2654435761u + seed); }

void fill(std::uint32_t* words, std::size_t n, std::uint32_t seed) {
  kasane::parallel_for(std::size_t{0}, n, [=](std::size_t i) { words[i] = value(i, seed); }, kGrain);
}

std::size_t wrong(const std::uint32_t* words, std::size_t n, std::uint32_t seed) {
  return kasane::parallel_reduce(
      std::size_t{0}, n, std::size_t{0}, [=](std::size_t i) { return std::size_t{words[i] != value(i, seed)}; }, [](auto a, auto b) { return a + b; }, kGrain);
}

TEST(Reuse, KeepsEveryByteWhateverTheMemoryWasBefore) {
  using kasane::placement;
  std::uint32_t seed = 0;
  for (int round = 0; round < 4; ++round) {
    for (const placement where : {placement::local, placement::block, placement::cyclic, placement::first_touch, placement::on(kasane::ranks() - 1),
                                  placement::cyclic.in_pages(kasane::page_small), placement::block.in_pages(kasane::page_large)}) {
      for (const std::size_t n : {std::size_t{1}, kPageWords - 1, kPageWords + 1, 60 * kPageWords + 5}) {
        ++seed;
        const std::size_t bad = kasane::run([=] {
          const auto array = kasane::make_array<std::uint32_t>(n, where);
          fill(array.get(), n, seed);
          const std::size_t once = wrong(array.get(), n, seed);
          fill(array.get(), n, seed + 1000);
          return once + wrong(array.get(), n, seed + 1000);
        });
        ASSERT_EQ(bad, 0u) << "kind " << static_cast<int>(where.kind) << ", pages of " << where.page_bytes << ", " << n << " words, array " << seed;
      }
    }
  }
}

}  // namespace
