// SPDX-License-Identifier: Apache-2.0
// A histogram whose counters lie on all ranks, counted by threads of rank 0: by atomics at the owners, one by
// one and several at once, and by posts, whose owners count with plain stores in memory that never moves.
//
//   kasane run -n 2 -- posts [COUNTS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <kasane/kasane.hpp>
#include <vector>

namespace {

constexpr std::uint64_t kCounters = 1 << 16;  // at each rank

/// Each rank's counters, in its own memory.
struct Table {
  std::vector<std::uint64_t*> of;

  Table() {
    for (std::uint32_t r = 0; r < kasane::ranks(); ++r)
      of.push_back(static_cast<std::uint64_t*>(
          kasane::allocate_zeroed(kCounters * 8, 64, kasane::placement::on(r).fixed())));
  }
  ~Table() {
    for (auto* counters : of) kasane::deallocate(counters);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  [[nodiscard]] std::uint64_t sum() const {
    std::vector<std::uint64_t> part(kCounters);
    std::uint64_t all = 0;
    for (auto* counters : of) {
      kasane::get(part.data(), counters, kCounters);
      for (const std::uint64_t x : part) all += x;
    }
    return all;
  }
};

std::uint64_t next(std::uint64_t& x) {
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

/// Calls count(rank, index) so many times; nanoseconds a call, `end` included.
template <class Count, class End>
double timed(std::uint64_t n, const Count& count, const End& end) {
  std::uint64_t random = 88172645463325252u;
  const std::uint64_t begin = kasane_clock_ns();
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t x = next(random);
    count(static_cast<std::uint32_t>(x % kasane::ranks()), x / 1024 % kCounters);
  }
  end();
  return static_cast<double>(kasane_clock_ns() - begin) / static_cast<double>(n);
}

int failures(std::uint64_t n) {
  const Table table;
  const auto word = [&table](std::uint32_t r, std::uint64_t i) {
    return kasane::global_ptr<std::uint64_t>(table.of[r] + i);
  };
  const double one = timed(n, [&](std::uint32_t r, std::uint64_t i) { kasane::add(word(r, i), 1u); }, [] {});
  kasane::pending_group group;
  const double several = timed(
      n, [&](std::uint32_t r, std::uint64_t i) { kasane::add_async(word(r, i), 1u, group); },
      [&] { group.wait(); });
  kasane::post_group posts;
  // With one worker a rank its posts run one after the other, so plain stores will do.
  const bool plain = kasane::workers() == 1;
  const double posted = timed(
      n,
      [&](std::uint32_t r, std::uint64_t i) {
        std::uint64_t* const counter = table.of[r] + i;
        posts.post(r, [counter, plain] {
          if (plain)
            *counter += 1;
          else
            kasane::add(kasane::global_ptr<std::uint64_t>(counter), 1u);
        });
      },
      [&] { posts.wait(); });
  std::printf("posts: %.1f ns an add, %.1f several at once, %.1f a post\n", one, several, posted);
  return table.sum() == 3 * n ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000;
  const int bad = kasane::run([n] { return failures(n); });
  std::printf("posts: %s\n", bad == 0 ? "ok" : "FAILED");
  return bad;
}
