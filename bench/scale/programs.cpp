// SPDX-License-Identifier: Apache-2.0
#include "scale/programs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

namespace kasane::scale {
namespace {

constexpr std::uint64_t kBlock = mem::kBlockBytes, kPage = mem::kPageBytes;
constexpr std::uint64_t kSortBlocks = 16384;

/// Equal consecutive shares of the heap, the first at rank 0.
void place_blocks(Stage& c, std::uint64_t bytes) {
  const std::uint64_t pages = bytes / kPage, each = std::max<std::uint64_t>(1, pages / c.ranks());
  c.place(c.heap(), bytes, [&](std::uint64_t page) {
    return Rank{static_cast<std::uint32_t>(std::min<std::uint64_t>(page / each, c.ranks() - 1))};
  });
}

// ---- fork and join ----

/// fib(n) down to a cutoff: two children each. a = n.
class Fib final : public ForkJoin {
 public:
  explicit Fib(std::uint64_t cutoff) : cutoff_(cutoff) {}
  std::uint64_t children(const Node& n, std::uint32_t phase, std::vector<Node>& into) const override {
    static_cast<void>(phase);
    if (n.a <= cutoff_) return leaf(n.a);
    into = {{n.a - 1, 0}, {n.a - 2, 0}};
    return 0;
  }

 private:
  static std::uint64_t leaf(std::uint64_t n) {
    std::uint64_t a = 1, b = 1;
    for (; n > 1; --n) a = std::exchange(b, a + b);
    return a * 2;  // 2 ns a call
  }
  std::uint64_t cutoff_;
};

/// A geometric tree, as uts: a = state of the node's random numbers, b = depth and, as a loop over a node's
/// children is cut in halves, which of them (none: the node itself). Below `grain` levels a subtree is one
/// thread's.
class Uts final : public ForkJoin {
 public:
  Uts(std::uint64_t depth, std::uint64_t grain) : depth_(depth), grain_(grain) {}
  std::uint64_t children(const Node& n, std::uint32_t phase, std::vector<Node>& into) const override {
    const Some some = some_of(n);
    if (some.count == 1) return children(child(n, some.first), phase, into);
    if (some.count > 1) {
      const std::uint64_t half = some.count / 2;
      into = {range(n, {some.depth, some.first, half}),
              range(n, {some.depth, some.first + half, some.count - half})};
      return 0;
    }
    if (some.depth + grain_ >= depth_) return kNodeNs * subtree(n);
    const std::uint64_t k = some.depth == 0 ? kOfRoot : degree(n);
    if (k != 0) into = {range(n, {some.depth, 0, k})};
    return kNodeNs;
  }

 private:
  static constexpr std::uint64_t kNodeNs = 1000;  // work at a node
  static constexpr std::uint64_t kOfRoot = 2000;
  struct Some {
    std::uint64_t depth, first, count;
  };
  static Some some_of(const Node& n) { return {n.b & 0xFFFF, n.b >> 16 & 0xFFFFFF, n.b >> 40}; }
  static Node range(const Node& n, const Some& s) { return {n.a, s.depth | s.first << 16 | s.count << 40}; }
  static Node child(const Node& n, std::uint64_t i) {
    std::uint64_t state = n.a ^ (i + 1) * 0x9E3779B97F4A7C15u;
    return {splitmix64(state), (n.b & 0xFFFF) + 1};
  }
  std::uint64_t degree(const Node& n) const {
    std::uint64_t state = n.a;
    // geometric, of mean 4 at the root and 0 at the leaves: uts' linear shape
    const double mean = 4.0 * (1.0 - static_cast<double>(n.b & 0xFFFF) / static_cast<double>(depth_ + 1));
    const double u = static_cast<double>(splitmix64(state) >> 11) * 0x1p-53;
    return static_cast<std::uint64_t>(std::log(1 - u) / std::log(mean / (1 + mean)));
  }
  std::uint64_t subtree(const Node& n) const {
    std::uint64_t nodes = 1;
    if ((n.b & 0xFFFF) >= depth_) return nodes;
    for (std::uint64_t i = 0, k = degree(n); i < k; ++i) nodes += subtree(child(n, i));
    return nodes;
  }
  std::uint64_t depth_, grain_;
};

/// Halves are sorted, then merged by threads for pieces of them, in place: a = first block, b = blocks.
class Cilksort final : public ForkJoin {
 public:
  Cilksort(std::uint64_t heap, std::uint64_t leaf) : heap_(heap), leaf_(leaf) {}
  [[nodiscard]] std::uint32_t phases(const Node& n) const override {
    return is_merge(n) || count_of(n) <= leaf_ ? 1 : 2;
  }
  std::uint64_t children(const Node& n, std::uint32_t phase, std::vector<Node>& into) const override {
    const std::uint64_t count = count_of(n), half = count / 2;
    if (count <= leaf_) {
      const std::uint64_t levels = is_merge(n) ? 2 : static_cast<std::uint64_t>(std::bit_width(count * 512));
      return count * 512 * levels;  // 1 ns a key and level; a merge takes two
    }
    const std::uint64_t merge = is_merge(n) || phase == 1 ? kMerge : 0;
    into = {{n.a, half | merge}, {n.a + half, (count - half) | merge}};
    return 0;
  }
  void touch(Actor& me, const Node& n) const override {
    const std::uint64_t count = count_of(n);
    if (count > leaf_) return;
    for (std::uint64_t i = 0; i < count; ++i) me.read(heap_ + (n.a + i) * kBlock, kBlock);
    for (std::uint64_t i = 0; i < count; ++i) me.write(heap_ + (n.a + i) * kBlock, kBlock);
  }

