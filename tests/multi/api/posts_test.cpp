// SPDX-License-Identifier: Apache-2.0
// Groups of posts: each runs once, at its rank, those of posts too; exceptions, full buffers, several groups.
// As in api_test.cpp threads only compute, and main expects.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <kasane/kasane.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kasane::global_ptr;
using kasane::placement;

/// Words at one rank, all 0, used directly.
struct Words {
  explicit Words(std::size_t n, std::uint32_t rank = 0)
      : p(static_cast<std::uint64_t*>(kasane::allocate_zeroed(n * 8, 64, placement::on(rank).fixed()))) {}
  ~Words() { kasane::deallocate(p.get()); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  global_ptr<std::uint64_t> p;
};

TEST(Posts, EachRunsOnceAtItsRank) {
  constexpr std::uint64_t kEach = 3000;
  const std::uint64_t wrong = kasane::run([] {
    const std::uint32_t n = kasane::ranks();
    const Words counts(n), sums(n), elsewhere(1);
    kasane::post_group g;
    for (std::uint64_t i = 0; i < kEach * n; ++i) {
      const auto to = static_cast<std::uint32_t>(i % n);
      g.post(
          to,
          [c = counts.p, s = sums.p, e = elsewhere.p](std::uint32_t r, std::uint64_t x) {
            if (kasane::rank() != r) kasane::add(e, 1u);
            kasane::add(c + r, 1u);
            kasane::add(s + r, x);
          },
          to, i);
    }
    g.wait();
    std::uint64_t w = kasane::get(elsewhere.p);
    for (std::uint32_t r = 0; r < n; ++r) {
      w += kasane::get(counts.p + r) != kEach;
      w += kasane::get(sums.p + r) != kEach * r + n * (kEach * (kEach - 1) / 2);
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

/// Posts itself, with one less to go, to two ranks.
void spread(kasane::post_group* g, global_ptr<std::uint64_t> count, std::uint32_t left, std::uint32_t seed) {
  kasane::add(count, 1u);
  if (left == 0) return;
  for (std::uint32_t i = 0; i < 2; ++i) {
    const std::uint32_t next = seed * 1664525u + 1013904223u + i;
    g->post(next / 7 % kasane::ranks(), spread, g, count, left - 1, next);
  }
}

TEST(Posts, WaitEndsWhenThoseOfPostsHaveRunToo) {
  const std::uint64_t wrong = kasane::run([] {
    std::uint64_t w = 0;
    kasane::post_group g;
    for (std::uint32_t round = 0; round < 5; ++round) {
      const Words count(1, round % kasane::ranks());
      g.post(round % kasane::ranks(), spread, &g, count.p, 11u, round);
      g.wait();
      w += kasane::get(count.p) != (1u << 12) - 1;
      g.wait();  // there is nothing to wait for
    }
    return w;
  });
  EXPECT_EQ(wrong, 0u);
}

// Each rank counts for itself: an atomic of another rank's word would cost a trip for every second post.
TEST(Posts, AllRanksPostToAllAtOnce) {
  constexpr std::uint64_t kEach = 20000;
  const std::uint64_t wrong = kasane::run([] {
    const std::uint32_t n = kasane::ranks();
    std::vector<std::unique_ptr<Words>> words;
    std::vector<global_ptr<std::uint64_t>> counts;
    for (std::uint32_t r = 0; r < n; ++r) {
      words.push_back(std::make_unique<Words>(1, r));
      counts.push_back(words.back()->p);
    }
    kasane::post_group g;
    std::vector<kasane::thread> threads;
    for (std::uint32_t t = 0; t < 2 * n; ++t) {
      threads.emplace_back(kasane::at{t % n}, [&g, &counts, n] {
        for (std::uint64_t i = 0; i < kEach; ++i) {
          // large ones now and then
          const std::array<std::uint64_t, 100> large{i};
          const auto to = static_cast<std::uint32_t>(i % n);
          const global_ptr<std::uint64_t> c = counts[to];
          if (i % 50 == 0)
            g.post(to, [c](const std::array<std::uint64_t, 100>&) { kasane::add(c, 1u); }, large);
          else
            g.post(to, [c] { kasane::add(c, 1u); });
        }
      });
    }
    for (auto& t : threads) t.join();
    g.wait();
    std::uint64_t all = 0;
    for (const auto& c : counts) all += kasane::get(c);
    return 2 * n * kEach - all;
  });
  EXPECT_EQ(wrong, 0u);
}

// No wait() is called: threads of the group send what is buffered.
TEST(Posts, AreSentWithoutAWait) {
  const bool arrived = kasane::run([] {
    kasane::post_group g;
    const Words flag(1);
    g.post(kasane::ranks() - 1, [f = flag.p] {
      kasane::add(f, 1u);
      kasane::detail::check(kasane_atomic_notify_all(f.get()));
    });
    kasane::detail::check(kasane_atomic_wait(8, flag.p.get(), 0));
    return kasane::get(flag.p) == 1;
  });
  EXPECT_TRUE(arrived);
}

TEST(Posts, WaitThrowsTheFirstException) {
  const std::string text = kasane::run([] {
    std::string all;
    kasane::post_group g;
    const Words count(1);
    for (std::uint32_t i = 0; i < 200; ++i)
      g.post(i % kasane::ranks(), [c = count.p, i] {
        kasane::add(c, 1u);
        if (i == 100) throw std::runtime_error("of a post");
      });
    try {
      g.wait();
      all = "nothing";
    } catch (const std::runtime_error& e) {
      all = e.what();
    }
    g.wait();  // it was taken
    return all + (kasane::get(count.p) == 200 ? " and all have run" : " and some have not run");
  });
  EXPECT_EQ(text, "of a post and all have run");
}

// The destructor waits for all of them, and the exception that runs it goes on.
TEST(Posts, OfAScopeThatAnExceptionEndsMayThrow) {
  const std::string text = kasane::run([] {
    std::string all = "nothing";
    const Words count(1);
    try {
      kasane::post_group g;
      for (std::uint32_t i = 0; i < 200; ++i)
        g.post(i % kasane::ranks(), [c = count.p] {
          kasane::add(c, 1u);
          throw std::runtime_error("of a post");
        });
      throw std::runtime_error("of the poster");
    } catch (const std::runtime_error& e) {
      all = e.what();
    }
    return all + (kasane::get(count.p) == 200 ? ", and all have run" : ", and some have not run");
  });
  EXPECT_EQ(text, "of the poster, and all have run");
}

TEST(Posts, MayForkAndWait) {
  const std::uint64_t sum = kasane::run([] {
    kasane::post_group g;
    const Words sum_of(1);
    for (std::uint32_t i = 0; i < 40; ++i)
      g.post(i % kasane::ranks(), [s = sum_of.p] {
        std::uint64_t x = 0;
        kasane::thread child([&x] {
          kasane::this_thread::yield();
          x = 3;
        });
        child.join();
        kasane::add(s, x);
      });
    g.wait();
    return kasane::get(sum_of.p);
  });
  EXPECT_EQ(sum, 120u);
}

TEST(Posts, Refusals) {
  const std::string codes = kasane::run([] {
    std::string all;
    kasane::post_group g;
    try {
      g.post(kasane::ranks(), [] {});
    } catch (const kasane::error& e) {
      all += e.code() == EINVAL ? "rank " : "? ";
    }
    const Words code(1);
    for (const std::uint32_t rank : {0u, kasane::ranks() - 1}) {  // where it waits
      kasane::put(code.p, std::uint64_t{0});
      g.post(0, [c = code.p, p = &g, rank] {
        kasane::this_thread::move_to(rank);
        try {
          p->wait();
        } catch (const kasane::error& e) {
          kasane::put(c, static_cast<std::uint64_t>(e.code()));
        }
      });
      g.wait();
      all += kasane::get(code.p) == EDEADLK ? "own wait " : "? ";
    }
    return all;
  });
  EXPECT_EQ(codes, "rank own wait own wait ");
  EXPECT_EQ(kasane_post_group_create(), nullptr);
  EXPECT_EQ(kasane_error_code(), EPERM);
}

}  // namespace
