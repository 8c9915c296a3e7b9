// SPDX-License-Identifier: Apache-2.0
// std::atomic in global memory, used by threads of all ranks: each operation of each size against a model;
// then what programs do with it. Objects lie at a chosen rank, on a stack, and beside plain data.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <random>
#include <type_traits>
#include <vector>

#include "multi/api/everywhere.h"
#include "multi/atomics/placed.h"
#include "support/counts.h"

namespace {

using kasane::test::linger, kasane::test::make_on, kasane::test::on_each_rank, kasane::test::Places;

static_assert(!__builtin_constant_p(__atomic_is_lock_free(4, nullptr)),
              "compile it with -fno-inline-atomics");

template <class T>
class SizedAtomic : public testing::Test {};
using Sizes = testing::Types<std::int8_t, std::uint16_t, std::int32_t, std::uint64_t>;
TYPED_TEST_SUITE(SizedAtomic, Sizes);

template <class T>
void expect_like_the_model(std::atomic<T>& object, unsigned seed) {
  std::minstd_rand random(seed);
  T model = object.load();
  for (int i = 0; i < 200; ++i) {
    const T n = static_cast<T>(random() ^ random() << 16);
    const auto order = std::array{std::memory_order_relaxed, std::memory_order_acq_rel,
                                  std::memory_order_seq_cst}[random() % 3];
    const T before = model;
    T seen = before;
    switch (random() % 9) {
      case 0: model = n, object.store(n); break;
      case 1: model = n, seen = object.exchange(n, order); break;
      case 2: model = static_cast<T>(model + n), seen = object.fetch_add(n, order); break;
      case 3: model = static_cast<T>(model - n), seen = object.fetch_sub(n, order); break;
      case 4: model = static_cast<T>(model & n), seen = object.fetch_and(n, order); break;
      case 5: model = static_cast<T>(model | n), seen = object.fetch_or(n, order); break;
      case 6: model = static_cast<T>(model ^ n), seen = object.fetch_xor(n, order); break;
      case 7: {
        model = n;
        ASSERT_TRUE(object.compare_exchange_strong(seen, n, order));
        break;
      }
      default: {
        T wrong = static_cast<T>(before + 1);
        ASSERT_FALSE(object.compare_exchange_strong(wrong, n, order));
        seen = wrong;
      }
    }
    ASSERT_EQ(seen, before) << "step " << i;
    ASSERT_EQ(object.load(), model) << "step " << i;
  }
}

TYPED_TEST(SizedAtomic, DoesWhatTheModelDoes) {
  static std::atomic<TypeParam> in_main{TypeParam{5}};
  expect_like_the_model(in_main, 1);
  kasane::run([] {
    std::atomic<TypeParam> on_stack{TypeParam{3}};
    expect_like_the_model(on_stack, 2);
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      struct Beside {
        TypeParam low = 1;
        std::atomic<TypeParam> object{TypeParam{7}};
        TypeParam high = 2;
      };
      const auto placed = make_on<Beside>(r);
      ASSERT_EQ(placed->object.load(), TypeParam{7});
      expect_like_the_model(placed->object, 3 + r);
      ASSERT_EQ(placed->low, TypeParam{1});
      ASSERT_EQ(placed->high, TypeParam{2});
    }
  });
}

struct Sixteen {
  std::uint64_t a, b;
};
struct Large {
  std::array<std::uint64_t, 40> words;
};

/// Threads of all ranks add to all words of an object at once; no word is torn or lost.
template <class T, class Get, class Add>
void sums_as_a_whole(const Get& get, const Add& add) {
  kasane::run([&] {
    const Places places;
    constexpr int kTimes = 20;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto object = make_on<std::atomic<T>>(r, T{});
      const long torn = on_each_rank(places, 2, [&](std::uint32_t t, std::uint32_t) {
        long wrong = 0;
        for (int i = 0; i < kTimes; ++i) {
          T seen = object->load();
          T next;
          do {
            wrong += !get(seen).second;
            next = seen;
            add(next, t + 1);
          } while (!object->compare_exchange_weak(seen, next));
        }
        return wrong;
      });
      ASSERT_EQ(torn, 0);
      const std::uint64_t n = 2 * kasane::ranks();
      ASSERT_EQ(get(object->load()).first, kTimes * n * (n + 1) / 2);
    }
  });
}

