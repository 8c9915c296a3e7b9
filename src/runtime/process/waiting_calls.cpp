// SPDX-License-Identifier: Apache-2.0
// libc's functions whose system call may wait without bound, for the whole program: a user-level thread of
// run() does not keep its worker meanwhile (runtime/process/waits.h). In main, on OS threads, in signal
// handlers and within libc (stdio, getaddrinfo) they are libc's. read() is in stdio_calls.cpp. A sanitizer
// has its own.
//
//   function                            on the worker, if
//   read, readv, accept                 poll(2) says that there is input
//   write of up to PIPE_BUF             poll(2) says that there is room
//   recv…, send…, writes to sockets     with MSG_DONTWAIT it is done
//   larger writes and writev to a pipe  with RWF_NOWAIT they are done
//   poll, select, epoll_wait, wait…     with a time of 0 (WNOHANG, LOCK_NB) there is a result
//   connect                             the socket does not block
//   sleep, nanosleep …                  – : the worker sees to the time
//
// Thread safety: as the functions that are replaced.
#if !defined(KASANE_SANITIZER_ADDRESS) && !defined(KASANE_SANITIZER_THREAD)

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "runtime/language/cancellation.h"
#include "runtime/process/output.h"
#include "runtime/process/own_descriptors.h"
#include "runtime/process/waits.h"
#include "runtime/process/wrapped_call.h"
#include "runtime/rank/hidden.h"
#include "ult/pool.h"

