// SPDX-License-Identifier: Apache-2.0
// Memory whose owner never changes (placement::fixed), and memory that is zero. As in api_test.cpp threads
// only compute, and main expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

using kasane::placement;
constexpr std::size_t kPage = kasane::page_default;

int code_of(void (*f)(void*), void* p) {
  try {
    f(p);
  } catch (const kasane::error& e) {
    return e.code();
  }
  return 0;
}

void go_to(std::uint32_t rank) { kasane::this_thread::move_to(rank); }

std::uint32_t last() { return kasane::ranks() - 1; }

TEST(Fixed, ItsOwnerNeverChanges) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "there is no other rank";
  struct Seen {
    int give = 0, own = 0, mine = 0;
    std::uint32_t owner = 0;
  };
  const Seen seen = kasane::run([] {
    auto x = kasane::make_array<std::uint64_t>(kPage / 8, placement::on(last()).fixed());
    Seen s;
    go_to(0);
    s.give = code_of([](void* p) { kasane::give(static_cast<std::uint64_t*>(p), 1, 0); }, x.get());
    s.own = code_of([](void* p) { kasane::own(static_cast<std::uint64_t*>(p)); }, x.get());
    // Uses that would draw an ordinary page.
    for (int i = 0; i < 20000; ++i) kasane::put(kasane::global_ptr<std::uint64_t>(x.get() + i % 64), 1u);
    s.owner = kasane::where(x.get());
    go_to(last());
    s.mine = code_of([](void* p) { kasane::own(static_cast<std::uint64_t*>(p)); }, x.get());
    return s;
  });
  EXPECT_EQ(seen.give, EBUSY);
  EXPECT_EQ(seen.own, EBUSY);
  EXPECT_EQ(seen.mine, 0);
  EXPECT_EQ(seen.owner, last());
}

// Memory is fixed, ordinary and fixed again at another rank, in the same pages.
TEST(Fixed, EndsWithTheAllocation) {
  const int wrong = kasane::run([] {
    int w = 0;
    for (std::uint32_t i = 0; i < 12; ++i) {
      const std::uint32_t r = i % kasane::ranks();
      const bool fixed = i % 3 != 2;
      placement where = i % 2 == 0 ? placement::on(r) : placement::block;
      if (fixed) where = where.fixed();
      auto x = kasane::make_array<std::uint64_t>(4 * kPage / 8, where);
      if (where.kind == KASANE_PLACEMENT_ONE_RANK) w += kasane::where(x.get()) != r;
      if (fixed) continue;
      kasane::give(x.get(), 1, last());
      w += kasane::where(x.get()) != last();
    }
    return w;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Fixed, HasWholePages) {
  const bool shared = kasane::run([] {
    auto a = kasane::make_array<char>(8, placement::local.fixed());
    auto b = kasane::make_array<char>(8, placement::local.fixed());
    const auto page = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) / kPage; };
    return page(a.get()) == page(b.get());
  });
  EXPECT_FALSE(shared);
  EXPECT_THROW(kasane::run([] { return kasane::make_array<char>(8, placement::first_touch.fixed()); }),
               kasane::error);
}

// The owner uses plain loads and stores and std::atomic_ref, another rank puts, gets and atomics: each turn
// of the one is seen by the other, and there is no fence.
struct Turns {
  std::uint64_t turn, data, sum;
};
constexpr std::uint64_t kFrameTurns = 400;

void of_the_owner(Turns* t, std::uint64_t turns) {
  auto* const data = static_cast<volatile std::uint64_t*>(&t->data);
  const std::atomic_ref<std::uint64_t> turn(t->turn), sum(t->sum);
  for (std::uint64_t i = 0; i < turns; i += 2) {
    while (turn.load() != i + 1) kasane::this_thread::yield(), go_to(kasane::where(t));
    sum.fetch_add(*data);
    *data = i + 1;
    turn.store(i + 2);
  }
}

