// SPDX-License-Identifier: Apache-2.0
#include "runtime/own_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/call_selector.h"
#include "base/raw_call.h"
#include "runtime/waits.h"

namespace kasane::runtime {
namespace {

constexpr std::uint32_t kNumbers = 1 << 16;  ///< higher ones are not marked
/// The kernel's table of a process has 8 bytes a number, up to the highest that is open.
constexpr std::uint64_t kFirst = 4096;

/// Bit n: number n is the runtime's.
constinit std::atomic<std::uint64_t> g_own[kNumbers / 64] = {};
constinit bool g_of_libraries = false;
// Read and written in this file's functions alone, in which no context switch happens (rule 13).
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_started_by_runtime = false;

std::uint64_t bit_of(std::uint32_t number) noexcept { return std::uint64_t{1} << number % 64; }

/// The first of the runtime's from `first` on; kNumbers: none.
std::uint32_t next_own(std::uint64_t first) noexcept {
  for (std::uint64_t n = first; n < kNumbers; n = (n / 64 + 1) * 64) {
    // relaxed: who opens a descriptor and who closes all of them race as they like
    const std::uint64_t word = g_own[n / 64].load(std::memory_order_relaxed) >> n % 64;
    if (word != 0) return static_cast<std::uint32_t>(n) + static_cast<std::uint32_t>(__builtin_ctzll(word));
  }
  return kNumbers;
}
/// An int, as the kernel takes it: the upper half of the register may hold anything.
bool is_own(long number) noexcept {
  const auto n = static_cast<std::uint32_t>(number);
  return n < kNumbers && next_own(n) == n;
}

long copy_from(int descriptor, std::uint64_t first) noexcept {
  return raw_call(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, static_cast<long>(first));
}

/// A copy at kFirst or beyond, or where the limits allow it; -errno. The limit is raised for its time: one
/// thread at a time, and no waiting, since a handler may have interrupted the other one.
long copy_up(int descriptor) noexcept {
  static constinit std::atomic_flag raised;
  rlimit files{};
  if (raised.test_and_set(std::memory_order_acquire)) return copy_from(descriptor, kFirst);
  raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, reinterpret_cast<long>(&files));
  const rlim_t room = std::max<rlim_t>(64, files.rlim_max / 4);
  const rlim_t most = files.rlim_max > room ? files.rlim_max - room : 0;
  const std::uint64_t first = std::min({std::uint64_t{kFirst}, std::max<rlim_t>(files.rlim_cur, 1024), most});
  const rlimit higher{files.rlim_max, files.rlim_max};
  const bool raises = files.rlim_cur < files.rlim_max && files.rlim_cur < 2 * kFirst;
  if (raises) raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, reinterpret_cast<long>(&higher));
  const long number = copy_from(descriptor, first);
  if (raises) raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, reinterpret_cast<long>(&files));
  raised.clear(std::memory_order_release);
  return number;
}

}  // namespace

void own_descriptors_of_libraries() noexcept { g_of_libraries = true; }

bool runs_runtime() noexcept {
  return calls() == Calls::passed || (t_started_by_runtime && calls() == Calls::open);
}
void note_thread_of_runtime() noexcept { t_started_by_runtime = true; }

int own_descriptor(int opened, const void* caller) noexcept {
  if (opened <= STDERR_FILENO || !runs_runtime() || !(g_of_libraries || is_code_of_runtime(caller)))
    return opened;
  const long copy = copy_up(opened);
  const int number = copy >= 0 && copy < kNumbers ? static_cast<int>(copy) : opened;
  if (copy >= 0) raw_call(SYS_close, number == opened ? copy : opened);
  if (number < static_cast<int>(kNumbers))
    g_own[number / 64].fetch_or(bit_of(static_cast<std::uint32_t>(number)), std::memory_order_relaxed);
  return number;
}

void disown_descriptor(int number) noexcept {
  if (is_own(number))
    g_own[number / 64].fetch_and(~bit_of(static_cast<std::uint32_t>(number)), std::memory_order_relaxed);
}

bool names_own_descriptor(const mem::CaughtCall& call) noexcept {
  switch (call.number) {
    case SYS_close:
    case SYS_dup:
    case SYS_fcntl: return is_own(call.argument[0]);
    case SYS_dup2:
    case SYS_dup3: return is_own(call.argument[0]) || is_own(call.argument[1]);
    case SYS_close_range: {
      const auto first = static_cast<std::uint32_t>(call.argument[0]);
      const std::uint32_t own = next_own(first);
      return own < kNumbers && own <= static_cast<std::uint32_t>(call.argument[1]);
    }
    default: return false;
  }
}

long call_beside_own_descriptors(const mem::CaughtCall& call) noexcept {
  if (call.number != SYS_close_range) {
    rlimit files{};
    if (is_own(call.argument[0])) return -EBADF;
    mem::issue_call(SYS_prlimit64, {0, RLIMIT_NOFILE, 0, reinterpret_cast<long>(&files), 0, 0});
    return static_cast<std::uint32_t>(call.argument[1]) >= files.rlim_cur ? -EBADF : -EBUSY;
  }
  const std::uint64_t last = static_cast<std::uint32_t>(call.argument[1]);
  for (std::uint64_t first = static_cast<std::uint32_t>(call.argument[0]); first <= last;) {
    const std::uint64_t own = next_own(first), end = own < kNumbers && own <= last ? own : last + 1;
    if (end > first) {
      const long result = mem::issue_call(
          SYS_close_range, {static_cast<long>(first), static_cast<long>(end - 1), call.argument[2], 0, 0, 0});
      if (result < 0) return result;
    }
    first = end + 1;
  }
  return 0;
}

}  // namespace kasane::runtime
