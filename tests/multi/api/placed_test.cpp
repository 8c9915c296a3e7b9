// SPDX-License-Identifier: Apache-2.0
// Threads that begin near an address, or move there: they run at the page's owner, with all that they and
// their creators wrote. As in api_test.cpp threads only compute, and main expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace {

/// Of several ranks the one that allocated it is another one by now, perhaps.
void free_on_its_rank(void* p) {
  if (kasane::ranks() == 1) std::free(p);
}

/// A number on each rank, on a page of its own.
std::vector<kasane::unique_array<std::uint64_t>> one_on_each_rank() {
  std::vector<kasane::unique_array<std::uint64_t>> all;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
    all.push_back(kasane::make_array<std::uint64_t>(8192, kasane::placement::on(r)));
  return all;
}

TEST(PlacedThread, BeginsAtTheOwnerOfItsAddress) {
  struct Wrong {
    unsigned place = 0, value = 0;
  };
  const Wrong wrong = kasane::run([] {
    const auto numbers = one_on_each_rank();
    std::vector<std::uint64_t> ran_at(kasane::ranks(), ~std::uint64_t{0});
    std::vector<kasane::thread> threads;
    threads.reserve(kasane::ranks());
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      std::uint64_t* const number = numbers[r].get();
      *number = r * 10;
      threads.emplace_back(kasane::near{number}, [number, at = &ran_at[r]] {
        *at = kasane::rank();
        *number += 1;
      });
    }
    for (auto& t : threads) t.join();
    Wrong found;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      found.value += *numbers[r].get() != r * 10 + 1;
      found.place += ran_at[r] != r;
    }
    return found;
  });
  EXPECT_EQ(wrong.value, 0u);
  // With several workers it waits in a deque for a moment, from which another rank may steal it.
  if (kasane::workers() == 1) {
    EXPECT_EQ(wrong.place, 0u);
  }
}

TEST(PlacedThread, TakesItsStackAndItsArgumentsAlong) {
  const std::uint64_t sum = kasane::run([] {
    const auto numbers = one_on_each_rank();
    std::vector<std::uint64_t> values(1000);
    std::iota(values.begin(), values.end(), std::uint64_t{0});
    std::uint64_t result = 0;
    kasane::thread(
        kasane::near{numbers.back().get()},
        [&result](const std::vector<std::uint64_t>& mine, std::uint64_t more) {
          std::uint64_t local[512];
          for (std::size_t i = 0; i < 512; ++i) local[i] = mine[i];
          kasane::this_thread::yield();
          result = std::accumulate(local, local + 512, more);
        },
        values, 7)
        .join();
    return result;
  });
  EXPECT_EQ(sum, 511u * 512 / 2 + 7);
}

TEST(PlacedThread, GoesRoundAndRoundWithWhatItWrote) {
  constexpr unsigned kRounds = 20, kWalkers = 6;
  struct Sums {
    std::uint64_t shared = 0, least = ~std::uint64_t{0}, most = 0;
  };
  const Sums sums = kasane::run([] {
    const auto numbers = one_on_each_rank();
    for (const auto& n : numbers) *n.get() = 0;
    kasane::mutex mutex;
    Sums result;
    const auto walker = [&](std::uint32_t start) {
      for (unsigned step = 0; step < kRounds * kasane::ranks(); ++step) {
        std::uint64_t* const number = numbers[(start + step) % kasane::ranks()].get();
        kasane::this_thread::move_near(number);
        const std::lock_guard lock(mutex);
        ++result.shared;
        ++*number;
      }
    };
    std::vector<kasane::thread> walkers;
    walkers.reserve(kWalkers);
    for (std::uint32_t i = 0; i < kWalkers; ++i) walkers.emplace_back(walker, i);
    for (auto& w : walkers) w.join();
    for (const auto& n : numbers) {
      result.least = std::min(result.least, *n.get());
      result.most = std::max(result.most, *n.get());
    }
    return result;
  });
  EXPECT_EQ(sums.shared, std::uint64_t{kWalkers} * kRounds * kasane::ranks());
  EXPECT_EQ(sums.least, kWalkers * kRounds);
  EXPECT_EQ(sums.most, kWalkers * kRounds);
}

// One part a rank, which has nothing else to do.
TEST(PlacedLoop, RunsEachPartAtTheOwnerOfItsElements) {
  struct Wrong {
    std::size_t values = 0, places = 0;
  };
  constexpr std::size_t kEach = 32 * 1024;  // 4 pages
  const Wrong wrong = kasane::run([] {
    const std::size_t n = kEach * kasane::ranks();
    const auto numbers = kasane::make_array<std::uint64_t>(n, kasane::placement::block),
               ran_at = kasane::make_array<std::uint64_t>(n, kasane::placement::block);
    const auto note = [numbers = numbers.get(), ran_at = ran_at.get()](std::size_t i) {
      numbers[i] = i;
      ran_at[i] = kasane::rank();
    };
    kasane::parallel_for(kasane::near_array{numbers.get()}, std::size_t{0}, n, note, kEach);
    Wrong found;
    for (std::size_t i = 0; i < n; ++i) {
      found.values += numbers[i] != i;
      found.places += ran_at[i] != kasane::where(&numbers[i]);
    }
    return found;
  });
  EXPECT_EQ(wrong.values, 0u);
  if (kasane::workers() == 1) {
    EXPECT_EQ(wrong.places, 0u);
  }
}

