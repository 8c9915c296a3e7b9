/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Included before anything else in programs of C and C++ that are compiled with -fno-inline-atomics
 * (kasane::kasane and pkg-config say so: -include kasane/atomic_calls.h). That flag makes calls of all
 * atomics but those of atomic_flag, and fences, which GCC always compiles inline. Here they become calls,
 * too. So std::atomic, shared_ptr, atomic_flag and atomic_thread_fence mean the same between ranks as within
 * one. docs/guide/programming.md, "Atomics", says what each costs.
 *
 * Thread safety: as the operations.
 */
#ifndef KASANE_ATOMIC_CALLS_H
#define KASANE_ATOMIC_CALLS_H
#ifndef __ASSEMBLER__

#include <kasane/built_with.h>

#ifdef __cplusplus
extern "C"
#endif
    void
    kasane_atomic_thread_fence(int order);

#ifdef __cplusplus /* no casts that programs may be warned of */
#define KASANE_FLAG(flag) reinterpret_cast<volatile unsigned char*>(flag)
#else
#define KASANE_FLAG(flag) ((volatile unsigned char*)(flag))
#endif
/* Of whole statements, too: their value is not used. */
#define __atomic_test_and_set(flag, order)                                                  \
  __extension__({                                                                           \
    const unsigned char kasane_before = __atomic_exchange_n(KASANE_FLAG(flag), 1, (order)); \
    kasane_before != 0;                                                                     \
  })
#define __atomic_clear(flag, order) __atomic_store_n(KASANE_FLAG(flag), 0, (order))
#define __atomic_thread_fence(order) kasane_atomic_thread_fence(order)

#endif
#endif
