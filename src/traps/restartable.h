// SPDX-License-Identifier: Apache-2.0
// Restartable sequences: a few instructions of a thread that look at a word and then change memory by one
// last instruction, which the kernel does not let happen if the thread was interrupted between: by a signal
// (so by a fault of this very access), by another thread that was scheduled in its place, or by
// restart_sequences(). Then the thread goes on at the sequence's other exit, and nothing was changed.
//
//   sequence      block's word says owned and writable ─▶ change, as one instruction, in V
//   a page leaves its blocks' words say busy ─▶ V is protected ─▶ restart_sequences() ─▶ its bytes are read
//
// So no sequence changes a block that left between its two halves, and it costs a store and a comparison. The
// C library registers each thread with the kernel (glibc 2.35); where it does not, none are used.
//
// Thread safety: every call from any thread, also in a handler.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && !defined(KASANE_SANITIZER_THREAD) && !defined(KASANE_SANITIZER_ADDRESS) && \
    __has_include(<sys/rseq.h>)
#define KASANE_RESTARTABLE 1
#endif

namespace kasane::traps {

/// Prepares this process. False: threads cannot use sequences here.
[[nodiscard]] bool can_restart_sequences() noexcept;
/// When this returns, each sequence of any thread of this process that was under way has changed its memory,
/// or looks again.
void restart_sequences() noexcept;

/// Where a thread's area for the kernel lies, counted from its thread pointer. Constant after the start of
/// the process.
[[nodiscard]] std::ptrdiff_t rseq_offset() noexcept;

// The sequences. Each returns false if nothing was changed. word: of the block that at lies in; it must say
// that the block is owned, writable and free (dsm::BlockState::word() & 15 == 10). area: rseq_offset(). The
// other operands must not fault.
//
// In assembly: the descriptor {start, length, other exit} is announced in the thread's area; the kernel
// resets that by itself when the thread is interrupted elsewhere.
#ifdef KASANE_RESTARTABLE
#define KASANE_SEQUENCE(instruction)                                 \
  ".pushsection __rseq_cs, \"aw\"\n\t"                               \
  ".balign 32\n"                                                     \
  "7:\t.long 0, 0\n\t"                                               \
  ".quad 1f, 2f - 1f, 3f\n\t"                                        \
  ".popsection\n\t"                                                  \
  "leaq 7b(%%rip), %[scratch]\n\t"                                   \
  "movq %[scratch], %%fs:8(%[area])\n"                               \
  "1:\tmovl %[word], %k[scratch]\n\t"                                \
  "andl $15, %k[scratch]\n\t"                                        \
  "cmpl $10, %k[scratch]\n\t"                                        \
  "jne %l[other_exit]\n\t" instruction                               \
  "\n2:\n\t"                                                         \
  ".pushsection __rseq_failure, \"ax\"\n\t"                          \
  ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1 with the kernel's signature */ \
  ".long 0x53053053\n"                                               \
  "3:\tjmp %l[other_exit]\n\t"                                       \
  ".popsection"

template <class T>
[[gnu::always_inline]] inline bool sequence_load(const T* at, T& value, const std::uint32_t* word,
                                                 std::ptrdiff_t area) noexcept {
  std::uintptr_t scratch;
  asm goto(KASANE_SEQUENCE("mov %[at], %[value]")
           : [value] "=&q"(value), [scratch] "=&r"(scratch)
           : [at] "m"(*at), [word] "m"(*word), [area] "r"(area)
           : "cc", "memory"
           : other_exit);
  return true;
other_exit:
  return false;
}

/// value: in the new one, out the old one.
template <class T>
[[gnu::always_inline]] inline bool sequence_exchange(T* at, T& value, const std::uint32_t* word,
                                                     std::ptrdiff_t area) noexcept {
  std::uintptr_t scratch;
  asm goto(KASANE_SEQUENCE("xchg %[value], %[at]")
           : [value] "+q"(value), [scratch] "=&r"(scratch)
           : [at] "m"(*at), [word] "m"(*word), [area] "r"(area)
           : "cc", "memory"
           : other_exit);
  return true;
other_exit:
  return false;
}

/// value: in what to add, out the old one.
template <class T>
[[gnu::always_inline]] inline bool sequence_add(T* at, T& value, const std::uint32_t* word,
                                                std::ptrdiff_t area) noexcept {
  std::uintptr_t scratch;
  asm goto(KASANE_SEQUENCE("lock xadd %[value], %[at]")
           : [value] "+q"(value), [scratch] "=&r"(scratch)
           : [at] "m"(*at), [word] "m"(*word), [area] "r"(area)
           : "cc", "memory"
           : other_exit);
  return true;
other_exit:
  return false;
}

/// expected: out the old one.
template <class T>
[[gnu::always_inline]] inline bool sequence_compare_exchange(T* at, T& expected, T desired,
                                                             const std::uint32_t* word,
                                                             std::ptrdiff_t area) noexcept {
  std::uintptr_t scratch;
  asm goto(KASANE_SEQUENCE("lock cmpxchg %[desired], %[at]")
           : [expected] "+&a"(expected), [scratch] "=&r"(scratch)
           : [desired] "q"(desired), [at] "m"(*at), [word] "m"(*word), [area] "r"(area)
           : "cc", "memory"
           : other_exit);
  return true;
other_exit:
  return false;
}
#else
template <class T>
bool sequence_load(const T*, T&, const std::uint32_t*, std::ptrdiff_t) noexcept {
  return false;
}
template <class T>
bool sequence_exchange(T*, T&, const std::uint32_t*, std::ptrdiff_t) noexcept {
  return false;
}
template <class T>
bool sequence_add(T*, T&, const std::uint32_t*, std::ptrdiff_t) noexcept {
  return false;
}
template <class T>
bool sequence_compare_exchange(T*, T&, T, const std::uint32_t*, std::ptrdiff_t) noexcept {
  return false;
}
#endif

}  // namespace kasane::traps