std::uint64_t of_another(Turns* t, std::uint64_t turns) {
  const kasane::global_ptr<std::uint64_t> turn(&t->turn), data(&t->data), sum(&t->sum);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < turns; i += 2) {
    wrong += kasane::get(data) != (i == 0 ? 0 : i - 1);
    kasane::put(data, i);
    kasane::fetch_add(sum, 1);
    kasane::swap(turn, i + 1);
    while (kasane::get(turn) != i + 2) kasane::this_thread::yield(), go_to(0);
  }
  return wrong;
}

TEST(Fixed, AtTheOwnerLoadsAndStoresAreTheDirectView) {
  std::uint64_t sum = 0;
  const std::uint64_t wrong = kasane::run([&] {
    auto* const t =
        static_cast<Turns*>(kasane::allocate_zeroed(sizeof(Turns), 64, placement::on(last()).fixed()));
    kasane::thread owner([t] {
      go_to(last());
      of_the_owner(t, kFrameTurns);
    });
    std::uint64_t w = 0;
    kasane::thread other([t, &w] {
      go_to(0);
      w = of_another(t, kFrameTurns);
    });
    owner.join();
    other.join();
    sum = kasane::get(kasane::global_ptr<std::uint64_t>(&t->sum));
    kasane::deallocate(t);
    return w;
  });
  EXPECT_EQ(wrong, 0u);
  std::uint64_t expected = kFrameTurns / 2;
  for (std::uint64_t i = 0; i < kFrameTurns; i += 2) expected += i;
  EXPECT_EQ(sum, expected);
}

// ---- zero -------------------------------------------------------------------------------------------------

/// Loads, or gets, of the n words at x that are not 0.
std::size_t not_zero(const std::uint64_t* x, std::size_t n, bool direct) {
  std::vector<std::uint64_t> got(n);
  if (direct)
    kasane::get(got.data(), x, n);
  else
    std::copy_n(x, n, got.begin());
  return n - static_cast<std::size_t>(std::count(got.begin(), got.end(), std::uint64_t{0}));
}

TEST(Zeroed, MemoryThatWasUsedToo) {
  const std::size_t wrong = kasane::run([] {
    std::size_t w = 0;
    for (int round = 0; round < 4; ++round) {
      for (const placement& where :
           {placement::local, placement::on(last()), placement::cyclic, placement::block.fixed(),
            placement::local.in_pages(kasane::page_small)}) {
        for (const std::size_t words : {1u, 100u, 4096u, 100000u}) {
          auto* const x = static_cast<std::uint64_t*>(kasane::allocate_zeroed(words * 8, 16, where));
          if (round % 2 == 0) w += not_zero(x, words, true);
          w += not_zero(x, words, false);
          w += not_zero(x, words, true);
          std::fill_n(x, words, ~std::uint64_t{0});
          kasane::deallocate(x);
        }
      }
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// Another rank that had copies of the memory's former contents sees zeros, too.
TEST(Zeroed, AtAllRanks) {
  const std::size_t wrong = kasane::run([] {
    constexpr std::size_t words = 30000;
    std::vector<std::size_t> w(kasane::ranks(), 0);
    for (int round = 0; round < 3; ++round) {
      auto* const x = static_cast<std::uint64_t*>(kasane::allocate_zeroed(words * 8, 16, placement::cyclic));
      for (const std::uint64_t expected : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        std::vector<kasane::thread> threads;
        for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
          threads.emplace_back([=, at = &w[r]] {
            go_to(r);
            for (std::size_t i = 0; i < words; i += 100) *at += x[i] != expected;
          });
        }
        for (auto& t : threads) t.join();
        std::fill_n(x, words, ~std::uint64_t{0});
      }
      kasane::deallocate(x);
    }
    std::size_t sum = 0;
    for (const std::size_t each : w) sum += each;
    return sum;
  });
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