namespace kasane::runtime {
namespace {

using traps::CaughtCall;
using Bytes = std::size_t;
using Address = sockaddr;

/// libc's function, or the call carried out where calls are not caught.
#define KASANE_LIBCS(name, result, parameters, arguments, ...)   \
  result libcs_##name parameters {                               \
    if (calls_are_wrapped()) [[unlikely]]                        \
      return static_cast<result>(wrapped(__VA_ARGS__));          \
    static constinit Hidden<result(*) parameters> libcs(#name);  \
    return call_in_point([&] { return libcs.get() arguments; }); \
  }

KASANE_LIBCS(write, ssize_t, (int d, const void* p, Bytes n), (d, p, n), SYS_write, d, p, n)
KASANE_LIBCS(readv, ssize_t, (int d, const iovec* v, int n), (d, v, n), SYS_readv, d, v, n)
KASANE_LIBCS(writev, ssize_t, (int d, const iovec* v, int n), (d, v, n), SYS_writev, d, v, n)
KASANE_LIBCS(poll, int, (pollfd * all, nfds_t n, int ms), (all, n, ms), SYS_poll, all, n, ms)
KASANE_LIBCS(select, int, (int n, fd_set* r, fd_set* w, fd_set* e, timeval* t), (n, r, w, e, t), SYS_select,
             n, r, w, e, t)
KASANE_LIBCS(epoll_wait, int, (int d, epoll_event* p, int n, int ms), (d, p, n, ms), SYS_epoll_wait, d, p, n,
             ms)
KASANE_LIBCS(connect, int, (int d, const Address* a, socklen_t n), (d, a, n), SYS_connect, d, a, n)
KASANE_LIBCS(accept, int, (int d, Address* a, socklen_t* n), (d, a, n), SYS_accept, d, a, n)
KASANE_LIBCS(accept4, int, (int d, Address* a, socklen_t* n, int f), (d, a, n, f), SYS_accept4, d, a, n, f)
KASANE_LIBCS(sendto, ssize_t, (int d, const void* p, Bytes n, int f, const Address* a, socklen_t m),
             (d, p, n, f, a, m), SYS_sendto, d, p, n, f, a, m)
KASANE_LIBCS(recvfrom, ssize_t, (int d, void* p, Bytes n, int f, Address* a, socklen_t* m),
             (d, p, n, f, a, m), SYS_recvfrom, d, p, n, f, a, m)
KASANE_LIBCS(sendmsg, ssize_t, (int d, const msghdr* m, int f), (d, m, f), SYS_sendmsg, d, m, f)
KASANE_LIBCS(recvmsg, ssize_t, (int d, msghdr* m, int f), (d, m, f), SYS_recvmsg, d, m, f)
KASANE_LIBCS(wait4, pid_t, (pid_t p, int* s, int o, rusage* r), (p, s, o, r), SYS_wait4, p, s, o, r)
KASANE_LIBCS(flock, int, (int d, int o), (d, o), SYS_flock, d, o)
KASANE_LIBCS(nanosleep, int, (const timespec* t, timespec* left), (t, left), SYS_nanosleep, t, left)

int own_now(int opened, const void* caller) noexcept { return OwnDescriptors(caller)(opened); }

/// All of a transfer, of which `done` bytes (or -errno) came first. rest(): the answer for the others.
template <class Rest>
long complete(long done, Bytes bytes, int descriptor, const Rest& rest) {
  const bool partial = done == -EAGAIN || (done >= 0 && static_cast<Bytes>(done) < bytes);
  if (!partial || is_non_blocking(descriptor)) return done;
  const Bytes sent = done < 0 ? 0 : static_cast<Bytes>(done);
  const long more = rest(sent);
  return more >= 0 ? static_cast<long>(sent) + more : sent != 0 ? done : more;
}

long send_all(const char* name, int d, const void* p, Bytes n, int flags, const Address* a, socklen_t m) {
  go_to_descriptor(d);
  const auto call = [&](Bytes from, int more) {
    return call_of(SYS_sendto, d, static_cast<const char*>(p) + from, n - from, flags | more, a, m);
  };
  bring_memory_of(call(0, 0));
  const long done = make_call_here(call(0, MSG_DONTWAIT));
  if ((flags & MSG_DONTWAIT) != 0) return done;
  return complete(done, n, d, [&](Bytes from) { return wait_in(name, call(from, 0)); });
}

/// The flags of the call are its argument `flags`. whole: the bytes for which MSG_WAITALL asks.
long receive(const char* name, CaughtCall call, std::size_t flags, Bytes whole) {
  const int d = static_cast<int>(call.argument[0]);
  const long asked = call.argument[flags];
  go_to_descriptor(d);
  bring_memory_of(call);
  const bool all = (asked & MSG_WAITALL) != 0 && (asked & MSG_DONTWAIT) == 0;
  if (!all || static_cast<Bytes>(readable_bytes(d)) >= whole) {
    call.argument[flags] |= MSG_DONTWAIT;
    const long result = make_call_here(call);
    if (result != -EAGAIN || (asked & MSG_DONTWAIT) != 0) return result;
    call.argument[flags] = asked;
  }
  return is_non_blocking(d) ? make_call_here(call) : wait_in(name, call);
}

/// What a pipe takes now; -EAGAIN: nothing, or the kernel cannot say (before Linux 6.5).
long write_at_once(int d, const iovec* v, int n) {
  const long done = make_call_here(call_of(SYS_pwritev2, d, v, n, -1, 0, RWF_NOWAIT));
  return done != -EOPNOTSUPP ? done : -EAGAIN;
}
/// Writes more than a pipe takes at once.
long write_large(const char* name, int d, const void* p, Bytes n) {
  const mode_t kind = kind_of(d);
  if (kind == S_IFSOCK) return send_all(name, d, p, n, 0, nullptr, 0);
  bring_memory_of(call_of(SYS_write, d, p, n));
  if (kind != S_IFIFO) return make_call_here(call_of(SYS_write, d, p, n));
  const iovec all = {const_cast<void*>(p), n};
  return complete(write_at_once(d, &all, 1), n, d, [&](Bytes from) {
    return wait_in(name, call_of(SYS_write, d, static_cast<const char*>(p) + from, n - from));
  });
}
long write_all(const char* name, int d, const void* p, Bytes n) {
  const CaughtCall call = call_of(SYS_write, d, p, n);
  if (writes_in_turns(d)) return make_call_here(call);
  go_to_descriptor(d);
  return n > PIPE_BUF ? write_large(name, d, p, n) : wait_for_output(name, call);
}

/// What is left of iovecs after `done` bytes, one after the other. write(p, n): the kernel's answer.
template <class Write>
long write_rest(const iovec* v, Bytes count, Bytes done, const Write& write) {
  long more = 0;
  for (Bytes skip = done; count != 0; ++v, --count) {
    const Bytes left = v->iov_len - std::min(skip, v->iov_len);
    if (left != 0) {
      const long result = write(static_cast<const char*>(v->iov_base) + skip, left);
      if (result < 0) return more != 0 ? more : result;
      more += result;
      if (static_cast<Bytes>(result) < left) break;
    }
    skip -= std::min(skip, v->iov_len);
  }
  return more;
}
Bytes bytes_of(const iovec* v, Bytes count) noexcept {
  Bytes bytes = 0;
  for (Bytes i = 0; i < count; ++i) bytes += v[i].iov_len;
  return bytes;
}

/// The rest of what the kernel has taken some bytes of, so that the list is there.
template <class Write>
long complete_vectors(long done, const iovec* v, Bytes count, int d, const Write& write) {
  return complete(done, bytes_of(v, count), d, [&](Bytes from) { return write_rest(v, count, from, write); });
}

long send_message(const char* name, int d, const msghdr* m, int flags) {
  go_to_descriptor(d);
  const long done = make_call_here(call_of(SYS_sendmsg, d, m, flags | MSG_DONTWAIT));
  if ((flags & MSG_DONTWAIT) != 0) return done;
  if (done == -EAGAIN) return is_non_blocking(d) ? done : wait_in(name, call_of(SYS_sendmsg, d, m, flags));
  if (done < 0) return done;
  return complete_vectors(done, m->msg_iov, m->msg_iovlen, d,
                          [&](const void* p, Bytes n) { return send_all(name, d, p, n, flags, nullptr, 0); });
}

long write_vectors(int d, const iovec* v, int n) {
  const CaughtCall call = call_of(SYS_writev, d, v, n);
  if (n <= 0 || n > IOV_MAX || writes_in_turns(d)) return make_call_here(call);
  go_to_descriptor(d);
  const mode_t kind = kind_of(d);
  if (kind == S_IFSOCK) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(v);
    message.msg_iovlen = static_cast<Bytes>(n);
    return send_message("writev", d, &message, 0);
  }
  if (kind != S_IFIFO) return wait_for_output("writev", call);
  const long done = write_at_once(d, v, n);
  if (done == -EAGAIN) return is_non_blocking(d) ? done : wait_in("writev", call);
  if (done < 0) return done;
  return complete_vectors(done, v, static_cast<Bytes>(n), d,
                          [&](const void* p, Bytes part) { return write_all("writev", d, p, part); });
}

/// The call with a time of 0, then with its own.
long look_first(const char* name, const CaughtCall& at_once, const CaughtCall& call, bool restarts = false) {
  const long result = make_call_here(at_once);
  return result != 0 ? result : wait_in(name, call, restarts);
}

constexpr std::uint64_t kForEver = ~std::uint64_t{0};
/// 0, or EINTR; left: what is left of the time then.
int sleep_thread(std::uint64_t ns, timespec* left) noexcept {
  std::uint64_t until = 0;
  if (__builtin_add_overflow(now_ns(), ns, &until)) until = kForEver;
  if (ult::Pool::sleep("nanosleep", until)) return 0;
  const std::uint64_t now = now_ns(), more = until > now ? until - now : 0;
  const timespec rest = {static_cast<time_t>(more / 1'000'000'000), static_cast<long>(more % 1'000'000'000)};
  return left == nullptr || traps::copy_named(left, &rest, sizeof rest) ? EINTR : EFAULT;
}
/// Copies what a program named, perhaps wrongly.
template <class T>
bool read_named(T& to, const T* named) noexcept {
  return named != nullptr && traps::copy_named(&to, named, sizeof to);
}
bool read_time(timespec& t, const timespec* named) noexcept {
  return read_named(t, named) && t.tv_sec >= 0 && t.tv_nsec >= 0 && t.tv_nsec < 1'000'000'000;
}
std::uint64_t ns_of(const timespec& t) noexcept {
  const auto seconds = static_cast<std::uint64_t>(t.tv_sec);
  return seconds < kForEver / 1'000'000'000 ? seconds * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec)
                                            : kForEver;
}

long wait_for_child(const char* name, pid_t which, int* status, int options, rusage* used) {
  const CaughtCall call = call_of(SYS_wait4, which, status, options, used);
  if ((options & WNOHANG) != 0) return make_call_here(call);
  return look_first(name, call_of(SYS_wait4, which, status, options | WNOHANG, used), call, true);
}

long select_thread(int n, fd_set* r, fd_set* w, fd_set* e, timeval* t) {
  fd_set* const named[3] = {r, w, e};
  fd_set asked[3];
  const Bytes bytes = static_cast<Bytes>((n + 63) / 64 * 8);
  timeval none{};
  for (int i = 0; i < 3; ++i)
    if (named[i] != nullptr && !traps::copy_named(&asked[i], named[i], bytes)) return -EFAULT;
  if (const long now = make_call_here(call_of(SYS_select, n, r, w, e, &none)); now != 0) return now;
  for (int i = 0; i < 3; ++i)
    if (named[i] != nullptr && !traps::copy_named(named[i], &asked[i], bytes)) return -EFAULT;
  return wait_in("select", call_of(SYS_select, n, r, w, e, t), false);
}

}  // namespace
}  // namespace kasane::runtime

