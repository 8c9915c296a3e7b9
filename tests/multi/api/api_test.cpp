// SPDX-License-Identifier: Apache-2.0
// The promises of kasane.hpp. GoogleTest's state is rank 0's own, so threads only compute, and main, which
// never moves, expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <kasane/kasane.hpp>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/counts.h"

namespace {

/// Memory of this rank alone, which is no variable of the program and not from new.
std::unique_ptr<int, void (*)(void*)> private_int() {
  return {static_cast<int*>(std::calloc(1, sizeof(int))), std::free};
}

/// The code of the error that f throws, 0 if none. text: what() must say so.
template <class F>
int code_of(F&& f, const char* text) {
  try {
    f();
  } catch (const kasane::error& e) {
    return std::strstr(e.what(), text) != nullptr ? e.code() : -1;
  }
  return 0;
}

std::uint64_t fib(unsigned n) {
  if (n < 2) return n;
  std::uint64_t a = 0, b = 0;
  kasane::parallel_invoke([n, &a] { a = fib(n - 1); }, [n, &b] { b = fib(n - 2); });
  return a + b;
}

int seven() { return 7; }
void nothing() {}

// ---- run --------------------------------------------------------------------------------------------------

TEST(Run, ReturnsValuesAndSeesMainsLocals) {
  int x = 1;
  EXPECT_EQ(kasane::run([&] { return ++x; }), 2);
  EXPECT_EQ(x, 2);
  kasane::run([&x] { kasane::thread([&x] { x = 7; }).join(); });
  EXPECT_EQ(x, 7);
  EXPECT_EQ(kasane::run([] { return std::string(200, 's'); }), std::string(200, 's'));
  EXPECT_EQ(*kasane::run([] { return std::make_unique<int>(9); }), 9);
  EXPECT_EQ(kasane::run(seven), 7);
  kasane::run(nothing);
}

TEST(Run, LetsExceptionsPassAndWorksAgain) {
  EXPECT_THROW(kasane::run([] { throw std::out_of_range("x"); }), std::out_of_range);
  EXPECT_EQ(kasane::run([] { return 1; }), 1);
}

TEST(Run, RefusesToNest) {
  EXPECT_EQ(kasane::run([] {
              return code_of([] { kasane::run([] {}); }, "kasane::run: called on a user-level thread");
            }),
            EPERM);
}

TEST(Run, NamesARootThatExitedWithoutItsValue) {
  EXPECT_EQ(code_of([] { (void)kasane::run([]() -> int { kasane::this_thread::exit(); }); }, "no value"),
            ECANCELED);
}

TEST(Outside, CallsThatNeedAThreadSaySo) {
  const char* const text = "inside of kasane::run";
  EXPECT_EQ(code_of([] { kasane::thread([] {}).join(); }, text), EPERM);
  EXPECT_EQ(code_of([] { kasane::parallel_invoke([] {}, [] {}); }, text), EPERM);
  EXPECT_EQ(code_of([] { kasane::parallel_for(0, 10, [](int) {}, 1); }, text), EPERM);
  EXPECT_EQ(code_of([] { kasane::local<int> l; }, text), EPERM);
  EXPECT_EQ(kasane::this_thread::get_id(), kasane::thread::id());
  kasane::this_thread::yield();
}

// ---- threads ----------------------------------------------------------------------------------------------

TEST(Thread, MovesArgumentsInAndDestroysThemOnce) {
  struct Counts {
    int alive = 0, calls = 0;
  };
  const Counts counts = kasane::run([] {
    Counts c;
    struct Tracked {
      Counts* c;
      explicit Tracked(Counts* to) : c(to) { ++c->alive; }
      Tracked(const Tracked& other) : c(other.c) { ++c->alive; }
      ~Tracked() { --c->alive; }
    };
    kasane::thread([](const Tracked& t, std::unique_ptr<int> p, int r) { t.c->calls += *p + r; }, Tracked(&c),
                   std::make_unique<int>(40), 2)
        .join();
    return c;
  });
  EXPECT_EQ(counts.alive, 0);
  EXPECT_EQ(counts.calls, 42);
}

TEST(Thread, AConstructorThatThrowsLeavesNothingBehind) {
  struct Thrower {
    Thrower() = default;
    Thrower(const Thrower&) { throw std::runtime_error("copy"); }
    void operator()() const {}
  };
  const int caught = kasane::run([] {
    int n = 0;
    for (int i = 0; i < 1000; ++i) {
      try {
        const Thrower thrower;
        kasane::thread t(thrower);
        t.join();
      } catch (const std::runtime_error&) {
        ++n;
      }
    }
    kasane::thread([&n] { ++n; }).join();
    return n;
  });
  EXPECT_EQ(caught, 1001);
}

TEST(Thread, TakesFunctionsLargerThanAStack) {
  struct Big {
    char bytes[200'000];
  };
  EXPECT_EQ(kasane::run([] {
              auto big = std::make_unique<Big>();
              std::memset(big->bytes, 3, sizeof big->bytes);
              long sum = 0;
              kasane::thread(
                  [&sum](const Big& b) { sum = std::accumulate(std::begin(b.bytes), std::end(b.bytes), 0L); },
                  *big)
                  .join();
              return sum;
            }),
            600'000);
}

TEST(Thread, AnEmptyHandleCannotBeJoined) {
  EXPECT_EQ(kasane::run([] { return code_of([] { kasane::thread().join(); }, "not joinable"); }), EINVAL);
  EXPECT_EQ(kasane::run([] { return code_of([] { kasane::thread().detach(); }, "not joinable"); }), EINVAL);
}

TEST(Thread, RethrowsAtJoinAlsoForAnotherThread) {
  const std::string what = kasane::run([] {
    std::string text;
    kasane::thread thrower([] { throw std::runtime_error(std::string(300, 'w')); });
    kasane::thread joiner([&text, t = std::move(thrower)]() mutable {
      try {
        t.join();
      } catch (const std::runtime_error& e) {
        text = e.what();
      }
    });
    joiner.join();
    return text;
  });
  EXPECT_EQ(what, std::string(300, 'w'));
}

TEST(Thread, ExitUnwindsFromAnyDepth) {
  EXPECT_EQ(kasane::run([] {
              int trace = 0;
              kasane::thread([&trace] {
                struct Note {
                  int* to;
                  ~Note() { *to += 1; }
                } outer{&trace};
                [&] {
                  Note inner{&trace};
                  kasane::this_thread::exit();
                }();
              }).join();
              return trace;
            }),
            2);
}

TEST(Thread, DetachedThreadsRunToTheirEnd) {
  EXPECT_EQ(kasane::run([] {
              kasane::mutex mutex;
              kasane::condition_variable changed;
              int ended = 0;
              for (int i = 0; i < 50; ++i) {
                kasane::thread([&] {
                  kasane::this_thread::yield();
                  std::lock_guard lock(mutex);
                  ++ended;
                  changed.notify_one();
                }).detach();
              }
              std::unique_lock lock(mutex);
              changed.wait(lock, [&] { return ended == 50; });
              return ended;
            }),
            50);
}

TEST(Thread, IdsAreDistinctWhileThreadsLive) {
  EXPECT_TRUE(kasane::run([] {
    kasane::thread::id inside;
    kasane::thread t([&inside] { inside = kasane::this_thread::get_id(); });
    const auto id = t.get_id();
    t.join();
    return id == inside && id != kasane::this_thread::get_id() && id.value() != 0;
  }));
}

// ---- patterns ---------------------------------------------------------------------------------------------

TEST(ParallelFor, VisitsEachIndexOnceAtEveryGrain) {
  for (int n : {0, 1, 2, 7, 100, 1001}) {
    for (std::size_t grain : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{5000}}) {
      const bool good = kasane::run([=] {
        const auto visits =
            kasane::make_array<int>(static_cast<std::size_t>(n) + 1, kasane::placement::block);
        std::fill_n(visits.get(), n + 1, 0);
        kasane::parallel_for(-n / 2, n - n / 2, [v = visits.get(), n](int i) { ++v[i + n / 2]; }, grain);
        return std::count(visits.get(), visits.get() + n, 1) == n && visits[static_cast<std::size_t>(n)] == 0;
      });
      EXPECT_TRUE(good) << n << " indices, grain " << grain;
    }
  }
}

TEST(ParallelFor, TakesRangesIteratorsAndTheWholeOfAnInteger) {
  EXPECT_TRUE(kasane::run([] {
    std::vector<long> v(5000, 1);
    kasane::parallel_for(v, [](long& x) { x += 1; });
    kasane::parallel_for(v.begin() + 1, v.end(), [](long& x) { x += 1; }, 10);
    const long around = kasane::parallel_reduce(
        std::int8_t{-128}, std::int8_t{127}, 0L, [](std::int8_t i) { return long{i}; },
        [](long a, long b) { return a + b; }, 1);
    int backwards = 0;
    kasane::parallel_for(5, 3, [&](int) { ++backwards; });
    return v[0] == 2 && std::accumulate(v.begin(), v.end(), 0L) == 15000 - 1 && around == -255 &&
           backwards == 0;
  }));
}

// The exception that is first in the order of the program passes on, and every piece has ended by then.
TEST(ParallelInvoke, PassesTheFirstExceptionOnWhenAllHaveEnded) {
  const auto [caught, ended] = kasane::run([] {
    int n[4] = {};
    int first = 0;
    try {
      kasane::parallel_invoke([&] { n[0] = 1; },
                              [&] {
                                kasane::this_thread::yield();
                                n[1] = 1;
                                throw 1;
                              },
                              [&] {
                                n[2] = 1;
                                throw 2;
                              },
                              [&] { n[3] = 1; });
    } catch (int i) {
      first = i;
    }
    return std::pair(first, n[0] + n[1] + n[2] + n[3]);
  });
  EXPECT_EQ(caught, 1);
  EXPECT_EQ(ended, 4);
}

TEST(ParallelReduce, CombinesInOrderAndUsesTheInitialValueOnce) {
  EXPECT_EQ(kasane::run([] {
              return kasane::parallel_reduce(
                  0, 26, std::string("<"), [](int i) { return std::string(1, static_cast<char>('a' + i)); },
                  [](std::string a, const std::string& b) { return std::move(a) + b; }, 2);
            }),
            "<abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(kasane::run([] {
              return kasane::parallel_reduce(
                  3, 3, 17, [](int i) { return i; }, [](int a, int b) { return a + b; });
            }),
            17);
}

