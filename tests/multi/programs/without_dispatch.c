/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command as on a kernel without Syscall User Dispatch; with nor-userfaultfd without that, too:
 * without_dispatch dispatch|nor-userfaultfd COMMAND … */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { dispatch = 59 }; /* PR_SET_SYSCALL_USER_DISPATCH */

int main(int argc, char** argv) {
  const int first = offsetof(struct seccomp_data, args[0]);
  /* 424242: no call has this number */
  const unsigned other = argc > 1 && strcmp(argv[1], "nor-userfaultfd") == 0 ? SYS_userfaultfd : 424242;
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)first),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, dispatch, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof code / sizeof *code, code};
  if (argc < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
    perror("without_dispatch");
    return 77; /* skipped */
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 1;
}
