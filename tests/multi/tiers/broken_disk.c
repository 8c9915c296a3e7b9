/* SPDX-License-Identifier: Apache-2.0
   A disk that fails, to be preloaded: transfers of whole blocks at offsets above 0 end with errno BROKEN_DISK_ERRNO once BROKEN_DISK_AFTER of their kind (BROKEN_DISK, "read" or
   "write") have gone well. There is no io_uring then, so that all come this way. Memory files are no disk. */
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

static int broken(const char* kind, int fd, size_t bytes, off_t offset) {
  const char* which = getenv("BROKEN_DISK");
  if (which == NULL || strcmp(which, kind) != 0 || offset == 0 || bytes % 4096 != 0 || of_memory(fd)) return 0;
  if (atomic_fetch_add(&done, 1) < atol(getenv("BROKEN_DISK_AFTER"))) return 0;
  errno = atoi(getenv("BROKEN_DISK_ERRNO"));
  return 1;
}

int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  (void)entries, (void)ring, (void)flags;
  return -ENOSYS;
}

ssize_t pwrite64(int fd, const void* from, size_t bytes, off_t offset) {
  if (broken("write", fd, bytes, offset)) return -1;
  return ((ssize_t(*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, from, bytes, offset);
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) { return pwrite64(fd, from, bytes, offset); }

ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) {
  if (broken("read", fd, bytes, offset)) return -1;
  return ((ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread64"))(fd, to, bytes, offset);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t offset) { return pread64(fd, to, bytes, offset); }
