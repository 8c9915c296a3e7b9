// SPDX-License-Identifier: Apache-2.0
// Small histories of a container: what threads at all ranks did to it at once, and whether some serial order
// explains it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <random>
#include <vector>

#include "support/linearizable.h"

namespace kasane::test {

/// An operation between two readings of a clock.
struct Seen {
  std::uint64_t begin, end;
  std::uint32_t what;
  std::uint64_t key, operand, result;
};
/// The result where there is none.
inline constexpr std::uint64_t kNone = ~std::uint64_t{0};

inline constexpr std::uint32_t kHistoryThreads = 4, kHistoryOps = 4;
using History = std::array<std::array<Seen, kHistoryOps>, kHistoryThreads>;
using Clock = global_ptr<std::uint64_t>;

/// Each thread draws operations (draw(random): what, key and operand), makes them (operate(seen) returns the
/// result), and does something else after each (between(random)).
template <class Draw, class Operate, class Between>
void play(unsigned seed, Clock clock, History& h, const Draw& draw, const Operate& operate,
          const Between& between) {
  std::vector<kasane::thread> threads;
  for (std::uint32_t t = 0; t < kHistoryThreads; ++t) {
    threads.emplace_back(kasane::at{t % kasane::ranks()}, [=, &h, &draw, &operate, &between] {
      std::minstd_rand random(seed * 131 + t + 1);
      for (Seen& s : h[t]) {
        s = draw(random);
        s.begin = kasane::fetch_add(clock, 1);
        s.result = operate(s);
        s.end = kasane::fetch_add(clock, 1);
        between(random);
        if (random() % 3 == 0) kasane::this_thread::yield();
      }
    });
  }
  for (auto& t : threads) t.join();
}

/// The operations of n histories, of which one(seed, clock, history) plays each.
template <class One>
std::vector<std::vector<Seen>> histories(unsigned n, const One& one) {
  std::vector<History> all(n);
  kasane::run([&] {
    auto* const word = static_cast<std::uint64_t*>(kasane::allocate_zeroed(8, 64, placement::local.fixed()));
    for (unsigned seed = 0; seed < n; ++seed) one(seed, Clock(word), all[seed]);
    kasane::deallocate(word);
  });
  std::vector<std::vector<Seen>> operations(n);
  for (unsigned seed = 0; seed < n; ++seed)
    for (const auto& thread : all[seed])
      operations[seed].insert(operations[seed].end(), thread.begin(), thread.end());
  return operations;
}

/// There is an order in which agrees(model, seen), which does the operation to a model that is before(seed)
/// at first, finds each result right.
template <class Before, class Agrees>
void expect_linearizable(const std::vector<std::vector<Seen>>& histories, const Before& before,
                         const Agrees& agrees) {
  using Model = decltype(before(0u));
  for (unsigned seed = 0; seed < histories.size(); ++seed) {
    std::vector<Operation<Model>> operations;
    for (const Seen& s : histories[seed])
      operations.push_back({s.begin, s.end, [&agrees, s](Model& m) { return agrees(m, s); }});
    ASSERT_TRUE(linearizable(before(seed), operations)) << "seed " << seed;
  }
}

}  // namespace kasane::test
