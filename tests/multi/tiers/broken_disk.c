/* SPDX-License-Identifier: Apache-2.0
   A disk that fails, to be preloaded: transfers of whole blocks at offsets above 0 end with errno
   BROKEN_DISK_ERRNO once BROKEN_DISK_AFTER of their kind (BROKEN_DISK, "read" or "write") have gone well.
   There is no io_uring then, so that all come this way; with BROKEN_RING there is, and such a request becomes
   one that the kernel ends with that error (Linux 6.10). Memory files are no disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long done;

static int of_memory(int fd) {
  static const char kName[] = "/memfd:";
  char link[32], name[sizeof kName - 1];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return readlink(link, name, sizeof name) == sizeof name && memcmp(name, kName, sizeof name) == 0;
}

static void* next_of(const char* name) { return dlsym(RTLD_NEXT, name); }

/* An errno, or 0. */
static int error_of(const char* kind, int fd, size_t bytes, off_t offset) {
  const char* which = getenv("BROKEN_DISK");
  if (which == NULL || strcmp(which, kind) != 0 || offset == 0 || bytes % 4096 != 0 || of_memory(fd))
    return 0;
  return atomic_fetch_add(&done, 1) < atol(getenv("BROKEN_DISK_AFTER")) ? 0
                                                                        : atoi(getenv("BROKEN_DISK_ERRNO"));
}
static int broken(const char* kind, int fd, size_t bytes, off_t offset) {
  const int error = error_of(kind, fd, bytes, offset);
  if (error != 0) errno = error;
  return error != 0;
}

int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  if (getenv("BROKEN_RING") == NULL) return -ENOSYS;
  return ((int (*)(unsigned, struct io_uring*, unsigned))next_of("io_uring_queue_init"))(entries, ring,
                                                                                         flags);
}

int io_uring_submit(struct io_uring* ring) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; ++i) {
    struct io_uring_sqe* sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
    const char* kind = sqe->opcode == IORING_OP_WRITE ? "write" : sqe->opcode == IORING_OP_NOP ? "" : "read";
    const int error = error_of(kind, sqe->fd, sqe->len, (off_t)sqe->off);
    if (error == 0) continue;
    const __u64 user_data = sqe->user_data;
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_NOP;
    sqe->fd = -1;
    sqe->len = (__u32)-error;
    sqe->rw_flags = 1; /* IORING_NOP_INJECT_RESULT */
    sqe->user_data = user_data;
    if (!atomic_flag_test_and_set(&told)) fprintf(stderr, "broken by io_uring\n");
  }
  return ((int (*)(struct io_uring*))next_of("io_uring_submit"))(ring);
}

ssize_t pwrite64(int fd, const void* from, size_t bytes, off_t offset) {
  if (broken("write", fd, bytes, offset)) return -1;
  return ((ssize_t(*)(int, const void*, size_t, off_t))next_of("pwrite64"))(fd, from, bytes, offset);
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  return pwrite64(fd, from, bytes, offset);
}

ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) {
  if (broken("read", fd, bytes, offset)) return -1;
  return ((ssize_t(*)(int, void*, size_t, off_t))next_of("pread64"))(fd, to, bytes, offset);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t offset) { return pread64(fd, to, bytes, offset); }
