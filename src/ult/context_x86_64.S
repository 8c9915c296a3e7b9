// SPDX-License-Identifier: Apache-2.0
// The switch of rule 13 for x86-64, System V ABI. See context.h.
//
// Frame of a saved context, from its stack pointer up: r15 r14 r13 r12 rbx rbp errno return-address. The half
// above errno is 0, and of no matter here (SavedContext::in_runtime).
//
// errno lies at the same distance from every OS thread's %fs (context.cpp), and on every rank.
//
// CET. Entry points begin with endbr64, so indirect-branch tracking works. A shadow stack cannot follow a
// switch of stacks by ret. The property note below therefore declares IBT only, and a program linked with
// this object runs without shadow stack instead of crashing at the first switch.

#if defined(__x86_64__)

#if defined(__CET__) && (__CET__ & 1)
#define ENDBR endbr64
#else
#define ENDBR
#endif

        .text

        .hidden kasane_ult_errno_offset

        // Leaves the distance of errno in rax.
        .macro  SAVE_CONTEXT
        movq    kasane_ult_errno_offset(%rip), %rax
        movl    %fs:(%rax), %r9d
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r14, 0
        pushq   %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r15, 0
        .endm

// void kasane_ult_fork(rdi worker, rsi own, rdx forker, rcx argument, r8 function)
        .globl  kasane_ult_fork
        .hidden kasane_ult_fork
        .hidden kasane_ult_thread_begin
        .hidden kasane_ult_thread_run
        .hidden kasane_ult_thread_end
        .hidden kasane_ult_child_returned
        .type   kasane_ult_fork, @function
        .p2align 5
kasane_ult_fork:
        .cfi_startproc
        ENDBR
        SAVE_CONTEXT
        movq    %rsp, (%rdx)            // sp is its first field
        movq    %rsp, %rbx              // the calls below keep it, and r12, for us
        movq    %rcx, %rsp
        .cfi_remember_state
        .cfi_undefined rip              // unwinding ends here: the parent may be running elsewhere
        xorl    %ebp, %ebp              // and so do walks along frame pointers
        movq    %r8, %r12
        call    kasane_ult_thread_begin // worker, own and forker are where it wants them
        movq    %rsp, %rdi              // the argument is where the stack begins
        movq    %r12, %rsi
        movq    %rax, %r12              // the parent
        call    kasane_ult_thread_run
        movq    %r12, %rdi
        call    kasane_ult_thread_end
        movq    %rbx, %rsp              // the parent was not stolen: its frame is as we left it
        .cfi_restore_state
        movq    kasane_ult_errno_offset(%rip), %rcx
        movl    48(%rsp), %edx
        movl    %edx, %fs:(%rcx)
        movq    24(%rsp), %r12
        movq    32(%rsp), %rbx
        movq    40(%rsp), %rbp
        addq    $56, %rsp
        .cfi_adjust_cfa_offset -56
        .cfi_restore rbp
        .cfi_restore rbx
        .cfi_restore r12
        .cfi_restore r13
        .cfi_restore r14
        .cfi_restore r15
        testq   %rax, %rax              // what thread_end returned
        jnz     1f
        ret
1:      movq    %rax, %rdi
        jmp     kasane_ult_child_returned
        .cfi_endproc
        .size   kasane_ult_fork, .-kasane_ult_fork

// Where the context of a thread that never ran returns to: rsp is its argument, r12 its function.
        .hidden kasane_ult_start
        .hidden kasane_ult_thread_start
        .globl  kasane_ult_start
        .type   kasane_ult_start, @function
        .p2align 4
        .cfi_startproc
        .cfi_undefined rip
        nop                             // unwinders look up the byte before a return address
kasane_ult_start:
        ENDBR
        xorl    %ebp, %ebp
        movq    %rsp, %rdi
        movq    %r12, %rsi
        call    kasane_ult_thread_start
        ud2
        .cfi_endproc
        .size   kasane_ult_start, .-kasane_ult_start

        // What SAVE_CONTEXT has saved; errno in ecx.
        .macro  LOAD_REGISTERS
        popq    %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore r15
        popq    %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore r14
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore r12
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbp
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        .endm

// void kasane_ult_switch(rdi save_sp, rsi load_sp)
        .globl  kasane_ult_switch
        .hidden kasane_ult_switch
        .type   kasane_ult_switch, @function
        .p2align 5
kasane_ult_switch:
        .cfi_startproc
        ENDBR
        SAVE_CONTEXT
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp              // same frame there, so the same rules go on describing it
        LOAD_REGISTERS
        movl    %ecx, %fs:(%rax)
        ret
        .cfi_endproc
        .size   kasane_ult_switch, .-kasane_ult_switch

// void kasane_ult_visit(rdi copied_sp, rsi visit, rdx argument)
        .globl  kasane_ult_visit
        .hidden kasane_ult_visit
        .type   kasane_ult_visit, @function
        .p2align 5
kasane_ult_visit:
        .cfi_startproc
        ENDBR
        movq    %rdx, %r8
        SAVE_CONTEXT                    // aligned as at any call
        movq    %rsp, %rbx              // visit() keeps it
        movq    %rdi, %rsp              // the frame of a context that was saved: the same rules
        movq    %r8, %rdi
        call    *%rsi
        movq    %rbx, %rsp
        LOAD_REGISTERS                  // errno stays as visit() left it
        ret
        .cfi_endproc
        .size   kasane_ult_visit, .-kasane_ult_visit

#include "base/assembly_end.inc"

#endif
