// SPDX-License-Identifier: Apache-2.0
// Function statics: one thread of the job initialises, whatever its initialiser does, and all others see the
// object. Guards in global memory are called as a compiler would call them.
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <random>
#include <stdexcept>
#include <vector>

#include "multi/api/everywhere.h"
#include "multi/atomics/placed.h"

namespace {

using kasane::test::linger, kasane::test::make_on, kasane::test::on_each_rank, kasane::test::Places;

/// As a compiler writes it.
template <class Initialise>
void once(std::uint64_t* guard, const Initialise& initialise) {
  if (*reinterpret_cast<volatile unsigned char*>(guard) != 0) return;
  auto* const g = reinterpret_cast<abi::__guard*>(guard);
  if (abi::__cxa_guard_acquire(g) == 0) return;
  try {
    initialise();
  } catch (...) {
    abi::__cxa_guard_abort(g);
    throw;
  }
  abi::__cxa_guard_release(g);
}

struct Static {
  std::uint64_t guard = 0;
  int runs = 0;
  std::vector<int> table;
};

/// As the program's own it is never freed: ranks keep in mind that a guard has been passed.
Static* make_static(std::uint32_t rank) { return make_on<Static>(rank).release(); }

TEST(FunctionStatic, OneThreadOfTheJobInitialises) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      for (int round = 0; round < 5; ++round) {
        Static* const object = make_static(r);
        const long wrong = on_each_rank(places, 3, [&](std::uint32_t t, std::uint32_t) {
          std::minstd_rand random(t + 1);
          linger(random);
          long bad = 0;
          for (int i = 0; i < 20; ++i) {
            once(&object->guard, [&] {
              ++object->runs;
              object->table.resize(1000);
              kasane::parallel_for(
                  0, 1000, [&](int k) { object->table[static_cast<std::size_t>(k)] = k; }, 50);
            });
            const auto k = static_cast<std::size_t>(random() % 1000);
            bad += object->runs != 1 || object->table[k] != static_cast<int>(k);
          }
          return bad;
        });
        ASSERT_EQ(wrong, 0);
        ASSERT_EQ(object->runs, 1);
      }
    }
  });
}

TEST(FunctionStatic, AnInitialiserThatThrowsLeavesItToAnother) {
  kasane::run([] {
    const Places places;
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r) {
      Static* const object = make_static(r);
      const long threw = on_each_rank(places, 2, [&](std::uint32_t, std::uint32_t) {
        long mine = 0;
        for (;;) {
          try {
            once(&object->guard, [&] {
              if (++object->runs < 4) {
                kasane::this_thread::yield();
                throw std::runtime_error("not yet");
              }
            });
            return mine + (object->runs == 4 ? 0 : 1000);
          } catch (const std::runtime_error&) {
            ++mine;
          }
        }
      });
      ASSERT_EQ(threw, 3);
    }
  });
}

TEST(FunctionStatic, AThreadThatEntersAgainIsTold) {
  kasane::run([] {
    Static* const object = make_static(kasane::ranks() - 1);
    EXPECT_THROW(once(&object->guard, [&] { once(&object->guard, [] {}); }), std::exception);
    once(&object->guard, [&] { object->runs = 7; });
    EXPECT_EQ(object->runs, 7);
  });
}

/// The program's own, initialised by a thread that forks while others wait for it.
const std::vector<int>& table() {
  static const std::vector<int>& t = *[] {
    auto* v = new std::vector<int>(2000);
    kasane::parallel_for(0, 2000, [&](int i) { (*v)[static_cast<std::size_t>(i)] = i; }, 20);
    return v;
  }();
  return t;
}

TEST(FunctionStatic, AnInitialiserForks) {
  if (!kasane::test::variables_are_shared()) GTEST_SKIP() << "each rank has its own variables";
  const long sum = kasane::run([] {
    return kasane::parallel_reduce(
        0, 1000, 0L, [](int i) { return static_cast<long>(table()[static_cast<std::size_t>(i)]); },
        [](long a, long b) { return a + b; }, 1);
  });
  EXPECT_EQ(sum, 499500);
}

}  // namespace
