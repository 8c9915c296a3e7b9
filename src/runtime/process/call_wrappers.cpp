// SPDX-License-Identifier: Apache-2.0
// libc's functions that are one system call, for two purposes. Those that may wait are in waiting_calls.cpp.
// A sanitizer has its own.
//
// Where the kernel cannot catch calls (Linux before 5.11, or prctl is refused), user code's calls of them are
// carried out as caught calls are (runtime/process/system_calls.h). What libc calls by itself passes, and
// fails with EFAULT on absent memory: the functions of stdio then end the program with a message.
//
// Those that open and close descriptors keep the runtime's apart (runtime/process/own_descriptors.h), on one
// rank, too, where calls need not be caught.
//
// Thread safety: as the functions that are replaced.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>

#include "base/call_selector.h"
#include "base/raw_call.h"
#include "runtime/language/futex_calls.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/process/process_calls.h"
#include "runtime/process/shared_process.h"
#include "runtime/process/streams.h"
#include "runtime/process/system_calls.h"
#include "runtime/process/waits.h"
#include "runtime/process/wrapped_call.h"
#include "runtime/rank/hidden.h"
#include "runtime/rank/process_state.h"

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

/// Defines the symbol `name`. call: its number, and the kernel's arguments.
#define KASANE_WRAP(...) KASANE_WRAP_BY(KASANE_NOTHING, , __VA_ARGS__)
/// KASANE_WRAP for calls that transfer from or to memory, which comes first.
#define KASANE_TRANSFERS(...) KASANE_WRAP_BY(KASANE_BRING, , __VA_ARGS__)
/// KASANE_WRAP for calls that open one descriptor, and two.
#define KASANE_OPENS(...) KASANE_WRAP_BY(KASANE_NOTHING, KASANE_OWN, __VA_ARGS__)
#define KASANE_OPENS_TWO(...) KASANE_WRAP_BY(KASANE_NOTHING, KASANE_OWN_TWO, __VA_ARGS__)
#define KASANE_NOTHING(...)
#define KASANE_BRING(...) \
  if (waits_without_worker(__builtin_return_address(0))) bring_memory_of(call_of(__VA_ARGS__));
// The object is made before the argument is evaluated.
#define KASANE_OWN(opened) OwnDescriptors(__builtin_return_address(0))(opened)
#define KASANE_OWN_TWO(answer) OwnDescriptors(__builtin_return_address(0))(answer, two)
#define KASANE_WRAP_BY(first, by, name, result, parameters, arguments, ...)                  \
  extern "C" [[gnu::visibility("default")]] result kasane_wrap_##name parameters asm(#name); \
  result kasane_wrap_##name parameters {                                                     \
    first(__VA_ARGS__) if (calls_are_wrapped())                                              \
        [[unlikely]] return static_cast<result>(wrapped(__VA_ARGS__));                       \
    static constinit kasane::runtime::Hidden<result(*) parameters> libcs(#name);             \
    return by(libcs.get() arguments);                                                        \
  }

using Bytes = std::size_t;
using Signed = ssize_t;
using Socklen = socklen_t;
using Iov = iovec;
using Address = sockaddr;
using Status = struct stat;

KASANE_TRANSFERS(pread, Signed, (int d, void* p, Bytes n, off_t at), (d, p, n, at), SYS_pread64, d, p, n, at)
KASANE_TRANSFERS(pread64, Signed, (int d, void* p, Bytes n, off_t at), (d, p, n, at), SYS_pread64, d, p, n,
                 at)
KASANE_TRANSFERS(pwrite, Signed, (int d, const void* p, Bytes n, off_t at), (d, p, n, at), SYS_pwrite64, d, p,
                 n, at)
KASANE_TRANSFERS(pwrite64, Signed, (int d, const void* p, Bytes n, off_t at), (d, p, n, at), SYS_pwrite64, d,
                 p, n, at)
KASANE_TRANSFERS(preadv, Signed, (int d, const Iov* v, int n, off_t at), (d, v, n, at), SYS_preadv, d, v, n,
                 at)
KASANE_TRANSFERS(pwritev, Signed, (int d, const Iov* v, int n, off_t at), (d, v, n, at), SYS_pwritev, d, v, n,
                 at)
