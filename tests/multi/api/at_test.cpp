// SPDX-License-Identifier: Apache-2.0
// Threads that begin at a rank, calls whose answers are futures, atomics whose old values come later, and
// waits that keep the worker.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kasane::global_ptr;
using kasane::placement;

TEST(AtRank, AThreadBeginsThere) {
  const auto wrong = kasane::run([] {
    std::vector<std::uint32_t> ran_at(kasane::ranks(), ~0u);
    std::vector<kasane::thread> threads;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
      threads.emplace_back(kasane::at{r}, [](std::uint32_t* at) { *at = kasane::rank(); }, &ran_at[r]);
    for (auto& t : threads) t.join();
    std::uint32_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) w += ran_at[r] != r;
    return w;
  });
  // With several workers it waits in a deque for a moment, from which another rank may steal it.
  if (kasane::workers() == 1) {
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(AtRank, ThereIsNoSuchRank) {
  const int code = kasane::run([] {
    try {
      kasane::this_thread::move_to(kasane::ranks());
    } catch (const kasane::error& e) {
      return e.code();
    }
    return 0;
  });
  EXPECT_EQ(code, EINVAL);
  EXPECT_EQ(kasane_thread_move_to(0), EPERM);
}

TEST(Async, TheFutureHasTheValue) {
  const std::uint64_t sum = kasane::run([] {
    std::vector<kasane::future<std::uint64_t>> all;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
      all.push_back(kasane::async(
          kasane::at{r}, [](std::uint64_t a, const std::string& b) { return a + b.size(); }, r * 10u,
          std::string("1234")));
    std::uint64_t s = 0;
    for (auto& f : all) s += f.get();
    int x = 5;
    kasane::async(kasane::near{&x}, [&x] { x = 7; }).get();
    return s + static_cast<std::uint64_t>(x);
  });
  const std::uint64_t n = kasane::ranks();
  EXPECT_EQ(sum, 10 * n * (n - 1) / 2 + 4 * n + 7);
}

TEST(Async, TheFutureThrowsWhatItThrew) {
  const std::string text = kasane::run([] {
    std::string all;
    try {
      kasane::async(kasane::at{kasane::ranks() - 1}, []() -> int {
        throw std::runtime_error("thrown");
      }).get();
    } catch (const std::runtime_error& e) {
      all += e.what();
    }
    try {
      kasane::async(kasane::at{kasane::ranks()}, [] {}).get();
    } catch (const kasane::error& e) {
      all += e.code() == EINVAL ? " EINVAL" : " ?";
    }
    return all;
  });
  EXPECT_EQ(text, "thrown EINVAL");
}

// ---- atomics ----------------------------------------------------------------------------------------------

template <class T>
std::uint64_t wrong_old_values(T* words) {
  const global_ptr<T> w(words);
  std::array<T, 6> old{};
  {
    kasane::pending_group group;
    kasane::fetch_add_async(w, 5, &old[0], group);
    kasane::fetch_and_async(w + 1, 6, &old[1], group);
    kasane::fetch_or_async(w + 2, 8, &old[2], group);
    kasane::fetch_xor_async(w + 3, 1, &old[3], group);
    kasane::swap_async(w + 4, 40, &old[4], group);
    kasane::compare_swap_async(w + 5, 15, 50, &old[5], group);
    kasane::add_async(w + 6, 3, group);
    group.wait();
  }
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < old.size(); ++i) wrong += old[i] != static_cast<T>(10 + i);
  const std::array<T, 7> expected{15, 2, 12, 12, 40, 50, 19};
  for (std::size_t i = 0; i < expected.size(); ++i)
    wrong += kasane::get(w + static_cast<std::ptrdiff_t>(i)) != expected[i];
  wrong += (kasane::fetch_add_async(w, 1, &old[0]).wait(), old[0]) != 15;
  wrong += (kasane::compare_swap_async(w, 0, 1, &old[0]).wait(), old[0]) != 16;
  return wrong;
}