using namespace kasane::runtime;  // NOLINT(google-build-using-namespace): for the functions below

/// Whether the caller of the function that is being defined waits without its worker.
#define KASANE_WAITS waits_without_worker(__builtin_return_address(0))
/// Defines the symbol `name`.
#define KASANE_DEFINE(name, result, parameters)                                                 \
  extern "C" [[gnu::visibility("default")]] result kasane_waiting_##name parameters asm(#name); \
  result kasane_waiting_##name parameters
/// … which returns the kernel's answer on a thread that may wait, else libc's.
#define KASANE_DEFINE_BY(name, result, parameters, on_thread, libcs) \
  KASANE_DEFINE(name, result, parameters) {                          \
    if (!KASANE_WAITS) return libcs;                                 \
    return static_cast<result>(finish_call(on_thread));              \
  }

// ---- files ----
KASANE_DEFINE_BY(write, ssize_t, (int d, const void* p, Bytes n), write_all("write", d, p, n),
                 libcs_write(d, p, n))
KASANE_DEFINE_BY(readv, ssize_t, (int d, const iovec* v, int n),
                 wait_for_input("readv", call_of(SYS_readv, d, v, n)), libcs_readv(d, v, n))
KASANE_DEFINE_BY(writev, ssize_t, (int d, const iovec* v, int n), write_vectors(d, v, n),
                 libcs_writev(d, v, n))
