// SPDX-License-Identifier: Apache-2.0
// The program's handlers beside ours. Each test runs in a child (death test), because what it installs cannot
// be taken back.
#include "runtime/process/signals.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "base/call_selector.h"
#include "runtime/report/crash.h"
#include "traps/alt_stack.h"
#include "traps/signal_dispatch.h"

namespace kasane::runtime {
namespace {

constexpr std::uintptr_t kWild = 0x555000;

void touch_wild() {
  auto* const wild = reinterpret_cast<volatile int*>(kWild);
  *wild = 1;
}

sigjmp_buf g_back;
volatile sig_atomic_t g_calls = 0;

void jump_back(int) {
  g_calls = g_calls + 1;
  siglongjmp(g_back, 1);
}
void map_the_page(int, siginfo_t* info, void*) {
  g_calls = g_calls + 1;
  ::mmap(info->si_addr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void install() {
  static auto stack = AltStack::create();
  if (!stack || !install_crash_handlers(Rank{0})) std::abort();
}

[[noreturn]] void pass_if(bool ok) { std::_Exit(ok ? 0 : 1); }

TEST(SignalsDeathTest, AHandlerSetBySignalIsCalledAndMayJumpOut) {
  EXPECT_EXIT(
      {
        install();
        const bool none_before = ::signal(SIGSEGV, jump_back) == SIG_DFL;
        while (g_calls < 3) {
          if (sigsetjmp(g_back, 1) == 0) touch_wild();
        }
        pass_if(none_before && g_calls == 3 && ::signal(SIGSEGV, SIG_DFL) == jump_back);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, AHandlerWithInformationMayRepairAndReturn) {
  EXPECT_EXIT(
      {
        install();
        struct sigaction action = {};
        action.sa_sigaction = map_the_page;
        action.sa_flags = SA_SIGINFO;
        if (::sigaction(SIGSEGV, &action, nullptr) != 0) pass_if(false);
        touch_wild();
        pass_if(g_calls == 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, AHandlerFromBeforeIsKept) {
  EXPECT_EXIT(
      {
        ::signal(SIGSEGV, jump_back);
        install();
        if (sigsetjmp(g_back, 1) == 0) touch_wild();
        pass_if(g_calls == 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, TheKernelKeepsOurHandler) {
  EXPECT_EXIT(
      {
        install();
        struct sigaction before = {};
        struct sigaction after = {};
        traps::raw_sigaction(SIGSEGV, nullptr, &before);
        ::signal(SIGSEGV, jump_back);
        traps::raw_sigaction(SIGSEGV, nullptr, &after);
        pass_if(before.sa_sigaction == after.sa_sigaction);
      },
      testing::ExitedWithCode(0), "");
}

void count_calls(int) { g_calls = g_calls + 1; }
volatile int g_value = 0;
[[maybe_unused]] void keep_value(int, siginfo_t* info, void*) {
  g_calls = g_calls + 1;
  g_value = info->si_value.sival_int;
}

[[maybe_unused]] void install_for(int signal, int flags, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  if (::sigaction(signal, &action, nullptr) != 0) std::abort();
}

#if !defined(KASANE_SANITIZER_THREAD)  // which calls handlers when it likes, with a copy of the context

TEST(SignalsDeathTest, AHandlerWaitsUntilTheRuntimeIsLeft) {
  for (const int flags : {0, static_cast<int>(SA_NODEFER), static_cast<int>(SA_RESETHAND)}) {
    EXPECT_EXIT(
        {
          install();
          install_for(SIGRTMIN + 1, flags, keep_value);
          {
            const PassedCalls outer;
            {
              const PassedCalls inner;
              sigval value;
              value.sival_int = 7;
              ::pthread_sigqueue(::pthread_self(), SIGRTMIN + 1, value);
            }
            if (g_calls != 0) pass_if(false);
            {
              const OpenForSignals waits;
              if (g_calls != 1) pass_if(false);
            }
          }
          struct sigaction seen = {};
          ::sigaction(SIGRTMIN + 1, nullptr, &seen);
          const bool reset = (flags & static_cast<int>(SA_RESETHAND)) != 0;
          sigset_t mask;
          ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
          pass_if(g_calls == 1 && g_value == 7 && (seen.sa_handler == SIG_DFL) == reset &&
                  sigismember(&mask, SIGRTMIN + 1) == 0 && deferred_signals() == 0);
        },
        testing::ExitedWithCode(0), "")
        << flags;
  }
}

/// A handler that the runtime's end lets run interrupts another one's stay in the runtime, and so on.
void raises_in_the_runtime(int signal, siginfo_t*, void*) {
  g_calls = g_calls + 1;
  const PassedCalls passed;
  if (signal < SIGRTMIN + 10) std::raise(signal + 1);
}

TEST(SignalsDeathTest, HandlersThatWaitedNest) {
  EXPECT_EXIT(
      {
        install();
        for (int signal = SIGRTMIN + 1; signal <= SIGRTMIN + 10; ++signal)
          install_for(signal, 0, raises_in_the_runtime);
        {
          const PassedCalls passed;
          std::raise(SIGRTMIN + 1);
          std::raise(SIGRTMIN + 5);
        }
        sigset_t mask;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        bool blocked = false;
        for (int signal = SIGRTMIN + 1; signal <= SIGRTMIN + 10; ++signal)
          blocked |= sigismember(&mask, signal) == 1;
        pass_if(g_calls == 16 && !blocked && deferred_signals() == 0);
      },
      testing::ExitedWithCode(0), "");
}

#endif

TEST(SignalsDeathTest, WhatCannotWaitDoesNot) {
  EXPECT_EXIT(
      {
        install();
        ::signal(SIGABRT, [](int) { pass_if(true); });
        const PassedCalls passed;
        std::abort();
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, NoHandlerRunsWhenTheJobHasEnded) {
  EXPECT_EXIT(
      {
        install();
        ::signal(SIGUSR1, count_calls);
        end_signal_handlers();
        std::raise(SIGUSR1);
        pass_if(g_calls == 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, AOneShotHandlerIsCalledOnce) {
  EXPECT_EXIT(
      {
        install();
        struct sigaction action = {};
        action.sa_handler = jump_back;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(SIGSEGV, &action, nullptr);
        if (sigsetjmp(g_back, 1) == 0) touch_wild();
        if (sigsetjmp(g_back, 1) == 0) touch_wild();
      },
      testing::KilledBySignal(SIGSEGV), "SIGSEGV at address 0x555000");
}

TEST(SignalsDeathTest, AnIgnoredFaultStillEndsTheProcess) {
  EXPECT_EXIT(
      {
        install();
        ::signal(SIGSEGV, SIG_IGN);
        touch_wild();
      },
      testing::KilledBySignal(SIGSEGV), "SIGSEGV");
}

TEST(SignalsDeathTest, TheMaskOfTheHandlerIsTheInterruptedOneAndItsOwn) {
  EXPECT_EXIT(
      {
        install();
        struct sigaction action = {};
        action.sa_sigaction = [](int, siginfo_t* info, void*) {
          sigset_t now;
          ::sigprocmask(SIG_BLOCK, nullptr, &now);
          if (::sigismember(&now, SIGUSR1) != 1 || ::sigismember(&now, SIGUSR2) != 0) std::_Exit(2);
          ::mmap(info->si_addr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        };
        action.sa_flags = SA_SIGINFO;
        ::sigaddset(&action.sa_mask, SIGUSR1);
        ::sigaction(SIGSEGV, &action, nullptr);
        touch_wild();
        sigset_t after;
        ::sigprocmask(SIG_BLOCK, nullptr, &after);
        pass_if(::sigismember(&after, SIGUSR1) == 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, OtherHandlersRunOnTheAlternateStack) {
  EXPECT_EXIT(
      {
        static auto stack = AltStack::create();
        if (!stack || !install_crash_handlers(Rank{0})) std::abort();
        static volatile sig_atomic_t on_it = 0;
        ::signal(SIGUSR1, [](int) {
          stack_t now;
          on_it = ::sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_ONSTACK) != 0 ? 1 : 0;
        });
        ::raise(SIGUSR1);
        pass_if(on_it == 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalsDeathTest, BadArgumentsAreRefusedAsInLibc) {
  EXPECT_EXIT(
      {
        install();
        const struct sigaction action = {};
        pass_if(::signal(SIGSEGV, SIG_ERR) == SIG_ERR && ::signal(SIGKILL, SIG_IGN) == SIG_ERR &&
                ::sigaction(9999, &action, nullptr) == -1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kasane::runtime
