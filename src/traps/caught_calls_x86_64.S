// SPDX-License-Identifier: Apache-2.0
// Where caught system calls go on, for x86-64. See caught_calls.h.
//
// All `syscall` instructions between kasane_calls_begin and kasane_calls_end pass whatever the selector says:
// the kernel compares the address of the instruction after them.

#if defined(__x86_64__)

        .text
        .globl  kasane_calls_begin
        .hidden kasane_calls_begin
kasane_calls_begin:

// Where a caught call goes on, the handler of SIGSYS has changed nothing but rip and rcx, which has the
// address behind the caught instruction: a system call overwrites rcx and r11. It stores nothing on the
// thread's stack, where its own frame may lie right below the red zone, with the vector registers of the
// thread.
        .macro  CAUGHT name
        .globl  \name
        .hidden \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        .cfi_def_cfa rsp, 0
        .cfi_register rip, rcx
        .endm

        // Below the red zone: the address, and `room` (a number) bytes above it.
        .macro  KEEP_RETURN room
        leaq    -128 - \room(%rsp), %rsp
        .cfi_adjust_cfa_offset 128 + \room
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        .cfi_offset rip, -136 - \room
        .endm

// A call that needs nothing.
        CAUGHT  kasane_calls_pass
        KEEP_RETURN 0
        syscall
        ret     $128
        .cfi_endproc
        .size   kasane_calls_pass, .-kasane_calls_pass

// clone() with a stack for the child, in rsi: the child goes on there as its parent does here.
        CAUGHT  kasane_calls_clone
        KEEP_RETURN 0
        movq    %rcx, -136(%rsi)
        leaq    -136(%rsi), %rsi
        syscall
        leaq    136(%rsi), %rsi
        ret     $128
        .cfi_endproc
        .size   kasane_calls_clone, .-kasane_calls_clone

// clone3() with such a stack, named by rsi bytes at rdi, at most 256: a copy of them names less of the stack.
        CAUGHT  kasane_calls_clone3
        KEEP_RETURN 264
        movq    %rdi, 8(%rsp)
        movq    40(%rdi), %rax          // its lowest address
        addq    48(%rdi), %rax          // and its size
        movq    %rcx, -400(%rax)
        movq    %rdi, -392(%rax)
        movq    %rsi, %rcx
0:      movb    -1(%rdi, %rcx), %al
        movb    %al, 15(%rsp, %rcx)
        loop    0b
        subq    $400, 16 + 48(%rsp)
        leaq    16(%rsp), %rdi
        movl    $435, %eax
        syscall
        movq    8(%rsp), %rdi
        ret     $392
        .cfi_endproc
        .size   kasane_calls_clone3, .-kasane_calls_clone3

// A handler's return that was caught: the same stack pointer, another instruction.
        .globl  kasane_calls_sigreturn
        .hidden kasane_calls_sigreturn
        .type   kasane_calls_sigreturn, @function
        .p2align 4
kasane_calls_sigreturn:
        syscall
        hlt
        .size   kasane_calls_sigreturn, .-kasane_calls_sigreturn

// The return of our own handlers. Debuggers and libgcc know it by its bytes, where no unwind information
// covers it and the byte before it.
        .p2align 4
        nop
        .globl  kasane_calls_restorer
        .hidden kasane_calls_restorer
        .type   kasane_calls_restorer, @function
kasane_calls_restorer:
        movq    $15, %rax
        syscall
        hlt
        .size   kasane_calls_restorer, .-kasane_calls_restorer

// long kasane_calls_issue(rdi number, rsi arguments): the kernel's answer, -errno for an error.
        .globl  kasane_calls_issue
        .hidden kasane_calls_issue
        .type   kasane_calls_issue, @function
        .p2align 4
kasane_calls_issue:
        .cfi_startproc
        movq    %rdi, %rax
        movq    %rsi, %rcx
        movq    (%rcx), %rdi
        movq    8(%rcx), %rsi
        movq    16(%rcx), %rdx
        movq    24(%rcx), %r10
        movq    32(%rcx), %r8
        movq    40(%rcx), %r9
        syscall
        ret
        .cfi_endproc
        .size   kasane_calls_issue, .-kasane_calls_issue

        .globl  kasane_calls_end
        .hidden kasane_calls_end
