// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank/descriptors.h"

#include <fcntl.h>
#include <sys/syscall.h>

namespace kasane::runtime {

// poll and select name many, and mmap's memory would be another rank's: they use what is open here.
UsedDescriptors used_descriptors(long number, long command) noexcept {
  switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_close:
    case SYS_fstat:
    case SYS_lseek:
    case SYS_ioctl:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_connect:
    case SYS_sendto:
    case SYS_recvfrom:
    case SYS_sendmsg:
    case SYS_recvmsg:
    case SYS_sendmmsg:
    case SYS_recvmmsg:
    case SYS_shutdown:
    case SYS_bind:
    case SYS_listen:
    case SYS_getsockname:
    case SYS_getpeername:
    case SYS_setsockopt:
    case SYS_getsockopt:
    case SYS_flock:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_syncfs:
    case SYS_sync_file_range:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_fadvise64:
    case SYS_readahead:
    case SYS_getdents:
    case SYS_getdents64:
    case SYS_fchdir:
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fstatfs:
    case SYS_fsetxattr:
    case SYS_fgetxattr:
    case SYS_flistxattr:
    case SYS_fremovexattr:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_timerfd_settime:
    case SYS_timerfd_gettime:
    case SYS_inotify_add_watch:
    case SYS_inotify_rm_watch:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_unlinkat:
    case SYS_mkdirat:
    case SYS_readlinkat:
    case SYS_faccessat:
    case SYS_faccessat2:
    case SYS_fchmodat:
    case SYS_fchownat:
    case SYS_utimensat: return {{0, -1}};
    case SYS_epoll_ctl: return {{0, 2}};
    case SYS_sendfile: return {{0, 1}};
    case SYS_splice:
    case SYS_copy_file_range: return {{0, 2}};
    case SYS_dup:
    case SYS_openat:
    case SYS_openat2:
    case SYS_accept:
    case SYS_accept4: return {{0, -1}, true};
    case SYS_fcntl: return {{0, -1}, command == F_DUPFD || command == F_DUPFD_CLOEXEC};
    case SYS_dup2:
    case SYS_dup3: return {{0, -1}};
    case SYS_open:
    case SYS_creat:
    case SYS_socket:
    case SYS_epoll_create:
    case SYS_epoll_create1:
    case SYS_eventfd:
    case SYS_eventfd2:
    case SYS_timerfd_create:
    case SYS_memfd_create:
    case SYS_inotify_init:
    case SYS_inotify_init1: return {{-1, -1}, true};
    case SYS_signalfd:
    case SYS_signalfd4: return {{0, -1}, true};
    case SYS_pipe:
    case SYS_pipe2: return {{-1, -1}, false, 0};
    case SYS_socketpair: return {{-1, -1}, false, 3};
    default: return {};
  }
}

}  // namespace kasane::runtime
