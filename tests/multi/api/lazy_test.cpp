// SPDX-License-Identifier: Apache-2.0
// parallel_invoke and its kin, whose functions are called by the calling thread unless somebody wants work. A
// failing seed is printed and can be run alone: KASANE_SEED=n.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <kasane/algorithm.hpp>
#include <kasane/kasane.hpp>
#include <latch>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// ---- random programs against their serial meaning ----

struct Thrown {
  std::uint64_t value;
};

/// A tree's value is fixed by its seed alone, wherever its functions are called.
struct Node {
  std::uint64_t seed;
  int depth;

  enum class Kind : unsigned { two, three, loop, sum, thread, lock, yields, moves, throws, exits, kinds };
  [[nodiscard]] Kind kind() const {
    std::minstd_rand r(static_cast<unsigned>(seed));
    r.discard(3);
    const auto pick = (r() >> 8) % 20;
    return pick < static_cast<unsigned>(Kind::kinds) ? static_cast<Kind>(pick) : Kind::two;
  }
  [[nodiscard]] Node child(std::uint64_t i) const {
    return {(seed * 6364136223846793005u + (i + 1) * 1442695040888963407u) >> 7, depth - 1};
  }
  [[nodiscard]] std::uint64_t children() const {
    if (depth == 0) return 0;
    return kind() == Kind::two                           ? 2
           : kind() == Kind::three                       ? 3
           : kind() == Kind::loop || kind() == Kind::sum ? 5
                                                         : 1;
  }
};

/// What a node's own value is; what it throws is that, after its children.
std::uint64_t serial(Node node) {
  std::uint64_t sum = node.seed;
  for (std::uint64_t i = 0; i < node.children(); ++i) {
    try {
      sum += (i + 1) * serial(node.child(i));
    } catch (const Thrown& t) {
      // The first is thrown after all have ended; the node is over then.
      for (++i; i < node.children(); ++i) {
        try {
          (void)serial(node.child(i));
        } catch (const Thrown&) {
        }
      }
      throw;
    }
  }
  if (node.kind() == Node::Kind::throws && node.depth % 3 == 0) throw Thrown{sum};
  return sum;
}

std::uint64_t value_of(Node node, kasane::mutex& mutex);

/// The value goes out by a store; a node that exits has stored it before.
void store_value(Node node, kasane::mutex& mutex, std::uint64_t& out) {
  out = value_of(node, mutex);
  if (node.kind() == Node::Kind::exits) kasane::this_thread::exit();
}

std::uint64_t value_of(Node node, kasane::mutex& mutex) {
  using Kind = Node::Kind;
  std::vector<std::uint64_t> values(node.children());
  const auto child = [&](std::uint64_t i) { store_value(node.child(i), mutex, values[i]); };
  switch (node.children()) {
    case 0: break;
    case 2: kasane::parallel_invoke([&] { child(0); }, [&] { child(1); }); break;
    case 3: kasane::parallel_invoke([&] { child(0); }, [&] { child(1); }, [&] { child(2); }); break;
    case 5:
      if (node.kind() == Kind::loop)
        kasane::parallel_for(std::uint64_t{0}, std::uint64_t{5}, child, 1);
      else
        (void)kasane::parallel_reduce(
            std::uint64_t{0}, std::uint64_t{5}, 0,
            [&](std::uint64_t i) {
              child(i);
              return 1;
            },
            [](int a, int b) { return a + b; }, 1);
      break;
    default:
      if (node.kind() == Kind::thread)
        kasane::thread([&] { child(0); }).join();
      else
        kasane::parallel_invoke([&] { child(0); }, [] {});
  }
  if (node.kind() == Kind::lock) {
    const std::lock_guard lock(mutex);
    kasane::this_thread::yield();
  }
  if (node.kind() == Kind::yields) kasane::this_thread::yield();
  if (node.kind() == Kind::moves) kasane::this_thread::move_to(node.seed % kasane::ranks());
  std::uint64_t sum = node.seed;
  for (std::uint64_t i = 0; i < values.size(); ++i) sum += (i + 1) * values[i];
  if (node.kind() == Kind::throws && node.depth % 3 == 0) throw Thrown{sum};
  return sum;
}

template <class F>
std::string outcome(F&& f) {
  try {
    return std::to_string(f());
  } catch (const Thrown& t) {
    return "throws " + std::to_string(t.value);
  }
}

TEST(Lazy, RandomProgramsMeanWhatTheyMeanSerially) {
  const char* const one = std::getenv("KASANE_SEED");
  const std::uint64_t first = one != nullptr ? std::strtoull(one, nullptr, 10) : 1;
  const std::uint64_t last = one != nullptr ? first : 150;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Node root{seed * 2654435761u, 8};
    const std::string expected = outcome([&] { return serial(root); });
    const std::string found = outcome([&] {
      return kasane::run([&] {
        kasane::mutex mutex;
        return value_of(root, mutex);
      });
    });
    EXPECT_EQ(found, expected) << "KASANE_SEED=" << seed;
  }
}

// ---- single properties ----

TEST(Lazy, AFunctionThatWaitsForTheOtherIsNotInItsWay) {
  const int rounds = kasane::run([] {
    int done = 0;
    for (int i = 0; i < 200; ++i) {
      kasane::latch there(1), back(1);
      kasane::parallel_invoke(
          [&] {
            there.count_down();
            back.wait();
          },
          [&] {
            there.wait();
            back.count_down();
          });
      // and from the depth of others
      kasane::latch inner(1);
      kasane::parallel_invoke([&] { kasane::parallel_invoke([&] { inner.wait(); }, [] {}); },
                              [&] { inner.count_down(); });
      ++done;
    }
    return done;
  });
  EXPECT_EQ(rounds, 200);
}