KASANE_WRAP(lseek, off_t, (int d, off_t to, int from), (d, to, from), SYS_lseek, d, to, from)
KASANE_WRAP(lseek64, off_t, (int d, off_t to, int from), (d, to, from), SYS_lseek, d, to, from)
KASANE_WRAP(ftruncate, int, (int d, off_t n), (d, n), SYS_ftruncate, d, n)
KASANE_WRAP(fsync, int, (int d), (d), SYS_fsync, d)
KASANE_OPENS(dup, int, (int d), (d), SYS_dup, d)
KASANE_OPENS_TWO(pipe, int, (int* two), (two), SYS_pipe, two)
KASANE_OPENS_TWO(pipe2, int, (int* two, int flags), (two, flags), SYS_pipe2, two, flags)
KASANE_OPENS(epoll_create, int, (int n), (n), SYS_epoll_create, n)
KASANE_OPENS(epoll_create1, int, (int flags), (flags), SYS_epoll_create1, flags)
KASANE_OPENS(eventfd, int, (unsigned n, int flags), (n, flags), SYS_eventfd2, n, flags)
KASANE_OPENS(timerfd_create, int, (int clock, int flags), (clock, flags), SYS_timerfd_create, clock, flags)
KASANE_OPENS(memfd_create, int, (const char* name, unsigned flags), (name, flags), SYS_memfd_create, name,
             flags)

KASANE_OPENS(socket, int, (int a, int b, int c), (a, b, c), SYS_socket, a, b, c)
KASANE_OPENS_TWO(socketpair, int, (int a, int b, int c, int* two), (a, b, c, two), SYS_socketpair, a, b, c,
                 two)
KASANE_WRAP(bind, int, (int d, const Address* a, Socklen n), (d, a, n), SYS_bind, d, a, n)

KASANE_WRAP(stat, int, (const char* p, Status* s), (p, s), SYS_stat, p, s)
KASANE_WRAP(stat64, int, (const char* p, Status* s), (p, s), SYS_stat, p, s)
KASANE_WRAP(lstat, int, (const char* p, Status* s), (p, s), SYS_lstat, p, s)
KASANE_WRAP(lstat64, int, (const char* p, Status* s), (p, s), SYS_lstat, p, s)
KASANE_WRAP(fstat, int, (int d, Status* s), (d, s), SYS_fstat, d, s)
KASANE_WRAP(fstat64, int, (int d, Status* s), (d, s), SYS_fstat, d, s)
KASANE_WRAP(access, int, (const char* p, int how), (p, how), SYS_access, p, how)
KASANE_WRAP(unlink, int, (const char* p), (p), SYS_unlink, p)
KASANE_WRAP(rename, int, (const char* p, const char* q), (p, q), SYS_rename, p, q)
KASANE_WRAP(mkdir, int, (const char* p, mode_t mode), (p, mode), SYS_mkdir, p, mode)
KASANE_WRAP(rmdir, int, (const char* p), (p), SYS_rmdir, p)
KASANE_OPENS(creat, int, (const char* p, mode_t mode), (p, mode), SYS_creat, p, mode)

// open(2) and openat(2), whose mode may be left out.
#define KASANE_OPEN(name)                                                                             \
  extern "C" [[gnu::visibility("default")]] int kasane_wrap_##name(const char*, int, ...) asm(#name); \
  int kasane_wrap_##name(const char* path, int flags, ...) {                                          \
    std::va_list a;                                                                                   \
    va_start(a, flags);                                                                               \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(a, mode_t) : 0;                 \
    va_end(a);                                                                                        \
    if (calls_are_wrapped()) [[unlikely]]                                                             \
      return static_cast<int>(wrapped(SYS_openat, AT_FDCWD, path, flags, mode));                      \
    static constinit kasane::runtime::Hidden<int (*)(const char*, int, ...)> libcs(#name);            \
    return KASANE_OWN(libcs.get()(path, flags, mode));                                                \
  }
#define KASANE_OPENAT(name)                                                                                \
  extern "C" [[gnu::visibility("default")]] int kasane_wrap_##name(int, const char*, int, ...) asm(#name); \
  int kasane_wrap_##name(int folder, const char* path, int flags, ...) {                                   \
    std::va_list a;                                                                                        \
    va_start(a, flags);                                                                                    \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(a, mode_t) : 0;                      \
    va_end(a);                                                                                             \
    if (calls_are_wrapped()) [[unlikely]]                                                                  \
      return static_cast<int>(wrapped(SYS_openat, folder, path, flags, mode));                             \
    static constinit kasane::runtime::Hidden<int (*)(int, const char*, int, ...)> libcs(#name);            \
    return KASANE_OWN(libcs.get()(folder, path, flags, mode));                                             \
  }
KASANE_OPEN(open)
KASANE_OPEN(open64)
KASANE_OPENAT(openat)
KASANE_OPENAT(openat64)

