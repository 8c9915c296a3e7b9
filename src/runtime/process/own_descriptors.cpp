// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/own_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/call_selector.h"
#include "base/raw_call.h"
#include "runtime/rank/own_code.h"

namespace kasane::runtime {
namespace {

constexpr std::uint32_t kNumbers = 1 << 16;  ///< higher ones are not marked
/// The kernel's table of a process has 8 bytes a number, up to the highest that is open.
constexpr std::uint64_t kFirst = 4096;

constexpr int kMostTries = 10'000;  ///< a second

constinit std::atomic<int> g_lock_holder{0};  ///< of the lock: the OS thread
/// Bit n: number n is the runtime's.
constinit std::atomic<std::uint64_t> g_own[kNumbers / 64] = {};
constinit bool g_of_libraries = false;
// Read and written in this file's functions alone, in which no context switch happens (rule 13).
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_started_by_runtime = false;

std::uint64_t bit_of(std::uint32_t number) noexcept { return std::uint64_t{1} << number % 64; }

/// The first of the runtime's from `first` on; kNumbers: none.
std::uint32_t next_own(std::uint64_t first) noexcept {
  for (std::uint64_t n = first; n < kNumbers; n = (n / 64 + 1) * 64) {
    // relaxed: under the lock, but in concerns_descriptors(), where it says what to look at under the lock
    const std::uint64_t word = g_own[n / 64].load(std::memory_order_relaxed) >> n % 64;
    if (word != 0) return static_cast<std::uint32_t>(n) + static_cast<std::uint32_t>(__builtin_ctzll(word));
  }
  return kNumbers;
}
/// An int, as the kernel takes it: the upper half of the register may hold anything.
bool is_own(long number) noexcept {
  const auto n = static_cast<std::uint32_t>(number);
  return n < kNumbers && (g_own[n / 64].load(std::memory_order_relaxed) & bit_of(n)) != 0;
}

/// A copy beyond the limit, which is raised for its time where that is needed and allowed; -errno.
long copy_up(int descriptor) noexcept {
  rlimit files{};
  raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, reinterpret_cast<long>(&files));
  const rlim_t room = std::max<rlim_t>(64, files.rlim_max / 4);
  const rlim_t most = files.rlim_max > room ? files.rlim_max - room : 0;
  const std::uint64_t first = std::min({std::uint64_t{kFirst}, std::max<rlim_t>(files.rlim_cur, 1024), most});
  const rlimit higher{files.rlim_max, files.rlim_max};
  const bool raises = files.rlim_cur < files.rlim_max && files.rlim_cur < 2 * kFirst;
  if (raises) raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, reinterpret_cast<long>(&higher));
  const long number = raw_call(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, static_cast<long>(first));
  if (raises) raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, reinterpret_cast<long>(&files));
  return number;
}

}  // namespace

void own_descriptors_of_libraries() noexcept { g_of_libraries = true; }

bool runs_runtime() noexcept {
  return calls() == Calls::passed || (t_started_by_runtime && calls() == Calls::open);
}
void note_thread_of_runtime() noexcept { t_started_by_runtime = true; }

// release: the bits and the limit.
void unlock_descriptors() noexcept { g_lock_holder.store(0, std::memory_order_release); }

// A handler that has interrupted the holder does not wait for it, and nobody waits for ever.
DescriptorLock::DescriptorLock(bool wanted) noexcept {
  if (!wanted) return;
  const auto self = static_cast<int>(traps::issue_call(SYS_gettid, {}));
  for (int tries = 0; tries < kMostTries; ++tries) {
    int holder = 0;
    // acquire, release: the bits and the limit
    held_ = g_lock_holder.compare_exchange_strong(holder, self, std::memory_order_acquire);
    if (held_ || holder == self) return;
    const timespec nap{0, tries < 100 ? 0 : 100'000};
    traps::issue_call(SYS_nanosleep, {reinterpret_cast<long>(&nap), 0, 0, 0, 0, 0});
  }
}
DescriptorLock::~DescriptorLock() {
  if (held_) unlock_descriptors();
}

OwnDescriptors::OwnDescriptors(const void* caller) noexcept
    : own_(runs_runtime() && (g_of_libraries || is_code_of_runtime(caller))), lock_(own_) {}

int OwnDescriptors::operator()(int opened) const noexcept {
  if (opened < 0 || !own_) return opened;
  const long copy = copy_up(opened);
  const int number = copy >= 0 && copy < kNumbers ? static_cast<int>(copy) : opened;
  if (copy >= 0) raw_call(SYS_close, number == opened ? copy : opened);
  if (number < static_cast<int>(kNumbers))
    g_own[number / 64].fetch_or(bit_of(static_cast<std::uint32_t>(number)), std::memory_order_relaxed);
  return number;
}

int OwnDescriptors::operator()(int answer, int* two) const noexcept {
  for (int i = 0; answer == 0 && i < 2; ++i) two[i] = (*this)(two[i]);
  return answer;
}

void OwnDescriptors::forget(int number) noexcept {
  if (is_own(number))
    g_own[number / 64].fetch_and(~bit_of(static_cast<std::uint32_t>(number)), std::memory_order_relaxed);
}

bool concerns_descriptors(const traps::CaughtCall& call) noexcept {
  switch (call.number) {
    case SYS_close:
    case SYS_close_range:
    case SYS_dup2:
    case SYS_dup3: return true;
    case SYS_dup:
    case SYS_fcntl: return is_own(call.argument[0]);
    default: return false;
  }
}

namespace {

long close_others(const traps::CaughtCall& call) noexcept {
  const std::uint64_t last = static_cast<std::uint32_t>(call.argument[1]);
  for (std::uint64_t first = static_cast<std::uint32_t>(call.argument[0]); first <= last;) {
    const std::uint64_t own = next_own(first), end = own < kNumbers && own <= last ? own : last + 1;
    const long result =
        end == first
            ? 0
            : traps::issue_call(SYS_close_range, {static_cast<long>(first), static_cast<long>(end - 1),
                                                  call.argument[2], 0, 0, 0});
    if (result < 0) return result;
    first = end + 1;
  }
  return 0;
}

long replace(const traps::CaughtCall& call) noexcept {
  if (!is_own(call.argument[1])) return traps::issue_call(call.number, call.argument);
  rlimit files{};
  traps::issue_call(SYS_prlimit64, {0, RLIMIT_NOFILE, 0, reinterpret_cast<long>(&files), 0, 0});
  return static_cast<std::uint32_t>(call.argument[1]) >= files.rlim_cur ? -EBADF : -EBUSY;
}

}  // namespace

long call_beside_own(const traps::CaughtCall& call, long (*make)(long, const long (&)[6]) noexcept) noexcept {
  {
    const DescriptorLock lock;
    if (call.number == SYS_close_range) return close_others(call);
    if (is_own(call.argument[0])) return -EBADF;
    if (call.number == SYS_dup2 || call.number == SYS_dup3) return replace(call);
    const long open = traps::issue_call(SYS_fcntl, {call.argument[0], F_GETFD, 0, 0, 0, 0});
    if (open < 0) return open;
  }
  return make(call.number, call.argument);
}

}  // namespace kasane::runtime