// A thread that ran, elsewhere, and is ready again when its frame looks for it is not one that never ran.
TEST(Lazy, WhatWentAwayAndCameBackIsNotCalledAgain) {
  const int wrong = kasane::run([] {
    int not_thrice = 0;
    for (int i = 0; i < 1000; ++i) {
      int steps = 0;
      kasane::parallel_invoke(
          [&] {
            for (int k = 0; k < i % 5; ++k) kasane::this_thread::yield();
          },
          [&] {
            const std::uint32_t here = kasane::rank();
            for (int k = 1; k <= 3; ++k) {
              ++steps;
              kasane::this_thread::move_to((here + static_cast<std::uint32_t>(k)) % kasane::ranks());
            }
          });
      not_thrice += steps != 3;
    }
    return not_thrice;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Lazy, SomebodyWithoutWorkTakesTheOldest) {
  if (kasane::ranks() * kasane::workers() == 1) GTEST_SKIP() << "nobody else";
  const bool taken = kasane::run([] {
    const kasane::global_ptr<std::uint64_t> flag(
        static_cast<std::uint64_t*>(kasane::allocate_zeroed(sizeof(std::uint64_t))));
    bool in_time = false;
    kasane::parallel_invoke(
        [&] {
          // Nothing but fork–joins, until another worker has taken the second function.
          const std::uint64_t end = kasane_clock_ns() + 20'000'000'000u;
          while (kasane::atomic_ref(*flag.get()).load() == 0 && kasane_clock_ns() < end)
            for (int i = 0; i < 1000; ++i) kasane::parallel_invoke([] {}, [] {});
          in_time = kasane_clock_ns() < end;
        },
        [=] { kasane::atomic_ref(*flag.get()).store(1); });
    kasane::deallocate(flag.get());
    return in_time;
  });
  EXPECT_TRUE(taken);
}

int g_called[2];
void first_function() { ++g_called[0]; }
void second_function() { ++g_called[1]; }
struct WithText {
  std::string text;  // not trivial: called where it is
  int* out;
  void operator()() const { *out = static_cast<int>(text.size()); }
};
TEST(Lazy, TakesFunctionsOfEveryKind) {
  kasane::run([] {
    for (int i = 0; i < 1000; ++i) {
      kasane::parallel_invoke(first_function, second_function);
      int a = 0, b = 0;
      const WithText two{"two", &a};
      kasane::parallel_invoke(WithText{"three", &b}, two, [] {});
      EXPECT_EQ(a, 3);
      EXPECT_EQ(b, 5);
    }
  });
  if (kasane::ranks() * kasane::workers() == 1) {
    EXPECT_EQ(g_called[0] + g_called[1], 2000);
  }
}

TEST(Lazy, ExitEndsTheFunctionThatCallsItAlone) {
  EXPECT_EQ(kasane::run([] {
              int trace = 0;
              kasane::parallel_invoke(
                  [&] {
                    trace += 1;
                    kasane::this_thread::exit();
                  },
                  [] {});
              kasane::parallel_invoke([] {},
                                      [&] {
                                        trace += 10;
                                        kasane::this_thread::exit();
                                      });
              return trace + 100;
            }),
            111);
}

TEST(Lazy, OfTwoExceptionsTheFirstInSerialOrderIsThrownAndBothEnd) {
  for (int i = 0; i < 50; ++i) {
    int ended = 0;
    const std::string what = kasane::run([&ended] {
      std::atomic<int> counted{0};
      std::string text;
      try {
        kasane::parallel_invoke(
            [&] {
              counted += 1;
              throw std::runtime_error("first");
            },
            [&] {
              counted += 10;
              kasane::this_thread::yield();
              throw std::runtime_error("second");
            },
            [&] { counted += 100; });
      } catch (const std::runtime_error& e) {
        text = e.what();
      }
      ended = counted;
      return text;
    });
    EXPECT_EQ(what, "first");
    EXPECT_EQ(ended, 111);
  }
}

/// Nests to the left and to the right, deeper than a call stack.
int deep(int levels, bool left) {
  if (levels == 0) return 0;
  int below = 0;
  if (left)
    kasane::parallel_invoke([&] { below = deep(levels - 1, left); }, [] {});
  else
    kasane::parallel_invoke([] {}, [&] { below = deep(levels - 1, left); });
  return below + 1;
}
TEST(Lazy, DepthIsBoundedByThreadsAndNotByAStack) {
  EXPECT_EQ(kasane::run([] { return deep(20'000, true); }), 20'000);
  EXPECT_EQ(kasane::run([] { return deep(20'000, false); }), 20'000);
}

TEST(Lazy, MakesNoThreadThatNobodyWants) {
  if (kasane::ranks() * kasane::workers() != 1) GTEST_SKIP() << "others want work";
  const auto threads = kasane::run([] {
    const std::uint64_t before = kasane::counter("threads");
    std::vector<int> all(100'000);
    kasane::parallel_for(all, [](int& x) { x = 1; }, 1);
    return kasane::counter("threads") - before;
  });
  EXPECT_EQ(threads, 0u);
}

// ---- C ----

struct Fib {
  unsigned n;
  std::uint64_t value;
  static void run(void* p) {
    Fib& f = *static_cast<Fib*>(p);
    if (f.n < 2) {
      f.value = f.n;
      return;
    }
    Fib a{f.n - 1, 0}, b{f.n - 2, 0};
    if (kasane_invoke(run, &a, run, &b) == 0) f.value = a.value + b.value;
  }
};
TEST(Lazy, InC) {
  Fib f{24, 0};
  kasane::run([&] { Fib::run(&f); });
  EXPECT_EQ(f.value, 46'368u);
  EXPECT_EQ(kasane_invoke(Fib::run, &f, Fib::run, &f), EPERM);
}

}  // namespace