KASANE_DEFINE(flock, int, (int d, int operation)) {
  if ((operation & LOCK_NB) != 0 || !KASANE_WAITS) return libcs_flock(d, operation);
  go_to_descriptor(d);
  const long now = make_call_here(call_of(SYS_flock, d, operation | LOCK_NB));
  return static_cast<int>(
      finish_call(now != -EWOULDBLOCK ? now : wait_in("flock", call_of(SYS_flock, d, operation))));
}

// ---- sockets ----
KASANE_DEFINE_BY(sendto, ssize_t, (int d, const void* p, Bytes n, int f, const Address* a, socklen_t m),
                 send_all("sendto", d, p, n, f, a, m), libcs_sendto(d, p, n, f, a, m))
KASANE_DEFINE_BY(send, ssize_t, (int d, const void* p, Bytes n, int f),
                 send_all("send", d, p, n, f, nullptr, 0), libcs_sendto(d, p, n, f, nullptr, 0))
KASANE_DEFINE_BY(recvfrom, ssize_t, (int d, void* p, Bytes n, int f, Address* a, socklen_t* m),
                 receive("recvfrom", call_of(SYS_recvfrom, d, p, n, f, a, m), 3, n),
                 libcs_recvfrom(d, p, n, f, a, m))
KASANE_DEFINE_BY(recv, ssize_t, (int d, void* p, Bytes n, int f),
                 receive("recv", call_of(SYS_recvfrom, d, p, n, f, 0, 0), 3, n),
                 libcs_recvfrom(d, p, n, f, nullptr, nullptr))
