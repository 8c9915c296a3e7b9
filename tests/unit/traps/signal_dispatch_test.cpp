// SPDX-License-Identifier: Apache-2.0
// Faults in registered ranges are served, all others go to the fallback. Tests that must die do so in a
// process of their own.
#include "traps/signal_dispatch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "support/sanitized.h"
#include "traps/alt_stack.h"

namespace kasane::traps {
namespace {

constexpr std::size_t kBlockBytes = 4096;

/// Some inaccessible pages and the faults seen in them. Each fault makes its page accessible.
class Pages {
 public:
  explicit Pages(std::size_t count = 4) : bytes(count * kBlockBytes) {
    void* got = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) std::abort();
    base = static_cast<volatile char*>(got);
  }
  ~Pages() { ::munmap(const_cast<char*>(base), bytes); }
  Result<void> watch(FaultFunction function = open) {
    return register_range(const_cast<char*>(base), bytes, function, this);
  }
  void unwatch() { unregister_range(const_cast<char*>(base)); }

  static bool open(void* context, void* address, bool write, int) {
    auto* self = static_cast<Pages*>(context);
    ++self->faults;
    self->last = static_cast<char*>(address) - self->base;
    self->last_write = write;
    errno = EXFULL;  // must not reach the program
    const auto page = reinterpret_cast<std::uintptr_t>(address) & ~(kBlockBytes - 1);
    return ::mprotect(reinterpret_cast<void*>(page), kBlockBytes,
                      write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
  }

  volatile char* base;
  std::size_t bytes;
  std::atomic<int> faults{0};
  std::ptrdiff_t last = -1;
  bool last_write = false;
};

AltStack alt_stack() {
  auto stack = AltStack::create();
  if (!stack) std::abort();
  return std::move(*stack);
}

class SignalDispatch : public ::testing::Test {
 protected:
  AltStack stack_ = alt_stack();
};
using SignalDispatchDeathTest = SignalDispatch;

TEST_F(SignalDispatch, AFaultIsAnsweredAndTheInstructionRunsAgain) {
  Pages pages;
  ASSERT_TRUE(pages.watch());
  errno = 0;
  EXPECT_EQ(pages.base[kBlockBytes + 3], 0);
  EXPECT_EQ(pages.last, static_cast<std::ptrdiff_t>(kBlockBytes + 3));
#if defined(__x86_64__)
  EXPECT_FALSE(pages.last_write);
#endif
  pages.base[kBlockBytes + 9] = 1;
  EXPECT_EQ(pages.last, static_cast<std::ptrdiff_t>(kBlockBytes + 9));
  EXPECT_TRUE(pages.last_write);
  EXPECT_EQ(errno, 0);
  pages.unwatch();
}

TEST_F(SignalDispatch, RangesAreDisjointAndOneKnowsItsOwn) {
  Pages one, two;
  ASSERT_TRUE(one.watch());
  ASSERT_TRUE(two.watch());
  EXPECT_EQ(one.watch().error().code, Errc::invalid_argument);
  EXPECT_EQ(register_range(const_cast<char*>(one.base) - 1, 2, Pages::open, &one).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(register_range(const_cast<char*>(one.base) + one.bytes - 1, 2, Pages::open, &one).error().code,
            Errc::invalid_argument);
  two.base[0] = 1;
  EXPECT_EQ(one.faults, 0);
  EXPECT_EQ(two.faults, 1);
  one.unwatch();
  ASSERT_TRUE(one.watch()) << "a range taken back can be given again";
  one.base[0] = 1;
  EXPECT_EQ(one.faults, 1);
  one.unwatch();
  two.unwatch();
}

TEST_F(SignalDispatch, TheTableSaysWhenItIsFull) {
  Pages pages(80);
  std::size_t taken = 0;
  Result<void> last;
  for (; taken < 80; ++taken) {
    last =
        register_range(const_cast<char*>(pages.base) + taken * kBlockBytes, kBlockBytes, Pages::open, &pages);
    if (!last) break;
  }
  EXPECT_EQ(taken, 64u);
  EXPECT_EQ(last.error().code, Errc::limit);
  for (std::size_t i = 0; i < taken; ++i) unregister_range(const_cast<char*>(pages.base) + i * kBlockBytes);
}

// A user's handler that runs on the alternate stack and touches the space: the fault nests there.
TEST_F(SignalDispatch, AFaultOnTheAlternateStackIsAnsweredThere) {
  static Pages* watched;
  static std::atomic<bool> on_stack;
  Pages pages;
  watched = &pages;
  ASSERT_TRUE(pages.watch([](void* context, void* address, bool write, int signal) {
    stack_t current{};
    on_stack = ::sigaltstack(nullptr, &current) == 0 && (current.ss_flags & SS_ONSTACK) != 0;
    return Pages::open(context, address, write, signal);
  }));
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { watched->base[5] = 7; };
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(raw_sigaction(SIGUSR1, &action, &before), 0);
  ::raise(SIGUSR1);
  raw_sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(pages.base[5], 7);
  EXPECT_EQ(pages.faults, 1);
  EXPECT_TRUE(on_stack);
  pages.unwatch();
}

TEST_F(SignalDispatch, UnregisteringWaitsForWhoIsInTheFunction) {
  for (int round = 0; round < 50; ++round) {
    Pages pages;
    static std::atomic<int> inside, left;
    inside = left = 0;
    ASSERT_TRUE(pages.watch([](void* context, void* address, bool write, int signal) {
      ++inside;
      for (int i = 0; i < 20; ++i) ::sched_yield();
      const bool answered = Pages::open(context, address, write, signal);
      ++left;
      return answered;
    }));
    std::thread toucher([&] {
      AltStack own = alt_stack();
      pages.base[0] = 1;
    });
    while (inside == 0) std::this_thread::yield();
    pages.unwatch();
    EXPECT_EQ(left, 1);
    toucher.join();
  }
}

[[noreturn]] void exit_with_42(int, siginfo_t*, void*) { ::_exit(42); }

TEST_F(SignalDispatchDeathTest, AForeignAddressGoesToTheFallback) {
  EXPECT_EXIT(
      {
        AltStack own = alt_stack();
        Pages watched;
        Pages foreign;
        if (!watched.watch()) ::_exit(1);
        set_fallback([](int signal, siginfo_t* info, void* ucontext) {
          ::_exit(signal == SIGSEGV && info->si_addr != nullptr && ucontext ? 42 : 2);
        });
        foreign.base[1] = 1;
      },
      ::testing::ExitedWithCode(42), "");
}

TEST_F(SignalDispatchDeathTest, ARefusedFaultGoesToTheFallback) {
  EXPECT_EXIT(
      {
        AltStack own = alt_stack();
        Pages pages;
        if (!pages.watch([](void*, void*, bool, int) { return false; })) ::_exit(1);
        set_fallback(exit_with_42);
        pages.base[1] = 1;
      },
      ::testing::ExitedWithCode(42), "");
}

// A fault function that faults in its own range would wait for itself.
TEST_F(SignalDispatchDeathTest, AFaultInsideAFaultFunctionGoesToTheFallback) {
  EXPECT_EXIT(
      {
        AltStack own = alt_stack();
        Pages pages;
        if (!pages.watch([](void* context, void*, bool, int) {
              static_cast<Pages*>(context)->base[kBlockBytes] = 1;
              return true;
            }))
          ::_exit(1);
        set_fallback(exit_with_42);
        pages.base[1] = 1;
      },
      ::testing::ExitedWithCode(42), "");
}

// A jump into the range: no access right makes it executable, so it must not be tried forever.
TEST_F(SignalDispatchDeathTest, AJumpIntoARangeGoesToTheFallback) {
#if defined(__x86_64__)
  EXPECT_EXIT(
      {
        AltStack own = alt_stack();
        Pages pages;
        if (!pages.watch()) ::_exit(1);
        set_fallback(exit_with_42);
        reinterpret_cast<void (*)()>(const_cast<char*>(pages.base))();
      },
      ::testing::ExitedWithCode(42), "");
#endif
}

// No memory behind the page is a SIGBUS; a function that changes access rights cannot cure that either.
TEST_F(SignalDispatchDeathTest, ABusErrorGoesToTheFallbackUnlessTheRangeWantsIt) {
  const int fd = ::memfd_create("empty", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (FaultSignals signals : {FaultSignals::segv, FaultSignals::segv_and_bus})
    EXPECT_EXIT(
        {
          AltStack own = alt_stack();
          void* page = ::mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
          if (!register_range(
                  page, kBlockBytes,
                  [](void*, void*, bool, int signal) -> bool { ::_exit(signal == SIGBUS ? 41 : 3); }, nullptr,
                  signals))
            ::_exit(1);
          set_fallback([](int signal, siginfo_t*, void*) { ::_exit(signal == SIGBUS ? 42 : 2); });
          *static_cast<volatile char*>(page) = 1;
        },
        ::testing::ExitedWithCode(signals == FaultSignals::segv ? 42 : 41), "");
  ::close(fd);
}

TEST_F(SignalDispatchDeathTest, WithoutAFallbackTheProcessDiesOfTheFault) {
  auto wild = [] {
    AltStack own = alt_stack();
    Pages watched;
    Pages foreign;
    if (!watched.watch()) ::_exit(1);
    foreign.base[1] = 1;
    ::_exit(0);
  };
  // A sanitizer's own handler was installed before, so it reports and ends the process in its way.
  if (kSanitized)
    EXPECT_DEATH(wild(), "");
  else
    EXPECT_EXIT(wild(), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(SignalDispatchDeathTest, ASignalThatSomebodySentEndsTheProcessToo) {
  auto sent = [] {
    AltStack own = alt_stack();
    Pages watched;
    if (!watched.watch()) ::_exit(1);
    ::raise(SIGSEGV);
    ::_exit(0);
  };
  if (kSanitized)
    EXPECT_DEATH(sent(), "");
  else
    EXPECT_EXIT(sent(), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(SignalDispatchDeathTest, AHandlerInstalledBeforeUsIsChained) {
  EXPECT_EXIT(
      {
        struct sigaction users{};
        users.sa_sigaction = exit_with_42;
        users.sa_flags = SA_SIGINFO;
        raw_sigaction(SIGSEGV, &users, nullptr);
        AltStack own = alt_stack();
        Pages watched;
        Pages foreign;
        if (!watched.watch()) ::_exit(1);
        watched.base[1] = 1;  // our handler first
        if (watched.faults != 1) ::_exit(2);
        foreign.base[1] = 1;
      },
      ::testing::ExitedWithCode(42), "");
}

TEST_F(SignalDispatchDeathTest, TheSignalStackItselfHasAGuard) {
  auto overflow = [] {
    AltStack own = alt_stack();
    Pages pages;
    if (!pages.watch([](void*, void*, bool, int) {
          volatile char* below = static_cast<char*>(__builtin_frame_address(0));
          for (std::size_t i = 0; i <= AltStack::kBytes + kBlockBytes; i += 512) *(below - i) = 1;
          return false;
        }))
      ::_exit(1);
    set_fallback([](int, siginfo_t* info, void*) { ::_exit(info->si_addr ? 42 : 2); });
    pages.base[1] = 1;
    ::_exit(0);
  };
  EXPECT_DEATH(overflow(), "");
}

TEST(AltStack, PutsThePreviousOneBack) {
  stack_t before{}, inner{}, outer{}, after{};
  ::sigaltstack(nullptr, &before);
  {
    AltStack one = alt_stack();
    ::sigaltstack(nullptr, &outer);
    {
      AltStack two = alt_stack();
      ::sigaltstack(nullptr, &inner);
      EXPECT_NE(inner.ss_sp, outer.ss_sp);
      EXPECT_EQ(inner.ss_size, AltStack::kBytes);
      AltStack moved = std::move(two);
    }
    ::sigaltstack(nullptr, &inner);
    EXPECT_EQ(inner.ss_sp, outer.ss_sp);
  }
  ::sigaltstack(nullptr, &after);
  EXPECT_EQ(after.ss_sp, before.ss_sp);
  EXPECT_EQ(after.ss_flags & SS_DISABLE, before.ss_flags & SS_DISABLE);
}

}  // namespace
}  // namespace kasane::traps
