// SPDX-License-Identifier: Apache-2.0
// refuse_call NAME ERROR PROGRAM ARGUMENTS…: becomes the program where the system call NAME fails with the
// number ERROR, as filters of containers and sandboxes have it. personality fails only where it would switch
// the randomisation of addresses off (as by Docker's default filter), and prctl only where it would have
// system calls dispatched to a handler.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

#define CALL(name) {#name, SYS_##name}
static const struct {
  const char* name;
  unsigned number;
} calls[] = {
    CALL(clone3),
    CALL(close_range),
    CALL(epoll_create1),
    CALL(eventfd2),
    CALL(fallocate),
    CALL(get_mempolicy),
    CALL(getrandom),
    CALL(io_uring_setup),
    CALL(madvise),
    CALL(mbind),
    CALL(membarrier),
    CALL(memfd_create),
    CALL(mincore),
    CALL(move_pages),
    CALL(personality),
    CALL(prctl),
    CALL(preadv2),
    CALL(prlimit64),
    CALL(process_vm_readv),
    CALL(pwritev2),
    CALL(rseq),
    CALL(rt_tgsigqueueinfo),
    CALL(sched_getaffinity),
    CALL(sched_setaffinity),
    CALL(set_mempolicy),
    CALL(signalfd4),
    CALL(socketpair),
    CALL(statx),
    CALL(userfaultfd),
};

static int number_of(const char* name) {
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i)
    if (strcmp(calls[i].name, name) == 0) return (int)calls[i].number;
  return -1;
}

/// The test of the call's first argument that the refusal of some calls depends on.
static struct sock_filter test_of(int number) {
  if (number == SYS_personality)
    return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, ADDR_NO_RANDOMIZE, 0, 1);
  if (number == SYS_prctl)
    return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SYSCALL_USER_DISPATCH, 0, 1);
  return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0);
}

int main(int argc, char** argv) {
  const int number = argc > 3 ? number_of(argv[1]) : -1;
  if (number < 0) {
    fprintf(stderr, "usage: refuse_call NAME ERROR PROGRAM ARGUMENTS…\n");
    return 2;
  }
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xFFFFFFFF, 2, 0),  // personality's question
      test_of(number),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)atoi(argv[2])),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    perror("refuse_call");
    return 2;
  }
  execvp(argv[3], argv + 3);
  perror(argv[3]);
  return 127;
}