extern "C" [[noreturn]] void __chk_fail();
KASANE_DEFINE(__recv_chk, ssize_t, (int d, void* p, Bytes n, Bytes room, int f)) {
  if (n > room) __chk_fail();
  if (!KASANE_WAITS) return libcs_recvfrom(d, p, n, f, nullptr, nullptr);
  return finish_call(receive("recv", call_of(SYS_recvfrom, d, p, n, f, 0, 0), 3, n));
}
KASANE_DEFINE(__recvfrom_chk, ssize_t,
              (int d, void* p, Bytes n, Bytes room, int f, Address* a, socklen_t* m)) {
  if (n > room) __chk_fail();
  if (!KASANE_WAITS) return libcs_recvfrom(d, p, n, f, a, m);
  return finish_call(receive("recvfrom", call_of(SYS_recvfrom, d, p, n, f, a, m), 3, n));
}
KASANE_DEFINE_BY(sendmsg, ssize_t, (int d, const msghdr* m, int f), send_message("sendmsg", d, m, f),
                 libcs_sendmsg(d, m, f))
KASANE_DEFINE_BY(recvmsg, ssize_t, (int d, msghdr* m, int f),
                 receive("recvmsg", call_of(SYS_recvmsg, d, m, f), 2, SIZE_MAX), libcs_recvmsg(d, m, f))
// Under the lock, unless it may wait.
#define KASANE_ACCEPTED(accept)                                                              \
  runs_runtime() && is_non_blocking(d) ? OwnDescriptors(__builtin_return_address(0))(accept) \
                                       : own_now(accept, __builtin_return_address(0))
KASANE_DEFINE_BY(accept, int, (int d, Address* a, socklen_t* n),
                 wait_for_input("accept", call_of(SYS_accept, d, a, n)),
                 KASANE_ACCEPTED(libcs_accept(d, a, n)))
KASANE_DEFINE_BY(accept4, int, (int d, Address* a, socklen_t* n, int f),
                 wait_for_input("accept4", call_of(SYS_accept4, d, a, n, f)),
                 KASANE_ACCEPTED(libcs_accept4(d, a, n, f)))
KASANE_DEFINE(connect, int, (int d, const Address* a, socklen_t n)) {
  if (!KASANE_WAITS) return libcs_connect(d, a, n);
  go_to_descriptor(d);
  const CaughtCall call = call_of(SYS_connect, d, a, n);
  return static_cast<int>(finish_call(is_non_blocking(d) ? make_call_here(call) : wait_in("connect", call)));
}

