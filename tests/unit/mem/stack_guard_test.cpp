// SPDX-License-Identifier: Apache-2.0
#include "mem/stack_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "fixtures.h"
#include "mem/mappings.h"
#include "older_kernel.h"
#include "traps/alt_stack.h"
#include "traps/signal_dispatch.h"

namespace kasane::mem {
namespace {

constexpr std::size_t kSlotBytes = 4 * kPageBytes;

class StackGuard : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engines, StackGuard, ::testing::ValuesIn(engines_here()), engine_test_name);

bool refuse(void*, std::uint64_t, Access, Served) { return false; }

TEST_P(StackGuard, MarkersMakeNoMappings) {
  if (!guards_available()) GTEST_SKIP() << "no guard markers on this kernel";
  Space space = make_space(2048 * kPageBytes);
  auto engine = make_engine(GetParam(), space);
  ASSERT_TRUE(engine->protect({BlockId{0}, space.blocks()}, Access::write));
  const std::uint64_t before = count_mappings();
  for (std::uint64_t page = 0; page < 2048; ++page) ASSERT_TRUE(install_guard(space.v(page * kPageBytes)));
  EXPECT_LE(count_mappings(), before + 2);
}

TEST_P(StackGuard, AMarkerOutlivesChangesOfRights) {
  if (!guards_available()) GTEST_SKIP() << "no guard markers on this kernel";
  EXPECT_EXIT(
      {
        auto stack = traps::AltStack::create();
        Space space = make_space(kPageBytes);
        auto engine = make_engine(GetParam(), space);
        if (!stack || !engine->start(refuse, nullptr)) ::_exit(1);
        if (!install_guard(space.v(0))) ::_exit(2);  // without any access rights
        for (Access access : {Access::write, Access::read, Access::write})
          if (!engine->protect({BlockId{0}, space.blocks()}, access)) ::_exit(3);
        *space.a(0) = std::byte{1};  // the alias is not guarded
        *reinterpret_cast<volatile char*>(space.v(kBlockBytes)) = 1;
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(42); });
        *reinterpret_cast<volatile char*>(space.v(kBlockBytes - 1)) = 1;
        ::_exit(4);
      },
      ::testing::ExitedWithCode(42), "");
}

// An engine may shut out by markers of its own, and removes all markers when it lets in again: the code that
// arms a stack installs its guard again.
TEST_P(StackGuard, AMarkerInstalledAfterArmingIsThere) {
  if (!guards_available()) GTEST_SKIP() << "no guard markers on this kernel";
  EXPECT_EXIT(
      {
        auto stack = traps::AltStack::create();
        Space space = make_space(kPageBytes);
        auto engine = make_engine(GetParam(), space);
        if (!stack || !engine->start(refuse, nullptr)) ::_exit(1);
        for (int round = 0; round < 3; ++round) {
          for (Access access : {Access::write, Access::none, Access::read, Access::none, Access::write})
            if (!engine->protect({BlockId{0}, space.blocks()}, access)) ::_exit(3);
          if (!install_guard(space.v(0))) ::_exit(2);
          for (std::size_t block = 1; block < space.blocks(); ++block)
            *reinterpret_cast<volatile char*>(space.v(block * kBlockBytes)) = 1;
        }
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(42); });
        *reinterpret_cast<volatile char*>(space.v(kBlockBytes - 1)) = 1;
        ::_exit(4);
      },
      ::testing::ExitedWithCode(42), "");
}

TEST_P(StackGuard, WithoutMarkersGuardsWorkUpToABound) {
  // A process of its own from the start: this one may have probed already.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        // MADV_GUARD_INSTALL is an unknown advice there.
        if (!refuse_system_call(SYS_madvise, 2, 102, EINVAL) || guards_available()) ::_exit(1);
        auto stack = traps::AltStack::create();
        Space space = make_space((kFallbackGuards + 1) * kPageBytes);
        auto engine = make_engine(GetParam(), space);
        if (!stack || !engine->start(refuse, nullptr)) ::_exit(2);
        if (!engine->protect({BlockId{0}, space.blocks()}, Access::write)) ::_exit(3);
        for (std::uint64_t page = 0; page < kFallbackGuards; ++page)
          if (!install_guard(space.v(page * kPageBytes))) ::_exit(4);
        const std::uint64_t mappings = count_mappings();
        if (install_guard(space.v(kFallbackGuards * kPageBytes)) || count_mappings() != mappings) ::_exit(5);
        *reinterpret_cast<volatile char*>(space.v(kFallbackGuards * kPageBytes)) = 1;
        traps::set_fallback([](int, siginfo_t*, void*) { ::_exit(42); });
        *reinterpret_cast<volatile char*>(space.v((kFallbackGuards - 1) * kPageBytes)) = 1;
        ::_exit(6);
      },
      ::testing::ExitedWithCode(42), "");
  ::testing::FLAGS_gtest_death_test_style = "fast";
}

[[gnu::noinline]] int recurse(int depth) {
  volatile char frame[512];
  frame[0] = static_cast<char>(depth);
  return depth < 0 ? 0 : recurse(depth + 1) + frame[0];
}

char* guard_page;

void* overflow(void*) {
  auto stack = traps::AltStack::create();
  if (!stack) ::_exit(5);
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(recurse(0)));
}

// A thread whose stack is a slot in V, and whose recursion never returns.
TEST_P(StackGuard, AnOverflowIsFoundAtTheGuard) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's stacks are larger";
  EXPECT_EXIT(
      {
        Space space = make_space(2 * kSlotBytes);
        auto engine = make_engine(GetParam(), space);
        if (!engine->start(refuse, nullptr)) ::_exit(1);
        if (!engine->protect({BlockId{0}, space.blocks()}, Access::write)) ::_exit(2);
        guard_page = reinterpret_cast<char*>(space.v(kSlotBytes));
        if (!install_guard(space.v(kSlotBytes))) ::_exit(3);
        traps::set_fallback([](int, siginfo_t* info, void*) {
          const auto distance = static_cast<char*>(info->si_addr) - guard_page;
          ::_exit(distance >= 0 && distance < static_cast<std::ptrdiff_t>(kBlockBytes) ? 42 : 6);
        });
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, space.v(kSlotBytes + kBlockBytes), kSlotBytes - kBlockBytes);
        pthread_t thread;
        if (pthread_create(&thread, &attributes, overflow, nullptr) != 0) ::_exit(4);
        pthread_join(thread, nullptr);
        ::_exit(0);
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace kasane::mem
