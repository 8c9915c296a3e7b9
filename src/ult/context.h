// SPDX-License-Identifier: Apache-2.0
// Switches between stacks (rule 13). Routines in context_x86_64.S, ordinary calls for the compiler:
//
//   kasane_ult_fork    saves the caller and *calls* the child on its own stack; if the child returns, both
//                      calls and both returns pair up, which makes a fork cheap for the return predictor
//   kasane_ult_switch  saves the caller and goes on where another stack was saved, by either of the two
//   kasane_ult_visit   lets an unwinder see a saved context, in a copy of its stack
//
// A saved context is six callee-saved registers and errno under a return address, and one stack pointer that
// names them. MXCSR and the x87 control word are not in it: all workers have equal ones (Pool sets them).
//
// What the compiler learnt about the OS thread (addresses of thread_locals and of errno) may be wrong after
// either call returns: the caller may go on in another OS thread or another process. Code after them asks
// current_worker() anew. Programs are compiled with a header that keeps compilers from learning errno's
// address (include/kasane/errno.h).
//
// No other architecture is supported yet. A slow fallback would hide that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "ult/layout.h"

#if !defined(__x86_64__)
#error "kasane: user-level threads need an x86-64 processor; another one needs its src/ult/context_ARCH.S"
#endif

namespace kasane::ult {

struct Worker;

/// The thread into which a child may return, in one register that kasane_ult_fork keeps: the address of the
/// parent's control block, or, of a parent born elsewhere, its slot 32 | 1.
struct Parent {
  Word word;
};

}  // namespace kasane::ult

extern "C" {

/// A constant of the process image, known when its libraries are loaded: the distance of errno from %fs.
[[gnu::visibility("hidden")]] extern const std::ptrdiff_t kasane_ult_errno_offset;

/// Saves the caller's context in forker->sp, then, with rsp = argument (16-byte aligned), calls the three
/// parts of the child's life below. If the last one returns, goes back to the caller's stack and to the
/// caller, if need be by way of kasane_ult_child_returned. Else returns when a worker resumes the saved
/// context.
void kasane_ult_fork(kasane::ult::Worker* worker, kasane::ult::SlotControl* own,
                     kasane::ult::SlotControl* forker, void* argument, void (*function)(void*));

// The life of every user-level thread (pool.cpp): the only caller is kasane_ult_fork, on the new stack. In
// three parts, because the registers of kasane_ult_fork keep function and argument over the first at no cost:
// they are saved already.

/// Makes the parent available to others.
kasane::ult::Parent kasane_ult_thread_begin(kasane::ult::Worker* worker, kasane::ult::SlotControl* own,
                                            kasane::ult::SlotControl* forker);
/// Calls function(argument) and catches what it throws.
void kasane_ult_thread_run(void* argument, void (*function)(void*));
/// Returns only if the thread was never switched out and its parent is still here. Returns the child's
/// control block if its end is yet to be made known, else null.
kasane::ult::SlotControl* kasane_ult_thread_end(kasane::ult::Parent parent);
/// Makes the child's end known, on the parent's stack (pool.cpp); the only caller is kasane_ult_fork.
void kasane_ult_child_returned(kasane::ult::SlotControl* child);

/// The first return address of a thread that nobody forked: a context whose register r12 is its function lies
/// right below its argument (start_context()).
void kasane_ult_start();
/// The life of a thread that nobody forked, on its own stack; never returns.
void kasane_ult_thread_start(void* argument, void (*function)(void*));

/// Saves the caller's context in *save_sp and resumes the one at load_sp. Returns when the caller's context
/// is resumed.
void kasane_ult_switch(kasane::ult::Word* save_sp, kasane::ult::Word load_sp);

/// Calls visit(argument) below copied_sp, the stack pointer of a saved context in a copy of its stack, which
/// has room below. For the unwinder the caller of visit() is where the context was saved.
void kasane_ult_visit(void* copied_sp, void (*visit)(void*), void* argument);

}  // extern "C"

namespace kasane::ult {

/// What kasane_ult_fork and kasane_ult_switch save, where the stack pointer points.
struct SavedContext {
  Word registers[6];
  std::int32_t error;
  std::uint32_t in_runtime;  ///< a switch saves 0; the worker that the thread has left may set it
  Word return_address;
};
static_assert(offsetof(SavedContext, error) == 48);
[[nodiscard]] inline SavedContext& saved_context(Word sp) noexcept {
  return *reinterpret_cast<SavedContext*>(sp);
}

/// The context of a thread that is to run function(the address behind the context). Returns it as a stack
/// pointer. context: 16-byte aligned.
inline Word start_context(void* context, void (*function)(void*)) noexcept {
  auto* const start = new (context) SavedContext{};
  start->registers[3] = reinterpret_cast<Word>(function);  // r12
  start->return_address = reinterpret_cast<Word>(&kasane_ult_start);
  return reinterpret_cast<Word>(start);
}

/// Bytes of a stack that such a context and its argument take, so that a thread whose saved stack pointer
/// lies so much below the stack's end never ran: one that did saves its context below.
[[nodiscard]] constexpr std::size_t start_bytes(std::size_t argument_bytes) noexcept {
  return (sizeof(SavedContext) + argument_bytes + 15) / 16 * 16;
}

/// The calling OS thread's errno. In assembly, as current_worker().
[[nodiscard]] inline int* errno_of_os_thread() noexcept {
  char* thread;
  asm volatile("movq %%fs:0, %0" : "=r"(thread) : : "memory");
  return reinterpret_cast<int*>(thread + kasane_ult_errno_offset);
}

}  // namespace kasane::ult