TEST(Patterns, GoOnWithFewStacks) {
  EXPECT_EQ(kasane::run([] { return fib(16); }), 987u);
  EXPECT_EQ(kasane::run([] {
              return kasane::parallel_reduce(
                  0, 1000, 0, [](int i) { return i; }, [](int a, int b) { return a + b; }, 1);
            }),
            499'500);
}

// Only where KASANE_SLOTS is small.
TEST(Patterns, DISABLED_FewStacksAreNamed) {
  const auto [code, joined] = kasane::run([] {
    std::vector<kasane::thread> threads;
    kasane::mutex mutex;
    kasane::condition_variable changed;
    bool go = false;
    int failed = 0;
    for (int i = 0; i < 1000 && failed == 0; ++i) {
      failed = code_of(
          [&] {
            threads.emplace_back([&] {
              std::unique_lock lock(mutex);
              changed.wait(lock, [&] { return go; });
            });
          },
          "KASANE_SLOTS");
    }
    {
      std::lock_guard lock(mutex);
      go = true;
      changed.notify_all();
    }
    for (auto& t : threads) t.join();
    return std::pair(failed, threads.size());
  });
  EXPECT_EQ(code, EAGAIN);
  EXPECT_GT(joined, 0u);
}

// ---- memory -----------------------------------------------------------------------------------------------

TEST(Memory, AllocationsAreAlignedDistinctAndFreedAnywhere) {
  EXPECT_TRUE(kasane::run([] {
    bool good = true;
    for (auto where : {kasane::placement::local, kasane::placement::block, kasane::placement::cyclic}) {
      for (std::size_t align = 1; align <= 4096; align *= 8) {
        for (std::size_t bytes : {0u, 1u, 100u, 5000u, 300'000u}) {
          auto* p = static_cast<unsigned char*>(kasane::allocate(bytes, align, where));
          auto* q = static_cast<unsigned char*>(kasane::allocate(bytes, align, where));
          good = good && p != q && reinterpret_cast<std::uintptr_t>(p) % align == 0;
          std::memset(p, 1, bytes);
          std::memset(q, 2, bytes);
          kasane::thread([&good, p, q, bytes] {
            for (std::size_t i = 0; i < bytes; ++i) good = good && p[i] == 1 && q[i] == 2;
            kasane::deallocate(p);
          }).join();
          kasane::deallocate(q);
        }
      }
    }
    kasane::deallocate(nullptr);
    return good;
  }));
}

TEST(Memory, LivesWhereItIsAskedFor) {
  EXPECT_TRUE(kasane::run([] {
    bool good = true;
    for (std::uint32_t rank = 0; rank < kasane::ranks(); ++rank) {
      std::vector<unsigned*> all;
      for (unsigned i = 0; i < 300; ++i) {
        auto* p = static_cast<unsigned*>(kasane::allocate(16 << (i % 14), 16, kasane::placement::on(rank)));
        *p = i;
        all.push_back(p);
      }
      kasane::parallel_for(
          0u, 300u,
          [&](unsigned i) {  // on other ranks too, which then free it
            if (*all[i] != i) good = false;
            kasane::deallocate(all[i]);
          },
          5);
    }
    for (const auto where : {kasane::placement::block_cyclic(128 << 10), kasane::placement::numa(0)}) {
      const auto a = kasane::make_array<int>(200'000, where);
      kasane::parallel_for(0, 200'000, [&](int i) { a[static_cast<std::size_t>(i)] = i; }, 1000);
      good = good && std::accumulate(a.get(), a.get() + 200'000, 0L) == 19'999'900'000;
    }
    return good;
  }));
  EXPECT_EQ(code_of([] { (void)kasane::allocate(8, 16, kasane::placement::on(kasane::ranks())); },
                    "there is no rank"),
            EINVAL);
  EXPECT_EQ(code_of([] { (void)kasane::allocate(8, 16, kasane::placement::block_cyclic(1000)); },
                    "not a multiple of a page"),
            EINVAL);
  EXPECT_EQ(
      code_of([] { (void)kasane::allocate(8, 16, kasane::placement::numa(12'345)); }, "no NUMA node 12345"),
      EINVAL);
}

TEST(Memory, LivesWhereItIsTouchedFirst) {
  for (const std::size_t page : {kasane::page_small, kasane::page_default, kasane::page_large}) {
    for (int round = 0; round < 3;
         ++round) {  // the later ones in memory that was freed, maybe by another rank
      EXPECT_EQ(kasane::run([=] {
                  constexpr std::size_t kPages = 24;
                  auto* p = static_cast<unsigned char*>(
                      kasane::allocate(kPages * page, 64, kasane::placement::first_touch.in_pages(page)));
                  const auto elsewhere = kasane::parallel_reduce(
                      std::size_t{0}, kPages, std::size_t{0},
                      [=](std::size_t i) {
                        p[i * page + i] = static_cast<unsigned char>(i + 1);
                        const std::size_t wrong = kasane::where(p + i * page) !=
                                                  kasane::rank();  // nothing between moves the thread
                        volatile int work = 0;
                        while (work < 20'000) work = work + 1;
                        return wrong;
                      },
                      [](std::size_t x, std::size_t y) { return x + y; }, 1);
                  std::size_t lost = 0;
                  for (std::size_t i = 0; i < kPages; ++i)
                    lost += p[i * page + i] != static_cast<unsigned char>(i + 1);
                  kasane::thread([p] { kasane::deallocate(p); }).join();
                  return std::pair(elsewhere, lost);
                }),
                std::pair(std::size_t{0}, std::size_t{0}))
          << "pages of " << page;
    }
  }
}

TEST(Memory, ChangesItsSizeAndKeepsItsBytes) {
  EXPECT_TRUE(kasane::run([] {
    bool good = true;
    auto* p =
        static_cast<unsigned char*>(kasane::allocate(1, 16, kasane::placement::on(kasane::ranks() - 1)));
    std::size_t had = 1;
    p[0] = 1;
    for (std::size_t bytes : {10u, 100u, 90u, 30'000u, 100'000u, 1'000'000u, 900'000u, 70'000u, 50u, 5u}) {
      p = static_cast<unsigned char*>(kasane::reallocate(p, bytes));
      good = good && kasane::usable_size(p) >= bytes;
      for (std::size_t i = 0; i < std::min(had, bytes); ++i)
        good = good && p[i] == static_cast<unsigned char>(i * 7 + 1);
      for (std::size_t i = 0; i < bytes; ++i) p[i] = static_cast<unsigned char>(i * 7 + 1);
      had = bytes;
    }
    kasane::thread([&] {
      p = static_cast<unsigned char*>(kasane::reallocate(p, 5000));
    }).join();  // maybe by another rank
    for (std::size_t i = 0; i < 5; ++i) good = good && p[i] == static_cast<unsigned char>(i * 7 + 1);
    kasane::deallocate(p);
    auto* zeros = static_cast<unsigned char*>(kasane_calloc(100, 7));
    for (int i = 0; i < 700; ++i) good = good && zeros[i] == 0;
    good = good && kasane_calloc(static_cast<std::size_t>(-1) / 2, 3) == nullptr &&
           kasane_error_code() == ENOMEM;
    good = good && kasane_realloc(zeros, 0) == nullptr && kasane_usable_size(nullptr) == 0;
    return good;
  }));
}

TEST(Memory, TooMuchIsBadAllocWithANumber) {
  try {
    (void)kasane::allocate(std::size_t{1} << 60);
    FAIL();
  } catch (const std::bad_alloc& e) {
    EXPECT_NE(std::strstr(e.what(), "1152921504606846976"), nullptr) << e.what();
  }
  EXPECT_THROW((void)kasane::make_array<int>(static_cast<std::size_t>(-1) / 2), std::bad_array_new_length);
  EXPECT_EQ(code_of([] { (void)kasane::allocate(8, 3); }, "align"), EINVAL);
}

#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)  // these have their own new
TEST(Memory, NewWithoutMemorySaysWhoseIsUsedUp) {
  static std::byte* volatile made;
  const std::string said = kasane::run([]() -> std::string {
    try {
      made = new std::byte[std::size_t{1} << 50];
      delete[] made;
      return "allocated";
    } catch (const std::bad_alloc& e) {
      return e.what();
    }
  });
  EXPECT_NE(said.find("allocate: "), std::string::npos) << said;
  EXPECT_NE(said.find("1125899906842624"), std::string::npos) << said;
}
#endif

TEST(Memory, NewOnAThreadIsSeenByAll) {
  EXPECT_EQ(kasane::run([] {
              std::vector<std::vector<int>*> made(20);
              kasane::parallel_for(
                  std::size_t{0}, made.size(),
                  [&](std::size_t i) { made[i] = new std::vector<int>(1000, static_cast<int>(i)); }, 1);
              long sum = 0;
              for (auto* v : made) {
                sum += std::accumulate(v->begin(), v->end(), 0L);
                delete v;
              }
              return sum;
            }),
            190'000);
}

TEST(Memory, PutsAreSeenByGetsAndCheckTheirRange) {
  EXPECT_TRUE(kasane::run([] {
    const auto a = kasane::make_array<std::uint64_t>(100'000, kasane::placement::cyclic);
    kasane::release_all();
    std::vector<std::uint64_t> in(100'000), out(100'000);
    std::iota(in.begin(), in.end(), 5u);
    kasane::put(a.get(), in.data(), in.size());
    kasane::get(out.data(), a.get(), out.size());
    kasane::acquire_all();
    return in == out && a[99'999] == 100'004;
  }));
  const auto owned = private_int();
  int& global = *owned;
  int x = 0;
  EXPECT_EQ(code_of([&] { kasane::get(&x, &global); }, "global memory"), EINVAL);
  EXPECT_EQ(code_of([&] { kasane::put(&global, &x); }, "global memory"), EINVAL);
  kasane::view harmless(&global, 1, kasane::read_write);
}

TEST(Views, AreReadWrittenAndOverwritten) {
  EXPECT_EQ(
      kasane::run([] {
        constexpr std::size_t n = 50'000;
        const auto a = kasane::make_array<int>(n, kasane::placement::cyclic),
                   b = kasane::make_array<int>(n, kasane::placement::block);
        kasane::parallel_for(std::size_t{0}, n, [p = a.get()](std::size_t i) { p[i] = static_cast<int>(i); });
        {
          const kasane::view<const int> in(a.get() + 1, n - 2);
          const kasane::view out(b.get() + 1, n - 2, kasane::write_only);
          std::transform(in.begin(), in.end(), out.begin(), [](int x) { return -x; });
        }
        {
          const kasane::view both(b.get() + 7, n - 100, kasane::read_write);
          for (int& x : both) x -= 1;
        }
        kasane::prefetch(b.get(), n);
        kasane::prefetch(b.get(), n + (std::size_t{1} << 40));  // a hint: what there is not does not come
        return kasane::parallel_reduce(
            std::size_t{0}, n, 0,
            [p = b.get()](std::size_t i) {
              const int right =
                  i == 0 || i == n - 1 ? 0 : -static_cast<int>(i) - (i >= 7 && i < n - 93 ? 1 : 0);
              return i == 0 || i == n - 1 || p[i] == right ? 0 : 1;
            },
            [](int x, int y) { return x + y; });
      }),
      0);
}

TEST(Views, RefuseWhatIsNotThere) {
  EXPECT_EQ(
      kasane::run([] {
        const auto a = kasane::make_array<char>(100);
        const int far = code_of([&] { const kasane::view<const char> v(a.get(), std::size_t{1} << 34); },
                                "is not allocated") == EINVAL;
        return far + (kasane_view(a.get(), 1, 7) == EINVAL) + (kasane_prefetch(a.get(), 1, -1) == EINVAL);
      }),
      3);
  int here = 1;
  const kasane::view harmless(&here, 1, kasane::write_only);
  kasane::discard(&here, 1);
  EXPECT_EQ(here, 1);
}

TEST(Relocation, PagesComeGoAndSayWhereTheyAre) {
  EXPECT_EQ(
      kasane::run([] {
        constexpr std::size_t kPages = 40, kWords = kPages * 8192;
        const auto a = kasane::make_array<std::uint64_t>(kWords, kasane::placement::cyclic);
        std::iota(a.get(), a.get() + kWords, 0u);
        const auto mine = [&](std::size_t page) { return kasane::where(&a[page * 8192]) == kasane::rank(); };
        const auto all_of = [&](std::uint32_t rank) {
          int wrong = 0;
          for (std::size_t p = 0; p < kPages; ++p) wrong += kasane::where(&a[p * 8192]) != rank;
          return wrong;
        };
        kasane::own(a.get(), kWords);  // nothing in between moves the thread
        int wrong = all_of(kasane::rank());
        const kasane::test::Counts before(kasane::rank());
        for (std::size_t i = 0; i < kWords; ++i) wrong += a[i]++ != i;
        const kasane::test::Counts after(kasane::rank());
        wrong +=
            after["faults_read"] + after["faults_write"] != before["faults_read"] + before["faults_write"];
        for (std::uint32_t to = 0; to < kasane::ranks(); ++to) {
          kasane::give(a.get(), kWords, to);
          wrong += all_of(to);
          std::uint64_t direct = 0;
          kasane::release_all();
          kasane::get(&direct, &a[kWords - 1]);
          wrong += direct != kWords;
        }
        kasane::own(&a[3 * 8192 + 5]);  // one word: the page that holds it
        wrong += !mine(3) || (kasane::ranks() > 1 && kasane::rank() != kasane::ranks() - 1 && mine(4));
        for (std::size_t i = 0; i < kWords; ++i) wrong += a[i] != i + 1;
        kasane::own(a.get(), 0);
        return wrong;
      }),
      0);
}

TEST(Relocation, RefusesWhatIsNotItsOwnToMove) {
  const auto owned = private_int();
  int& global = *owned;
  EXPECT_EQ(code_of([&] { kasane::own(&global); }, "global memory"), EINVAL);
  EXPECT_EQ(code_of([&] { kasane::give(&global, 1, 0); }, "global memory"), EINVAL);
  EXPECT_EQ(code_of([&] { (void)kasane::where(&global); }, "global memory"), EINVAL);
  int on_mains_stack = 0;
  EXPECT_EQ(code_of([&] { kasane::own(&on_mains_stack); }, "stacks cannot be moved"), EINVAL);
  EXPECT_EQ(kasane::where(&on_mains_stack), 0u);
  EXPECT_EQ(
      kasane::run([] {
        const auto a = kasane::make_array<char>(1 << 16, kasane::placement::cyclic);
        int codes = code_of([&] { kasane::give(a.get(), 1, kasane::ranks()); }, "there is no rank") == EINVAL;
        codes += code_of([&] { kasane::own(a.get(), std::size_t{1} << 32); }, "is not allocated") == EINVAL;
        codes += code_of([&] { (void)kasane::where(a.get() + (std::size_t{1} << 31)); },
                         "is not allocated") == EINVAL;
        kasane::own(a.get());
        if (kasane::ranks() == 1) return codes;
        const std::uint32_t other = (kasane::rank() + 1) % kasane::ranks();
        {
          const kasane::view held(a.get(), (1 << 16) / sizeof a[0], kasane::read_write);
          codes += code_of([&] { kasane::give(a.get(), 1, other); }, "is in a view of its owner") == EBUSY;
        }
        kasane::give(a.get(), 1, other);
        return codes + (kasane::where(a.get()) == other) - 2;
      }),
      3);
}

// ---- synchronisation --------------------------------------------------------------------------------------

TEST(Mutex, ExcludesAndTriesWithoutWaiting) {
  const auto [sum, tried] = kasane::run([] {
    kasane::mutex mutex;
    long n = 0;
    kasane::parallel_for(
        0, 400,
        [&](int) {
          std::lock_guard lock(mutex);
          const long seen = n;
          kasane::this_thread::yield();
          n = seen + 1;
        },
        1);
    std::lock_guard lock(mutex);
    bool got = true;
    kasane::thread([&] { got = mutex.try_lock(); }).join();
    return std::pair(n, got);
  });
  EXPECT_EQ(sum, 400);
  EXPECT_FALSE(tried);
}

TEST(Barrier, RefusesZero) {
  EXPECT_EQ(kasane::run([] { return code_of([] { kasane::barrier b(0); }, "no threads"); }), EINVAL);
}

TEST(Local, GoesWithItsThreadAndRunsOut) {
  const auto [bad, code] = kasane::run([] {
    const kasane::local<int> mine;
    mine.set(5);
    int wrong = 0;
    kasane::thread([&] {
      wrong += mine.get() != 0;
      mine.set(6);
    }).join();
    wrong += mine.get() != 5;
    int failed = 0;
    for (int i = 0; i < 100 && failed == 0; ++i)
      failed = code_of([] { kasane::local<int> more; }, "kasane::local");
    kasane_key_t none = 1000;
    wrong += kasane_key_set(none, nullptr) != EINVAL || kasane_key_get(none) != nullptr;
    return std::pair(wrong, failed);
  });
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(code, EAGAIN);
}

// ---- counters ---------------------------------------------------------------------------------------------

TEST(Counters, CountEveryThread) {
  const kasane::test::Counts before;
  kasane::run([] {
    for (int i = 0; i < 100; ++i) kasane::thread([] {}).join();
  });
  const kasane::test::Counts after;
  EXPECT_EQ(after["forks"] - before["forks"], 100u);
  EXPECT_EQ(after["threads"] - before["threads"], 101u);  // and the root
  EXPECT_EQ(code_of([] { (void)kasane::counter("threads", kasane::ranks()); }, "there is no rank"), EINVAL);
  EXPECT_EQ(code_of([] { (void)kasane::counter("thread"); }, "no such counter"), EINVAL);
  std::uint32_t names = 0, alike = 0;
  kasane::for_each_counter([&](const char* name, std::uint64_t) {
    const char* same = nullptr;
    std::uint64_t by_name = 0, by_index = 0;
    EXPECT_EQ(kasane_counter(names++, 0, &same, &by_index), 0);
    EXPECT_EQ(kasane_counter_by_name(name, 0, &by_name), 0);
    alike += std::string_view(same) == name && by_name >= by_index;
  });
  EXPECT_GT(names, 20u);
  EXPECT_EQ(alike, names);
  EXPECT_EQ(kasane_counter(names, 0, nullptr, nullptr), EINVAL) << "where a loop ends";
}

}  // namespace
