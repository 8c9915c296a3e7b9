// SPDX-License-Identifier: Apache-2.0
// Threads that wait for something outside of the job do not keep their worker (Pool::call_outside, sleep).
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "ult/outside_callers.h"
#include "unit/ult/harness.h"

namespace kasane::ult {
namespace {

long read_byte(const long (&words)[OutsideRequest::kWords]) {
  char byte = 0;
  return ::read(static_cast<int>(words[0]), &byte, 1) == 1 ? byte : -errno;
}
OutsideRequest reading(int descriptor, bool restarts = true) {
  OutsideRequest request{.call = "read", .function = read_byte, .restarts = restarts};
  request.words[0] = descriptor;
  return request;
}
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  int ends[2];
};
void install_interruption() {
  struct sigaction action = {};
  action.sa_handler = interrupt_nothing;
  ASSERT_EQ(::sigaction(kOutsideSignal, &action, nullptr), 0);
}

TEST(Outside, AThreadThatWaitsLetsTheOneRunForWhichItWaits) {
  Pipe pipe;
  TestPool pool(1);
  pool.run([&] {
    for (int i = 0; i < 200; ++i) {
      const ThreadId other = fork([&] { EXPECT_EQ(Pool::call_outside(reading(pipe.ends[0])), 'x'); });
      EXPECT_EQ(::write(pipe.ends[1], "x", 1), 1);
      Pool::join(other);
    }
  });
}

TEST(Outside, AsManyThreadsWaitAsThereAre) {
  Pipe pipe;
  TestPool pool(2);
  pool.run([&] {
    std::vector<ThreadId> threads;
    for (int i = 0; i < 100; ++i)
      threads.push_back(fork([&] { EXPECT_EQ(Pool::call_outside(reading(pipe.ends[0])), 'x'); }));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(::write(pipe.ends[1], "x", 1), 1);
    for (const ThreadId thread : threads) Pool::join(thread);
  });
}

TEST(Outside, SleepsAreOverInTheirOrder) {
  TestPool pool(1);
  std::vector<int> order;
  pool.run([&] {
    const std::uint64_t begin = now_ns() + 500'000'000;  // when all of them sleep
    std::vector<ThreadId> threads;
    for (int i = 0; i < 20; ++i)
      threads.push_back(fork([&, i] {
        EXPECT_TRUE(
            Pool::sleep("sleep", begin + std::uint64_t{10'000'000} * (20u - static_cast<unsigned>(i))));
        order.push_back(i);
      }));
    for (const ThreadId thread : threads) Pool::join(thread);
    EXPECT_GE(now_ns() - begin, 200'000'000u);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], 19 - i);
}

// The worker sleeps meanwhile: the test's handler is called by itself, as one of the program's is.
TEST(Outside, AHandlerInterruptsCallsAndSleeps) {
  install_interruption();
  Pipe pipe;
  TestPool pool(1);
  pool.run([&] {
    for (int i = 0; i < 20; ++i) {
      std::vector<ThreadId> threads;
      for (int k = 0; k < 4; ++k) {
        threads.push_back(fork([&] { EXPECT_EQ(Pool::call_outside(reading(pipe.ends[0], false)), -EINTR); }));
        threads.push_back(fork([&] { EXPECT_FALSE(Pool::sleep("sleep", now_ns() + 100'000'000'000)); }));
      }
      Pool::note_handler(true);
      for (const ThreadId thread : threads) Pool::join(thread);
      // One with SA_RESTART does not interrupt a call that restarts, nor does what ran before.
      const ThreadId other = fork([&] { EXPECT_EQ(Pool::call_outside(reading(pipe.ends[0])), 'x'); });
      Pool::note_handler(true);
      EXPECT_TRUE(Pool::sleep("sleep", now_ns() + 1'000'000) || true);
      EXPECT_EQ(::write(pipe.ends[1], "x", 1), 1);
      Pool::join(other);
    }
  });
}

TEST(Outside, APoolMayEndWhileThreadsWait) {
  // Never closed: callers read it after the end of their pool.
  static Pipe* const lasting = new Pipe;
  Pipe& pipe = *lasting;
  for (int i = 0; i < 20; ++i) {
    TestPool pool(1);
    pool.run([&] {
      for (int k = 0; k < 4; ++k)
        Pool::detach(fork([&] { (void)Pool::call_outside(reading(pipe.ends[0])); }));
    });
    for (int k = 0; k < 2; ++k) EXPECT_EQ(::write(pipe.ends[1], "x", 1), 1);
  }
}

}  // namespace
}  // namespace kasane::ult
