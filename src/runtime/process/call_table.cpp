// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/call_table.h"

#include <asm/ioctl.h>
#include <fcntl.h>
#include <sys/syscall.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

namespace kasane::runtime {
namespace {

constexpr NamedMemory fixed(std::uint8_t a, std::uint16_t bytes, Way way) {
  return {a, Shape::fixed, way, 0, bytes};
}
constexpr NamedMemory in(std::uint8_t a, std::uint16_t bytes) { return fixed(a, bytes, Way::in); }
constexpr NamedMemory out(std::uint8_t a, std::uint16_t bytes) { return fixed(a, bytes, Way::out); }
constexpr NamedMemory both(std::uint8_t a, std::uint16_t bytes) { return fixed(a, bytes, Way::both); }
constexpr NamedMemory in_n(std::uint8_t a, std::uint8_t n, std::uint16_t item = 1) {
  return {a, Shape::items, Way::in, n, item};
}
constexpr NamedMemory out_n(std::uint8_t a, std::uint8_t n, std::uint16_t item = 1) {
  return {a, Shape::items, Way::out, n, item};
}
constexpr NamedMemory both_n(std::uint8_t a, std::uint8_t n, std::uint16_t item) {
  return {a, Shape::items, Way::both, n, item};
}
constexpr NamedMemory text(std::uint8_t a) { return {a, Shape::text}; }
constexpr NamedMemory texts(std::uint8_t a) { return {a, Shape::texts}; }
constexpr NamedMemory value(std::uint8_t a, std::uint8_t n) { return {a, Shape::value, Way::out, n}; }
constexpr NamedMemory bits(std::uint8_t a) { return {a, Shape::bits, Way::both, 0}; }
constexpr NamedMemory vectors(std::uint8_t a, std::uint8_t n, Way way) { return {a, Shape::vectors, way, n}; }
constexpr NamedMemory header(std::uint8_t a, Way way) { return {a, Shape::header, way}; }

struct Row {
  int number;
  CallEntry entry;
};

// Sizes are those of the kernel's structures for x86-64.
constexpr Row kRows[] = {
    // files and descriptors
    {SYS_read, {"read", {out_n(1, 2)}, Pieces::reads}},
    {SYS_write, {"write", {in_n(1, 2)}, Pieces::writes}},
    {SYS_pread64, {"pread", {out_n(1, 2)}, Pieces::reads, 3}},
    {SYS_pwrite64, {"pwrite", {in_n(1, 2)}, Pieces::writes, 3}},
    {SYS_readv, {"readv", {vectors(1, 2, Way::out)}, Pieces::reads}},
    {SYS_writev, {"writev", {vectors(1, 2, Way::in)}, Pieces::writes}},
    {SYS_preadv, {"preadv", {vectors(1, 2, Way::out)}, Pieces::reads, 3}},
    {SYS_pwritev, {"pwritev", {vectors(1, 2, Way::in)}, Pieces::writes, 3}},
    {SYS_preadv2, {"preadv2", {vectors(1, 2, Way::out)}, Pieces::reads, 3}},
    {SYS_pwritev2, {"pwritev2", {vectors(1, 2, Way::in)}, Pieces::writes, 3}},
    {SYS_open, {"open", {text(0)}}},
    {SYS_openat, {"openat", {text(1)}}},
    {SYS_openat2, {"openat2", {text(1), in_n(2, 3)}}},
    {SYS_creat, {"creat", {text(0)}}},
    {SYS_stat, {"stat", {text(0), out(1, 144)}}},
    {SYS_lstat, {"lstat", {text(0), out(1, 144)}}},
    {SYS_fstat, {"fstat", {out(1, 144)}}},
    {SYS_newfstatat, {"fstatat", {text(1), out(2, 144)}}},
    {SYS_statx, {"statx", {text(1), out(4, 256)}}},
    {SYS_statfs, {"statfs", {text(0), out(1, 120)}}},
    {SYS_fstatfs, {"fstatfs", {out(1, 120)}}},
    {SYS_access, {"access", {text(0)}}},
    {SYS_faccessat, {"faccessat", {text(1)}}},
    {SYS_faccessat2, {"faccessat2", {text(1)}}},
    {SYS_getdents, {"getdents", {out_n(1, 2)}}},
    {SYS_getdents64, {"getdents64", {out_n(1, 2)}}},
    {SYS_getcwd, {"getcwd", {out_n(0, 1)}}},
    {SYS_chdir, {"chdir", {text(0)}}},
    {SYS_chroot, {"chroot", {text(0)}}},
    {SYS_rename, {"rename", {text(0), text(1)}}},
    {SYS_renameat, {"renameat", {text(1), text(3)}}},
    {SYS_renameat2, {"renameat2", {text(1), text(3)}}},
    {SYS_mkdir, {"mkdir", {text(0)}}},
    {SYS_mkdirat, {"mkdirat", {text(1)}}},
    {SYS_rmdir, {"rmdir", {text(0)}}},
    {SYS_link, {"link", {text(0), text(1)}}},
    {SYS_linkat, {"linkat", {text(1), text(3)}}},
    {SYS_unlink, {"unlink", {text(0)}}},
    {SYS_unlinkat, {"unlinkat", {text(1)}}},
    {SYS_symlink, {"symlink", {text(0), text(1)}}},
    {SYS_symlinkat, {"symlinkat", {text(0), text(2)}}},
    {SYS_readlink, {"readlink", {text(0), out_n(1, 2)}}},
    {SYS_readlinkat, {"readlinkat", {text(1), out_n(2, 3)}}},
    {SYS_chmod, {"chmod", {text(0)}}},
    {SYS_fchmodat, {"fchmodat", {text(1)}}},
    {SYS_chown, {"chown", {text(0)}}},
    {SYS_lchown, {"lchown", {text(0)}}},
    {SYS_fchownat, {"fchownat", {text(1)}}},
    {SYS_truncate, {"truncate", {text(0)}}},
    {SYS_mknod, {"mknod", {text(0)}}},
    {SYS_mknodat, {"mknodat", {text(1)}}},
    {SYS_utime, {"utime", {text(0), in(1, 16)}}},
    {SYS_utimes, {"utimes", {text(0), in(1, 32)}}},
    {SYS_futimesat, {"futimesat", {text(1), in(2, 32)}}},
    {SYS_utimensat, {"utimensat", {text(1), in(2, 32)}}},
    {SYS_setxattr, {"setxattr", {text(0), text(1), in_n(2, 3)}}},
    {SYS_lsetxattr, {"lsetxattr", {text(0), text(1), in_n(2, 3)}}},
    {SYS_fsetxattr, {"fsetxattr", {text(1), in_n(2, 3)}}},
    {SYS_getxattr, {"getxattr", {text(0), text(1), out_n(2, 3)}}},
    {SYS_lgetxattr, {"lgetxattr", {text(0), text(1), out_n(2, 3)}}},
    {SYS_fgetxattr, {"fgetxattr", {text(1), out_n(2, 3)}}},
    {SYS_listxattr, {"listxattr", {text(0), out_n(1, 2)}}},
    {SYS_llistxattr, {"llistxattr", {text(0), out_n(1, 2)}}},
    {SYS_flistxattr, {"flistxattr", {out_n(1, 2)}}},
    {SYS_removexattr, {"removexattr", {text(0), text(1)}}},
    {SYS_lremovexattr, {"lremovexattr", {text(0), text(1)}}},
    {SYS_fremovexattr, {"fremovexattr", {text(1)}}},
    {SYS_mount, {"mount", {text(0), text(1), text(2)}}},
    {SYS_umount2, {"umount2", {text(0)}}},
    {SYS_inotify_add_watch, {"inotify_add_watch", {text(1)}}},
    {SYS_name_to_handle_at, {"name_to_handle_at", {text(1), both(2, 136), out(3, 4)}}},
    {SYS_open_by_handle_at, {"open_by_handle_at", {in(1, 136)}}},
    {SYS_memfd_create, {"memfd_create", {text(0)}}},
    {SYS_pipe, {"pipe", {out(0, 8)}}},
    {SYS_pipe2, {"pipe2", {out(0, 8)}}},
    {SYS_sendfile, {"sendfile", {both(2, 8)}}},
    {SYS_splice, {"splice", {both(1, 8), both(3, 8)}}},
    {SYS_copy_file_range, {"copy_file_range", {both(1, 8), both(3, 8)}}},
    {SYS_signalfd, {"signalfd", {in(1, 8)}}},
    {SYS_signalfd4, {"signalfd4", {in(1, 8)}}},
    {SYS_timerfd_settime, {"timerfd_settime", {in(2, 32), out(3, 32)}}},
    {SYS_timerfd_gettime, {"timerfd_gettime", {out(1, 32)}}},
    // waiting for descriptors
    {SYS_poll, {"poll", {both_n(0, 1, 8)}}},
    {SYS_ppoll, {"ppoll", {both_n(0, 1, 8), both(2, 16), in(3, 8)}}},
    {SYS_select, {"select", {bits(1), bits(2), bits(3), both(4, 16)}}},
    {SYS_pselect6, {"pselect", {bits(1), bits(2), bits(3), both(4, 16)}}},
    {SYS_epoll_ctl, {"epoll_ctl", {in(3, 12)}}},
    {SYS_epoll_wait, {"epoll_wait", {out_n(1, 2, 12)}}},
    {SYS_epoll_pwait, {"epoll_pwait", {out_n(1, 2, 12), in(4, 8)}}},
    {SYS_epoll_pwait2, {"epoll_pwait2", {out_n(1, 2, 12), in(3, 16), in(4, 8)}}},
    {SYS_io_setup, {"io_setup", {both(1, 8)}}},
    {SYS_io_getevents, {"io_getevents", {out_n(3, 2, 32), in(4, 16)}}},
    // sockets
    {SYS_connect, {"connect", {in_n(1, 2)}}},
    {SYS_bind, {"bind", {in_n(1, 2)}}},
    {SYS_accept, {"accept", {value(1, 2)}}},
    {SYS_accept4, {"accept4", {value(1, 2)}}},
    {SYS_getsockname, {"getsockname", {value(1, 2)}}},
    {SYS_getpeername, {"getpeername", {value(1, 2)}}},
    {SYS_sendto, {"sendto", {in_n(1, 2), in_n(4, 5)}, Pieces::sends}},
    {SYS_recvfrom, {"recvfrom", {out_n(1, 2), value(4, 5)}, Pieces::reads}},
    {SYS_sendmsg, {"sendmsg", {header(1, Way::in)}, Pieces::sends}},
    {SYS_recvmsg, {"recvmsg", {header(1, Way::out)}, Pieces::reads}},
    {SYS_sendmmsg, {"sendmmsg", {NamedMemory{1, Shape::headers, Way::in, 2}}}},
    {SYS_recvmmsg, {"recvmmsg", {NamedMemory{1, Shape::headers, Way::out, 2}, both(4, 16)}}},
    {SYS_socketpair, {"socketpair", {out(3, 8)}}},
    {SYS_setsockopt, {"setsockopt", {in_n(3, 4)}}},
    {SYS_getsockopt, {"getsockopt", {value(3, 4)}}},
    // processes, limits, names
    {SYS_execve, {"execve", {text(0), texts(1), texts(2)}}},
    {SYS_execveat, {"execveat", {text(1), texts(2), texts(3)}}},
    {SYS_wait4, {"wait4", {out(1, 4), out(3, 144)}}},
    {SYS_waitid, {"waitid", {out(2, 128), out(4, 144)}}},
    {SYS_uname, {"uname", {out(0, 390)}}},
    {SYS_sethostname, {"sethostname", {in_n(0, 1)}}},
    {SYS_getrlimit, {"getrlimit", {out(1, 16)}}},
    {SYS_setrlimit, {"setrlimit", {in(1, 16)}}},
    {SYS_prlimit64, {"prlimit", {in(2, 16), out(3, 16)}}},
    {SYS_getrusage, {"getrusage", {out(1, 144)}}},
    {SYS_sysinfo, {"sysinfo", {out(0, 112)}}},
    {SYS_times, {"times", {out(0, 32)}}},
    {SYS_getgroups, {"getgroups", {out_n(1, 0, 4)}}},
    {SYS_setgroups, {"setgroups", {in_n(1, 0, 4)}}},
    {SYS_getresuid, {"getresuid", {out(0, 4), out(1, 4), out(2, 4)}}},
    {SYS_getresgid, {"getresgid", {out(0, 4), out(1, 4), out(2, 4)}}},
    {SYS_prctl, {"prctl", {both(1, 16)}}},
    {SYS_sched_setparam, {"sched_setparam", {in(1, 4)}}},
    {SYS_sched_getparam, {"sched_getparam", {out(1, 4)}}},
    {SYS_sched_setscheduler, {"sched_setscheduler", {in(2, 4)}}},
    {SYS_sched_rr_get_interval, {"sched_rr_get_interval", {out(1, 16)}}},
    {SYS_sched_setaffinity, {"sched_setaffinity", {in_n(2, 1)}}},
    {SYS_sched_getaffinity, {"sched_getaffinity", {out_n(2, 1)}}},
    {SYS_sched_setattr, {"sched_setattr", {in(1, 56)}}},
    {SYS_sched_getattr, {"sched_getattr", {out_n(1, 2)}}},
    {SYS_getcpu, {"getcpu", {out(0, 4), out(1, 4)}}},
    {SYS_syslog, {"syslog", {out_n(1, 2)}}},
    {SYS_getrandom, {"getrandom", {out_n(0, 1)}, Pieces::writes}},
    {SYS_process_vm_readv, {"process_vm_readv", {vectors(1, 2, Way::out), in_n(3, 4, 16)}}},
    {SYS_process_vm_writev, {"process_vm_writev", {vectors(1, 2, Way::in), in_n(3, 4, 16)}}},
    {SYS_bpf, {"bpf", {both(1, 16)}}},
    {SYS_perf_event_open, {"perf_event_open", {in(0, 128)}}},
    {SYS_seccomp, {"seccomp", {in(2, 16)}}},
    {SYS_add_key, {"add_key", {text(0), text(1), in_n(2, 3)}}},
    // time
    {SYS_nanosleep, {"nanosleep", {in(0, 16), out(1, 16)}}},
    {SYS_clock_nanosleep, {"clock_nanosleep", {in(2, 16), out(3, 16)}}},
    {SYS_clock_gettime, {"clock_gettime", {out(1, 16)}}},
    {SYS_clock_settime, {"clock_settime", {in(1, 16)}}},
    {SYS_clock_getres, {"clock_getres", {out(1, 16)}}},
    {SYS_clock_adjtime, {"clock_adjtime", {both(1, 208)}}},
    {SYS_adjtimex, {"adjtimex", {both(0, 208)}}},
    {SYS_gettimeofday, {"gettimeofday", {out(0, 16), out(1, 8)}}},
    {SYS_settimeofday, {"settimeofday", {in(0, 16), in(1, 8)}}},
    {SYS_time, {"time", {out(0, 8)}}},
    {SYS_getitimer, {"getitimer", {out(1, 32)}}},
    {SYS_setitimer, {"setitimer", {in(1, 32), out(2, 32)}}},
    {SYS_timer_create, {"timer_create", {in(1, 64), out(2, 4)}}},
    {SYS_timer_settime, {"timer_settime", {in(2, 32), out(3, 32)}}},
    {SYS_timer_gettime, {"timer_gettime", {out(1, 32)}}},
    // signals
    {SYS_rt_sigaction, {"sigaction", {in(1, 32), out(2, 32)}}},
    {SYS_rt_sigpending, {"sigpending", {out(0, 8)}}},
    {SYS_rt_sigsuspend, {"sigsuspend", {in(0, 8)}}},
    {SYS_rt_sigtimedwait, {"sigtimedwait", {in(0, 8), out(1, 128), in(2, 16)}}},
    {SYS_rt_sigqueueinfo, {"sigqueue", {in(2, 128)}}},
    {SYS_sigaltstack, {"sigaltstack", {in(0, 24), out(1, 24)}}},
    // System V and POSIX messages
    {SYS_semop, {"semop", {in_n(1, 2, 6)}}},
    {SYS_semtimedop, {"semtimedop", {in_n(1, 2, 6), in(3, 16)}}},
    {SYS_shmctl, {"shmctl", {both(2, 112)}}},
    {SYS_msgctl, {"msgctl", {both(2, 120)}}},
    {SYS_msgsnd, {"msgsnd", {NamedMemory{1, Shape::message, Way::in, 2}}}},
    {SYS_msgrcv, {"msgrcv", {NamedMemory{1, Shape::message, Way::out, 2}}}},
    {SYS_mq_open, {"mq_open", {text(0), in(3, 64)}}},
    {SYS_mq_unlink, {"mq_unlink", {text(0)}}},
    {SYS_mq_timedsend, {"mq_send", {in_n(1, 2), in(4, 16)}}},
    {SYS_mq_timedreceive, {"mq_receive", {out_n(1, 2), out(3, 4), in(4, 16)}}},
    {SYS_mq_notify, {"mq_notify", {in(1, 64)}}},
    {SYS_mq_getsetattr, {"mq_getattr", {in(1, 64), out(2, 64)}}},
};

constexpr std::size_t kCalls = 512;

constexpr std::array<CallEntry, kCalls> kTable = [] {
  std::array<CallEntry, kCalls> table{};
  for (const Row& row : kRows) table[static_cast<std::size_t>(row.number)] = row.entry;
  return table;
}();

}  // namespace

const CallEntry* find_call(long number) noexcept {
  if (static_cast<unsigned long>(number) >= kCalls) return nullptr;
  const CallEntry& entry = kTable[static_cast<std::size_t>(number)];
  return entry.name != nullptr ? &entry : nullptr;
}

bool manages_addresses(long number) noexcept {
  switch (number) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mremap:
    case SYS_mprotect:
    case SYS_madvise:
    case SYS_msync:
    case SYS_mlock:
    case SYS_mlock2:
    case SYS_munlock:
    case SYS_mincore:
    case SYS_brk:
    case SYS_mbind:
    case SYS_shmat:
    case SYS_shmdt:
    case SYS_arch_prctl:
    case SYS_set_tid_address:
    case SYS_set_robust_list:
    case SYS_exit:
    case SYS_exit_group: return true;
    default: return false;
  }
}

NamedMemory argument_of_ioctl(std::uint64_t command) noexcept {
  const auto bytes = static_cast<std::uint16_t>(_IOC_SIZE(command));
  const auto way = _IOC_DIR(command);
  // Older commands do not say how much: none names more than this, and what is not allocated is left out.
  if (way == _IOC_NONE || bytes == 0) return both(2, 256);
  return fixed(2, bytes, way == _IOC_WRITE ? Way::in : Way::both);
}

NamedMemory argument_of_fcntl(std::uint64_t command) noexcept {
  switch (command) {
    case F_GETLK:
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW: return both(2, sizeof(struct flock));
    case F_GETOWN_EX:
    case F_SETOWN_EX: return both(2, 8);
    case F_GET_RW_HINT:
    case F_SET_RW_HINT:
    case F_GET_FILE_RW_HINT:
    case F_SET_FILE_RW_HINT: return both(2, 8);
    default: return {};
  }
}

}  // namespace kasane::runtime