TEST(PlacedLoop, CallsEachIterationOnceWhateverTheGrain) {
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1000}, std::size_t{20'001}}) {
    for (const std::size_t grain : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{30'000}}) {
      const bool right = kasane::run([n, grain] {
        const auto a = kasane::make_array<int>(n + 1, kasane::placement::block);
        std::fill_n(a.get(), n + 1, 0);
        kasane::parallel_for(kasane::near_data, a.get(), a.get() + n, [](int& x) { x += 1; }, grain);
        kasane::parallel_for(
            kasane::near_array{a.get() + 5}, -5, static_cast<int>(n) - 5,
            [from = a.get() + 5](int i) { from[i] += 2; }, grain);
        return std::count(a.get(), a.get() + n, 3) == static_cast<std::ptrdiff_t>(n) && a[n] == 0;
      });
      EXPECT_TRUE(right) << n << " elements, grain " << grain;
    }
  }
}

TEST(PlacedLoop, PassesOnWhatIterationsThrowAndWhatCannotBePlaced) {
  const auto [thrown, code] = kasane::run([] {
    const auto a = kasane::make_array<int>(1000, kasane::placement::block);
    std::pair<int, int> result{0, 0};
    try {
      kasane::parallel_for(
          kasane::near_data, a.get(), a.get() + 1000,
          [first = a.get()](int& x) {
            if (&x - first == 700 || &x - first == 300) throw static_cast<int>(&x - first);
          },
          10);
    } catch (int i) {
      result.first = i;
    }
    const std::unique_ptr<int[], void (*)(void*)> mine(static_cast<int*>(std::calloc(10, sizeof(int))),
                                                       free_on_its_rank);
    int* const globals = mine.get();
    try {
      kasane::parallel_for(kasane::near_array{globals}, 0, 10, [](int) {});
    } catch (const kasane::error& e) {
      result.second = e.code();
    }
    return result;
  });
  EXPECT_EQ(thrown, 300);
  EXPECT_EQ(code, EINVAL);
}

std::uint64_t stack_bytes_moved() {
  std::uint64_t sum = 0;
  for (std::uint32_t r = 0; r < kasane::ranks(); ++r) sum += kasane::counter("bytes_moved", r);
  return sum;
}

// Live bytes are carried only where a stack has to move. A pointer into a stack is good on every rank either
// way.
TEST(PlacedThread, LeavesItsStackWhereItIsWithinAHost) {
  const auto is = [](const char* variable, std::string_view value) {
    return std::getenv(variable) != nullptr && std::getenv(variable) == value;
  };
  const bool network =
      is("KASANE_TRANSPORT", "ucx") || is("KASANE_TRANSPORT", "mpi") || is("KASANE_DEBUG", "hosts=2");
  const bool moves = kasane::ranks() > 1 && (network || is("KASANE_DEBUG", "common-stacks=off"));
  const std::uint64_t before = stack_bytes_moved();
  const std::uint64_t sum = kasane::run([] {
    const auto numbers = one_on_each_rank();
    std::uint64_t local[64] = {};
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      kasane::this_thread::move_near(numbers[r].get());
      for (auto& n : local) ++n;
      kasane::thread(kasane::near{numbers[(r + 1) % kasane::ranks()].get()}, [&local] {
        for (auto& n : local) n += 2;
      }).join();
    }
    const kasane::view<const std::uint64_t> seen(local, 64);
    return std::accumulate(seen.begin(), seen.end(), std::uint64_t{0});
  });
  EXPECT_EQ(sum, 3u * 64 * kasane::ranks());
  EXPECT_EQ(stack_bytes_moved() != before, moves);
}

TEST(PlacedThread, IsRefusedWhereNothingIsAllocated) {
  const int code = kasane::run([] {
    const std::unique_ptr<int, void (*)(void*)> mine(static_cast<int*>(std::calloc(1, sizeof(int))),
                                                     free_on_its_rank);
    int& global = *mine;
    int local = 0;
    kasane::this_thread::move_near(&local);  // a stack has an owner, too
    kasane::thread nowhere(kasane::near{&global}, [] {});
    try {
      nowhere.join();
    } catch (const kasane::error& e) {
      return e.code();
    }
    return 0;
  });
  EXPECT_EQ(code, EINVAL);
  EXPECT_EQ(kasane_thread_move_near(nullptr), EPERM);
}

}  // namespace
