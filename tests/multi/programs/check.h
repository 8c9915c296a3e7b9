/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that check themselves. */
#ifndef KASANE_TESTS_PROGRAMS_CHECK_H
#define KASANE_TESTS_PROGRAMS_CHECK_H
#include <kasane/kasane.h>
#include <stdio.h>
#include <stdlib.h>

/** Ends the job where `holds` is 0. */
#define CHECK(holds)                                                                          \
  do {                                                                                        \
    if (!(holds)) {                                                                           \
      fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #holds, kasane_error_message()); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

#endif
