// SPDX-License-Identifier: Apache-2.0
// The thread_locals of a rank's first OS thread, which runs main, at addresses where other ranks have
// nothing. The dynamic loader made them before the ranks were forked, so they would lie at the same addresses
// in all, and a reference to one of main's, used on another rank, would find that rank's. Now it faults there
// and is reported by name (runtime/report/crash.h). Other OS threads start later, among a rank's own
// addresses (runtime/rank/own_addresses.h).
//
//   0x1700…  rank 0: … libraries' | the program's | libc's record of the thread ; 1 GiB on: rank 1 …
//                                                 ^ the thread pointer
//
// libc's block is copied, the thread pointer moves to the copy, and what refers to the block follows: words
// in it, in libc, in the dynamic loader and in its table of blocks; the kernel's list of robust mutexes, word
// of the thread's end, and rseq area. The old block stays, unused.
//
// Thread safety: the move happens in .preinit_array, where one thread exists. The rest from any thread;
// async-signal-safe.
#pragma once

#include <cstddef>

#include "base/ids.h"
#include "runtime/rank/crash_text.h"

namespace kasane::runtime {

/// Where libc is none that this knows, all stays as it is.
void take_own_thread_locals(Rank) noexcept;

/// Appends what another rank's thread_local at this address is. False: it is none.
bool describe_foreign_thread_local(CrashText&, const void* address) noexcept;

/// Library code may keep the address of errno over a call in which its thread moves to another rank.
/// Registers of the interrupted code that have another rank's at this address get the one of the OS thread
/// here, with which errno has moved. False: it is none, or in no register.
bool follow_errno(const void* address, void* context) noexcept;

/// The kernel no longer writes to the calling thread's rseq area. Its registered length; 0: there was none,
/// -1: it stays.
long leave_rseq() noexcept;

}  // namespace kasane::runtime
