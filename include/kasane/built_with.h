/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Leaves a byte in each object file that includes a public header: whether its atomics are calls
 * (-fno-inline-atomics), so that they hold between ranks. `kasane info PROGRAM` and the start of a job with
 * several ranks read these bytes (section kasane_atomics of the program).
 */
#ifndef KASANE_BUILT_WITH_H
#define KASANE_BUILT_WITH_H

/* Without the flag the compiler knows the answer. */
#if defined(__GNUC__) && defined(__ELF__)
#if defined(__cplusplus)
#define KASANE_NO_OBJECT __null /* no cast, which programs may be warned of */
#else
#define KASANE_NO_OBJECT (void*)0
#endif
static const char kasane_built_with __attribute__((used, section("kasane_atomics"))) =
    __builtin_constant_p(__atomic_is_lock_free(4, KASANE_NO_OBJECT)) ? 'i' : 'c';
#undef KASANE_NO_OBJECT
#endif

#endif
