// SPDX-License-Identifier: Apache-2.0
// Where a thread goes on after a fault that waits on the thread's own stack, for x86-64. See before_retry.h.

#if defined(__x86_64__)

#define VECTOR_STATE 2688               /* x87, SSE, AVX, AVX-512 in the standard format of XSAVE */
#define VECTOR_PARTS 0xe7               /* call_before_retry() refuses where others are in use */

        .text
        .globl  kasane_before_retry
        .hidden kasane_before_retry
        .hidden kasane_before_retry_here
        .hidden kasane_retry_address
        .type   kasane_before_retry, @function
        .p2align 4
        .cfi_startproc
        .cfi_signal_frame               // the access may be the first instruction of its function
        .cfi_def_cfa rsp, 0
        .cfi_undefined rip              // an OS thread's variable, for a few instructions
kasane_before_retry:
        leaq    -136(%rsp), %rsp        // the red zone, and the address of the access
        .cfi_adjust_cfa_offset 136
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rax, 0
        movq    kasane_retry_address@gottpoff(%rip), %rax
        movq    %fs:(%rax), %rax
        movq    %rax, 8(%rsp)
        .cfi_offset rip, -136
        pushfq
        .cfi_adjust_cfa_offset 8
        .irp    r, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx
        pushq   %\r
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset \r, 0
        .endr
        cld
        movq    %rsp, %rbx              // what is called keeps it
        .cfi_def_cfa_register rbx
        subq    $VECTOR_STATE, %rsp
        andq    $-64, %rsp
        xorl    %eax, %eax
        .irp    at, 512, 520, 528, 536, 544, 552, 560, 568
        movq    %rax, \at(%rsp)         // the header, which xsave only updates
        .endr
        xorl    %edx, %edx
        movl    $VECTOR_PARTS, %eax
        xsave64 (%rsp)
        fninit                          // other threads expect an empty x87 stack
        call    kasane_before_retry_here
        xorl    %edx, %edx
        movl    $VECTOR_PARTS, %eax
        xrstor64 (%rsp)
        movq    %rbx, %rsp
        .cfi_def_cfa_register rsp
        .irp    r, rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx
        popq    %\r
        .cfi_adjust_cfa_offset -8
        .cfi_restore \r
        .endr
        popfq
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        .cfi_restore rax
        ret     $128
        .cfi_endproc
        .size   kasane_before_retry, .-kasane_before_retry

#include "base/assembly_end.inc"

#endif
