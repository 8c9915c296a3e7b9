// SPDX-License-Identifier: Apache-2.0
// Leaving one stack for another (rule 13). Two routines in context_x86_64.S, both ordinary calls for the compiler:
//
//   kasane_ult_fork    saves the caller and *calls* the child on its own stack; if the child comes back by itself, both calls
//                      and both returns pair up, which is what makes a fork cheap for the return predictor
//   kasane_ult_switch  saves the caller and goes on where another stack was saved, by either of the two
//
// A saved context is six callee-saved registers under a return address, and one stack pointer that names them. MXCSR and the
// x87 control word are not in it: all workers have equal ones (Pool sets them).
//
// Whatever the compiler learnt about the OS thread (thread_local addresses, errno's) may be wrong after either call returns:
// the caller may go on in another OS thread or another process. Code after them asks current_worker() anew.
//
// Other architectures: nothing else is written yet, and a slow fallback would hide that.
#pragma once

#include <cstdint>

#include "ult/layout.h"

#if !defined(__x86_64__)
#error "kasane: user-level threads are written for x86-64 only; another architecture needs its own src/ult/context_ARCH.S (see docs/design/ult.md)"
#endif

namespace kasane::ult {

struct Worker;

/// Whom a child may return into, in one register, which kasane_ult_fork keeps for it: the address of the parent's control block, or, born elsewhere, its slot 32 | 1.
struct Parent {
  Word word;
};

}  // namespace kasane::ult

extern "C" {

/// Saves the caller's context in forker->sp, then, with rsp = argument (16-byte aligned), calls the three parts of the child's life below. If
/// the last returns, goes back to the caller's stack, and to the caller, if need be by way of kasane_ult_child_returned. Else returns when somebody resumes
/// the saved context.
void kasane_ult_fork(kasane::ult::Worker* worker, kasane::ult::SlotControl* own, kasane::ult::SlotControl* forker, void* argument, void (*function)(void*));

// The life of every user-level thread (pool.cpp): the only caller is kasane_ult_fork, on the new stack. In three parts, because the registers of
// kasane_ult_fork keep function and argument over the first for nothing: they are saved already.

/// Makes the parent available to others.
kasane::ult::Parent kasane_ult_thread_begin(kasane::ult::Worker* worker, kasane::ult::SlotControl* own, kasane::ult::SlotControl* forker);
/// Calls function(argument) and catches what it throws.
void kasane_ult_thread_run(void* argument, void (*function)(void*));
/// Returns only if the thread was never switched out and its parent is still here. The child's control block, if its end is to be made known yet, or null.
kasane::ult::SlotControl* kasane_ult_thread_end(kasane::ult::Parent parent);
/// Makes the child's end known, on the parent's stack (pool.cpp); the only caller is kasane_ult_fork.
void kasane_ult_child_returned(kasane::ult::SlotControl* child);

/// Saves the caller's context in *save_sp and resumes the one at load_sp. Returns when somebody resumes the caller's.
void kasane_ult_switch(kasane::ult::Word* save_sp, kasane::ult::Word load_sp);

}  // extern "C"