 private:
  static constexpr std::uint64_t kMerge = std::uint64_t{1} << 63;
  static bool is_merge(const Node& n) { return (n.b & kMerge) != 0; }
  static std::uint64_t count_of(const Node& n) { return n.b & ~kMerge; }
  std::uint64_t heap_, leaf_;
};

template <class Program, class... Args>
Result<std::uint64_t> tree(Stage& c, const Node& root, Args... args) {
  // Not on this stack, which changes: on ranks of a job all read it.
  const auto program = std::make_unique<Program>(args...);
  return c.play_tree(*program, root);
}
Result<std::uint64_t> fib(Stage& c, bool quick) {
  return tree<Fib>(c, {quick ? 34u : 44u, 0}, quick ? 20u : 23u);
}
Result<std::uint64_t> uts(Stage& c, bool quick) {
  return tree<Uts>(c, {19, 0}, quick ? 5u : 11u, quick ? 3u : 5u);
}
Result<std::uint64_t> cilksort(Stage& c, bool quick) {
  const std::uint64_t blocks = quick ? 1024 : kSortBlocks;
  place_blocks(c, blocks * kBlock);
  return tree<Cilksort>(c, {0, blocks}, c.heap(), quick ? 16u : 64u);
}

// ---- teams ----

/// So many barriers, with 100 us of work between.
Result<std::uint64_t> barriers(Stage& c, bool quick) {
  const int steps = quick ? 20 : 3;
  KASANE_TRY(c.play([=](Actor& me) {
    for (int i = 0; i < steps; ++i) me.compute(100'000), me.meet();
  }));
  return std::uint64_t{c.ranks()} * static_cast<std::uint64_t>(steps) * 100'000;
}
Result<std::uint64_t> collectives(Stage& c, bool quick) {
  const int steps = quick ? 20 : 3;
  KASANE_TRY(c.play([=](Actor& me) {
    for (int i = 0; i < steps; ++i) me.compute(100'000), me.barrier_of_collectives(), me.allreduce(1);
  }));
  return std::uint64_t{c.ranks()} * static_cast<std::uint64_t>(steps) * 100'000;
}

/// Rows in strips: a member reads the last row of the strip above and the first of the one below, which it
/// wrote in the step before, and meets the others. 32768 x 32768 doubles; of its strip a member touches the
/// two rows that others read, the rest is time: 1 ns an element (bandwidth of memory).
Result<std::uint64_t> heat(Stage& c, bool quick) {
  const std::uint64_t columns = quick ? 4096 : 32768, row = columns * 8, steps = quick ? 2 : 4;
  const std::uint64_t each = 4 * row;  // of two grids, the first and the last row
  place_blocks(c, c.ranks() * each);
  const std::uint64_t ns = columns * columns;  // of a step
  KASANE_TRY(c.play([=, &c](Actor& me) {
    const auto at = [&](std::uint32_t r, std::uint64_t grid, std::uint64_t last) {
      return c.heap() + r * each + (grid * 2 + last) * row;
    };
    const std::uint32_t r = raw(me.rank());
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::uint64_t from = step % 2, to = 1 - from;
      if (r > 0) me.read(at(r - 1, from, 1), row);
      if (r + 1 < me.ranks()) me.read(at(r + 1, from, 0), row);
      me.compute(ns / me.ranks());
      me.write(at(r, to, 0), row);
      me.write(at(r, to, 1), row);
      me.meet();
    }
  }));
  return ns * steps;
}

/// Rows of a sparse matrix in parts: a step reads the parts of the vector that its columns name (of all
/// ranks, as NPB's random columns do: here 16 others), multiplies, and sums two numbers over all.
Result<std::uint64_t> cg(Stage& c, bool quick) {
  const std::uint64_t n = quick ? 1 << 14 : 1 << 22, steps = quick ? 8 : 3;  // rows; 100 elements a row
  const std::uint64_t each = (n / c.ranks() * 8 + kPage - 1) / kPage * kPage;
  place_blocks(c, c.ranks() * each);
  const std::uint64_t ns = n * 100;  // of a step
  KASANE_TRY(c.play([=, &c](Actor& me) {
    const std::uint64_t mine = c.heap() + raw(me.rank()) * each,
                        bytes = std::max<std::uint64_t>(8, n / me.ranks() * 8);
    for (std::uint64_t step = 0; step < steps; ++step) {
      for (std::uint32_t i = 0; i < std::min(16u, me.ranks() - 1); ++i) {
        const std::uint64_t other = (raw(me.rank()) + 1 + me.random(me.ranks() - 1)) % me.ranks();
        me.read(c.heap() + other * each, bytes);
      }
      me.compute(ns / me.ranks());
      me.allreduce(1);
      me.write(mine, bytes);
      me.allreduce(1);
      me.meet();
    }
  }));
  return ns * steps;
}

/// Bodies in parts; each step rank 0 builds the upper tree, which all read, and each reads what it needs of 8
/// near parts; then all meet.
Result<std::uint64_t> barnes_hut(Stage& c, bool quick) {
  const std::uint64_t bodies = quick ? 1 << 14 : 1 << 20, steps = quick ? 2 : 3;
  const std::uint64_t tree_bytes = 16 * kBlock, each = kPage;
  c.place(c.heap(), kPage, [](std::uint64_t) { return Rank{0}; });
  c.place(c.heap() + kPage, c.ranks() * each,
          [](std::uint64_t page) { return Rank{static_cast<std::uint32_t>(page)}; });
  const std::uint64_t ns = bodies * 10'000;  // 10 us a body and step
  KASANE_TRY(c.play([=, &c](Actor& me) {
    const auto part = [&](std::uint64_t r) { return c.heap() + kPage + r * each; };
    for (std::uint64_t step = 0; step < steps; ++step) {
      if (raw(me.rank()) == 0) me.compute(100'000), me.write(c.heap(), tree_bytes);
      me.meet();
      me.read(c.heap(), tree_bytes);
      for (std::uint32_t i = 1; i <= std::min(8u, me.ranks() - 1); ++i)
        me.read(part((raw(me.rank()) + i) % me.ranks()), 8 * kBlock);
      me.compute(ns / me.ranks());
      me.write(part(raw(me.rank())), 8 * kBlock);
      me.meet();
    }
  }));
  return ns * steps;
}

/// Level by level: a member puts what it has found into others' parts of the next frontier, in pieces,
/// meets the others, and all count the frontier.
Result<std::uint64_t> bfs(Stage& c, bool quick) {
  const std::uint64_t edges = std::uint64_t{1} << (quick ? 22 : 32), levels = quick ? 3 : 7;
  place_blocks(c, c.ranks() * kPage);
  const std::uint64_t ns = edges / levels * 5;  // 5 ns an edge
  KASANE_TRY(c.play([=, &c](Actor& me) {
    for (std::uint64_t level = 0; level < levels; ++level) {
      me.compute(ns / me.ranks());
      // a tenth of the edges leads to a vertex that was not found yet: 8 bytes each
      const std::uint64_t bytes = edges / levels / me.ranks() * 8 / 10;
      const std::uint64_t puts = std::max<std::uint64_t>(16, bytes / kPage);
      for (std::uint64_t i = 0; i < puts; ++i)
        me.put(c.heap() + me.random(me.ranks()) * kPage, std::min(kPage, bytes / puts / 8 * 8));
      me.allreduce(1);
      me.meet();
    }
  }));
  return ns * levels;
}

/// As kmers: counts in a table that is spread over all; each update is an atomic at its place.
Result<std::uint64_t> updates(Stage& c, bool quick) {
  const std::uint64_t all = quick ? 1 << 12 : 1 << 18;
  place_blocks(c, c.ranks() * kPage);
  const std::uint64_t each = all / c.ranks();
  KASANE_TRY(c.play([=, &c](Actor& me) {
    for (std::uint64_t i = 0; i < each; ++i) {
      me.compute(2'000);
      me.add(c.heap() + me.random(me.ranks() * kPage / 8) * 8);
    }
    me.barrier_of_collectives();
  }));
  return each * c.ranks() * 2'000;
}

/// A queue under a lock for every 16 ranks: who takes an element works 200 us on it.
Result<std::uint64_t> queues(Stage& c, bool quick) {
  const std::uint64_t each = quick ? 16 : 8;
  const std::uint32_t queues = (c.ranks() + 15) / 16;
  place_blocks(c, c.ranks() * kPage);
  for (std::uint32_t q = 0; q < queues; ++q) c.make_mutex({Rank{q}, 100});
  KASANE_TRY(c.play([=, &c](Actor& me) {
    for (std::uint64_t i = 0; i < each; ++i) {
      const std::uint32_t q = static_cast<std::uint32_t>(me.random(queues));
      const SyncName mutex{Rank{q}, 100};
      me.lock(mutex);
      me.read(c.heap() + q * kPage, 64);
      me.write(c.heap() + q * kPage, 64);
      me.unlock(mutex);
      me.compute(200'000);
    }
    me.barrier_of_collectives();
  }));
  return each * c.ranks() * 200'000;
}

/// Tiles of a dgemm: a get of two tiles of 32 KiB, 2 ms of multiplication, an accumulate (get and put).
Result<std::uint64_t> ga(Stage& c, bool quick) {
  const std::uint64_t tiles = quick ? 64 : 4096, bytes = 32 * 1024;
  place_blocks(c, c.ranks() * kPage);
  const std::uint64_t each = std::max<std::uint64_t>(1, tiles / c.ranks());
  KASANE_TRY(c.play([=, &c](Actor& me) {
    const auto tile = [&] { return c.heap() + me.random(me.ranks()) * kPage; };
    for (std::uint64_t i = 0; i < each; ++i) {
      me.add(c.heap());  // the counter of tasks, NXTVAL
      me.get(tile(), bytes);
      me.get(tile(), bytes);
      me.compute(2'000'000);
      const std::uint64_t to = tile();
      me.get(to, bytes);
      me.put(to, bytes);
    }
    me.barrier_of_collectives();
  }));
  return each * c.ranks() * 2'000'000;
}

}  // namespace

const std::vector<Script>& scripts() {
  static const std::vector<Script> all{
      {.name = "fib", .what = "fork and join, small leaves", .run = fib},
      {.name = "uts", .what = "an unbalanced tree", .run = uts},
      {.name = "cilksort",
       .what = "a sort by fork and join",
       .together = kSortBlocks * kBlock,
       .run = cilksort},
      {.name = "heat", .what = "a stencil of strips", .heap_each = 4 * 32768 * 8, .run = heat},
      {.name = "cg", .what = "a sparse solver", .heap_each = kPage, .together = 32 << 20, .run = cg},
      {.name = "barnes_hut", .what = "bodies, a tree of all", .heap_each = 2 * kPage, .run = barnes_hut},
      {.name = "bfs", .what = "level by level, by puts", .heap_each = kPage, .run = bfs},
      {.name = "updates", .what = "atomics at random", .heap_each = kPage, .run = updates},
      {.name = "queues", .what = "queues under locks", .heap_each = kPage, .run = queues},
      {.name = "ga", .what = "gets, puts, accumulates of tiles", .heap_each = kPage, .run = ga},
      {.name = "barriers", .what = "a team that meets", .run = barriers},
      {.name = "collectives", .what = "barrier and allreduce of comm", .run = collectives},
  };
  return all;
}

}  // namespace kasane::scale
