/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KASANE_TESTS_PROGRAMS_ERRNO_CALLS_H
#define KASANE_TESTS_PROGRAMS_ERRNO_CALLS_H
#ifdef __cplusplus
extern "C"
#endif
    /** Whether errno changes over a call of f. */
    int
    errno_of_caller_is_wrong(void (*f)(void));
#endif
