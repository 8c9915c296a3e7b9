/* SPDX-License-Identifier: Apache-2.0 */
/* errno is the thread's, wherever the thread runs. <errno.h> says that its address never changes in a
 * function, so a compiler would keep it over a call by which the thread moves to another worker or rank. With
 * this header errno asks for the address at each use. kasane.h and kasane.hpp include it; kasane::kasane and
 * kasane.pc have it included into all sources of a program, since any function may call one that moves the
 * thread. It includes nothing, so that the feature macros of sources (_GNU_SOURCE …) keep their effect. */
#ifndef KASANE_ERRNO_H
#define KASANE_ERRNO_H

#ifdef __cplusplus
extern "C" {
#endif
/** The address of the calling OS thread's errno now. */
int* kasane_errno_location(void) __attribute__((nothrow));
#ifdef __cplusplus
}
#endif

/* glibc declares __errno_location(void), with the attribute const, and its errno is *__errno_location(). */
#define __errno_location(nothing) KASANE_ERRNO_LOCATION_##nothing
#define KASANE_ERRNO_LOCATION_void kasane_errno_location_of_libc(void)
#define KASANE_ERRNO_LOCATION_ kasane_errno_location()

/* Nor may the compiler inline what glibc's headers have inline: getc_unlocked and its like would load from a
 * stream (FILE) of another rank, before the thread goes there. */
#ifndef __NO_INLINE__
#define __NO_INLINE__ 1
#endif

#endif