// User code does not see the runtime's, and does not close them.
#define KASANE_FCNTL(name)                                                                    \
  extern "C" [[gnu::visibility("default")]] int kasane_wrap_##name(int, int, ...) asm(#name); \
  int kasane_wrap_##name(int descriptor, int command, ...) {                                  \
    std::va_list a;                                                                           \
    va_start(a, command);                                                                     \
    void* const argument = va_arg(a, void*);                                                  \
    va_end(a);                                                                                \
    if (in_user_code() && concerns_descriptors(call_of(SYS_fcntl, descriptor))) [[unlikely]]  \
      return static_cast<int>(wrapped(SYS_fcntl, descriptor, command, argument));             \
    static constinit kasane::runtime::Hidden<int (*)(int, int, ...)> libcs(#name);            \
    return libcs.get()(descriptor, command, argument);                                        \
  }
KASANE_FCNTL(fcntl)
KASANE_FCNTL(fcntl64)

extern "C" [[gnu::visibility("default")]] int close(int descriptor) {
  static constinit kasane::runtime::Hidden<int (*)(int)> libcs("close");
  if (in_user_code()) return static_cast<int>(wrapped(SYS_close, descriptor));
  const OwnDescriptors own(__builtin_return_address(0));
  own.forget(descriptor);
  return libcs.get()(descriptor);
}

extern "C" [[gnu::visibility("default")]] int close_range(unsigned first, unsigned last, int flags) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(unsigned, unsigned, int)> libcs("close_range");
  if (in_user_code()) return static_cast<int>(wrapped(SYS_close_range, first, last, flags));
  return libcs.get()(first, last, flags);
}

extern "C" [[gnu::visibility("default")]] void closefrom(int first) noexcept {
  first = std::max(first, 0);
  if (::close_range(static_cast<unsigned>(first), ~0u, 0) == 0 || errno != ENOSYS) return;
  rlimit files{};  // Linux before 5.9
  ::getrlimit(RLIMIT_NOFILE, &files);
  for (rlim_t d = static_cast<rlim_t>(first); d < files.rlim_cur; ++d) ::close(static_cast<int>(d));
}

// One that becomes a standard stream makes that stream its rank's.
namespace {

// Not inlined: the call may take the thread to another rank.
[[gnu::noinline]] kasane::Rank rank_now() noexcept { return kasane::runtime::process().rank; }

/// call: makes `from` the descriptor `to`, on the rank that has opened it.
template <class Call>
int redirect(int to, int from, const Call& call) noexcept {
  using namespace kasane::runtime;
  const bool standard =
      to >= 0 && to <= 2 && kasane::calls() != kasane::Calls::passed && SharedProcess::current() != nullptr;
  const kasane::Rank there = standard ? descriptor_elsewhere(from) : kasane::kNoRank;
  const int result = call();
  if (standard && result == to) tell_redirection(to, there != kasane::kNoRank ? there : rank_now());
  return result;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int dup2(int from, int to) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(int, int)> libcs("dup2");
  return redirect(to, from, [=] {
    return in_user_code() ? static_cast<int>(wrapped(SYS_dup2, from, to)) : libcs.get()(from, to);
  });
}
extern "C" [[gnu::visibility("default")]] int dup3(int from, int to, int flags) noexcept {
  static constinit kasane::runtime::Hidden<int (*)(int, int, int)> libcs("dup3");
  return redirect(to, from, [=] {
    return in_user_code() ? static_cast<int>(wrapped(SYS_dup3, from, to, flags))
                          : libcs.get()(from, to, flags);
  });
}

// Futexes of the program are language's (futex_calls.h). The runtime's own calls come here, too, and pass.
extern "C" long syscall(long number, ...) noexcept {
  std::va_list list;
  va_start(list, number);
  kasane::runtime::FutexArguments a;
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && kasane::runtime::is_futex_of_program(reinterpret_cast<void*>(a[0]),
                                                                  __builtin_return_address(0))) [[unlikely]]
    return kasane::runtime::call_futex(a);
  const kasane::traps::CaughtCall call{number, {a[0], a[1], a[2], a[3], a[4], a[5]}, 0, 0, 0, 0};
  if (calls_are_wrapped() || (in_user_code() && concerns_descriptors(call))) [[unlikely]]
    return kasane::runtime::make_wrapped_call(call);
  const auto by_kernel = [&] {
    return kasane::as_libc(kasane::raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
  };
  if (number != SYS_userfaultfd) return by_kernel();
  const OwnDescriptors own(__builtin_return_address(0));
  return own(static_cast<int>(by_kernel()));
}

#endif
