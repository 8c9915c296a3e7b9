// SPDX-License-Identifier: Apache-2.0
// However a process ends or fails while it replaces a checkpoint, the file is wholly the old one or wholly
// the new one. All cases: a traced child replaces it, and is killed before its k-th system call, or has its
// k-th call fail, for every k.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fixtures.h"

namespace kasane::checkpoint {
namespace {

const Bytes kOld = pattern(2 * kChunkBytes + 1, 1), kNew = pattern(3 * kChunkBytes + 7, 2);

/// Status of the child: 0: saved; 10 + errno: it failed with that.
[[noreturn]] void replace(const std::string& path, bool named) {
  ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  ::raise(SIGSTOP);  // the parent traces from here on, and counts the calls
  const auto saved = save(path, kNew, 2, named);
  ::_exit(saved ? 0 : saved.error().code == 0 || saved.error().text.empty() ? 9 : 10 + saved.error().code);
}

/// Lets the child run to the next stop at a system call; false: it has ended.
bool next_stop(pid_t child, int& status) {
  ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  return ::waitpid(child, &status, 0) == child && WIFSTOPPED(status);
}

struct Outcome {
  int status = 0;
  long call = -1;  ///< the call that was killed or failed; -1: there was no k-th call
};

/// number 0: the child is killed before its k-th call; else that call fails with `number`.
Outcome run_with(const std::string& path, bool named, int k, int number) {
  const pid_t child = ::fork();
  if (child == 0) replace(path, named);
  Outcome o;
  ::waitpid(child, &o.status, 0);
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL);
  for (int i = 0; next_stop(child, o.status); ++i) {  // before a call, …
    if (i == k) {
      user_regs_struct regs{};
      ::ptrace(PTRACE_GETREGS, child, nullptr, &regs);
      if (regs.orig_rax == SYS_exit_group) {
        ::ptrace(PTRACE_CONT, child, nullptr, nullptr);
        ::waitpid(child, &o.status, 0);
        return o;
      }
      o.call = static_cast<long>(regs.orig_rax);
      if (number == 0) {
        ::kill(child, SIGKILL);
        ::waitpid(child, &o.status, 0);
        return o;
      }
      regs.orig_rax = static_cast<unsigned long long>(-1);  // no call at all
      ::ptrace(PTRACE_SETREGS, child, nullptr, &regs);
      if (!next_stop(child, o.status)) return o;
      ::ptrace(PTRACE_GETREGS, child, nullptr, &regs);
      regs.rax = static_cast<unsigned long long>(-static_cast<long long>(number));
      ::ptrace(PTRACE_SETREGS, child, nullptr, &regs);
      ::ptrace(PTRACE_CONT, child, nullptr, nullptr);
      ::waitpid(child, &o.status, 0);
      return o;
    }
    if (!next_stop(child, o.status)) return o;  // … and after it
  }
  return o;
}

class CheckpointFaults : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the sanitizer has a thread of its own";
#endif
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) GTEST_SKIP() << "ptrace is not allowed here";
  }
  Folder folder_;
};

TEST_P(CheckpointFaults, KilledAnywhereTheFileIsTheOldOneOrTheNewOne) {
  int replaced = 0, kept = 0, strays = 0;
  for (int k = 0;; ++k) {
    ASSERT_LT(k, 1000);
    ASSERT_TRUE(save(folder_.file(), kOld, 1));
    ASSERT_EQ(folder_.names(), std::vector<std::string>{"c"}) << "before system call " << k;
    const Outcome o = run_with(folder_.file(), GetParam(), k, 0);
    if (o.call < 0) {
      EXPECT_EQ(o.status, 0);
      break;
    }
    const auto found = load(folder_.file());
    ASSERT_TRUE(found) << "killed before system call " << k << " (number " << o.call
                       << "): " << found.error().text;
    const bool is_new = *found == kNew;
    EXPECT_TRUE(is_new || *found == kOld) << k;
    EXPECT_FALSE(kept > 0 && replaced > 0 && !is_new) << "it became the old one again";
    (is_new ? replaced : kept)++;
    strays += static_cast<int>(folder_.names().size()) - 1;
  }
  EXPECT_GE(kept, 6);      // open, mark, three chunks, …
  EXPECT_GE(replaced, 1);  // flushing the directory
  EXPECT_EQ(*load(folder_.file()), kNew);
  if (GetParam())
    EXPECT_GE(strays, 1);
  else
    EXPECT_LE(strays, 1);  // between link and rename
}

TEST_P(CheckpointFaults, AnyCallMayFailAndTheErrorIsToldAndNothingIsLost) {
  for (const int number : {EIO, ENOSPC, EDQUOT}) {
    int failures = 0;
    for (int k = 0;; ++k) {
      ASSERT_LT(k, 1000);
      ASSERT_TRUE(save(folder_.file(), kOld, 1));
      const Outcome o = run_with(folder_.file(), GetParam(), k, number);
      if (o.call < 0) break;
      if (o.call == SYS_brk || o.call == SYS_mmap || o.call == SYS_munmap) continue;  // malloc's
      ASSERT_TRUE(WIFEXITED(o.status)) << "call " << k << " (number " << o.call << "): status " << o.status;
      const int code = WEXITSTATUS(o.status);
      EXPECT_TRUE(code == 0 || code == 10 + number || (o.call == SYS_getrandom && code == 10 + EIO))
          << "call " << k << " (number " << o.call << "): " << code;
      const auto found = load(folder_.file());
      ASSERT_TRUE(found) << "call " << k << " (number " << o.call << "): " << found.error().text;
      EXPECT_TRUE(*found == kOld || *found == kNew);
      EXPECT_TRUE(code != 0 || *found == kNew)
          << "call " << k << " (number " << o.call << ") failed, and nobody said so";
      for (const long essential : {SYS_pwrite64, SYS_ftruncate, SYS_rename, SYS_fsync})
        EXPECT_TRUE(o.call != essential || code != 0) << "call " << k;
      failures += code != 0;
      EXPECT_EQ(folder_.names().size(), 1u) << "call " << k << " (number " << o.call << ") left something";
    }
    EXPECT_GE(failures, 7);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CheckpointFaults, ::testing::Bool(),
                         [](const auto& named) { return named.param ? "Named" : "Nameless"; });

}  // namespace
}  // namespace kasane::checkpoint