// ---- several descriptors ----
KASANE_DEFINE(poll, int, (pollfd * all, nfds_t n, int ms)) {
  if (ms == 0 || !KASANE_WAITS) return libcs_poll(all, n, ms);
  return static_cast<int>(
      finish_call(look_first("poll", call_of(SYS_poll, all, n, 0), call_of(SYS_poll, all, n, ms))));
}
KASANE_DEFINE(__poll_chk, int, (pollfd * all, nfds_t n, int ms, Bytes room)) {
  if (room / sizeof *all < n) __chk_fail();
  if (ms == 0 || !KASANE_WAITS) return libcs_poll(all, n, ms);
  return static_cast<int>(
      finish_call(look_first("poll", call_of(SYS_poll, all, n, 0), call_of(SYS_poll, all, n, ms))));
}
KASANE_DEFINE(epoll_wait, int, (int d, epoll_event* p, int n, int ms)) {
  if (ms == 0 || !KASANE_WAITS) return libcs_epoll_wait(d, p, n, ms);
  go_to_descriptor(d);
  return static_cast<int>(finish_call(
      look_first("epoll_wait", call_of(SYS_epoll_wait, d, p, n, 0), call_of(SYS_epoll_wait, d, p, n, ms))));
}
KASANE_DEFINE(select, int, (int n, fd_set* r, fd_set* w, fd_set* e, timeval* t)) {
  timeval time{};
  if (n < 0 || n > FD_SETSIZE || !KASANE_WAITS || (t != nullptr && !read_named(time, t)))
    return libcs_select(n, r, w, e, t);
  const bool at_once = t != nullptr && time.tv_sec == 0 && time.tv_usec == 0;
  if (at_once) return libcs_select(n, r, w, e, t);
  return static_cast<int>(finish_call(select_thread(n, r, w, e, t)));
}

// ---- children ----
KASANE_DEFINE_BY(wait4, pid_t, (pid_t which, int* status, int options, rusage* used),
                 wait_for_child("wait4", which, status, options, used),
                 libcs_wait4(which, status, options, used))
KASANE_DEFINE_BY(waitpid, pid_t, (pid_t which, int* status, int options),
                 wait_for_child("waitpid", which, status, options, nullptr),
                 libcs_wait4(which, status, options, nullptr))
KASANE_DEFINE_BY(wait, pid_t, (int* status), wait_for_child("wait", -1, status, 0, nullptr),
                 libcs_wait4(-1, status, 0, nullptr))

// ---- time ----
KASANE_DEFINE(nanosleep, int, (const timespec* t, timespec* remaining)) {
  timespec time;
  if (!KASANE_WAITS || !read_time(time, t)) return libcs_nanosleep(t, remaining);
  return static_cast<int>(finish_call(-sleep_thread(ns_of(time), remaining)));
}
KASANE_DEFINE(clock_nanosleep, int, (clockid_t clock, int flags, const timespec* t, timespec* remaining)) {
  static constinit Hidden<int (*)(clockid_t, int, const timespec*, timespec*)> libcs("clock_nanosleep");
  const bool known = clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME;
  timespec time;
  if (!known || !KASANE_WAITS || !read_time(time, t))
    return call_in_point([&] { return libcs.get()(clock, flags, t, remaining); },
                         [](int error) { return error == EINTR; });
  if ((flags & TIMER_ABSTIME) == 0) return sleep_thread(ns_of(time), remaining);
  for (const std::uint64_t end = ns_of(time);;) {
    timespec now;
    if (::clock_gettime(clock, &now) != 0 || ns_of(now) >= end) return 0;
    if (const int error = sleep_thread(end - ns_of(now), nullptr); error != 0) return error;
  }
}
KASANE_DEFINE(sleep, unsigned, (unsigned seconds)) {
  static constinit Hidden<unsigned (*)(unsigned)> libcs("sleep");
  if (!KASANE_WAITS)
    return call_in_point([&] { return libcs.get()(seconds); }, [](unsigned left) { return left != 0; });
  timespec left{};
  if (sleep_thread(std::uint64_t{seconds} * 1'000'000'000, &left) == 0) return 0;
  return static_cast<unsigned>(left.tv_sec + (left.tv_nsec >= 500'000'000));
}
KASANE_DEFINE(usleep, int, (useconds_t us)) {
  static constinit Hidden<int (*)(useconds_t)> libcs("usleep");
  if (!KASANE_WAITS) return call_in_point([&] { return libcs.get()(us); });
  return static_cast<int>(finish_call(-sleep_thread(std::uint64_t{us} * 1000, nullptr)));
}

#endif