TEST(StdAtomic, ObjectsOfSixteenBytesAreChangedAsAWhole) {
  sums_as_a_whole<Sixteen>([](const Sixteen& s) { return std::pair(s.a, s.a == s.b); },
                           [](Sixteen& s, std::uint64_t n) { s.a += n, s.b += n; });
}

TEST(StdAtomic, LargeObjectsAreChangedAsAWhole) {
  sums_as_a_whole<Large>(
      [](const Large& l) {
        bool same = true;
        for (const auto w : l.words) same &= w == l.words[0];
        return std::pair(l.words[0], same);
      },
      [](Large& l, std::uint64_t n) {
        for (auto& w : l.words) w += n;
      });
}

TEST(StdAtomic, CountersOfAllSizesLoseNothing) {
  struct Counters {
    std::atomic<std::uint8_t> small{0};
    std::atomic<std::uint16_t> shorter{0};
    std::atomic<std::uint32_t> usual{0};
    std::atomic<std::uint64_t> large{0};
    std::atomic<std::uint32_t> exchanged{0};
  };
  kasane::run([] {
    const Places places;
    constexpr std::uint32_t kTimes = 100;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto c = make_on<Counters>(r);
      on_each_rank(places, 3, [&](std::uint32_t t, std::uint32_t) {
        std::minstd_rand random(t + 1);
        for (std::uint32_t i = 0; i < kTimes; ++i) {
          ++c->small;
          c->shorter.fetch_add(3, std::memory_order_relaxed);
          c->usual.fetch_add(1, i % 2 == 0 ? std::memory_order_relaxed : std::memory_order_acq_rel);
          c->large += 1u << 20;
          std::uint32_t seen = c->exchanged.load(std::memory_order_relaxed);
          while (!c->exchanged.compare_exchange_weak(seen, seen + 2)) {
          }
          if (i % 16 == 0) linger(random);
        }
        return 0;
      });
      const std::uint32_t n = 3 * kasane::ranks() * kTimes;
      ASSERT_EQ(c->small.load(), static_cast<std::uint8_t>(n));
      ASSERT_EQ(c->shorter.load(), static_cast<std::uint16_t>(3 * n));
      ASSERT_EQ(c->usual.load(), n);
      ASSERT_EQ(c->large.load(), static_cast<std::uint64_t>(n) << 20);
      ASSERT_EQ(c->exchanged.load(), 2 * n);
    }
  });
}

/// Each thread writes a payload beside its flag and passes the turn on; the flags lie at different ranks.
TEST(StdAtomic, AFlagThatIsPolledOrdersItsPayload) {
  kasane::run([] {
    const Places places;
    struct Turn {
      std::atomic<std::uint32_t> next{0};
      long beside = 0;
    };
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto turn = make_on<Turn>(r);
      std::vector<long> far(5000, 0);
      constexpr std::uint32_t kTurns = 12;
      const long wrong = on_each_rank(places, 1, [&](std::uint32_t t, std::uint32_t n) {
        long seen_wrong = 0;
        for (std::uint32_t i = t; i < kTurns * n; i += n) {
          while (turn->next.load(std::memory_order_acquire) != i) {
          }
          seen_wrong += turn->beside != static_cast<long>(i) || far[i % 5000] != static_cast<long>(i) ||
                        far[(i + 2500) % 5000] != static_cast<long>(i);
          ++turn->beside;
          for (const std::uint32_t at : {i + 1, i + 2501}) far[at % 5000] = static_cast<long>(i) + 1;
          turn->next.store(i + 1, std::memory_order_release);
        }
        return seen_wrong;
      });
      ASSERT_EQ(wrong, 0);
    }
  });
}

