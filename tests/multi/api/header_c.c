/* SPDX-License-Identifier: Apache-2.0 */
/* kasane.h needs nothing before it, and is C. */
#include <kasane/kasane.h>

_Static_assert(sizeof(kasane_mutex_t) == 8, "eight bytes in both languages");

_Static_assert(sizeof(kasane_rwlock_t) == 8 && sizeof(kasane_sem_t) == 8 && sizeof(kasane_latch_t) == 8 &&
                   sizeof(kasane_once_t) == 8,
               "eight bytes in both languages");

/* What is inline in C, too. */
int invoke_two(void (*f)(void*), void (*g)(void*), void* p);
int invoke_two(void (*f)(void*), void (*g)(void*), void* p) { return kasane_invoke(f, p, g, p); }
