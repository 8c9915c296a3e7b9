// SPDX-License-Identifier: Apache-2.0
// What a dying process says. Death tests run the handlers in children of this process.
#include "runtime/report/crash.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "diagnostics/demangle.h"
#include "diagnostics/job_status.h"
#include "runtime/rank/crash_text.h"
#include "runtime/rank/process_state.h"
#include "runtime/report/crash_stack.h"
#include "runtime/report/suspended_stack.h"
#include "traps/alt_stack.h"

namespace kasane::runtime {

// Not in the anonymous namespace and not inlined: their names are looked for in stack traces.
[[gnu::noinline]] void crash_test_outer(void (*f)()) {
  f();
  asm volatile("" ::: "memory");  // no tail call: this frame stays
}
[[gnu::noinline]] void crash_test_wild_store() {
  *reinterpret_cast<volatile int*>(std::uintptr_t{0x777000}) = 1;
}
[[gnu::noinline]] void crash_test_wild_jump() {
  reinterpret_cast<void (*)()>(std::uintptr_t{0x66})();
  asm volatile("" ::: "memory");
}
/// Its unwind information says that the frame's address is in memory at 0.
[[gnu::noinline]] void crash_test_bad_frame() {
  asm volatile(
      ".cfi_remember_state\n\t"
      ".cfi_escape 0x0f, 2, 0x30, 0x06\n\t"
      "movl $1, 0x777000\n"
      ".globl crash_test_in_bad_frame\n"
      "crash_test_in_bad_frame:\n\t"
      ".cfi_restore_state" ::
          : "memory");
}
extern "C" const char crash_test_in_bad_frame[];
[[gnu::noinline]] void crash_test_recurse(std::uint32_t depth, Backtrace& out) {
  if (depth == 0) {
    unwind(nullptr, out);
  } else {
    crash_test_recurse(depth - 1, out);
  }
  asm volatile("" ::: "memory");
}

namespace {

std::string text_of(const CrashText& text) { return {text.data(), text.size()}; }

std::string describe(const Frame& frame) {
  CrashText text;
  runtime::describe(text, frame);
  return diagnostics::demangle_all(text_of(text));
}

void install() {
  static auto stack = AltStack::create();
  ASSERT_TRUE(stack.has_value());
  ASSERT_TRUE(install_crash_handlers(Rank{0}).has_value());
}

TEST(CrashText, WritesNumbersOfEverySize) {
  CrashText text;
  text.decimal(0)
      .add(" ")
      .decimal(std::numeric_limits<std::uint64_t>::max())
      .add(" ")
      .signed_decimal(std::numeric_limits<std::int64_t>::min());
  text.add(" ").signed_decimal(-7).add(" ").hex(0).add(" ").hex(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(text_of(text), "0 18446744073709551615 -9223372036854775808 -7 0x0 0xffffffffffffffff");
}

TEST(CrashText, CutsWhatDoesNotFit) {
  CrashText text;
  for (int i = 0; i < 1000; ++i) text.add("0123456789");
  EXPECT_EQ(text.size(), 512u);
  EXPECT_EQ(text_of(text).substr(510), "01");
}

TEST(CrashStack, FramesHaveNamesAlsoOfStaticFunctions) {
  Backtrace trace;
  crash_test_recurse(0, trace);
  ASSERT_GE(trace.count, 2u);
  EXPECT_EQ(trace.stack_pointer, 0u) << "no signal interrupted this";
  const auto named = [&](const std::string& name) {
    return std::any_of(trace.frames, trace.frames + trace.count,
                       [&](const Frame& f) { return describe(f).find(name) != std::string::npos; });
  };
  EXPECT_TRUE(named("kasane::runtime::crash_test_recurse"));
  EXPECT_TRUE(named("main+"));
}

TEST(CrashStack, ARecursionIsOneLine) {
  Backtrace trace;
  crash_test_recurse(1000, trace);
  const auto frame =
      std::find_if(trace.frames, trace.frames + trace.count, [](const Frame& f) { return f.times > 1; });
  ASSERT_NE(frame, trace.frames + trace.count);
  EXPECT_GE(frame->times, 900u);
  EXPECT_LT(trace.count, kMaxFrames) << "and what is above it is still there";
}

// A thread ran while its stack was copied: what lies at its stack pointer is no saved context.
TEST(CrashStack, AStaleCopyOfAStackEndsTheTrace) {
  install();
  alignas(16) static std::uintptr_t words[64];
  std::fill(std::begin(words), std::end(words), reinterpret_cast<std::uintptr_t>(crash_test_in_bad_frame));
  SuspendedStack stack(1 << 16);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        stack.copy(reinterpret_cast<std::uintptr_t>(words), reinterpret_cast<std::uintptr_t>(words + 64)));
    Backtrace trace;
    stack.unwind(trace);
    EXPECT_LE(trace.count, 1u);
  }
}

TEST(CrashStack, AnAddressWithoutCodeSaysSo) {
  EXPECT_NE(describe({0x66, true, 1}).find("no code is mapped there"), std::string::npos);
}

TEST(Demangle, ReplacesNamesAndKeepsTheRest) {
  EXPECT_EQ(diagnostics::demangle_all("#1 0x12 _ZN6kasane3fooEi+0x3 (/a/b_Z+0x1)"),
            "#1 0x12 kasane::foo(int)+0x3 (/a/b_Z+0x1)");
  EXPECT_EQ(diagnostics::demangle_all("main+0x1"), "main+0x1");
  EXPECT_EQ(diagnostics::demangle_all(""), "");
  EXPECT_EQ(diagnostics::demangle_all("_Z"), "_Z");
}

TEST(Demangle, LongNamesLoseTheirArguments) {
  // A::operator<< <T>(T) and void A::operator()<T>(T), of a map of strings to vectors
  const std::string map =
      "St3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt6vectorIdSaIdEESt4lessIS5_"
      "ESaISt4pairIKS5_"
      "S8_EEE";
  EXPECT_EQ(diagnostics::demangle_all("_ZN1AlsI" + map + "EERS_T_ +0x1"), "A& A::operator<< <…>(…) +0x1");
  EXPECT_EQ(diagnostics::demangle_all("_ZN1AclI" + map + "EEvT_"), "void A::operator()<…>(…)");
  EXPECT_EQ(diagnostics::demangle_all("_ZNK3BarclEv"), "Bar::operator()() const");
  EXPECT_EQ(diagnostics::readable_name("_ZN3foo3barEil", 10), "foo::bar(…)");
  EXPECT_EQ(diagnostics::readable_name("on_all<run(int)::<lambda(int)> >", 10), "on_all<…>");
  EXPECT_EQ(diagnostics::readable_name("main", 3), "main");
}

using CrashDeathTest = testing::Test;

TEST(CrashDeathTest, AWildStoreNamesAddressAndFunctions) {
  EXPECT_EXIT(
      {
        install();
        crash_test_outer(crash_test_wild_store);
      },
      testing::KilledBySignal(SIGSEGV),
      "SIGSEGV at address 0x777000(.|\n)*crash_test_wild_store(.|\n)*crash_test_outer");
}

TEST(CrashDeathTest, AReportOutlivesACrashOfTheUnwinder) {
  EXPECT_EXIT(
      {
        install();
        crash_test_outer(crash_test_bad_frame);
      },
      testing::KilledBySignal(SIGSEGV), "SIGSEGV at address 0x777000(.|\n)*crash_test_bad_frame");
}

TEST(CrashDeathTest, AWildJumpNamesItsCaller) {
  EXPECT_EXIT(
      {
        install();
        crash_test_outer(crash_test_wild_jump);
      },
      testing::KilledBySignal(SIGSEGV),
      "address 0x66(.|\n)*no code is mapped(.|\n)*crash_test_wild_jump(.|\n)*crash_test_outer");
}

TEST(CrashDeathTest, AnAbortIsReported) {
  EXPECT_EXIT(
      {
        install();
        crash_test_outer(std::abort);
      },
      testing::KilledBySignal(SIGABRT), "SIGABRT\n[^\n]*#0 [^\n]*crash_test_outer");
}

TEST(CrashDeathTest, AMissingPageOfAFileIsReported) {
  EXPECT_EXIT(
      {
        install();
        const int fd = ::memfd_create("test", 0);
        auto* p = static_cast<volatile char*>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
        [[maybe_unused]] const char c = *p;
      },
      testing::KilledBySignal(SIGBUS), "SIGBUS at address");
}

TEST(CrashDeathTest, AnAccessIntoTheSpaceIsExplained) {
  EXPECT_EXIT(
      {
        install();
        set_process({.rank = Rank{3},
                     .ranks = 4,
                     .space_base = reinterpret_cast<std::byte*>(0x700000),
                     .space_bytes = 1 << 20});
        crash_test_wild_store();
      },
      testing::KilledBySignal(SIGSEGV),
      "rank 3(.|\n)*in the global space, at offset 0x77000, where nothing is allocated");
}

TEST(CrashDeathTest, AReportedWildAccessEndsTheProcess) {
  EXPECT_EXIT(
      {
        install();
        report_wild_access(reinterpret_cast<void*>(0x123000), true, "because the test says so");
      },
      testing::KilledBySignal(SIGSEGV), "store to 0x123000(.|\n)*because the test says so");
}

TEST(CrashDeathTest, UnderASupervisorTheReportGoesToTheStatusPage) {
  auto status = diagnostics::JobStatus::create(2);
  ASSERT_TRUE(status.has_value());
  EXPECT_EXIT(
      {
        install();
        set_process({.rank = Rank{1}, .ranks = 2, .status = &status->of(Rank{1})});
        crash_test_wild_store();
      },
      testing::KilledBySignal(SIGSEGV), "^$");
  EXPECT_EQ(status->of(Rank{1}).signal.load(), SIGSEGV);
  EXPECT_NE(std::string(status->of(Rank{1}).text()).find("crash_test_wild_store"), std::string::npos);
  EXPECT_EQ(status->of(Rank{0}).text(), "");
}

TEST(RankStatus, AReportThatDoesNotFitIsCut) {
  auto status = diagnostics::JobStatus::create(1);
  ASSERT_TRUE(status.has_value());
  diagnostics::RankStatus& rank = status->of(Rank{0});
  for (int i = 0; i < 5000; ++i) rank.append("0123456789");
  EXPECT_EQ(rank.text().size(), sizeof rank.report);
  EXPECT_EQ(rank.text().substr(0, 12), "012345678901");
}

}  // namespace
}  // namespace kasane::runtime