/// As people write them: exchange, and atomic_flag, which GCC compiles inline without the forced header.
template <class Lock, class Unlock>
void excludes(const Lock& lock, const Unlock& unlock) {
  kasane::run([&] {
    const Places places;
    constexpr int kTimes = 30;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      struct Guarded {
        std::atomic<bool> busy{false};
        std::atomic_flag flag;
        long count = 0;
      };
      const auto guarded = make_on<Guarded>(r);
      std::vector<long> far(2000, 0);
      on_each_rank(places, 2, [&](std::uint32_t, std::uint32_t) {
        for (int i = 0; i < kTimes; ++i) {
          lock(*guarded);
          ++guarded->count;
          ++far[1000];
          unlock(*guarded);
        }
        return 0;
      });
      ASSERT_EQ(guarded->count, 2 * kTimes * kasane::ranks());
      ASSERT_EQ(far[1000], 2 * kTimes * kasane::ranks());
    }
  });
}

TEST(StdAtomic, ASpinLockExcludes) {
  excludes(
      [](auto& g) {
        while (g.busy.exchange(true, std::memory_order_acquire)) {
        }
      },
      [](auto& g) { g.busy.store(false, std::memory_order_release); });
}
TEST(StdAtomic, AnAtomicFlagExcludes) {
  excludes(
      [](auto& g) {
        while (g.flag.test_and_set(std::memory_order_acquire)) {
        }
      },
      [](auto& g) { g.flag.clear(std::memory_order_release); });
}

TEST(StdAtomic, FencesOrderRelaxedAtomics) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto turn = make_on<std::atomic<std::uint32_t>>(r, 0u);
      std::vector<long> payload(1000, 0);
      const long wrong = on_each_rank(places, 1, [&](std::uint32_t t, std::uint32_t n) {
        long seen_wrong = 0;
        for (std::uint32_t i = t; i < 10 * n; i += n) {
          while (turn->load(std::memory_order_relaxed) != i) {
          }
          std::atomic_thread_fence(std::memory_order_acquire);
          seen_wrong += payload[500] != static_cast<long>(i);
          payload[500] = static_cast<long>(i) + 1;
          std::atomic_thread_fence(std::memory_order_release);
          turn->store(i + 1, std::memory_order_relaxed);
        }
        return seen_wrong;
      });
      ASSERT_EQ(wrong, 0);
    }
  });
}

/// The writer's rank is alone on the atomic, so that its releasing stores release nothing; who reads relaxed
/// asks for nothing either before its fence.
TEST(StdAtomic, AnAcquireFenceSeesWhatARankAloneHasReleased) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank sees all";
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      const auto flag = make_on<std::atomic<std::uint32_t>>(r, 0u);
      const auto seen = make_on<std::atomic<std::uint32_t>>(r, 0u);
      std::vector<long> payload(1000, 0);
      const long wrong = on_each_rank(places, 1, [&](std::uint32_t t, std::uint32_t n) -> long {
        if (t == n - 1) {
          for (std::uint32_t i = 1; i <= 200; ++i) {
            payload[500] = i;
            flag->store(i, std::memory_order_release);
            while (seen->load(std::memory_order_relaxed) != i) {
            }
          }
          return 0;
        }
        long stale = 0;
        for (std::uint32_t i = 1; t == 0 && i <= 200; ++i) {
          while (flag->load(std::memory_order_relaxed) != i) {
          }
          std::atomic_thread_fence(std::memory_order_acquire);
          stale += payload[500] != static_cast<long>(i);
          seen->store(i, std::memory_order_relaxed);
        }
        return stale;
      });
      ASSERT_EQ(wrong, 0) << "flag at rank " << r;
    }
  });
}

