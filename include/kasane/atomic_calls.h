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

#define __atomic_test_and_set(flag, order) \
  (__atomic_exchange_n((volatile unsigned char*)(flag), (unsigned char)1, (order)) != 0)
#define __atomic_clear(flag, order) \
  __atomic_store_n((volatile unsigned char*)(flag), (unsigned char)0, (order))
#define __atomic_thread_fence(order) kasane_atomic_thread_fence(order)

#endif
#endif
