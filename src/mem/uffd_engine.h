// SPDX-License-Identifier: Apache-2.0
// The fault engines over userfaultfd. V is one registered mapping, and page table entries hold the rights. A
// block that changes its rights splits no mapping, and whole windows of blocks change with one cheap call.
// Faults come as SIGBUS in place ("uffd"), or to a thread while the faulting thread sleeps ("uffd-thread"),
// so that system calls into absent memory wait, too.
//
//   rights   a registered block                   a plain block (own memory that no other rank has written)
//   none     no translation: a fault              -
//   read     mapped protected: a store faults     -
//   write    mapped                               the kernel serves it: frames come with the first touch, in
//                                                 user code and in system calls
//
// Why plain blocks: without them each first touch of a fresh page would be a signal, and a system call into a
// buffer just allocated would fail with EFAULT. When a run is made writable it becomes plain from its first
// hole in M on; when it loses the right to store it is registered again. Only that splits mappings, at the
// seams between a rank's own memory and other memory. Where there are many mappings (mem/mappings.h), a run
// with holes stays registered, and its blocks are mapped one by one as they are touched.
//
// Thread safety: protect() and crowded() from any thread and in fault handlers; start() and stop() from one.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "mem/fault_engine.h"
#include "mem/userfaultfd.h"

namespace kasane::mem {

inline constexpr std::string_view kUffd = "uffd", kUffdThread = "uffd-thread";

/// The engine of this space, whose maps must outlive it; when it ends, V has no access rights. mapping_limit:
/// from this number of mappings on the process is crowded; 0: half of vm.max_map_count. Threads that touch V
/// need an alternate signal stack (traps::AltStack). Errc::unsupported: what the kernel lacks, or does not
/// allow this user. Delivery::thread: V has no access rights between stop() and the next start().
Result<std::unique_ptr<FaultEngine>> make_uffd_engine(const Space& space, Delivery,
                                                      std::uint64_t mapping_limit = 0);

}  // namespace kasane::mem