/// Only what changes an atomic afterwards can show what came before a release fence.
TEST(StdAtomic, AReleaseFenceCostsNothingBeforeAChange) {
  if (kasane::ranks() == 1) GTEST_SKIP() << "one rank releases nothing";
  kasane::run([] {
    const Places places;
    const auto flag = make_on<std::atomic<std::uint32_t>>(0, 0u);
    std::vector<long> payload(1000, 0);
    constexpr std::uint32_t kTimes = 2000;
    const kasane::test::Counts before;
    const long wrong = on_each_rank(places, 1, [&](std::uint32_t t, std::uint32_t n) -> long {
      if (t == n - 1) {
        for (std::uint32_t i = 0; i < kTimes; ++i) {
          payload[500] = static_cast<long>(i) + 1;
          std::atomic_thread_fence(std::memory_order_release);
        }
        flag->store(1, std::memory_order_relaxed);
        return 0;
      }
      if (t != 0) return 0;
      while (flag->load(std::memory_order_relaxed) == 0) {
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      return payload[500] != kTimes;
    });
    const kasane::test::Counts after;
    EXPECT_EQ(wrong, 0);
    EXPECT_LT(after["releases"] - before["releases"], kTimes / 10);
  });
}

/// Store buffering: with sequential consistency one of the two sees the other's store.
TEST(StdAtomic, SequentiallyConsistentStoresAreSeen) {
  kasane::run([] {
    const Places places;
    std::minstd_rand random(7);
    for (int round = 0; round < 40; ++round) {
      const auto x = make_on<std::atomic<int>>(random() % kasane::ranks(), 0);
      const auto y = make_on<std::atomic<int>>(random() % kasane::ranks(), 0);
      const long seen = on_each_rank(places, 2, [&](std::uint32_t t, std::uint32_t) -> long {
        if (t > 1) return 0;
        (t == 0 ? *x : *y).store(1);
        return (t == 0 ? *y : *x).load();
      });
      ASSERT_NE(seen, 0);
    }
  });
}

/// Memory that is used again: what an atomic of an earlier object left in a copy here does not hide the
/// initialisation of a later one.
TEST(StdAtomic, InitialisationByPlainStoresReachesTheOwner) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      struct Slot {
        long beside = 0;
        alignas(std::atomic<int>) std::byte memory[sizeof(std::atomic<int>)] = {};
      };
      const auto slot = make_on<Slot>(r);
      const long wrong = on_each_rank(places, 1, [&](std::uint32_t t, std::uint32_t) -> long {
        if (t != 0) return 0;
        long bad = 0;
        for (int i = 0; i < 50; ++i) {
          ++slot->beside;
          auto* object = ::new (slot->memory) std::atomic<int>(7);
          bad += object->fetch_add(1) != 7;
          bad += object->load() != 8;
          bad += slot->beside != i + 1;
        }
        return bad;
      });
      ASSERT_EQ(wrong, 0);
      ASSERT_EQ(slot->beside, 50);
    }
  });
}

/// Pages move while their atomics are used, so a sequence on the old owner must not change what has left.
TEST(StdAtomic, NothingIsLostWhenPagesMove) {
  kasane::run([] {
    const Places places;
    using Counter = std::atomic<std::uint64_t>;
    const auto memory = kasane::make_array<std::uint64_t>(4 * 8192, kasane::placement::cyclic);
    auto* const counters = reinterpret_cast<Counter*>(memory.get());
    for (std::size_t i = 0; i < 4; ++i) ::new (counters + i * 8192) Counter(0);
    constexpr std::uint32_t kTimes = 4000;
    on_each_rank(places, 2, [&](std::uint32_t t, std::uint32_t n) {
      std::minstd_rand random(t + 1);
      for (std::uint32_t i = 0; i < kTimes; ++i) {
        counters[i % 4 * 8192].fetch_add(1, std::memory_order_relaxed);
        if (i % 256 == t) kasane::own(&counters[random() % 4 * 8192], 8);
        if (i % 512 == n) kasane::this_thread::yield();
      }
      return 0;
    });
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += counters[i * 8192].load();
    ASSERT_EQ(sum, std::uint64_t{2} * kasane::ranks() * kTimes);
  });
}

}  // namespace
