// SPDX-License-Identifier: Apache-2.0
// Exceptions and other per-OS-thread state of C and C++ across fork, join and a change of worker (rule 13).
#include <cerrno>
#include <cfenv>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "support/sanitized.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

class ExceptionTest : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Workers, ExceptionTest, ::testing::Values(1u, 2u, 4u));

/// Yields until the thread runs on another worker; false if there is only one, or no worker takes it for a
/// while.
bool change_worker() {
  if (Pool::current()->config().workers == 1) return false;
  const std::uint32_t before = Pool::worker();
  for (int i = 0; i < 2'000; ++i) {
    if (Pool::worker() != before) return true;
    // A child that keeps this worker busy while others may steal us.
    Pool::join(fork([] {
      const std::uint64_t until = now_ns() + 20'000;
      while (now_ns() < until) relax();
    }));
  }
  return false;
}

TEST_P(ExceptionTest, JoinThrowsWhatTheThreadThrew) {
  TestPool pool(GetParam());
  std::string what;
  pool.run([&] {
    const ThreadId child =
        fork([] { throw std::runtime_error("a message that is longer than a small string"); });
    try {
      Pool::join(child);
    } catch (const std::runtime_error& e) {
      what = e.what();
    }
    Pool::join(fork([] {}));  // the slot is clean again
  });
  EXPECT_EQ(what, "a message that is longer than a small string");
}

TEST_P(ExceptionTest, ManyThreadsThrow) {
  constexpr int kThrows = fewer_if_sanitized(5000);
  TestPool pool(GetParam(), /*slots=*/64);
  int caught = 0;
  pool.run([&] {
    for (int i = 0; i < kThrows; ++i) {
      const ThreadId child = fork([i] {
        if (i % 7 == 0) Pool::yield();
        throw i;
      });
      try {
        Pool::join(child);
      } catch (int value) {
        caught += value == i;
      }
    }
  });
  EXPECT_EQ(caught, kThrows);
}

TEST_P(ExceptionTest, TheRootsExceptionComesOutOfRun) {
  TestPool pool(GetParam());
  EXPECT_THROW(pool.run([] { throw std::out_of_range("root"); }), std::out_of_range);
  unsigned answer = 0;
  pool.run([&] { answer = fib(5); });
  EXPECT_EQ(answer, 5u);
}

TEST_P(ExceptionTest, RunMayBeCalledInACatchBlock) {
  TestPool pool(GetParam());
  std::string what;
  try {
    throw std::runtime_error("outer");
  } catch (...) {
    pool.run([] { EXPECT_EQ(std::current_exception(), nullptr); });
    try {
      throw;
    } catch (const std::runtime_error& e) {
      what = e.what();
    }
  }
  EXPECT_EQ(what, "outer");
}

TEST_P(ExceptionTest, ExitRunsTheDestructorsOfEveryFrame) {
  TestPool pool(GetParam());
  static int destroyed;
  destroyed = 0;
  struct Count {
    ~Count() { ++destroyed; }
  };
  struct Deep {
    // Returns for depth < 0 only: g++ sees through an end that always throws.
    static void go(int depth) {
      Count count;
      if (depth < 0) return;
      if (depth == 0) Pool::exit();
      go(depth - 1);
    }
  };
  pool.run([] {
    Pool::join(fork([] {
      Count outermost;
      Deep::go(9);
    }));
    EXPECT_EQ(destroyed, 11);
  });
}

TEST_P(ExceptionTest, ExitOfTheRoot) {
  TestPool pool(GetParam());
  bool went_on = false;
  pool.run([&] {
    Pool::exit();
    went_on = true;
  });
  EXPECT_FALSE(went_on);
}