TEST(AtomicsLater, TheirOldValues) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      auto narrow = kasane::make_array<std::uint32_t>(8, placement::on(r));
      auto wide = kasane::make_array<std::int64_t>(8, placement::on(r));
      std::iota(narrow.get(), narrow.get() + 8, 10u);
      std::iota(wide.get(), wide.get() + 8, 10);
      kasane::release_all();
      w += wrong_old_values(narrow.get()) + wrong_old_values(wide.get());
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// Of two neighbours, 4 bytes each, only the one is written.
TEST(AtomicsLater, NarrowOldValuesTakeFourBytes) {
  const bool right = kasane::run([] {
    auto words = kasane::make_array<std::uint32_t>(8, placement::on(kasane::ranks() - 1));
    kasane::put(global_ptr<std::uint32_t>(words.get()), 7u);
    std::array<std::uint32_t, 3> old{1, 2, 3};
    kasane::fetch_add_async(global_ptr<std::uint32_t>(words.get()), 1, &old[1]).wait();
    return old == std::array<std::uint32_t, 3>{1, 7, 3};
  });
  EXPECT_TRUE(right);
}

TEST(AtomicsLater, ManyOfAllRanks) {
  constexpr std::uint64_t kEach = 3000;
  const std::uint64_t wrong = kasane::run([] {
    auto* const counter = static_cast<std::uint64_t*>(
        kasane::allocate_zeroed(8, 16, placement::on(kasane::ranks() - 1).fixed()));
    const global_ptr<std::uint64_t> c(counter);
    const std::uint32_t n = kasane::ranks();
    std::vector<std::uint64_t> sums(n, 0);
    std::vector<kasane::thread> threads;
    for (std::uint32_t r = 0; r < n; ++r) {
      threads.emplace_back(kasane::at{r}, [c, sum = &sums[r]] {
        std::vector<std::uint64_t> old(kEach);
        kasane::pending_group group;
        for (std::uint64_t i = 0; i < kEach; ++i) kasane::fetch_add_async(c, 1, &old[i], group);
        group.wait();
        *sum = std::accumulate(old.begin(), old.end(), std::uint64_t{0});
      });
    }
    for (auto& t : threads) t.join();
    const std::uint64_t all = n * kEach, sum = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
    const std::uint64_t w = (kasane::get(c) != all) + (sum != all * (all - 1) / 2);
    kasane::deallocate(counter);
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// ---- polling ----------------------------------------------------------------------------------------------

// A lock word that is held over direct accesses only in a polling scope is never held by a suspended thread:
// a thread of the same worker that polls for it by calls gets it.
TEST(Polling, AWordThatIsHeldIsNotHeldByASuspendedThread) {
  const std::uint64_t wrong = kasane::run([] {
    struct Locked {
      std::uint64_t word, a, b;
    };
    auto* const x = static_cast<Locked*>(
        kasane::allocate_zeroed(sizeof(Locked), 64, placement::on(kasane::ranks() - 1).fixed()));
    const global_ptr<std::uint64_t> word(&x->word), a(&x->a), b(&x->b);
    std::vector<kasane::thread> threads;
    std::atomic<std::uint64_t>* const wrong_sum = new std::atomic<std::uint64_t>(0);
    constexpr std::uint64_t kThreads = 8, kEach = 200;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([=] {
        std::uint64_t w = 0;
        for (std::uint64_t i = 0; i < kEach; ++i) {
          const kasane::polling_scope keep;
          while (kasane::compare_swap(word, 0, 1) != 0) {
          }
          const std::uint64_t seen = kasane::get(a);
          kasane::put(a, seen + 1);
          w += kasane::get(b) != seen;
          kasane::put(b, seen + 1);
          kasane::swap(word, 0);
        }
        wrong_sum->fetch_add(w);
      });
    }
    for (auto& t : threads) t.join();
    const std::uint64_t w = wrong_sum->load() + (kasane::get(a) != kThreads * kEach);
    delete wrong_sum;
    kasane::deallocate(x);
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(Polling, ScopesAreNestedAndThreadsGoOnAfterwards) {
  const int x = kasane::run([] {
    {
      const kasane::polling_scope outer;
      const kasane::polling_scope inner;
      kasane::this_thread::yield();
    }
    int y = 0;
    kasane::thread([&y] { y = 1; }).join();
    return y;
  });
  EXPECT_EQ(x, 1);
  const kasane::polling_scope nothing;  // outside of threads
}

}  // namespace
