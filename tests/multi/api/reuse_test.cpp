// SPDX-License-Identifier: Apache-2.0
// Memory that is freed and allocated again, with another placement or as another object of the same worker,
// where ranks still have copies of what it was: a store reaches the owner also where the new value is what
// such a copy holds, and no store to what was freed comes after a put to what is there now.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <kasane/kasane.hpp>
#include <utility>

namespace {

constexpr std::size_t kPageWords = 65536 / sizeof(std::uint32_t), kGrain = 1000;

/// Of few different bytes, so that many are what they were in an earlier array.
std::uint32_t value(std::size_t i, std::uint32_t seed) {
  return i / kPageWords % 3 == 1 ? 0 : static_cast<std::uint32_t>(i * 2654435761u + seed);
}

void fill(std::uint32_t* words, std::size_t n, std::uint32_t seed) {
  kasane::parallel_for(std::size_t{0}, n, [=](std::size_t i) { words[i] = value(i, seed); }, kGrain);
}

std::size_t wrong(const std::uint32_t* words, std::size_t n, std::uint32_t seed) {
  return kasane::parallel_reduce(
      std::size_t{0}, n, std::size_t{0},
      [=](std::size_t i) { return std::size_t{words[i] != value(i, seed)}; },
      [](auto a, auto b) { return a + b; }, kGrain);
}

TEST(Reuse, KeepsEveryByteWhateverTheMemoryWasBefore) {
  using kasane::placement;
  std::uint32_t seed = 0;
  for (int round = 0; round < 4; ++round) {
    for (const placement where :
         {placement::local, placement::block, placement::cyclic, placement::first_touch,
          placement::on(kasane::ranks() - 1), placement::cyclic.in_pages(kasane::page_small),
          placement::block.in_pages(kasane::page_large)}) {
      for (const std::size_t n : {std::size_t{1}, kPageWords - 1, kPageWords + 1, 60 * kPageWords + 5}) {
        ++seed;
        const std::size_t bad = kasane::run([=] {
          const auto array = kasane::make_array<std::uint32_t>(n, where);
          fill(array.get(), n, seed);
          const std::size_t once = wrong(array.get(), n, seed);
          fill(array.get(), n, seed + 1000);
          return once + wrong(array.get(), n, seed + 1000);
        });
        ASSERT_EQ(bad, 0u) << "kind " << static_cast<int>(where.kind) << ", pages of " << where.page_bytes
                           << ", " << n << " words, array " << seed;
      }
    }
  }
}

/// An object at the last rank, which the calling rank uses from afar; the worker that frees it is given the
/// same memory again.
class Reused : public testing::Test {
 protected:
  static constexpr std::size_t kWords = 100;
  static std::uint64_t* object() {
    return static_cast<std::uint64_t*>(
        kasane::allocate(kWords * 8, 16, kasane::placement::on(kasane::ranks() - 1)));
  }
  static std::size_t count_wrong(const std::uint64_t* got, std::uint64_t right) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kWords; ++i) wrong += got[i] != right;
    return wrong;
  }
  static void fill(std::uint64_t* object, std::uint64_t word) {
    for (std::size_t i = 0; i < kWords; ++i) const_cast<volatile std::uint64_t*>(object)[i] = word;
  }
};

TEST_F(Reused, APutIsNotOvertakenByStoresToWhatWasFreed) {
  const auto [again, wrong] = kasane::run([] {
    auto* first = object();
    fill(first, 0x0102030405060708);
    kasane::deallocate(first);
    auto* second = object();
    std::uint64_t words[kWords];
    fill(words, 0x1100000000000000);
    kasane::put(second, words, kWords);
    kasane::release_all();
    kasane::acquire_all();
    const std::size_t loaded = count_wrong(second, words[0]);
    kasane::get(words, second, kWords);
    const std::pair result(first == second, loaded + count_wrong(words, 0x1100000000000000));
    kasane::deallocate(second);
    return result;
  });
  EXPECT_TRUE(again);
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Reused, AStoreOfWhatTheCopyHeldBeforeAPutArrives) {
  const auto [again, wrong] = kasane::run([] {
    auto* first = object();
    fill(first, 0);
    kasane::release_all();  // so that this rank's copy is the owner's
    std::uint64_t words[kWords];
    fill(words, 5);
    kasane::put(first, words, kWords);
    kasane::deallocate(first);
    auto* second = object();
    fill(second, 0);
    kasane::release_all();
    kasane::acquire_all();
    kasane::get(words, second, kWords);
    const std::pair result(first == second, count_wrong(words, 0));
    kasane::deallocate(second);
    return result;
  });
  EXPECT_TRUE(again);
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