TEST_P(ExceptionTest, AChildStartsWithoutItsParentsExceptions) {
  TestPool pool(GetParam());
  pool.run([] {
    try {
      throw std::runtime_error("parent");
    } catch (...) {
      Pool::join(fork([] {
        EXPECT_EQ(std::current_exception(), nullptr);
        EXPECT_EQ(std::uncaught_exceptions(), 0);
      }));
      EXPECT_NE(std::current_exception(), nullptr);
      EXPECT_THROW(throw, std::runtime_error);
    }
  });
}

TEST_P(ExceptionTest, ForkInADestructorDuringUnwinding) {
  TestPool pool(GetParam());
  int answer = 0;
  struct Forks {
    int& to;
    ~Forks() {
      EXPECT_EQ(std::uncaught_exceptions(), 1);
      Pool::join(fork([this] {
        EXPECT_EQ(std::uncaught_exceptions(), 0);
        Pool::yield();
        try {
          throw 1;
        } catch (int) {
        }
        to = static_cast<int>(fib(10));
      }));
      EXPECT_EQ(std::uncaught_exceptions(), 1);
    }
  };
  pool.run([&] {
    try {
      Forks forks{answer};
      throw std::runtime_error("unwinds through a fork");
    } catch (const std::runtime_error&) {
    }
  });
  EXPECT_EQ(answer, 55);
}

TEST_P(ExceptionTest, ACatchBlockMovesBetweenWorkers) {
  TestPool pool(GetParam());
  int right = 0, moved = 0;
  pool.run([&] {
    std::atomic<int> r{0}, m{0};
    // One after the other, so that the other workers are free to steal.
    for (int i = 0; i < 8; ++i)
      Pool::join(fork([&, i] {
        try {
          try {
            throw std::runtime_error("number " + std::to_string(i));
          } catch (const std::exception& e) {
            Pool::yield();
            if (change_worker()) m.fetch_add(1);
            EXPECT_EQ(e.what(), "number " + std::to_string(i));
            throw;
          }
        } catch (const std::runtime_error& e) {
          if (e.what() == "number " + std::to_string(i)) r.fetch_add(1);
        }
      }));
    right = r;
    moved = m;
  });
  EXPECT_EQ(right, 8);
  if (GetParam() == 1) {
    EXPECT_EQ(moved, 0);
  }
  if (GetParam() > 1) {
    EXPECT_GT(moved, 0);
  }
}

// As the guide tells programs to do it: state of the OS thread is read in a function that the compiler cannot
// merge with its caller.
[[gnu::noinline]] int errno_after_a_failed_close() {
  asm volatile("");
  errno = 0;
  ::close(-1);
  return errno;
}

TEST_P(ExceptionTest, ErrnoInANoinlineFunctionIsTheWorkersOwn) {
  TestPool pool(GetParam());
  pool.run([] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(errno_after_a_failed_close(), EBADF);
      change_worker();
      EXPECT_EQ(errno_after_a_failed_close(), EBADF);
    }
  });
}

TEST(WorkerState, AllWorkersRoundAsTheCreatorDid) {
  std::fesetround(FE_UPWARD);
  TestPool pool(2);
  std::fesetround(FE_TONEAREST);
  pool.run([] {
    std::vector<ThreadId> ids;
    for (int i = 0; i < 100; ++i)
      ids.push_back(fork([] {
        EXPECT_EQ(std::fegetround(), FE_UPWARD);
        const std::uint64_t until = now_ns() + 10'000;
        while (now_ns() < until) relax();
        EXPECT_EQ(std::fegetround(), FE_UPWARD);
      }));
    for (const ThreadId id : ids) Pool::join(id);
  });
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST(DetachedDeathTest, AnExceptionThatLeavesADetachedThreadEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        TestPool pool(1);
        pool.run([] {
          std::atomic<bool> go{false};
          const ThreadId id = fork([&] {
            yield_until([&] { return go.load(); });
            throw std::runtime_error("nobody will see this");
          });
          Pool::detach(id);
          go = true;
          for (;;) Pool::yield();
        });
      },
      "nobody will see this");
}

}  // namespace
}  // namespace kasane::ult
