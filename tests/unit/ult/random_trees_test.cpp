// SPDX-License-Identifier: Apache-2.0
// Random fork-join programs against their sequential meaning. A failing seed is printed and can be run alone:
// KASANE_SEED=n.
#include <cstdlib>
#include <random>
#include <set>

#include "support/sanitized.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

/// A tree's value is fixed by its seed alone, however it is scheduled.
struct Node {
  std::uint64_t seed;
  int depth;

  struct Shape {
    unsigned children, yields, joins_late, throws, exits, detached;
  };
  [[nodiscard]] Shape shape() const {
    std::minstd_rand r(static_cast<unsigned>(seed));
    r.discard(3);
    const auto pick = [&](unsigned n) { return static_cast<unsigned>((r() >> 8) % n); };
    return {depth == 0 ? 0 : pick(5),
            pick(4) == 0 ? pick(3) : 0,
            pick(2),
            static_cast<unsigned>(pick(12) == 0),
            static_cast<unsigned>(pick(12) == 0),
            static_cast<unsigned>(pick(10) == 0)};
  }
  [[nodiscard]] Node child(unsigned i) const {
    return {(seed * 6364136223846793005u + i * 1442695040888963407u) >> 7, depth - 1};
  }
};

struct Thrown {
  std::uint64_t value;
};

std::uint64_t sequential(Node node) {
  std::uint64_t sum = node.seed;
  for (unsigned i = 0; i < node.shape().children; ++i) sum = sum * 31 + sequential(node.child(i));
  return sum;
}

std::uint64_t parallel(Node node);

/// The child's body: the value goes out by a store, by an exception, or by a store before exit().
void run_child(Node node, std::uint64_t& out) {
  const auto shape = node.shape();
  const std::uint64_t value = parallel(node);
  for (unsigned i = 0; i < shape.yields; ++i) Pool::yield();
  if (shape.throws) throw Thrown{value};
  out = value;
  if (shape.exits) Pool::exit();
}

std::uint64_t collect(ThreadId id, std::uint64_t& out) {
  try {
    Pool::join(id);
    return out;
  } catch (const Thrown& t) {
    return t.value;
  }
}

std::uint64_t parallel(Node node) {
  const auto shape = node.shape();
  std::array<std::uint64_t, 5> values{};
  std::array<ThreadId, 5> ids{};
  std::uint64_t sum = node.seed;
  std::atomic<bool> aside{false};
  if (shape.detached)
    Pool::detach(fork([&aside] {
      Pool::yield();
      aside = true;
    }));
  for (unsigned i = 0; i < shape.children; ++i) {
    ids[i] = fork([node, i, &values] { run_child(node.child(i), values[i]); });
    if (!shape.joins_late) values[i] = collect(ids[i], values[i]);
  }
  if (shape.joins_late)
    for (unsigned i = shape.children; i-- > 0;) values[i] = collect(ids[i], values[i]);
  for (unsigned i = 0; i < shape.children; ++i) sum = sum * 31 + values[i];
  if (shape.detached) yield_until([&] { return aside.load(); });
  return sum;
}

class RandomTrees : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, RandomTrees, ::testing::Values(1u, 2u, 4u));

TEST_P(RandomTrees, MeanWhatTheirSequentialElisionMeans) {
  TestPool pool(GetParam(), /*slots=*/2048);
  const char* only = std::getenv("KASANE_SEED");
  constexpr std::uint64_t kSeeds = fewer_if_sanitized(2000);
  const std::uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
  for (std::uint64_t seed = first; seed < (only ? first + 1 : kSeeds); ++seed) {
    const Node root{seed * 0x9E3779B97F4A7C15u, 2 + static_cast<int>(seed % 4)};
    std::uint64_t value = 0;
    pool.run([&] { value = parallel(root); });
    ASSERT_EQ(value, sequential(root)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kasane::ult
