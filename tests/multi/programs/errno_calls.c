/* SPDX-License-Identifier: Apache-2.0 */
/* A source of a program that knows nothing of Kasane: what it calls forks. */
#define _GNU_SOURCE
#include "errno_calls.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int errno_of_caller_is_wrong(void (*f)(void)) {
  /* _GNU_SOURCE counts: strerrorname_np() is declared. */
  if (strcmp(strerrorname_np(ENOENT), "ENOENT") != 0) return 1;
  int wrong = 0;
  for (int i = 0; i < 3; ++i) {
    errno = EDOM;
    f();
    /* f() has changed it itself, on whatever worker it ended. */
    if (errno != ENOTTY) ++wrong;
  }
  return wrong;
}