kasane_calls_end:

// A call that the runtime carries out. On the thread's own stack, 64-byte aligned: a CaughtCall, and below it
// the vector registers. Code that makes a system call expects all registers but rax, rcx and r11 to stay.
#define ARGUMENTS 8
#define RIP 56
#define RSP 64
#define RBX 72
#define RESULT 80
#define CALL_BYTES 88
#define VECTOR_STATE 2688               /* x87, SSE, AVX, AVX-512 in the standard format of XSAVE */
#define VECTOR_PARTS 0xe7
        .hidden kasane_calls_carry_out_here
        CAUGHT  kasane_calls_carry_out
        movq    %rsp, %r11
        .cfi_def_cfa_register r11
        leaq    -136 - CALL_BYTES(%rsp), %rsp   // red zone, and the address that the last instruction takes
        andq    $-64, %rsp
        movq    %rax, (%rsp)
        movq    %rdi, ARGUMENTS(%rsp)
        movq    %rsi, ARGUMENTS+8(%rsp)
        movq    %rdx, ARGUMENTS+16(%rsp)
        movq    %r10, ARGUMENTS+24(%rsp)
        movq    %r8, ARGUMENTS+32(%rsp)
        movq    %r9, ARGUMENTS+40(%rsp)
        movq    %rcx, RIP(%rsp)
        movq    %r11, RSP(%rsp)
        movq    %rbx, RBX(%rsp)
        movq    %rsp, %rbx
        // CFA: what rsp was; rip and rbx are in the CaughtCall (offsets 56 and 72 from rbx)
        .cfi_escape 0x0f, 4, 0x73, 0xc0, 0x00, 0x06
        .cfi_escape 0x10, 0x10, 2, 0x73, 0x38
        .cfi_escape 0x10, 0x03, 3, 0x73, 0xc8, 0x00
        subq    $VECTOR_STATE, %rsp
        xorl    %eax, %eax
        .irp    at, 512, 520, 528, 536, 544, 552, 560, 568
        movq    %rax, \at(%rsp)         // the header, which xsave only updates
        .endr
        xorl    %edx, %edx
        movl    $VECTOR_PARTS, %eax
        xsave64 (%rsp)
        movq    %rbx, %rdi
        call    kasane_calls_carry_out_here
        movq    %rax, RESULT(%rbx)
        xorl    %edx, %edx
        movl    $VECTOR_PARTS, %eax
        xrstor64 (%rsp)
        movq    ARGUMENTS(%rbx), %rdi
        movq    ARGUMENTS+8(%rbx), %rsi
        movq    ARGUMENTS+16(%rbx), %rdx
        movq    ARGUMENTS+24(%rbx), %r10
        movq    ARGUMENTS+32(%rbx), %r8
        movq    ARGUMENTS+40(%rbx), %r9
        movq    RSP(%rbx), %rcx
        movq    RIP(%rbx), %r11
        movq    RESULT(%rbx), %rax
        movq    RBX(%rbx), %rbx
        .cfi_restore rbx
        movq    %r11, -136(%rcx)
        leaq    -136(%rcx), %rsp
        .cfi_def_cfa rsp, 136
        .cfi_offset rip, -136
        ret     $128
        .cfi_endproc
        .size   kasane_calls_carry_out, .-kasane_calls_carry_out

// int kasane_calls_copy(rdi to, rsi from, rdx bytes): 0, or 1 where memory is missing: the handler of faults
// goes on at kasane_calls_copy_failed if the copy faults and no range can serve it.
        .globl  kasane_calls_copy
        .hidden kasane_calls_copy
        .type   kasane_calls_copy, @function
        .p2align 4
kasane_calls_copy:
        .cfi_startproc
        movq    %rdx, %rcx
        .globl  kasane_calls_copying
        .hidden kasane_calls_copying
kasane_calls_copying:
        rep movsb
        xorl    %eax, %eax
        ret
        .globl  kasane_calls_copy_failed
        .hidden kasane_calls_copy_failed
kasane_calls_copy_failed:
        movl    $1, %eax
        ret
        .cfi_endproc
        .size   kasane_calls_copy, .-kasane_calls_copy

#include "base/assembly_end.inc"

#endif
